// Command orders-worker takes orders by HTTP, and charges for each of them once:
//
//	POST /orders ──> guard ──> the order and its message    one transaction
//	                               │ relay
//	                               v
//	                           RabbitMQ
//	                               │ consumer
//	                               v
//	                           the charge and its mark      one transaction
//
// A customer who is not answered asks again, a relay sends again what it does not know to be sent, and
// a broker delivers again what was not acknowledged. The guard absorbs the first of these, by the
// Idempotency-Key; the consumer absorbs the others, by the message's id. GET /ledger counts them. To see
// what they are good for, take RunTx out of charge: then -chaos ends with orders that are charged twice.
//
//	go run ./examples/orders-worker                         # SQLite, and the broker at IDEM_AMQP_URL
//	go run ./examples/orders-worker -store postgres://…
//	go run ./examples/orders-worker -orders 100             # so many, and an end when they are charged
//	go run ./examples/orders-worker -orders 100 -chaos      # the same, while everything breaks
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/idem-go/idem/amqpidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/outbox"
)

func main() {
	log.SetFlags(0)
	var s service
	flag.StringVar(&s.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flag.StringVar(&s.database, "store", "", "the database, sqlite:FILE or postgres://… (default: a temporary file)")
	flag.StringVar(&s.name, "name", "",
		"prefix of the names of tables and queues (default: a new `name`, whose tables and queues are removed at the end)")
	flag.UintVar(&s.orders, "orders", 0, "place this `many` orders, and exit when they are charged")
	chaos := flag.Bool("chaos", false, "kill workers, break connections and send messages again (100 orders unless -orders is set)")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixMilli()%1e6), "`seed` of the faults of -chaos")
	flag.BoolVar(&s.worker, "worker", false, "run as a worker of -chaos, until standard input ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	parts := []func(context.Context) error{s.listen, s.relay, s.consume}
	switch {
	case s.worker:
		parts = parts[1:]
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }() // also when the process is killed that has started this one
	case *chaos:
		s.orders = cmp.Or(s.orders, 100)
		parts = append(parts[:1], s.chaos)
	case s.orders > 0:
		parts = append(parts, s.customers)
	}
	err := s.run(ctx, parts...)
	stop()
	if err != nil {
		log.Fatal(err) // code 1; also if the ledger is wrong
	}
}

// run runs parts, prints the ledger, and says if that is wrong.
func (s *service) run(ctx context.Context, parts ...func(context.Context) error) error {
	temporary := s.name == ""
	defer func() { s.close(temporary) }()
	if err := s.open(ctx); err != nil {
		if s.worker && ctx.Err() != nil {
			return nil // it was told to end before it had begun
		}
		return err
	}
	err := together(ctx, parts...)
	if s.worker {
		return err
	}
	l, unread := s.ledger(context.WithoutCancel(ctx))
	fmt.Print(l)
	if s.orders > 0 {
		err = errors.Join(err, l.check())
	}
	return errors.Join(err, unread)
}

// together runs parts until ctx or the first of them ends. Then the others end, each in good order.
func together(ctx context.Context, parts ...func(context.Context) error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	for range parts {
		err = errors.Join(err, <-ended)
		stop()
	}
	return err
}

// lease is short for a demonstration: so long, what a killed worker had begun is left alone.
const lease = 2 * time.Second

// listen takes orders.
func (s *service) listen(ctx context.Context) error {
	guard := s.engine.MustGuard(core.Policy{Name: "orders", Key: core.Header(core.Required), Record: core.Record{Lease: lease}})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(guard)(http.HandlerFunc(s.order)))
	mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, r *http.Request) {
		l, err := s.ledger(r.Context())
		if err != nil {
			http.Error(w, "the ledger can't be read", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, l)
	})
	server := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// order is also the body of the message about it.
type order struct {
	ID     string `json:"order_id"`
	Amount int64  `json:"amount"` // in cents
}

// order takes an order. The order, the message about it and the mark in the guard's record are one
// transaction: a process that dies leaves all of them or none, and the next try finds out which.
func (s *service) order(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 {
		http.Error(w, `an order is {"amount": cents}`, http.StatusBadRequest)
		return
	}
	o.ID = outbox.NewID()
	body, _ := json.Marshal(o) // a text and a number can't fail
	ctx := r.Context()
	result, err := s.store.RunTx(ctx, s.db, func(tx *sql.Tx) ([]byte, error) {
		if _, err := tx.ExecContext(ctx, s.sql("INSERT INTO {name}_orders (id, amount) VALUES ($1, $2)"), o.ID, o.Amount); err != nil {
			return nil, err
		}
		return []byte(o.ID), s.box.Write(ctx, tx, outbox.Message{
			Key: o.ID, Exchange: "amq.topic", Topic: s.name + ".created", ContentType: "application/json", Body: body,
		})
	})
	switch {
	case err == nil:
		s.box.Notify()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "{\"order_id\":%q}\n", result.Value) // an earlier run's, if that was committed
	case !httpidem.Refuse(w, r, err):
		http.Error(w, "the order could not be placed", http.StatusInternalServerError)
	}
}

// relay sends the messages of committed transactions. Of all relays, one at a time does.
func (s *service) relay(ctx context.Context) error {
	relay, err := s.box.NewRelay(outbox.Each(s.publish, amqpidem.Refused), outbox.RelayConfig{
		Lease: lease, Poll: 200 * time.Millisecond, Observe: outbox.LogEvents(slog.Default()),
	})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

// publish sends a message of the outbox under its own id.
func (s *service) publish(ctx context.Context, m outbox.Message) error {
	return s.publisher.Publish(ctx, amqpidem.Message{Exchange: m.Exchange, Key: m.Topic, Publishing: amqp.Publishing{
		MessageId: m.ID, AppId: "shop", Timestamp: m.CreatedAt, ContentType: m.ContentType, Body: m.Body,
	}})
}

// consume charges.
func (s *service) consume(ctx context.Context) error {
	handler, err := amqpidem.NewHandler(amqpidem.Config{
		// A duplicate need not be told the result: Reject stores none.
		Task:      s.engine.MustTask(core.TaskPolicy{Name: "charge", Duplicate: core.Reject(""), Record: core.Record{Lease: lease}}),
		Topology:  s.topology,
		Publisher: s.publisher,
		Attempts:  20, // a killed worker costs one
		Observe:   amqpidem.LogEvents(slog.Default()),
	}, s.charge)
	if err != nil {
		return err
	}
	consumer, err := amqpidem.NewConsumer(handler, amqpidem.ConsumerConfig{URL: broker, Dial: s.dial, Concurrency: 8})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// charge charges for the order that a message tells of. The handler has claimed the message by
// core.Do; RunTx commits the charge together with the mark of that claim. DoTx would make a second
// record beside it, with a key and a retention of its own: it is for consumers without a task.
func (s *service) charge(ctx context.Context, d *amqp.Delivery) error {
	var o order
	if err := json.Unmarshal(d.Body, &o); err != nil {
		return amqpidem.Permanent(err) // no further attempt will read it
	}
	result, err := s.store.RunTx(ctx, s.db, func(tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, s.sql("INSERT INTO {name}_charges (order_id, amount) VALUES ($1, $2)"), o.ID, o.Amount)
		return nil, err
	})
	if result.Replayed {
		s.count(ctx, "inbox") // a worker has died between the commit and the end of its run
	}
	return err
}
