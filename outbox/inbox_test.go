package outbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/amqpidem"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
	"github.com/idem-go/idem/outbox"
)

// TestInboxOfAConsumer: outbox, RabbitMQ, and a consumer whose handler enters a row with DoTx, under the message's id. Its connection
// breaks at each step, before and after it took effect; after the first success, the handler fails all the same, as if it had
// died before the acknowledgement; and the relay sends everything twice. Each message has one row.
func TestInboxOfAConsumer(t *testing.T) {
	each(t, func(f *fixture) {
		l, store, url := f.link(), f.inbox(), backend.AMQP(f)
		type step struct {
			words string
			after bool
		}
		type course struct{ ran, done, replayed, failed int }
		var mu sync.Mutex
		cuts, courses := map[string]step{}, map[string]*course{}
		begin := map[sqlstore.Dialect]string{sqlstore.PostgreSQL: "begin", sqlstore.MySQL: "START TRANSACTION"}[f.dialect]
		for _, words := range []string{begin, "_inbox", "_entries", "SET state = 2", l.commit} {
			for _, after := range []bool{false, true} {
				if words != "" { // SQLite's BEGIN is no round trip
					id := fmt.Sprintf("%d %v", len(cuts), after)
					cuts[id], courses[id] = step{words, after}, &course{}
				}
			}
		}

		// The consumer. Its own guard is in memory, and forgets with the process.
		topology := amqpidem.Topology{Queue: "idem-outbox-test-" + rand.Text(), Delays: []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}}
		publisher, err := amqpidem.NewPublisher(amqpidem.PublisherConfig{URL: url})
		require.NoError(f, err)
		settled := map[amqpidem.Outcome]int{}
		connected := make(chan struct{}, 1)
		handler, err := amqpidem.NewHandler(amqpidem.Config{
			Task:     core.MustNew(core.Config{}).MustTask(core.TaskPolicy{Name: topology.Queue, Duplicate: core.Reject("")}),
			Topology: topology, Publisher: publisher, Attempts: 10,
			Observe: func(_ context.Context, e amqpidem.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch e.Stage {
				case amqpidem.Settled:
					settled[e.Outcome]++
				case amqpidem.Connected:
					select {
					case connected <- struct{}{}:
					default:
					}
				}
			},
		}, func(ctx context.Context, d *amqp.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			c, at := courses[d.MessageId], cuts[d.MessageId]
			var cut <-chan struct{}
			if c.failed+c.done == 0 {
				cut = l.cut(at.words, at.after)
			}
			result, err := store.DoTx(ctx, l.db, "charge:"+d.MessageId, func(tx *sql.Tx) ([]byte, error) {
				c.ran++
				return []byte("charged"), f.enter(tx, d.MessageId)
			})
			if cut != nil {
				select {
				case <-cut:
				case <-time.After(10 * time.Second):
					f.Errorf("nothing was cut at %+v", at)
				}
			}
			switch {
			case err != nil:
				c.failed++
				return err
			case result.Replayed:
				c.replayed++
				return nil
			}
			c.done++
			return errors.New("the process died before the acknowledgement")
		})
		require.NoError(f, err)
		consumer, err := amqpidem.NewConsumer(handler, amqpidem.ConsumerConfig{URL: url, Concurrency: 1, Prefetch: 1})
		require.NoError(f, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- consumer.Run(ctx) }()
		f.Cleanup(func() {
			cancel()
			assert.NoError(f, <-ended)
			assert.NoError(f, publisher.Close(context.Background()))
			conn, err := amqp.Dial(url)
			require.NoError(f, err)
			defer conn.Close()
			ch, err := conn.Channel()
			require.NoError(f, err)
			for _, name := range []string{topology.Queue, topology.DeadLetters(), topology.Queues()[1], topology.Queues()[2]} {
				_, err := ch.QueueDelete(name, false, false, false)
				assert.NoError(f, err)
			}
		})

		// The outbox. The queue is there: what is published half before it would come more than twice.
		<-connected
		for id := range cuts {
			f.write(outbox.Message{ID: id, Topic: topology.Queue, Body: []byte(id)})
		}
		start(f, f.Outbox, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
			var all []amqpidem.Message
			for _, m := range messages {
				sent := amqpidem.Message{Exchange: m.Exchange, Key: m.Topic, Publishing: amqp.Publishing{MessageId: m.ID, Body: m.Body}}
				all = append(all, sent, sent)
			}
			return publisher.Publish(ctx, all...)
		}), quick())
		f.sent()
		of := func(o amqpidem.Outcome) int {
			mu.Lock()
			defer mu.Unlock()
			return settled[o]
		}
		await(f, "all messages have come to an end", func() bool { return of(amqpidem.Done)+of(amqpidem.Duplicate)+of(amqpidem.Dead) >= 2*len(cuts) })

		mu.Lock()
		defer mu.Unlock()
		assert.Equal(f, len(cuts), settled[amqpidem.Done])
		assert.Zero(f, settled[amqpidem.Dead])
		for id, c := range courses {
			what := fmt.Sprintf("%+v: %+v", cuts[id], *c)
			assert.Equal(f, 1, f.entries(id), what)
			assert.Equal(f, 1, c.done, what)
			assert.Equal(f, 1, c.replayed, what)
			switch at := cuts[id]; {
			case at.words == l.commit: // DoTx has found out by itself
				assert.Zero(f, c.failed, what)
				assert.Equal(f, map[bool]int{false: 2, true: 1}[at.after], c.ran, what)
			case at.words != begin: // at which database/sql may try another connection
				assert.Equal(f, 1, c.failed, what)
			}
		}
	})
}
