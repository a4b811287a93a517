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

// Publisher hands messages to a broker.
type Publisher interface {
	// Publish sends messages, in any order or all at once: no two of them share a key. It returns
	// nil when the broker has confirmed them all. If it has refused some of them, or not confirmed
	// them, the error is an [Errors], which says so of each. Any other error is as if each of them
	// were [ErrUnconfirmed]: all are sent again, at first one by one.
	//
	// It returns when ctx ends, at the latest, and sends nothing after that.
	Publish(ctx context.Context, messages []Message) error
}

// PublisherFunc is a function that is a [Publisher].
type PublisherFunc func(ctx context.Context, messages []Message) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) error {
	return f(ctx, messages)
}

// Each returns a publisher that calls publish for each message, all at once. An error of publish is
// [ErrUnconfirmed], unless refused reports that the broker will never take that message. A nil refused
// blames no message. publish must be safe for concurrent use, and return when ctx ends.
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

// Errors are what has become of the messages of one call of Publish, one for each, in their order:
// nil if the broker has confirmed it; what is [ErrUnconfirmed] if that is nobody's fault; or else why
// the broker does not take this one. If all are nil, it is as good as nil.
type Errors []error

// ErrUnconfirmed is for a message that the broker has not confirmed, without blame: the connection
// was lost, or the time was over.
var ErrUnconfirmed = errors.New("outbox: the broker has not confirmed the message")

// Error returns the errors' texts.
func (e Errors) Error() string { return fmt.Sprint(errors.Join(e...)) }

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// RelayOptions set up a [Relay]. The zero RelayOptions are the defaults.
type RelayOptions struct {
	// Name says who it is, to people who look at the lease, at most 200 bytes. The default is the
	// name of the host and the number of the process.
	Name string
	// Lease is how long a relay that has died keeps others from sending. One Publish may take
	// half of that. One that waits looks for its turn three times in it. The default is 15 s.
	Lease time.Duration
	// Poll is how often the table is looked at while there is nothing to send, and nobody calls
	// Notify. The default is 1 s.
	Poll time.Duration
	// Batch is how many messages are read at a time, which is also how many may be sent twice
	// when a relay dies. The default is 100.
	Batch int
	// Pause is how long a message that has failed waits the first time, and the relay after a
	// failure of the broker or the database; each further time twice as long, up to MaxPause. The
	// defaults are 500 ms and 30 s.
	Pause, MaxPause time.Duration
	// MaxAttempts is how often a message may fail before it is parked: it is not sent any more,
	// and the later ones of its key are. Only a failure that Publish has blamed on it leads to that
	// ([Errors]). Zero: it is tried for ever.
	MaxAttempts int
	// Drain is how long a Publish that is under way may go on when the context of Run has ended.
	// The default is 5 s.
	Drain time.Duration
	// Observe is told what happens, see [Event], while the relay waits for it. Nil: nobody is.
	Observe func(ctx context.Context, e Event)
}

// Relay sends the messages of an outbox. Make one with [Outbox.NewRelay].
type Relay struct {
	outbox    *Outbox
	publisher Publisher
	options   RelayOptions
	owner     string
	running   atomic.Bool

	renewAt   time.Time // when the lease is to be renewed; zero: not held
	until     time.Time // from when on nothing may be sent
	confirmed []int64   // positions that are to be marked as sent
	limit     int       // of a page: Batch, or less after a failure that could be anybody's
	failures  int       // of the broker, in a row
}

// NewRelay returns a relay that sends by way of publisher. All faults of the options are reported
// at once.
func (o *Outbox) NewRelay(publisher Publisher, options RelayOptions) (*Relay, error) {
	options.Lease = cmp.Or(options.Lease, 15*time.Second)
	options.Poll = cmp.Or(options.Poll, time.Second)
	options.Batch = cmp.Or(options.Batch, 100)
	options.Pause = cmp.Or(options.Pause, 500*time.Millisecond)
	options.MaxPause = cmp.Or(options.MaxPause, max(30*time.Second, options.Pause))
	options.Drain = cmp.Or(options.Drain, 5*time.Second)
	if options.Name == "" {
		host, _ := os.Hostname()
		options.Name = fmt.Sprintf("%.180s:%d", host, os.Getpid())
	}
	var faults []error
	if publisher == nil {
		faults = append(faults, errors.New("outbox: the publisher is nil"))
	}
	if min(options.Lease, options.Poll, options.Pause, options.MaxPause, options.Drain) < 0 || min(options.Batch, options.MaxAttempts) < 0 {
		faults = append(faults, fmt.Errorf("outbox: Lease, Poll, Batch, Pause, MaxPause, MaxAttempts or Drain is less than zero: %+v", options))
	}
	if options.MaxPause < options.Pause {
		faults = append(faults, fmt.Errorf("outbox: MaxPause is less than Pause: %v, %v", options.MaxPause, options.Pause))
	}
	if len(options.Name) > 200 {
		faults = append(faults, fmt.Errorf("outbox: Name has %d bytes", len(options.Name)))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	owner := options.Name + ownerMark + rand.Text()
	return &Relay{outbox: o, publisher: publisher, options: options, owner: owner, limit: options.Batch}, nil
}

// ownerMark stands between the name of a relay and what tells it from others of that name.
const ownerMark = " #"

// statementTime is how long the relay waits for an answer of the database.
const statementTime = 5 * time.Second

// Run sends messages until ctx ends. Of all relays of an outbox, one at a time does; the others
// wait for its lease to pass. When ctx ends, nothing more is begun, what the publisher is about to
// have confirmed is waited for (see RelayOptions.Drain) and marked as sent, and the lease is given
// back. Run then returns nil, or the error because of which messages that were sent could not be
// marked, so that they will be sent again.
//
// What fails is tried again, for ever: see [Event]. A relay runs once at a time: a second Run
// beside the first is an error.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("outbox: the relay is running already")
	}
	defer r.running.Store(false)
	publishing, stop := outlive(ctx, r.options.Drain)
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

// beyond returns a context for a statement that is carried out although ctx has ended.
func beyond(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), statementTime)
}

// round sends what there is to send, or waits for a while. The error is the database's.
func (r *Relay) round(ctx, publishing context.Context) error {
	if err := r.mark(ctx); err != nil { // what an earlier round could not
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
		sleep(ctx, min(r.options.Poll, time.Until(r.renewAt)), r.outbox.wake)
		return nil
	}
	// What is new comes first: if that is sent, the broker is there, and what fails then fails by
	// itself.
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
	ctx, cancel := beyond(ctx) // a lease that nobody knows of would not be given back
	defer cancel()
	held, left, err := r.outbox.lease(ctx, r.owner, r.options.Lease)
	switch {
	case err != nil:
		return 0, err
	case held:
		if r.renewAt.IsZero() {
			r.observe(ctx, Event{Kind: LeaseAcquired})
		}
		// The database has begun to count later. A tenth is left for a publisher to notice the end.
		r.renewAt, r.until = begun.Add(r.options.Lease/3), begun.Add(r.options.Lease-r.options.Lease/10)
		return 0, nil
	case !r.renewAt.IsZero():
		r.renewAt = time.Time{}
		r.observe(ctx, Event{Kind: LeaseLost})
	}
	return max(time.Millisecond, min(left, r.options.Lease/3)), nil
}

// release gives the lease back, if it is held.
func (r *Relay) release(ctx context.Context) error {
	if r.renewAt.IsZero() {
		return nil
	}
	r.renewAt = time.Time{}
	ctx, cancel := beyond(ctx)
	defer cancel()
	_, err := r.outbox.exec(ctx, "release", r.outbox.sql(releaseSQL), r.owner)
	return err
}

func (r *Relay) read(ctx context.Context) (fresh, failed []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	fresh, failed, err = r.outbox.read(ctx, r.limit)
	if err != nil {
		r.limit = max(1, r.limit/2) // it may have been too much for the time
	}
	return fresh, failed, err
}

// mark marks what is confirmed as sent, also when ctx has ended.
func (r *Relay) mark(ctx context.Context) error {
	ctx, cancel := beyond(ctx)
	defer cancel()
	for positions := range slices.Chunk(r.confirmed, maxList) {
		if _, err := r.outbox.exec(ctx, "mark", r.outbox.sql(sentSQL, list(positions))); err != nil {
			return err
		}
	}
	r.confirmed = r.confirmed[:0]
	return nil
}

// sending is one round's.
type sending struct {
	*Relay
	ctx    context.Context // of Publish
	alive  bool            // the broker has confirmed something
	outage bool            // it cannot be reached, as it seems
	wait   time.Duration   // before the next round
}

// send hands a page to the publisher in waves, in which no key comes twice: a message is sent when
// the one before it is confirmed. So the order of a key holds whatever fails, and whoever else
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
			return nil // another relay may have sent the page meanwhile, or the renewal has come too late
		}
		failed, err := s.publish(ctx, wave)
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(m Message) bool { return slices.Contains(failed, m.Key) })
	}
	return nil
}

// split takes from a page what can be sent at once: all that has no key, and the first of each key.
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

// publish hands one wave to the publisher, and returns the keys of what has failed. The error is
// the database's.
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
		s.alive, s.failures, s.limit = true, 0, min(s.options.Batch, s.limit*2)
		s.observe(ctx, Event{Kind: Published, Messages: sent})
	}
	switch {
	case unconfirmed > 0 && len(wave) == 1 && s.alive:
		err = s.fail(ctx, &wave[0], cause, false) // whose fault else could it be
	case unconfirmed > 0:
		err = errors.Join(err, s.unreachable(ctx, wave, unconfirmed, cause))
	case sent == 0 && len(wave) > 1:
		s.wait = s.options.Pause // it is not likely that all of them are bad
	}
	return failed, err
}

// unreachable follows a failure that is no message's own, as far as is known.
func (s *sending) unreachable(ctx context.Context, wave []Message, unconfirmed int, cause error) error {
	if ctx.Err() != nil {
		return nil // it was cut off
	}
	s.failures++
	s.limit = 1 // to find out whose it is
	s.outage, s.wait = true, s.pause(s.failures)
	s.observe(ctx, Event{Kind: BrokerFailed, Messages: unconfirmed, Err: cause, Pause: s.wait})
	if len(wave) > 1 {
		return nil
	}
	m := wave[0]
	m.Attempt-- // it is not counted, but others are tried before it
	return s.markFailed(ctx, &m, stateRetrying, s.wait, cause)
}

// fail follows a failure that is a message's own. blamed says that the publisher has said so.
func (s *sending) fail(ctx context.Context, m *Message, cause error, blamed bool) error {
	e := Event{Kind: Failed, ID: m.ID, Topic: m.Topic, Attempt: m.Attempt, Err: cause, Pause: s.pause(m.Attempt)}
	state := stateRetrying
	if blamed && s.options.MaxAttempts > 0 && m.Attempt >= s.options.MaxAttempts {
		state, e.Kind, e.Pause = stateParked, Parked, 0
	}
	err := s.markFailed(ctx, m, state, e.Pause, cause)
	if err == nil {
		s.observe(ctx, e)
	}
	return err
}

// markFailed notes that a message has failed, and when it is tried again if it is.
func (r *Relay) markFailed(ctx context.Context, m *Message, state int, pause time.Duration, cause error) error {
	ctx, cancel := beyond(ctx)
	defer cancel()
	reason := strings.ReplaceAll(strings.ToValidUTF8(cause.Error(), "\ufffd"), "\x00", "\ufffd")
	_, err := r.outbox.exec(ctx, "mark", r.outbox.sql(failedSQL, state, pause.Microseconds(), m.Attempt, m.Position), reason)
	return err
}

// pause is how long to wait after the n-th failure.
func (r *Relay) pause(n int) time.Duration {
	d := r.options.Pause
	for ; n > 1 && d < r.options.MaxPause; n-- {
		d *= 2
	}
	return min(d, r.options.MaxPause)
}

func (r *Relay) observe(ctx context.Context, e Event) {
	if r.options.Observe != nil {
		r.options.Observe(ctx, e)
	}
}
