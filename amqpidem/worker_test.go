package amqpidem

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
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
	if err := workUntil(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func workUntil(ctx context.Context) error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv("IDEM_AMQP_WORKER")), &j); err != nil {
		return err
	}
	db, err := sql.Open("pgx", j.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(concurrency)
	db.SetMaxIdleConns(concurrency)
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Table(j.Ledger+"_records"))
	if err != nil {
		return err
	}
	defer store.Close()
	engine, err := core.New(core.Config{Service: "billing", Store: store})
	if err != nil {
		return err
	}
	publisher, err := NewPublisher(PublisherConfig{URL: j.AMQP})
	if err != nil {
		return err
	}
	defer publisher.Close(context.Background())

	handler, err := NewHandler(Config{
		Task:      engine.MustTask(core.TaskPolicy{Name: "ledger", Duplicate: core.Reject(""), Record: core.Record{Lease: 5 * time.Second}}),
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
	})
	if err != nil {
		return err
	}
	consumer, err := NewConsumer(handler, ConsumerConfig{
		URL: j.AMQP, Concurrency: concurrency,
		Dial: func(ctx context.Context, url string) (*amqp.Connection, error) {
			conn, err := Dial(ctx, url, amqp.Config{})
			if err == nil { // what is delivered and not acknowledged comes again, here or elsewhere
				time.AfterFunc(300*time.Millisecond+rand.N(time.Second), func() { _ = conn.CloseDeadline(time.Now()) })
			}
			return conn, err
		},
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}
