package amqpidem

import (
	"context"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// work is a worker process of TestChaos.
func work() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var j job
	must(0, json.Unmarshal([]byte(os.Getenv("IDEM_AMQP_WORKER")), &j))
	db := must(sql.Open("pgx", j.Database))
	defer db.Close()
	db.SetMaxOpenConns(concurrency)
	db.SetMaxIdleConns(concurrency)
	store := must(sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Config{Table: j.Ledger + "_records"}))
	defer store.Close()
	engine := must(core.New(core.Config{Service: "billing", Store: store}))
	publisher := must(NewPublisher(PublisherConfig{URL: j.AMQP}))
	defer publisher.Close(context.Background())
	handler := must(NewHandler(Config{
		Task: engine.MustTask(core.TaskPolicy{Name: "ledger", Duplicate: core.Reject(""),
			Record: core.Record{Lease: 5 * time.Second}}),
		Topology:  j.Topology,
		Publisher: publisher,
		Attempts:  100, // each process that is killed costs the messages it has begun with one
	}, func(ctx context.Context, d *amqp.Delivery) error {
		enter := "INSERT INTO " + j.Ledger + " (message, pid, attempt) VALUES ($1, $2, $3)"
		values := []any{d.MessageId, os.Getpid(), int64(core.RunFrom(ctx).Attempt())}
		if j.Inbox {
			_, err := store.RunTx(ctx, db, func(tx *sql.Tx) ([]byte, error) {
				_, err := tx.ExecContext(ctx, enter, values...)
				return nil, err
			})
			return err
		}
		_, err := db.ExecContext(context.WithoutCancel(ctx), enter, values...)
		if d.MessageId == j.Held && core.RunFrom(ctx).Attempt() == 1 {
			select {} // until the test kills the process
		}
		time.Sleep(10 * time.Millisecond) // for whoever kills
		return err
	}))
	must(0, must(NewConsumer(handler, ConsumerConfig{
		URL: j.AMQP, Concurrency: concurrency,
		Dial: func(ctx context.Context, url string) (*amqp.Connection, error) {
			conn, err := Dial(ctx, url, amqp.Config{})
			if err == nil { // what is delivered and not acknowledged comes again, here or elsewhere
				time.AfterFunc(300*time.Millisecond+rand.N(time.Second), func() { _ = conn.CloseDeadline(time.Now()) })
			}
			return conn, err
		},
	})).Run(ctx))
}

// must ends the process, or the test, if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
