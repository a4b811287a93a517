package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the drivers behind -store
	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/amqpidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/outbox"
)

var broker = cmp.Or(os.Getenv("IDEM_AMQP_URL"), "amqp://guest:guest@127.0.0.1:5672/")

// service is one instance. Any number of them may share a database and a broker.
type service struct {
	addr, database, name string
	orders               uint
	seed                 uint64
	worker               bool

	db        *sql.DB
	store     *sqlstore.Store
	box       *outbox.Outbox
	engine    *core.Engine
	topology  amqpidem.Topology
	publisher *amqpidem.Publisher
	listener  net.Listener // none in a worker
	dir       string       // temporary, or empty
}

// tables has no unique index on charges: nothing but the inbox keeps a second one out.
const tables = `CREATE TABLE IF NOT EXISTS {name}_orders (id VARCHAR(36) PRIMARY KEY, amount BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS {name}_charges (order_id VARCHAR(36) NOT NULL, amount BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS {name}_absorbed (by_whom VARCHAR(36) NOT NULL)`

// sql names the tables in a statement.
func (s *service) sql(text string) string { return strings.ReplaceAll(text, "{name}", s.name) }

// open makes the tables and queues, if they are not there, and what serves them.
func (s *service) open(ctx context.Context) (err error) {
	if s.worker {
		slog.SetLogLoggerLevel(slog.LevelError) // it meets with little else than what is worth a warning
	}
	if s.database == "" {
		if s.dir, err = os.MkdirTemp("", "orders-worker-"); err != nil {
			return err
		}
		s.database = "sqlite:" + filepath.Join(s.dir, "orders.db")
	}
	if strings.HasPrefix(s.database, "sqlite:") && !strings.Contains(s.database, "?") {
		s.database += "?_pragma=busy_timeout(10000)" // count has no patience of its own
	}
	if s.name == "" {
		s.name = "orders_" + strings.ToLower(rand.Text()[:12])
	}
	s.topology = amqpidem.Topology{
		Queue:         s.name,
		Bindings:      []amqpidem.Binding{{Exchange: "amq.topic", Key: s.name + ".created"}},
		Delays:        []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second},
		DeliveryLimit: -1, // connections that break all the time are no message's fault
	}

	// One database for all of it: that is what makes two changes one transaction.
	var dialect sqlstore.Dialect
	if s.db, dialect, err = sqlstore.Open(s.database); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(8)
	if s.box, err = outbox.New(s.db, dialect, outbox.Config{Table: s.name + "_outbox"}); err != nil {
		return err // also if the name is none for tables
	}
	if s.store, err = sqlstore.New(s.db, dialect, sqlstore.Config{Table: s.name + "_records"}); err != nil {
		return err
	}
	if s.engine, err = core.New(core.Config{Service: "orders-worker", Store: s.store, User: core.UserFromHeader("X-User"),
		Observe: s.observe}); err != nil {
		return err
	}
	// A service that stays also calls Purge of both now and then.
	if err := errors.Join(s.store.Migrate(ctx), s.box.Migrate(ctx)); err != nil {
		return err
	}
	for statement := range strings.SplitSeq(tables, ";\n") {
		if _, err := s.db.ExecContext(ctx, s.sql(statement)); err != nil {
			return err
		}
	}

	// Before the first order: what no queue takes, the broker refuses.
	conn, err := amqpidem.Dial(ctx, broker, amqp.Config{})
	if err != nil {
		return fmt.Errorf("the broker (IDEM_AMQP_URL): %w", err)
	}
	defer conn.Close()
	if err := s.topology.Declare(conn); err != nil {
		return err
	}
	if s.publisher, err = amqpidem.NewPublisher(amqpidem.PublisherConfig{URL: broker, Dial: s.dial}); err != nil || s.worker {
		return err
	}
	if s.listener, err = net.Listen("tcp", s.addr); err != nil {
		return err
	}
	fmt.Printf("curl -i %[1]s/orders -H 'X-User: ann' -H 'Idempotency-Key: k-1' -d '{\"amount\":1250}'\ncurl %[1]s/ledger\n", s.url())
	return nil
}

func (s *service) url() string { return "http://" + s.listener.Addr().String() }

// close disconnects. What is temporary it removes, as far as it can.
func (s *service) close(temporary bool) {
	if s.publisher != nil {
		_ = s.publisher.Close(context.Background())
	}
	if temporary && s.db != nil {
		for _, table := range []string{"orders", "charges", "absorbed", "records", "outbox", "outbox_lease"} {
			_, _ = s.db.Exec("DROP TABLE IF EXISTS " + s.name + "_" + table)
		}
		if conn, err := amqpidem.Dial(context.Background(), broker, amqp.Config{}); err == nil {
			defer conn.Close()
			if ch, err := conn.Channel(); err == nil {
				for _, queue := range s.topology.Queues() {
					_, _ = ch.QueueDelete(queue, false, false, false)
				}
			}
		}
	}
	if s.store != nil {
		s.store.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	_ = os.RemoveAll(s.dir) // nothing, if it is empty
}

// dial connects to the broker. No connection of a worker of -chaos lasts for long.
func (s *service) dial(ctx context.Context, url string) (*amqp.Connection, error) {
	conn, err := amqpidem.Dial(ctx, url, amqp.Config{})
	if err == nil && s.worker {
		time.AfterFunc(mathrand.N(3*time.Second), func() { _ = conn.CloseDeadline(time.Now()) })
	}
	return conn, err
}

// ledger has a number for each of the entries, of one moment.
type ledger map[string]int64

var entries = []struct{ name, query string }{
	{"orders", "SELECT COUNT(*) FROM {name}_orders"},
	{"messages", "SELECT COUNT(*) FROM {name}_outbox"},
	{"messages unsent", "SELECT COUNT(*) FROM {name}_outbox WHERE state <> 2"},
	{"charges", "SELECT COUNT(*) FROM {name}_charges"},
	{"cents ordered", "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM {name}_orders"},
	{"cents charged", "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM {name}_charges"},
	{"orders not charged", "SELECT COUNT(*) FROM {name}_orders WHERE id NOT IN (SELECT order_id FROM {name}_charges)"},
	{"orders charged twice", "SELECT COUNT(*) - COUNT(DISTINCT order_id) FROM {name}_charges"},
	{"requests absorbed", "SELECT COUNT(*) FROM {name}_absorbed WHERE by_whom = 'orders'"},
	{"messages absorbed", "SELECT COUNT(*) FROM {name}_absorbed WHERE by_whom = 'charge'"},
	{"  in mid-charge", "SELECT COUNT(*) FROM {name}_absorbed WHERE by_whom = 'inbox'"},
}

func (s *service) ledger(ctx context.Context) (ledger, error) {
	var queries []string
	numbers, into := make([]int64, len(entries)), make([]any, len(entries))
	for i, e := range entries {
		queries, into[i] = append(queries, "("+e.query+")"), &numbers[i]
	}
	if err := s.db.QueryRowContext(ctx, s.sql("SELECT "+strings.Join(queries, ", "))).Scan(into...); err != nil {
		return nil, err
	}
	l := ledger{}
	for i, e := range entries {
		l[e.name] = numbers[i]
	}
	return l, nil
}

// String returns the ledger as a table.
func (l ledger) String() string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%-22s%10d\n", e.name, l[e.name])
	}
	return b.String()
}

// settled reports whether nothing is left to do.
func (l ledger) settled() bool { return l["messages unsent"]+l["orders not charged"] == 0 }

// check reports whether what is settled is right. (If each order is charged, and there are as many charges as orders, none is
// charged twice.)
func (l ledger) check() error {
	if !l.settled() || l["orders"] != l["messages"] || l["orders"] != l["charges"] || l["cents ordered"] != l["cents charged"] {
		return errors.New("the ledger is wrong")
	}
	return nil
}

// await waits until the ledger is as it should be. If nothing happens for a minute, it never will.
func (s *service) await(ctx context.Context, is func(ledger) bool) error {
	var last ledger
	for since := time.Now(); time.Since(since) < time.Minute && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		l, err := s.ledger(ctx)
		if err != nil || is(l) {
			return err
		}
		if !maps.Equal(l, last) {
			last, since = l, time.Now()
		}
	}
	return errors.Join(errors.New("the orders are not all charged"), ctx.Err())
}

// observe counts the duplicates of requests (policy "orders") and of messages ("charge").
func (s *service) observe(ctx context.Context, e core.Event) {
	core.LogEvents(slog.Default(), slog.LevelDebug)(ctx, e)
	if e.Kind == core.Replayed || e.Code == codes.Duplicate {
		s.count(ctx, e.Policy)
	}
}

// count counts in the database, so that the counts of a worker are there when it is killed. A service that
// is no demonstration counts in memory, and exports metrics.
func (s *service) count(ctx context.Context, by string) {
	if _, err := s.db.ExecContext(context.WithoutCancel(ctx), s.sql("INSERT INTO {name}_absorbed (by_whom) VALUES ($1)"), by); err != nil {
		slog.Warn("not counted", "err", err)
	}
}
