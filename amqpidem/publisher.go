package amqpidem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Message is a message to be published.
type Message struct {
	// Exchange and Key are the exchange and the routing key. With the empty exchange, Key is the name
	// of a queue.
	Exchange, Key string
	// Publishing is the message itself. [Publisher.Publish] replaces an empty MessageId by a UUID of
	// version 7 (RFC 9562), and a DeliveryMode of zero by amqp.Persistent.
	Publishing amqp.Publishing
	// Optional says that it is no error if no queue takes the message. Otherwise that is [ErrUnroutable].
	Optional bool
}

// check returns an error for a message that can't be encoded.
func (m *Message) check() error {
	p := &m.Publishing
	for _, text := range []string{m.Exchange, m.Key, p.ContentType, p.ContentEncoding, p.CorrelationId, p.ReplyTo, p.Expiration,
		p.MessageId, p.Type, p.UserId, p.AppId} {
		if len(text) > 255 {
			return fmt.Errorf("amqpidem: a property of the message has %d bytes; AMQP allows 255", len(text))
		}
	}
	for name := range p.Headers {
		if len(name) > 255 {
			return fmt.Errorf("amqpidem: the name of a header has %d bytes; AMQP allows 255", len(name)) // the client would cut it
		}
	}
	return p.Headers.Validate()
}

// PublisherConfig configures a [Publisher].
type PublisherConfig struct {
	// URL is the broker's: amqp://user:password@host:5672/vhost. It is required.
	URL string
	// Dial connects to URL, for example with TLS or another heartbeat, see [Dial]. It must return when ctx ends. Nil means
	// Dial with a zero amqp.Config.
	Dial func(ctx context.Context, url string) (*amqp.Connection, error)
	// MaxUnconfirmed is how many messages may be unconfirmed at once; at that number Publish waits.
	// Zero means 256.
	MaxUnconfirmed int
}

// Publisher publishes messages and waits until the broker has confirmed them. It connects when it
// is first used, and again when the connection is lost. It is safe for concurrent use: the calls
// share one channel. Make one with [NewPublisher]; the zero Publisher is not usable.
type Publisher struct {
	config  PublisherConfig
	slots   chan struct{} // a token for each unconfirmed message
	dialing chan struct{} // a mutex whose waiters can be cancelled
	apart   chan struct{} // a token for each connection that one batch has for itself

	mu      sync.Mutex
	link    *link // nil: there is none
	closed  bool
	calls   sync.WaitGroup
	cut     context.Context // ends when Close stops waiting
	cutOff  context.CancelCauseFunc
	dropped []Message // unconfirmed when cut off
}

var (
	// ErrUnroutable says that no queue takes the message. Publish does not retry it.
	ErrUnroutable = errors.New("amqpidem: no queue takes the message")
	// ErrPublisherClosed says that [Publisher.Close] was called.
	ErrPublisherClosed = errors.New("amqpidem: the publisher is closed")
	// ErrNacked says that the broker has nacked the message, for example because its queue is full. It
	// may take the message later.
	ErrNacked = errors.New("amqpidem: the broker has nacked the message")

	errLost = errors.New("amqpidem: the connection was lost before the message was confirmed")
	errLate = errors.New("amqpidem: the broker has not confirmed the message in time")
)

// grace is how long a message that is being written may take when its context has ended.
const grace = 500 * time.Millisecond

// PublishError names the messages that the broker has not confirmed. It wraps the reasons:
// [ErrUnroutable], [ErrNacked], [ErrPublisherClosed], a context's error, an *amqp.Error.
type PublishError struct {
	// Unconfirmed are the messages in their order, with their ids: publish them again as they are,
	// except those that are refused. Any of them may have reached a queue, if its
	// connection was lost.
	Unconfirmed []Message
	// Refusals[i] is why the broker will never take Unconfirmed[i]: [ErrUnroutable], the broker's
	// *amqp.Error (such as a missing exchange), or the error of a message that can't be encoded. It is
	// nil if the message may be published later.
	Refusals []error
	err      error
}

// Error returns the number of unconfirmed messages, and the reasons.
func (e *PublishError) Error() string {
	return fmt.Sprintf("amqpidem: %d messages unconfirmed: %v", len(e.Unconfirmed), e.err)
}

// Unwrap returns the reasons, joined.
func (e *PublishError) Unwrap() error { return e.err }

// Refused reports whether err is a [*PublishError] whose messages the broker will never take, all of them. Pass it to
// outbox.Each.
func Refused(err error) bool {
	var e *PublishError
	return errors.As(err, &e) && len(e.Refusals) > 0 && !slices.Contains(e.Refusals, nil)
}

// unpublished is the error of messages that may be published later.
func unpublished(messages []Message, err error) *PublishError {
	return &PublishError{Unconfirmed: messages, Refusals: make([]error, len(messages)), err: err}
}

// NewPublisher returns a publisher. It does not connect yet. The error joins every fault of c, each
// a *core.ConfigError.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	f := faults{of: "PublisherConfig"}
	f.url(c.URL)
	f.addIf(c.MaxUnconfirmed < 0, "MaxUnconfirmed", "is negative: %d", c.MaxUnconfirmed)
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	c.Dial = dialer(c.Dial)
	p := &Publisher{config: c, slots: make(chan struct{}, cmp.Or(c.MaxUnconfirmed, 256)),
		dialing: make(chan struct{}, 1), apart: make(chan struct{}, 8)}
	p.cut, p.cutOff = context.WithCancelCause(context.Background())
	return p, nil
}

// Publish publishes messages, and returns nil when the broker has confirmed all of them. After a lost
// connection or a nack (such as a full queue) it retries, with the same message id and growing pauses,
// until ctx ends: give it a deadline. A message may therefore arrive twice; its consumer should be a
// [Handler].
//
// Publish returns when ctx ends, and does not read the messages after that. Only a message that is being written then has
// 0.5 s more. If the broker does not take it in that time (its memory is full, or it is frozen), Publish cuts the
// connection, and other calls publish their unconfirmed messages again on a new one. A call whose message still waits
// for another call's cuts nothing.
//
// The messages of one call are sent in order, and first arrive in order unless the broker refuses
// one of them. If order matters more than speed, publish them one at a time.
//
// The error is a [*PublishError] with the messages that are not confirmed. Publish does not retry
// messages that the broker will never take (no queue, no such exchange); the others go on.
func (p *Publisher) Publish(ctx context.Context, messages ...Message) error {
	own := make([]Message, len(messages)) // the ids are the same at each try, and the caller's stay as they are
	copy(own, messages)
	for i := range own {
		if own[i].Publishing.MessageId == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return unpublished(own, err)
			}
			own[i].Publishing.MessageId = id.String()
		}
	}
	return p.publish(ctx, own)
}

// publish is Publish without filling in message ids.
func (p *Publisher) publish(ctx context.Context, messages []Message) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return unpublished(messages, ErrPublisherClosed)
	}
	p.calls.Add(1)
	p.mu.Unlock()
	defer p.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.cut, func() { cancel(context.Cause(p.cut)) })()

	b := batch{publisher: p, left: make([]*Message, len(messages)), refused: make(map[*Message]error)}
	for i := range messages {
		b.left[i] = &messages[i]
		b.left[i].Publishing.DeliveryMode = cmp.Or(b.left[i].Publishing.DeliveryMode, amqp.Persistent)
	}
	for tries := 0; len(b.left) > 0; tries++ {
		if tries > 0 && !backoff(ctx, tries) {
			break
		}
		l, err := p.connected(ctx)
		if err == nil {
			b.send(ctx, l)
		} else if b.err = err; ctx.Err() != nil {
			break
		}
	}
	if len(b.left) == 0 && len(b.refused) == 0 {
		return nil
	}
	left := b.left // in the order of messages
	e := &PublishError{Unconfirmed: make([]Message, 0, len(left)+len(b.refused))}
	for i := range messages {
		refusal, open := b.refused[&messages[i]], len(left) > 0 && left[0] == &messages[i]
		if open {
			left = left[1:]
		}
		if open || refusal != nil {
			e.Unconfirmed, e.Refusals = append(e.Unconfirmed, messages[i]), append(e.Refusals, refusal)
		}
	}
	e.err = errors.Join(errors.Join(e.Refusals...), b.err)
	if len(b.left) > 0 {
		e.err = errors.Join(e.err, context.Cause(ctx))
	}
	if p.cut.Err() != nil {
		p.mu.Lock()
		p.dropped = append(p.dropped, e.Unconfirmed...)
		p.mu.Unlock()
	}
	return e
}

// Close waits for calls of Publish in progress, and disconnects; new calls get [ErrPublisherClosed]. When
// ctx ends it stops waiting: those calls return their unconfirmed messages within 0.5 s, and Close returns
// a [*PublishError] with all of them. If no call is in progress, Close waits for the broker's answer until
// ctx ends, for at most 5 s.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { p.cutOff(fmt.Errorf("%w: %w", ErrPublisherClosed, context.Cause(ctx))) })
	p.calls.Wait()
	stop()
	p.mu.Lock()
	l, dropped := p.link, p.dropped
	p.link = nil
	p.mu.Unlock()
	if l != nil {
		disconnect(ctx, l.conn) // everything is confirmed, or has been given up
	}
	if len(dropped) > 0 {
		return unpublished(dropped, context.Cause(p.cut))
	}
	return nil
}

// connected returns the link, and makes a new one if it is closed.
func (p *Publisher) connected(ctx context.Context) (*link, error) {
	select {
	case p.dialing <- struct{}{}:
		defer func() { <-p.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	l := p.link
	p.mu.Unlock()
	if l != nil && l.ch != nil && !l.ch.IsClosed() {
		return l, nil
	}
	if l == nil || l.conn.IsClosed() {
		conn, err := p.config.Dial(ctx, p.config.URL)
		if err != nil {
			return nil, err
		}
		l = newLink(conn)
		p.use(l) // so that it is there for others if ctx ends
	}
	opened, err := l.open(ctx, cap(p.slots))
	if err != nil {
		if ctx.Err() == nil {
			_ = l.conn.CloseDeadline(time.Now())
		}
		return nil, err
	}
	p.use(opened)
	return opened, nil
}

func (p *Publisher) use(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
}

// link is a channel in confirm mode.
type link struct {
	conn *amqp.Connection
	turn chan struct{} // of the connection: a mutex of those who write messages, whose waiters can be cancelled
	ch   *amqp.Channel // nil: it is not open yet

	returns chan amqp.Return // has room for each unconfirmed message
	closed  chan struct{}    // when it is closed, reason says why the channel was
	reason  *amqp.Error

	mu       sync.Mutex
	returned []amqp.Return // of messages whose outcome was not taken yet
}

func newLink(conn *amqp.Connection) *link { return &link{conn: conn, turn: make(chan struct{}, 1)} }

// open opens another channel on l's connection. If ctx ends before the broker answers, the channel is closed when it does.
func (l *link) open(ctx context.Context, room int) (*link, error) {
	var ch *amqp.Channel
	answer := make(chan error)
	go func() {
		var err error
		if ch, err = l.conn.Channel(); err == nil {
			err = ch.Confirm(false)
		}
		select {
		case answer <- err:
		case <-ctx.Done():
			if ch != nil {
				_ = ch.Close()
			}
		}
	}()
	select {
	case err := <-answer:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	opened := &link{conn: l.conn, turn: l.turn, ch: ch, returns: ch.NotifyReturn(make(chan amqp.Return, room)), closed: make(chan struct{})}
	go func(closes <-chan *amqp.Error) {
		opened.reason = <-closes
		close(opened.closed)
	}(ch.NotifyClose(make(chan *amqp.Error, 1)))
	return opened, nil
}

// sent is a message that waits for its confirm.
type sent struct {
	message *Message
	confirm *amqp.DeferredConfirmation
}

// outcome returns nil for a message that was confirmed, or why it was not. Its confirm is done. The body of a message whose
// call has left belongs to the caller again.
func (l *link) outcome(s sent, left bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The broker sends a return before the message's confirm, and the client delivers them in that
	// order: a return is in the channel by now.
	for {
		select {
		case r, ok := <-l.returns:
			if !ok {
				l.returns = nil // closed: the channel is
				continue
			}
			l.returned = append(l.returned, r)
			continue
		default:
		}
		break
	}
	m := s.message
	// The id alone is not enough: copies of messages without one have none.
	i := slices.IndexFunc(l.returned, func(r amqp.Return) bool {
		return r.MessageId == m.Publishing.MessageId && r.Exchange == m.Exchange && r.RoutingKey == m.Key &&
			(left && r.MessageId != "" || bytes.Equal(r.Body, m.Publishing.Body))
	})
	unroutable := i >= 0
	if unroutable {
		l.returned = slices.Delete(l.returned, i, i+1)
	}
	switch {
	case s.confirm.Acked() && unroutable:
		return fmt.Errorf("%w: exchange %q, key %q", ErrUnroutable, m.Exchange, m.Key)
	case s.confirm.Acked():
		return nil
	case l.ch.IsClosed():
		return l.closeReason()
	}
	return ErrNacked
}

// closeReason returns why the channel has been closed. It waits for that to be known.
func (l *link) closeReason() error {
	<-l.closed
	if l.reason != nil {
		return fmt.Errorf("%w: %w", errLost, l.reason)
	}
	return errLost
}

// batch is the messages of one call.
type batch struct {
	publisher *Publisher
	left      []*Message         // not confirmed, and to be tried again
	refused   map[*Message]error // not tried again, and why
	err       error              // of the last try
	way       way                // how it is sent
}

// way is how a batch is sent.
type way uint8

const (
	together  way = iota // on the channel that all batches share
	alone                // one message at a time, on a channel of its own
	separated            // one message at a time, on a connection of its own
)

// send tries once to publish the messages that are left.
func (b *batch) send(ctx context.Context, shared *link) {
	l, done := b.connect(ctx, shared)
	if l == nil {
		return
	}
	defer done()
	r := round{batch: b, link: l, how: b.way, todo: b.left, cut: errLate}
	if errors.Is(b.err, ErrNacked) {
		r.cut = ErrNacked // its latest known outcome
	}
	b.left, b.err = nil, nil
	defer context.AfterFunc(ctx, r.interrupt)()
	for len(r.todo) > 0 && ctx.Err() == nil && r.step(ctx) {
	}
	for len(r.waiting) > 0 {
		r.next(ctx)
	}
	if r.failed != nil { // the broker may have closed the connection because of what it had read of it
		select {
		case <-l.closed:
			r.fault = l.closeReason()
		case <-ctx.Done():
		}
		b.account(r.failed, r.fault, r.how)
	}
	b.left = append(b.left, r.todo...)
}

// connect returns where the batch is sent, by its way: shared, or a channel of its own. done is called at the end. Without a link, b.err
// says why, or ctx has ended.
func (b *batch) connect(ctx context.Context, shared *link) (l *link, done func()) {
	p := b.publisher
	if b.way == together {
		return shared, func() {}
	}
	l, done = shared, func() {}
	if b.way == separated {
		select {
		case p.apart <- struct{}{}:
		case <-ctx.Done():
			return nil, nil
		}
		own, err := p.config.Dial(ctx, p.config.URL)
		if err != nil {
			<-p.apart
			b.err = err
			return nil, nil
		}
		l, done = newLink(own), func() {
			disconnect(ctx, own)
			<-p.apart
		}
	}
	own, err := l.open(ctx, cap(p.slots))
	if err != nil {
		done()
		b.err = err
		return nil, nil
	}
	leave := done
	return own, func() {
		go own.ch.Close() // it takes until the broker answers
		leave()
	}
}

// round is one try of a batch.
type round struct {
	*batch
	link    *link
	how     way
	todo    []*Message // to be written
	waiting []sent     // for their confirmations, in the order in which they were written
	cut     error      // the outcome of a message that is unconfirmed when the context ends
	writing atomic.Bool

	failed *Message // that could not be written
	fault  error
}

// interrupt ends a write that does not return when the context has ended. A broker that blocks publishers (its memory is full)
// does not read. Nothing else of a round goes on when its context has ended. The write must not either: it reads the body, which
// is the caller's again.
func (r *round) interrupt() {
	time.AfterFunc(grace, func() {
		if r.writing.Load() {
			_ = r.link.conn.CloseDeadline(time.Now())
		}
	})
}

// next waits for the oldest confirmation.
func (r *round) next(ctx context.Context) {
	s, l, slots := r.waiting[0], r.link, r.publisher.slots
	r.waiting = r.waiting[1:]
	select {
	case <-s.confirm.Done():
		err := l.outcome(s, false)
		<-slots
		r.account(s.message, err, r.how)
	case <-ctx.Done():
		// It keeps its slot until the broker confirms it or the channel closes.
		go func() {
			<-s.confirm.Done()
			_ = l.outcome(s, true)
			<-slots
		}()
		r.account(s.message, r.cut, r.how)
	}
}

// slot takes a slot for the next message. It returns false if there is none: a confirmation has been waited for, or the context has ended.
func (r *round) slot(ctx context.Context) bool {
	if r.how != together && len(r.waiting) > 0 {
		r.next(ctx)
		return false
	}
	slots := r.publisher.slots
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	if len(r.waiting) > 0 {
		r.next(ctx)
		return false
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// step writes the next message, or waits until it can be written. It returns false if nothing can be written any more.
func (r *round) step(ctx context.Context) bool {
	if !r.slot(ctx) {
		return true
	}
	l, slots, m := r.link, r.publisher.slots, r.todo[0]
	if err := m.check(); err != nil {
		<-slots
		r.todo = r.todo[1:]
		r.refused[m] = err
		return true
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		<-slots
		return true
	}
	r.writing.Store(true)
	var confirm *amqp.DeferredConfirmation
	err := context.Cause(ctx) // if it ends later, writing is seen to be true
	open := !l.ch.IsClosed()
	if err == nil {
		confirm, err = l.ch.PublishWithDeferredConfirm(m.Exchange, m.Key, !m.Optional, false, m.Publishing)
	}
	r.writing.Store(false)
	<-l.turn
	if err != nil { // ctx has ended, the channel is closed, or the connection
		<-slots
		r.err = err
		if open && ctx.Err() == nil {
			r.failed, r.fault, r.todo = m, err, r.todo[1:]
		}
		return false
	}
	r.todo = r.todo[1:]
	r.waiting = append(r.waiting, sent{m, confirm})
	return true
}

// account records the outcome of a message that was sent in this way.
func (b *batch) account(m *Message, err error, how way) {
	var e *amqp.Error
	switch {
	case err == nil:
	case errors.Is(err, ErrUnroutable):
		b.refused[m] = err
	case errors.As(err, &e) && e.Server && e.Code != amqp.ConnectionForced && e.Code != amqp.InternalError:
		// The broker has closed the channel, or the whole connection, because of this message, another
		// one of the batch, or one of another call. Sending it alone finds out.
		enough := alone
		if !e.Recover {
			enough = separated
		}
		if how >= enough {
			b.refused[m] = err
			return
		}
		b.way = max(b.way, enough)
		fallthrough
	default:
		b.left, b.err = append(b.left, m), err
	}
}
