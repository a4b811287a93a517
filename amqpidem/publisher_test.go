package amqpidem

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

// newProxied returns a kit whose publisher and consumer go through a proxy, and the proxy.
func newProxied(t *testing.T, change ...func(*kit)) (*kit, *backend.Proxy) {
	broker := backend.AMQP(t)
	u := must(url.Parse(broker))
	proxy := backend.NewProxy(t, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "5672")))
	k := newKit(t, append(change, func(k *kit) { k.consumer.URL = proxy.URL(broker) })...)
	k.url = proxy.URL(broker)
	require.NoError(t, k.topology.Declare(k.conn))
	return k, proxy
}

func (k *kit) message(id string) Message {
	return Message{Key: k.topology.Queue, Publishing: amqp.Publishing{MessageId: id, Body: []byte("body " + id)}}
}

// large returns a message that the buffers of the kernel don't hold.
func (k *kit) large() Message {
	m := k.message("1")
	m.Publishing.Body = make([]byte, 64<<20)
	return m
}

// ready returns how many messages are in the kit's queue: zero also if the broker is too busy to count those of a
// quorum queue at once. So wait for any other number.
func (k *kit) ready() int {
	return must(k.ch.QueueDeclarePassive(k.topology.Queue, true, false, false, false, nil)).Messages
}

func TestPublish(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	messages := make([]Message, 1000) // more than may be unconfirmed
	for i := range messages {
		messages[i] = k.message("")
		messages[i].Publishing.Body = fmt.Append(nil, i)
	}
	require.NoError(t, k.publisher.Publish(t.Context(), messages[:999]...))
	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 { // of which nothing is sent
		require.ErrorIs(t, k.publisher.Publish(ended, k.message("")), context.Canceled)
	}
	require.NoError(t, k.publisher.Publish(t.Context(), messages[999]))
	assert.Empty(t, messages[0].Publishing.MessageId, "the caller's stay as they are")
	last := ""
	for i := range messages {
		d := k.take(k.topology.Queue)
		require.Equal(t, fmt.Sprint(i), string(d.Body), "they are in order")
		require.EqualValues(t, amqp.Persistent, d.DeliveryMode)
		id := must(uuid.Parse(d.MessageId))
		require.EqualValues(t, 7, id.Version())
		require.Greater(t, d.MessageId, last)
		last = d.MessageId
	}
}

func TestPublishUnroutable(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	nowhere := Message{Key: k.topology.Queue + ".nowhere", Publishing: amqp.Publishing{MessageId: "2"}}
	err := k.publisher.Publish(t.Context(), k.message("1"), nowhere, k.message("3"))
	require.ErrorIs(t, err, ErrUnroutable)
	e := unconfirmed(t, 1, err)
	assert.Equal(t, "2", e.Unconfirmed[0].Publishing.MessageId)
	assert.ErrorIs(t, e.Refusals[0], ErrUnroutable)
	assert.True(t, Refused(fmt.Errorf("wrapped: %w", err)))
	k.eventually("the others", func() bool { return k.ready() == 2 })

	// Whatever is returned of many, each gets its own answer.
	many := slices.Repeat([]Message{nowhere, k.message("4")}, 100)
	e = unconfirmed(t, 100, k.publisher.Publish(t.Context(), many...))
	assert.Equal(t, "2", e.Unconfirmed[99].Publishing.MessageId)
	k.eventually("the others", func() bool { return k.ready() == 102 })

	must(k.ch.QueueDeclare(nowhere.Key, false, true, true, false, nil))
	require.NoError(t, k.publisher.Publish(t.Context(), nowhere), "now it is routed, with the same id")
	must(k.ch.QueueDelete(nowhere.Key, false, false, false))
	nowhere.Optional = true
	require.NoError(t, k.publisher.Publish(t.Context(), nowhere))
	require.NoError(t, k.publisher.Close(t.Context()), "what was refused was returned by its call")
}

// The broker closes the channel for a message to an exchange that is not there, and the whole connection for header fields that
// don't fit into a frame. That is its publisher's affair, and nobody else's.
func TestPublishWhatIsRefused(t *testing.T) {
	t.Parallel()
	for code, c := range map[int]struct{ bad, good int }{amqp.NotFound: {20, 20}, amqp.FrameError: {3, 150}} {
		k := newDeclaredKit(t)
		bad := k.oversized("bad")
		if code == amqp.NotFound {
			bad = k.message("bad")
			bad.Exchange = k.topology.Queue + ".nowhere"
		}
		ctx := within(t, patience)
		var calls sync.WaitGroup
		for i := range c.bad {
			calls.Go(func() {
				before, after := k.message(fmt.Sprint("before ", i)), k.message(fmt.Sprint("after ", i))
				e := unconfirmed(t, 1, k.publisher.Publish(ctx, before, bad, after))
				var refused *amqp.Error
				assert.ErrorAs(t, e.Refusals[0], &refused)
				assert.Equal(t, code, refused.Code)
				assert.Equal(t, "bad", e.Unconfirmed[0].Publishing.MessageId)
				assert.True(t, Refused(e))
			})
		}
		for i := range c.good {
			calls.Go(func() { assert.NoError(t, k.publisher.Publish(ctx, k.message(fmt.Sprint(i)))) })
		}
		calls.Wait()
		arrived := map[string]bool{}
		for len(arrived) < 2*c.bad+c.good {
			arrived[k.take(k.topology.Queue).MessageId] = true
		}
	}
}

// told is a connection on which the broker's word about a message comes while the message is being written.
type told struct {
	net.Conn
	refused chan struct{}
	once    sync.Once
}

func (c *told) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("FRAME_ERROR")) {
		c.once.Do(func() { close(c.refused) })
	}
	return n, err
}

func (c *told) Write(b []byte) (n int, err error) {
	if n = len(b); n < 100<<10 {
		return c.Conn.Write(b)
	}
	select {
	case <-c.refused: // the broker reads no further
		time.Sleep(5 * time.Millisecond) // for the client to read its word
	default:
		n, err = c.Conn.Write(b)
		<-c.refused
	}
	return n, err
}

// What the broker says counts also if the message was not written to its end by then.
func TestPublishOfWhatIsRefusedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	dials := 0
	p := k.newPublisher(PublisherConfig{URL: k.url, Dial: wrapping(func(c net.Conn) net.Conn {
		dials++
		return &told{Conn: c, refused: make(chan struct{})}
	})})
	bad := k.oversized("bad")
	bad.Publishing.Body = make([]byte, 4<<20)
	require.True(t, Refused(p.Publish(within(t, patience), bad)))
	assert.Equal(t, 3, dials, "that of all, another one, and one of its own")
}

func TestPublishWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	k := newDeclaredKit(t)
	p := k.newPublisher(PublisherConfig{URL: k.url, MaxUnconfirmed: 1}) // which they do not take up
	bad := k.message("1")
	bad.Publishing.Headers = amqp.Table{"f": func() {}}
	named := k.message("named")
	named.Publishing.Headers = amqp.Table{strings.Repeat("x", 256): ""}
	messages := []Message{bad, named}
	for i := range 11 {
		long := k.message("1")
		p := &long.Publishing
		texts := []*string{&long.Exchange, &long.Key, &p.ContentType, &p.ContentEncoding, &p.CorrelationId, &p.ReplyTo, &p.Expiration,
			&p.MessageId, &p.Type, &p.UserId, &p.AppId}
		*texts[i] = strings.Repeat("x", 256)
		messages = append(messages, long)
	}
	longest := k.message(strings.Repeat("2", 255))
	e := unconfirmed(t, len(messages), p.Publish(within(t, patience), append(messages, longest)...))
	for i := range messages {
		assert.Error(t, e.Refusals[i])
	}
	assert.Equal(t, longest.Publishing.MessageId, k.take(k.topology.Queue).MessageId)
}

// While nothing connects it is tried again, but in no hot loop.
func TestPublishWhenNothingConnects(t *testing.T) {
	dials := 0
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPublisher(PublisherConfig{URL: "amqp://", Dial: func(context.Context, string) (*amqp.Connection, error) {
			dials++
			return nil, errBroken
		}})
		require.NoError(t, err)
		// Between the tries are pauses of up to 0.1 and 0.2 s.
		for limit, tries := range map[time.Duration]int{40 * time.Millisecond: 1, 301 * time.Millisecond: 3} {
			dials = 0
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err = p.Publish(ctx, Message{Key: "nowhere"})
			require.ErrorIs(t, err, errBroken)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, tries, min(dials, 3))
		}
		require.NoError(t, p.Close(t.Context()), "the call has returned what it could not publish")
	})
}

func TestPublishAgainAfterALostConfirm(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	p := k.connected(PublisherConfig{URL: k.url, MaxUnconfirmed: 1})
	lost := proxy.CutAfter([]byte("body 1"))
	require.NoError(t, p.Publish(t.Context(), k.message("1"), k.message("2")))
	<-lost
	var ids []string
	for range 4 {
		ids = append(ids, k.take(k.topology.Queue).MessageId)
	}
	assert.Equal(t, []string{"0", "1", "1", "2"}, ids, "twice, with the same id")
}

func TestPublishToAFullQueue(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	name := k.topology.Queue + ".full"
	k.declare(name, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	t.Cleanup(func() { remove(t, k.url, name) })
	m := k.message("1")
	m.Key = name
	require.NoError(t, k.publisher.Publish(t.Context(), m))

	var err error
	for limit := 50 * time.Millisecond; !errors.Is(err, ErrNacked); limit *= 2 { // until the broker has had the time to answer
		require.Less(t, limit, patience)
		err = k.publisher.Publish(within(t, limit), m)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	e := unconfirmed(t, 1, err)
	assert.NoError(t, e.Refusals[0], "the queue may have room at another time")
	assert.False(t, Refused(err))

	bad := k.message("2")
	bad.Publishing.Headers = amqp.Table{"f": func() {}}
	require.NoError(t, k.topology.Declare(k.conn))
	ctx, give := context.WithCancelCause(t.Context())
	published := later(func() error { return k.publisher.Publish(ctx, bad, m, k.message("3")) })
	k.take(k.topology.Queue) // now bad has been refused
	give(errBroken)
	require.ErrorAs(t, <-published, &e)
	assert.ErrorIs(t, e, errBroken, "it is the cause that the caller has given")
	assert.Error(t, e.Refusals[0])
	assert.NoError(t, e.Refusals[1], "nobody blames it")
	assert.False(t, Refused(e), "one of them may be taken yet")
	assert.False(t, Refused(nil))

	published = later(func() error { return k.publisher.Publish(context.Background(), m) })
	k.eventually("published", func() bool { // what was tried before may still arrive, and fill the queue again
		_, _, err := k.ch.Get(name, true)
		require.NoError(t, err)
		return len(published) > 0
	})
	require.NoError(t, <-published)
}

// A broker that does not read holds a write up, and does not answer. Nobody waits longer than the own context says.
func TestPublishToABrokerThatDoesNotRead(t *testing.T) {
	defer set(&closeLimit, time.Hour)() // nothing else ends their waits
	k, proxy := newProxied(t)
	var conn *amqp.Connection
	dial := func(ctx context.Context, url string) (_ *amqp.Connection, err error) {
		conn, err = Dial(ctx, url, amqp.Config{Heartbeat: time.Hour})
		return conn, err
	}
	p := k.newPublisher(PublisherConfig{URL: k.url, Dial: dial})
	idle := k.connected(PublisherConfig{URL: k.url, Dial: dial})
	patient := k.connected(PublisherConfig{URL: k.url, Dial: dial})
	require.NoError(t, p.Publish(t.Context(), k.message("0")))
	assert.Greater(t, conn.Config.Heartbeat, 10*time.Second, "not the default of the client")
	proxy.Stall()
	defer proxy.Resume()
	short := func() context.Context { return within(t, 20*time.Millisecond) }
	soon(t, func() { assert.ErrorIs(t, p.Publish(short(), k.message("2")), context.DeadlineExceeded) }) // it is written
	written := len(p.slots)
	large := k.large()
	first, end := context.WithCancelCause(t.Context())
	published := later(func() error { return p.Publish(first, large) })
	k.eventually("it is being written", func() bool { return len(p.slots) == written+1 })
	soon(t, func() { assert.ErrorIs(t, p.Publish(short(), k.message("2")), context.DeadlineExceeded) }) // it waits for its turn
	assert.Equal(t, written+1, len(p.slots), "it was not sent")
	soon(t, func() { assert.NoError(t, idle.Close(short())) })
	time.Sleep(time.Second) // longer than a message that is being written has
	assert.False(t, conn.IsClosed(), "the first call may take its time")
	end(errBroken)
	soon(t, func() { assert.ErrorIs(t, unconfirmed(t, 1, <-published), errBroken) })
	defer set(&closeLimit, 20*time.Millisecond)()
	soon(t, func() { assert.NoError(t, patient.Close(context.Background())) })
}

// soon reports if f takes as long as nothing should.
func soon(t *testing.T, f func()) {
	t.Helper()
	select {
	case <-later(func() error { f(); return nil }):
	case <-time.After(patience):
		t.Fatal("it still waits")
	}
}

// A connection without heartbeats is given up, also by the message that is being written to it.
func TestPublishWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	dials := make(chan bool, 1000)
	p := k.newPublisher(PublisherConfig{URL: k.url, Dial: func(ctx context.Context, url string) (*amqp.Connection, error) {
		dials <- true
		return Dial(ctx, url, amqp.Config{Heartbeat: time.Second})
	}})
	require.NoError(t, p.Publish(t.Context(), k.message("0")))
	<-dials
	proxy.Stall()
	defer proxy.Resume()
	large := k.large()
	ctx, cancel := context.WithCancel(t.Context())
	published := later(func() error { return p.Publish(ctx, large) })
	soon(t, func() { <-dials })
	cancel()
	require.ErrorIs(t, <-published, context.Canceled)
}

// A broker that freezes before it has opened a channel, on the connection of all or on that of one batch, holds nobody up.
func TestPublishWhenNoChannelOpens(t *testing.T) {
	defer set(&closeLimit, time.Hour)()
	for _, frozen := range []int{1, 3} {
		k, proxy := newProxied(t)
		ctx, cancel := context.WithCancel(t.Context())
		dials := 0
		p := k.newPublisher(PublisherConfig{URL: k.url, Dial: func(ctx context.Context, url string) (*amqp.Connection, error) {
			conn, err := Dial(ctx, url, amqp.Config{Heartbeat: time.Hour})
			if dials++; dials == frozen {
				proxy.Stall()
				cancel()
			}
			return conn, err
		}})
		bad := k.oversized("bad")
		soon(t, func() { assert.ErrorIs(t, p.Publish(ctx, bad), context.Canceled) })
		proxy.Resume()
		require.NoError(t, p.Publish(t.Context(), k.message("1")))
		assert.Equal(t, frozen, dials, "the connection of all is still there")
		require.True(t, Refused(p.Publish(t.Context(), bad)))
		require.NoError(t, p.Publish(t.Context(), k.message("2")))
		assert.Equal(t, frozen+2, dials, "it has broken that one, and one of its own")
	}
}

// Who waits for another call's connecting waits no longer than its own context says.
func TestPublishWhileAnotherOneDials(t *testing.T) {
	dialing, release := make(chan struct{}), make(chan struct{})
	p, err := NewPublisher(PublisherConfig{URL: "amqp://", Dial: func(context.Context, string) (*amqp.Connection, error) {
		close(dialing)
		<-release
		return nil, errBroken
	}})
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	first := later(func() error { return p.Publish(ctx, Message{Key: "nowhere"}) })
	<-dialing
	soon(t, func() {
		assert.ErrorIs(t, p.Publish(within(t, 10*time.Millisecond), Message{Key: "nowhere"}), context.DeadlineExceeded)
	})
	end()
	close(release)
	<-first
}

// What is returned when its call waits no longer is not held against the next one of its id.
func TestPublishUnroutableAfterTheEnd(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	p := k.connected(PublisherConfig{URL: k.url, MaxUnconfirmed: 1})
	m := k.message("1")
	m.Key += ".nowhere"
	proxy.Stall()
	err := p.Publish(within(t, 20*time.Millisecond), m)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotContains(t, err.Error(), "lost", "the connection is there")
	clear(m.Publishing.Body) // it is the caller's again
	proxy.Resume()
	require.NoError(t, p.Publish(t.Context(), k.message("2"))) // by now it has been returned
	copy(m.Publishing.Body, "body 1")
	must(k.ch.QueueDeclare(m.Key, false, true, true, false, nil))
	require.NoError(t, p.Publish(t.Context(), m))
}

// A connection on which no channel can be opened is closed, and another one is tried.
func TestPublishWithoutAChannel(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	var conn *amqp.Connection
	p := k.newPublisher(PublisherConfig{URL: k.url, Dial: func(ctx context.Context, url string) (*amqp.Connection, error) {
		if conn != nil {
			return Dial(ctx, url, amqp.Config{})
		}
		conn = must(amqp.DialConfig(url, amqp.Config{ChannelMax: 1}))
		must(conn.Channel()) // the only one
		return conn, nil
	}})
	require.NoError(t, k.topology.Declare(k.conn))
	require.NoError(t, p.Publish(t.Context(), k.message("1")))
	assert.True(t, conn.IsClosed())
}

func TestUnconfirmedIsBounded(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	p := k.connected(PublisherConfig{URL: k.url, MaxUnconfirmed: 3})
	k.take(k.topology.Queue)
	proxy.Stall()
	for range 2 { // what nobody waits for any longer is still unconfirmed
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				unconfirmed(t, 2, p.Publish(ctx, k.message(fmt.Sprint(i)), k.message(fmt.Sprint(i))))
			})
		}
		k.eventually("as many as may", func() bool { return len(p.slots) == 3 })
		time.Sleep(20 * time.Millisecond) // for those that may not
		cancel()
		calls.Wait()
	}
	proxy.Resume()
	k.eventually("what was sent", func() bool { return k.ready() == 3 })
	require.NoError(t, p.Publish(t.Context(), k.message("last")))
	k.eventually("nothing else was", func() bool { return k.ready() == 4 })
}

func TestCloseWaitsForConfirms(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	p := k.connected(PublisherConfig{URL: k.url})
	proxy.Stall()
	published := later(func() error { return p.Publish(context.Background(), k.message("1")) })
	k.eventually("sent", func() bool { return len(p.slots) == 1 })
	closed := later(func() error { return p.Close(context.Background()) })
	select {
	case <-closed:
		t.Fatal("it has not waited")
	case <-time.After(20 * time.Millisecond):
	}
	proxy.Resume()
	require.NoError(t, <-published)
	require.NoError(t, <-closed)
	err := p.Publish(t.Context(), k.message("2"))
	require.ErrorIs(t, err, ErrPublisherClosed)
	assert.False(t, Refused(err), "another publisher may publish it")
	assert.NoError(t, unconfirmed(t, 1, err).Refusals[0])
	k.eventually("both are there", func() bool { return k.ready() == 2 })
}

func TestCloseReturnsWhatIsUnconfirmed(t *testing.T) {
	t.Parallel()
	k, proxy := newProxied(t)
	p := k.connected(PublisherConfig{URL: k.url})
	proxy.Stall()
	published := later(func() error { return p.Publish(context.Background(), k.message("1"), k.message("")) })
	k.eventually("sent", func() bool { return len(p.slots) == 2 })
	closed := unconfirmed(t, 2, p.Close(within(t, 20*time.Millisecond)))
	assert.Equal(t, unconfirmed(t, 2, <-published).Unconfirmed, closed.Unconfirmed)
	assert.Equal(t, "1", closed.Unconfirmed[0].Publishing.MessageId)
	assert.NotEmpty(t, closed.Unconfirmed[1].Publishing.MessageId, "the next try has the same id")
	assert.NoError(t, closed.Refusals[1])
	assert.ErrorIs(t, closed, ErrPublisherClosed)
	assert.ErrorIs(t, closed, context.DeadlineExceeded)
	proxy.Resume()
}

// What the broker blames a message for is final; what it does for reasons of its own is not.
func TestWhoIsToBlame(t *testing.T) {
	server := func(code int, recover bool) error { return &amqp.Error{Code: code, Server: true, Recover: recover} }
	for _, c := range []struct {
		err   error
		sent  way
		final bool
		next  way
	}{
		{nil, alone, false, alone},
		{ErrUnroutable, together, true, together},
		{ErrNacked, alone, false, alone},
		{errLost, separated, false, separated},
		{server(amqp.NotFound, true), together, false, alone}, // it may have been another one's
		{server(amqp.NotFound, true), alone, true, alone},
		{server(amqp.FrameError, false), together, false, separated},
		{server(amqp.FrameError, false), alone, false, separated}, // the connection is that of all
		{server(amqp.FrameError, false), separated, true, separated},
		{server(amqp.ConnectionForced, false), together, false, together},
		{server(amqp.ConnectionForced, false), separated, false, separated},
		{server(amqp.InternalError, false), separated, false, separated},
		{amqp.ErrClosed, together, false, together},
		{amqp.ErrClosed, separated, false, separated},
	} {
		m := new(Message)
		b := batch{refused: map[*Message]error{}, way: c.sent}
		b.account(m, c.err, c.sent)
		assert.Equal(t, c.final, b.refused[m] != nil, "%v", c)
		assert.Equal(t, c.err != nil && !c.final, slices.Contains(b.left, m), "%v", c)
		assert.Equal(t, c.next, b.way, "%v", c)
	}
}

// What is returned is held against the message that was, in whatever order the calls learn of their confirms.
func TestReturnedMessagesWithoutIDs(t *testing.T) {
	conn := must(Dial(t.Context(), backend.AMQP(t), amqp.Config{}))
	defer conn.Close()
	l := must(newLink(conn).open(t.Context(), 4))
	queue := "idem-test-" + rand.Text()
	publish := func(body string) sent {
		m := &Message{Key: queue, Publishing: amqp.Publishing{Body: []byte(body)}}
		confirm := must(l.ch.PublishWithDeferredConfirm(m.Exchange, m.Key, true, false, m.Publishing))
		confirm.Wait()
		return sent{m, confirm}
	}
	first := publish("returned")
	must(l.ch.QueueDeclare(queue, false, true, true, false, nil))
	second := publish("routed")
	assert.NoError(t, l.outcome(second, false))
	assert.NoError(t, l.outcome(second, true), "what was returned is not its own")
	assert.ErrorIs(t, l.outcome(first, false), ErrUnroutable)
	assert.NoError(t, l.outcome(publish("returned"), false), "now it is routed")
}
