package watermillidem_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/watermillidem"
)

// pause is short: what is refused shall come again soon.
const pause = 2 * time.Millisecond

// rig is a pipeline on a broker: a topic, consumers of it, the topic that they produce to, and a poison
// queue.
type rig struct {
	t         *testing.T
	link      link
	engine    *idemtest.Engine
	router    *message.Router
	publisher message.Publisher
	in        string
	out       string
	poisoned  string
	poison    message.HandlerMiddleware
	groups    []string
	publishes func() error // before the consumers' messages are published; nil: they are

	mu      sync.Mutex
	ledger  map[string]int // how often each message has taken effect
	acks    int            // deliveries that the consumers were content with
	errs    []error        // what the others ended with
	outs    []*message.Message
	poisons []*message.Message
}

// newRig makes a pipeline whose consumers form these groups.
func newRig(t *testing.T, l link, groups ...string) *rig {
	r := &rig{t: t, link: l, engine: idemtest.New(t, core.Config{}), publisher: l.publisher(t), groups: groups,
		ledger: make(map[string]int)}
	r.in, r.out, r.poisoned = l.topic(t, groups...), l.topic(t, "all"), l.topic(t, "all")
	var err error
	r.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, nil)
	require.NoError(t, err)
	r.poison, err = middleware.PoisonQueueWithFilter(r.publisher, r.poisoned, watermillidem.Permanent)
	require.NoError(t, err)
	r.router.AddConsumerHandler("outs", r.out, l.subscriber(t, "all"), r.collect(&r.outs))
	r.router.AddConsumerHandler("poisons", r.poisoned, l.subscriber(t, "all"), r.collect(&r.poisons))
	return r
}

func (r *rig) collect(into *[]*message.Message) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		*into = append(*into, msg)
		return nil
	}
}

// consume adds a consumer to a group.
func (r *rig) consume(group, name string, protect message.HandlerMiddleware, handler message.HandlerFunc) {
	h := r.router.AddHandler(name, r.in, r.link.subscriber(r.t, group), r.out, gate{r}, handler)
	h.AddMiddleware(r.count, middleware.Recoverer, r.poison, protect)
}

// protect makes the middleware under test.
func (r *rig) protect(c watermillidem.Config) message.HandlerMiddleware {
	if c.Pause == 0 {
		c.Pause = pause
	}
	return watermillidem.MustNew(r.engine.Engine, c)
}

func (r *rig) count(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.errs = append(r.errs, err)
		} else {
			r.acks++
		}
		return produced, err
	}
}

// gate is the consumers' publisher.
type gate struct{ *rig }

func (g gate) Publish(topic string, msgs ...*message.Message) error {
	if g.publishes != nil {
		if err := g.publishes(); err != nil {
			return err
		}
	}
	return g.publisher.Publish(topic, msgs...)
}

func (gate) Close() error { return nil }

// run starts the pipeline; the end of the test ends it.
func (r *rig) run() {
	done := make(chan error, 1)
	go func() { done <- r.router.Run(context.Background()) }()
	r.t.Cleanup(func() {
		assert.NoError(r.t, r.router.Close())
		assert.NoError(r.t, <-done)
	})
	<-r.router.Running()
}

func (r *rig) publish(msgs ...*message.Message) {
	require.NoError(r.t, r.publisher.Publish(r.in, msgs...))
}

// effect is what a handler does.
func (r *rig) effect(msg *message.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger[msg.UUID]++
}

// await waits until the rig is as it should be.
func (r *rig) await(what string, so func() bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return so()
	}, time.Minute, 2*time.Millisecond, what)
}

func (r *rig) awaitAcks(n int) {
	r.t.Helper()
	r.await("acknowledgements", func() bool { return r.acks >= n })
}

func (r *rig) awaitOuts(n int) {
	r.t.Helper()
	r.await("produced messages", func() bool { return len(r.outs) >= n })
}

// awaitPoison waits for the one message of the poison queue, and asserts why it is there.
func (r *rig) awaitPoison(uuid string, code codes.Code) {
	r.t.Helper()
	r.await("a poisoned message", func() bool { return len(r.poisons) > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(r.t, r.poisons, 1)
	assert.Equal(r.t, uuid, r.poisons[0].UUID)
	assert.Contains(r.t, r.poisons[0].Metadata.Get(middleware.ReasonForPoisonedKey), string(code))
	assert.Equal(r.t, r.in, r.poisons[0].Metadata.Get(middleware.PoisonedTopicKey))
}

// want asserts what has happened in all.
func (r *rig) want(ledger map[string]int, acks, failures int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(r.t, ledger, r.ledger)
	assert.Equal(r.t, acks, r.acks, "acknowledged")
	assert.Len(r.t, r.errs, failures, "errors")
}

func (r *rig) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errs)
}

func (r *rig) outUUIDs() (uuids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.outs {
		uuids = append(uuids, m.UUID)
	}
	return uuids
}

func order(uuid, payload string) *message.Message {
	m := message.NewMessage(uuid, []byte(payload))
	m.Metadata.Set("tenant", "t1")
	return m
}

// receipt is what a handler produces of a message.
func receipt(msg *message.Message, payload string) *message.Message {
	m := message.NewMessage("receipt-of-"+msg.UUID, []byte(payload))
	m.Metadata.Set("order", msg.UUID)
	m.Metadata.Set("quote", `"é" <&>`)
	return m
}

var errCard = errors.New("the card was declined")
