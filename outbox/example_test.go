package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/outbox"
)

// An order and the message about it are one transaction. The relay sends what was committed. The
// driver is imported beside: _ "modernc.org/sqlite".
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	box, err := outbox.New(db, dialect, outbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := box.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = db.Exec("CREATE TABLE orders (number INTEGER)")

	order := func(number int, paid bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", number); err != nil {
			return err
		}
		m := outbox.Message{Key: fmt.Sprint(number), Topic: "order.created", Body: fmt.Appendf(nil, `{"order":%d}`, number)}
		if err := box.Write(ctx, tx, m); err != nil {
			return err
		}
		if !paid {
			return errors.New("not paid")
		}
		return tx.Commit()
	}
	fmt.Println(order(1, true), order(2, false), order(3, true))

	// In the place of a broker.
	left := 2
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		for _, m := range messages {
			fmt.Printf("%s %s, attempt %d\n", m.Topic, m.Body, m.Attempt)
		}
		if left -= len(messages); left == 0 {
			stop()
		}
		return nil
	})
	relay, err := box.NewRelay(publisher, outbox.RelayConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(relay.Run(ctx))
	// Output:
	// <nil> not paid <nil>
	// order.created {"order":1}, attempt 1
	// order.created {"order":3}, attempt 1
	// <nil>
}

// A message comes at least once. A consumer that runs it under its ID does its work once.
func Example_consumer() {
	engine := core.MustNew(core.Config{}) // with a Service, and a Store that outlives the process, in earnest
	charge := engine.MustTask(core.TaskPolicy{Name: "charge"})
	consume := func(m outbox.Message) {
		result, err := core.Do(context.Background(), charge, core.Call{Key: m.ID, Fingerprint: string(m.Body)},
			func(context.Context) (string, error) {
				return "charged " + string(m.Body), nil
			})
		fmt.Printf("%s, replayed: %v, %v\n", result.Value, result.Replayed, err)
	}
	m := outbox.Message{ID: outbox.NewID(), Topic: "order.created", Body: []byte("10 EUR")}
	consume(m)
	consume(m) // the relay died before it could note that the first was sent
	// Output:
	// charged 10 EUR, replayed: false, <nil>
	// charged 10 EUR, replayed: true, <nil>
}

// An HTTP handler or a consumer that uses DoTx: its change, the memory of it and the messages about
// it are committed together. A service also purges both, see [sqlstore.Store.Purge] and [outbox.Outbox.Purge].
func ExampleOutbox_Write() {
	ctx := context.Background()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlstore.New(db, dialect, sqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	box, err := outbox.New(db, dialect, outbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := errors.Join(store.Migrate(ctx), box.Migrate(ctx)); err != nil {
		fmt.Println(err)
		return
	}

	for range 2 {
		result, err := store.DoTx(ctx, db, "invoice:2041", func(tx *sql.Tx) ([]byte, error) {
			return []byte("booked"), box.Write(ctx, tx, outbox.Message{Key: "2041", Topic: "invoice.booked"})
		})
		fmt.Printf("%s, replayed: %v, %v\n", result.Value, result.Replayed, err)
	}
	stats, err := box.Stats(ctx)
	fmt.Println(stats.Unsent, "to be sent,", err)
	// Output:
	// booked, replayed: false, <nil>
	// booked, replayed: true, <nil>
	// 1 to be sent, <nil>
}

// A client that sends one message at a time. With amqpidem, send is a call of Publisher.Publish, and
// refused is amqpidem.Refused.
func ExampleEach() {
	errNoTopic := errors.New("no such topic")
	send := func(_ context.Context, m outbox.Message) error {
		switch m.Topic {
		case "nowhere":
			return errNoTopic // it will never be taken
		case "busy":
			return errors.New("connection refused") // which is not the message's fault
		}
		return nil
	}
	refused := func(err error) bool { return errors.Is(err, errNoTopic) }
	publisher := outbox.Each(send, refused)

	for _, topic := range []string{"orders", "nowhere", "busy"} {
		var outcomes outbox.Errors
		errors.As(publisher.Publish(context.Background(), []outbox.Message{{Topic: topic}}), &outcomes)
		fmt.Println(topic, outcomes[0] == nil, errors.Is(outcomes[0], outbox.ErrUnconfirmed))
	}
	// Output:
	// orders true false
	// nowhere false false
	// busy false true
}

// What to watch. A lag that grows says that no relay runs, or that it can't keep up; the age says
// how long somebody waits.
func ExampleOutbox_Stats() {
	ctx := context.Background()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	box, err := outbox.New(db, dialect, outbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := box.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}

	stats, err := box.Stats(ctx)
	switch {
	case err != nil:
		fmt.Println(err)
	case stats.Oldest > time.Minute || stats.Parked > 0 || stats.Relay == "":
		fmt.Printf("somebody should look: %d unsent, %d parked, relay: %q\n", stats.Unsent, stats.Parked, stats.Relay)
	}
	// Output:
	// somebody should look: 0 unsent, 0 parked, relay: ""
}
