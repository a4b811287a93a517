package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Publisher sends messages to a broker.
type Publisher interface {
	// Publish sends messages, in any order or concurrently: no two of them share a key. It returns
	// nil when the broker has confirmed them all. If the broker has refused or not confirmed some of
	// them, it returns an [Errors] with the outcome of each. Any other error counts as
	// [ErrUnconfirmed] for each message: all are sent again, at first one by one.
	//
	// Publish returns at the latest when ctx ends, and sends nothing after that. A relay does not
	// call it concurrently.
	Publish(ctx context.Context, messages []Message) error
}

// PublisherFunc is a function that is a [Publisher].
type PublisherFunc func(ctx context.Context, messages []Message) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) error {
	return f(ctx, messages)
}

// Each returns a publisher that calls publish for each message, all concurrently. An error of
// publish counts as [ErrUnconfirmed], unless refused reports that the broker will never accept that
// message. With a nil refused, every error counts as ErrUnconfirmed. publish must be safe for concurrent use, and
// return when ctx ends.
func Each(publish func(ctx context.Context, m Message) error, refused func(error) bool) Publisher {
	return PublisherFunc(func(ctx context.Context, messages []Message) error {
		outcomes := make(Errors, len(messages))
		var all sync.WaitGroup
		for i, m := range messages {
			all.Go(func() {
				outcomes[i] = ErrUnconfirmed // unless publish returns: it may end its goroutine (runtime.Goexit)
				err := publish(ctx, m)
				if err != nil && (refused == nil || !refused(err)) {
					err = errors.Join(ErrUnconfirmed, err)
				}
				outcomes[i] = err
			})
		}
		all.Wait()
		return outcomes
	})
}

// Errors are the outcomes of one call of Publish, one for each message, in their order: nil if the
// broker has confirmed it; an error that is [ErrUnconfirmed] if it has not, through no fault of the
// message; any other error if the broker refuses the message. Errors with only nil counts as
// success.
type Errors []error

// ErrUnconfirmed says that the broker has not confirmed a message, through no fault of the message:
// the connection broke, or the time ran out.
var ErrUnconfirmed = errors.New("outbox: the broker has not confirmed the message")

// Error returns the errors' texts.
func (e Errors) Error() string { return fmt.Sprint(errors.Join(e...)) }

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// RelayConfig configures a [Relay]. The zero RelayConfig has the defaults.
type RelayConfig struct {
	// Name identifies the relay to people who read the lease. It has at most 200 bytes. The default is
	// the host name and the process id.
	Name string
	// Lease is how long a dead relay keeps others from sending. It should be more than twice as long
	// as a Publish takes. Relays that stand by check three times per Lease whether they may take
	// over. The default is 15 s.
	Lease time.Duration
	// Poll is how often the relay looks for messages when there are none. Notify makes it look at
	// once. The default is 1 s.
	Poll time.Duration
	// Batch is how many messages are read at a time. Up to that many may be sent twice when a
	// relay dies. The default is 100.
	Batch int
	// Pause is how long a failed message waits before it is retried, and how long the relay waits after
	// a failure of the broker or the database. It doubles with each further failure, up to
	// MaxPause. The defaults are 500 ms and 30 s.
	Pause, MaxPause time.Duration
	// MaxAttempts is how often a message may fail before it is parked. A parked message is not
	// sent any more, and later messages of its key are. Only failures of the message itself count
	// (see [Errors]). Zero: it is never parked.
	MaxAttempts int
	// Drain is how long a Publish in progress may continue after the context of Run has ended.
	// The default is 5 s.
	Drain time.Duration
	// Observe is called for each [Event], by the goroutine of Run: it must return quickly. It may
	// be nil.
	Observe func(ctx context.Context, e Event)
}

// Relay sends the messages of an outbox. Make one with [Outbox.NewRelay]; the zero Relay is not
// usable.
type Relay struct {
	outbox    *Outbox
	publisher Publisher
	config    RelayConfig
	owner     string
	running   atomic.Bool

	renewAt   time.Time // when the lease is to be renewed; zero: not held
	until     time.Time // nothing may be sent after this
	confirmed []int64   // positions of messages that are yet to be marked as sent
	limit     int       // of a page: Batch, or less after a failure whose message is not known
	backlog   int       // messages in full pages in a row
	failures  int       // of the broker, in a row
}

// NewRelay returns a relay that sends through publisher. The error names every fault: a nil
// publisher, a negative field, a MaxPause below Pause, a Name that is too long.
func (o *Outbox) NewRelay(publisher Publisher, c RelayConfig) (*Relay, error) {
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Batch = cmp.Or(c.Batch, 100)
	c.Pause = cmp.Or(c.Pause, 500*time.Millisecond)
	c.MaxPause = cmp.Or(c.MaxPause, max(30*time.Second, c.Pause))
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%.180s:%d", host, os.Getpid())
	}
	var faults []error
	if publisher == nil {
		faults = append(faults, errors.New("outbox: the publisher is nil"))
	}
	for _, f := range []struct {
		field string
		value int64
	}{
		{"Lease", int64(c.Lease)}, {"Poll", int64(c.Poll)}, {"Batch", int64(c.Batch)}, {"Pause", int64(c.Pause)},
		{"MaxPause", int64(c.MaxPause)}, {"MaxAttempts", int64(c.MaxAttempts)}, {"Drain", int64(c.Drain)},
	} {
		if f.value < 0 {
			faults = append(faults, fmt.Errorf("outbox: RelayConfig.%s is negative", f.field))
		}
	}
	if c.MaxPause < c.Pause {
		faults = append(faults, fmt.Errorf("outbox: RelayConfig.MaxPause is less than Pause: %v, %v", c.MaxPause, c.Pause))
	}
	if len(c.Name) > 200 {
		faults = append(faults, fmt.Errorf("outbox: RelayConfig.Name has %d bytes, more than 200", len(c.Name)))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	owner := c.Name + ownerMark + rand.Text()
	return &Relay{outbox: o, publisher: publisher, config: c, owner: owner, limit: c.Batch}, nil
}

// ownerMark separates the name of a relay and its random part.
const ownerMark = " #"

// statementTimeout is how long the relay waits for the database.
const statementTimeout = 5 * time.Second

// Run sends messages until ctx ends. One relay of an outbox sends at a time; the others wait until
// its lease is free. Failures do not end Run: it reports them (see [Event]) and tries again.
//
// When ctx ends, Run begins nothing more, waits for a Publish in progress (see
// RelayConfig.Drain), marks what was confirmed as sent, and gives the lease back. It then returns
// nil. It returns an error if the marking failed: those messages will be sent again. Run also
// returns an error if the relay is running already.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: the relay is running already")
	}
	defer r.running.Store(false)
	publishing, stop := outlive(ctx, r.config.Drain)
	defer stop()
	for faults := 0; ctx.Err() == nil; {
		err := r.round(ctx, publishing)
		if err == nil {
			faults = 0
			continue
		}
		faults++
		if wait := r.pause(faults); ctx.Err() == nil {
			r.observe(ctx, Event{Kind: DatabaseFailed, Err: err, Pause: wait})
			sleep(ctx, wait, nil)
		}
	}
	if err := r.mark(ctx); err != nil {
		return err
	}
	return r.release(ctx)
}

// outlive returns a context that ends d after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(longer, d, nil)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// detached returns a context for a statement that runs even if ctx has ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
}

// round sends the messages that are due, or waits for a while. The error is the database's.
func (r *Relay) round(ctx, publishing context.Context) error {
	if err := r.mark(ctx); err != nil { // messages that an earlier round could not mark
		return err
	}
	if wait, err := r.hold(ctx); err != nil || wait > 0 {
		sleep(ctx, wait, nil)
		return err
	}
	fresh, failed, err := r.read(ctx)
	if err != nil {
		return err
	}
	if len(fresh)+len(failed) == 0 {
		sleep(ctx, min(r.config.Poll, time.Until(r.renewAt)), r.outbox.wake)
		return nil
	}
	// New messages come first: if the broker confirms one, it is reachable, and a later failure is the
	// failing message's own.
	s := sending{Relay: r, ctx: publishing}
	for _, page := range [][]Message{fresh, failed} {
		if err == nil {
			err = errors.Join(s.send(ctx, page), r.mark(ctx))
		}
	}
	if s.outage && err == nil {
		err = r.release(ctx) // another relay may reach the broker
	}
	if err == nil {
		sleep(ctx, s.wait, nil)
	}
	return err
}

// hold gets the lease, or renews it when a third of it has passed. If another relay has it, wait
// is for how long to leave it alone.
func (r *Relay) hold(ctx context.Context) (wait time.Duration, err error) {
	begun := time.Now()
	if begun.Before(r.renewAt) {
		return 0, nil
	}
	ctx, cancel := detached(ctx) // if it were cut off, a lease that was acquired would not be given back
	defer cancel()
	held, left, err := r.outbox.lease(ctx, r.owner, r.config.Lease)
	switch {
	case err != nil:
		return 0, err
	case held:
		if r.renewAt.IsZero() {
			r.observe(ctx, Event{Kind: LeaseAcquired})
		}
		// The database began to count after begun. The last tenth is left for a publisher to stop.
		r.renewAt, r.until = begun.Add(r.config.Lease/3), begun.Add(r.config.Lease-r.config.Lease/10)
		return 0, nil
	case !r.renewAt.IsZero():
		r.renewAt = time.Time{}
		r.observe(ctx, Event{Kind: LeaseLost})
	}
	return max(time.Millisecond, min(left, r.config.Lease/3)), nil
}

// release gives the lease back, if it is held.
func (r *Relay) release(ctx context.Context) error {
	if r.renewAt.IsZero() {
		return nil
	}
	r.renewAt = time.Time{}
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := r.outbox.exec(ctx, "release", r.outbox.sql(releaseSQL), r.owner)
	return err
}

func (r *Relay) read(ctx context.Context) (fresh, failed []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	suffix := ""
	if r.backlog >= 1000 { // enough rows for a plan that is right for more
		suffix = planAgain
	}
	fresh, failed, err = r.outbox.read(ctx, r.limit, suffix)
	if r.backlog += len(fresh) + len(failed); max(len(fresh), len(failed)) < r.limit {
		r.backlog = 0
	}
	if err != nil {
		r.limit = max(1, r.limit/2) // the page may have been too large for the timeout
	}
	return fresh, failed, err
}

// mark marks confirmed messages as sent, even if ctx has ended.
func (r *Relay) mark(ctx context.Context) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	for positions := range slices.Chunk(r.confirmed, maxList) {
		if _, err := r.outbox.exec(ctx, "mark", r.outbox.sql(sentSQL, list(positions))); err != nil {
			return err
		}
	}
	r.confirmed = r.confirmed[:0]
	return nil
}

// sending is the state of one round.
type sending struct {
	*Relay
	ctx    context.Context // of Publish
	alive  bool            // the broker has confirmed a message
	outage bool            // the broker seems to be unreachable
	wait   time.Duration   // before the next round
}

// send publishes a page in waves, in which no key comes twice: a message is sent when the one
// before it is confirmed. So the order of a key holds whatever fails, and even if another relay
// sends, too.
func (s *sending) send(ctx context.Context, page []Message) error {
	for len(page) > 0 && s.wait == 0 && ctx.Err() == nil {
		var wave []Message
		wave, page = split(page)
		kept := time.Now().Before(s.until)
		if wait, err := s.hold(ctx); err != nil || wait > 0 {
			s.wait = wait
			return err
		}
		if !kept || !time.Now().Before(s.until) {
			return nil // another relay may have sent the page meanwhile, or the renewal came too late
		}
		failed, err := s.publish(ctx, wave)
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(m Message) bool { return slices.Contains(failed, m.Key) })
	}
	return nil
}

// split takes from a page the messages that can be sent at once: those without a key, and the first
// of each key.
func split(page []Message) (wave, rest []Message) {
	taken := map[string]bool{}
	for _, m := range page {
		if taken[m.Key] {
			rest = append(rest, m)
		} else {
			wave = append(wave, m)
		}
		taken[m.Key] = m.Key != ""
	}
	return wave, rest
}

// publish publishes one wave, and returns the keys of the messages that failed. The error is the
// database's.
func (s *sending) publish(ctx context.Context, wave []Message) (failed []string, err error) {
	call, cancel := context.WithDeadline(s.ctx, s.until)
	cause := s.publisher.Publish(call, wave)
	cancel()
	outcomes := make(Errors, len(wave))
	whole := false // the error is about the whole wave
	if cause != nil && (!errors.As(cause, &outcomes) || len(outcomes) != len(wave)) {
		outcomes, whole = slices.Repeat(Errors{cause}, len(wave)), true
	}
	sent, unconfirmed := 0, 0
	for i, m := range wave {
		switch outcome := outcomes[i]; {
		case outcome == nil:
			s.confirmed = append(s.confirmed, m.Position)
			sent++
			continue
		case whole || errors.Is(outcome, ErrUnconfirmed):
			unconfirmed++
			cause = outcome
		default:
			err = errors.Join(err, s.fail(ctx, &m, outcome, true))
		}
		failed = append(failed, m.Key)
	}
	if sent > 0 {
		s.alive, s.failures, s.limit = true, 0, min(s.config.Batch, s.limit*2)
		s.observe(ctx, Event{Kind: Published, Messages: sent})
	}
	switch {
	case unconfirmed > 0 && len(wave) == 1 && s.alive:
		err = s.fail(ctx, &wave[0], cause, false) // the broker is reachable, and no other message was sent
	case unconfirmed > 0:
		err = errors.Join(err, s.unreachable(ctx, wave, unconfirmed, cause))
	case sent == 0 && len(wave) > 1:
		s.wait = s.config.Pause // all were refused: probably not the messages' fault
	}
	return failed, err
}

// unreachable handles a failure that seems to be no message's own.
func (s *sending) unreachable(ctx context.Context, wave []Message, unconfirmed int, cause error) error {
	if ctx.Err() != nil {
		return nil // the shutdown has cut it off
	}
	s.failures++
	s.limit = 1 // to find out which message fails
	s.outage, s.wait = true, s.pause(s.failures)
	s.observe(ctx, Event{Kind: BrokerFailed, Messages: unconfirmed, Err: cause, Pause: s.wait})
	if len(wave) > 1 {
		return nil
	}
	m := wave[0]
	m.Attempt-- // the failure does not count, but others are tried before this message
	return s.markFailed(ctx, &m, stateRetrying, s.wait, cause)
}

// fail handles a failure that is a message's own. blamed says that the publisher has said so.
func (s *sending) fail(ctx context.Context, m *Message, cause error, blamed bool) error {
	e := Event{Kind: Failed, ID: m.ID, Topic: m.Topic, Attempt: m.Attempt, Err: cause, Pause: s.pause(m.Attempt)}
	state := stateRetrying
	if blamed && s.config.MaxAttempts > 0 && m.Attempt >= s.config.MaxAttempts {
		state, e.Kind, e.Pause = stateParked, Parked, 0
	}
	err := s.markFailed(ctx, m, state, e.Pause, cause)
	if err == nil {
		s.observe(ctx, e)
	}
	return err
}

// markFailed stores that a message has failed, and when it is tried again.
func (r *Relay) markFailed(ctx context.Context, m *Message, state int, pause time.Duration, cause error) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	reason := strings.ReplaceAll(strings.ToValidUTF8(cause.Error(), "\ufffd"), "\x00", "\ufffd")
	_, err := r.outbox.exec(ctx, "mark", r.outbox.sql(failedSQL, state, pause.Microseconds(), m.Attempt, m.Position), reason)
	return err
}

// pause is how long to wait after the n-th failure.
func (r *Relay) pause(n int) time.Duration {
	d := r.config.Pause
	for ; n > 1 && d < r.config.MaxPause; n-- {
		d *= 2
	}
	return min(d, r.config.MaxPause)
}

func (r *Relay) observe(ctx context.Context, e Event) {
	if r.config.Observe != nil {
		r.config.Observe(ctx, e)
	}
}
