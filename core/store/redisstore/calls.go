package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// calls makes the calls to the server, each of which returns when its context ends.
//
// The client does not do that by itself. While it connects, or while its queue to a silent
// server is full (1,024 commands of all users of the client), callers wait whatever their
// contexts say. So commands are sent in other goroutines, a batch or a call in each, which are left behind when the
// contexts of all their callers have ended.
type calls struct {
	client Client

	left    atomic.Int32 // goroutines left behind
	closed  atomic.Bool
	natives natives

	mu sync.Mutex     // between begin and Close
	wg sync.WaitGroup // goroutines: of calls, and the others of the store
}

const (
	// leftMax bounds the goroutines that are left behind. They end when the connection
	// answers, breaks, or is closed.
	leftMax = 4096
	// triesMax is how often a call is tried if other callers' contexts end it.
	triesMax = 4
)

var (
	errClosed = errors.New("redisstore: the store is closed")
	errStuck  = errors.New("redisstore: the server does not answer, and too many calls wait for it already")
)

// withoutDeadline hides a context's deadline from the client, but not its end. A client that
// sees a deadline may close a connection when it passes, and all callers share the connection.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// withoutCancel hides a context's end as well. It is a context.WithoutCancel that lies in the
// flight, so that a claim does not allocate one.
type withoutCancel struct{ context.Context }

func (withoutCancel) Deadline() (time.Time, bool) { return time.Time{}, false }
func (withoutCancel) Done() <-chan struct{}       { return nil }
func (withoutCancel) Err() error                  { return nil }

// command is a script to be run. It may still be under way when its caller has gone, so it
// holds only strings, and no memory of the caller's.
type command struct {
	script *script // nil: GET
	key    string
	args   [6]string
	n      int // how many args there are
	// known, unless empty, is the record under key as its owner has made it. See claimed.
	known string
	// owner, unless empty, is the owner of the claim that the script may make. If the caller
	// has gone by then, the claim is released.
	owner string
}

// call runs a command, and returns when it is done or ctx ends. repeated says that it may have
// run more than once.
func (c *calls) call(ctx context.Context, do command) (a answer, repeated bool, err error) {
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return a, repeated, err
		}
		if c.closed.Load() {
			return a, repeated, errClosed
		}
		a = c.handOff(ctx, do, repeated)
		if repeated = repeated || a.repeated; a.answered() {
			return a, repeated, a.err
		}
		if ended := ctx.Err(); ended != nil {
			return a, repeated, ended
		}
		// One of the callers that wait for a connection makes it. When that caller's context
		// ends, the others get its error, and have sent nothing yet. (Nearly: a client that
		// renews its credentials may end a connection in the same way.) Any other failure may
		// have come after the server acted.
		foreign := errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)
		if !foreign || tries == triesMax {
			return a, repeated, a.err
		}
		repeated = true
	}
}

// flight is a command that is under way. Its first round trip is part of a batch, if the client has batches. What comes after it, and
// all of it where there are no batches, runs in a goroutine of its own. Either the caller waits for its answer, or leaves it behind;
// decided says that one of the two has happened.
//
// Flights are pooled, except those that the server has not answered: the client may still hold
// their memory. A finished flight belongs to its caller alone: the goroutine does not touch it
// after it has sent the answer.
type flight struct {
	calls     *calls
	ctx       withoutDeadline // the caller's context
	detached  withoutCancel   // the same, for a claim
	command   command
	commands  [2]Command // what is sent, and its replies
	words     [10]string // of what is sent
	sent      []Command  // the first round trip: some of commands
	native    *trial     // of the first round trip's command; nil: it is the script
	replied   bool       // the first round trip has been made
	repeated  bool       // one of them may have been sent twice
	batch     *batch     // that the first round trip is in, guarded by the batcher's mutex; nil: the replies are there
	replies   chan struct{}
	decided   atomic.Bool
	answer    chan answer
	goroutine func() // the method execute, allocated once
}

var flights = sync.Pool{New: func() any {
	f := newFlight()
	f.goroutine = f.execute
	return f
}}

func newFlight() *flight {
	return &flight{answer: make(chan answer, 1), replies: make(chan struct{}, 1)}
}

// context returns the context with which the flight's commands are sent: a late claim must be released, so its answer is waited for.
func (f *flight) context() context.Context {
	if f.command.owner != "" {
		return &f.detached
	}
	return &f.ctx
}

// execute runs the command, or what is left of it after its first round trip, and sends the answer.
func (f *flight) execute() {
	c := f.calls
	defer c.wg.Done()
	ctx, a, final := f.context(), answer{}, false
	if !f.replied {
		if f.sent = f.first(); f.sent != nil {
			f.do(ctx, len(f.sent))
			a, final = f.outcome()
		}
	}
	if !final {
		a = f.run(ctx)
	}
	a.repeated = f.repeated
	if f.decided.CompareAndSwap(false, true) {
		f.answer <- a
		return
	}
	f.drop(a)
}

// drop ends a flight whose caller has gone: a claim that was made is released. One that was sent twice finds itself, if the first
// made it, and looks as if it was not.
func (f *flight) drop(a answer) {
	if f.command.owner != "" && (a.number != 0 || f.repeated) {
		f.runScript(context.Background(), releaseScript, []string{f.command.owner})
	}
	f.calls.left.Add(-1)
}

// late waits for the replies to a claim whose caller has gone.
func (f *flight) late() {
	defer f.calls.wg.Done()
	<-f.replies
	f.note(len(f.sent))
	a, _ := f.outcome()
	f.drop(a)
}

// do sends the first n of the flight's commands.
func (f *flight) do(ctx context.Context, n int) {
	f.calls.client.Do(ctx, f.commands[:n])
	f.note(n)
}

// note notes whether one of the first n commands may have been sent twice.
func (f *flight) note(n int) {
	for i := range f.commands[:n] {
		f.repeated = f.repeated || f.commands[i].Repeated
	}
}

// recycle puts a flight whose answer has been received back into the pool.
func (f *flight) recycle(a answer) answer {
	if a.answered() {
		f.calls, f.ctx, f.detached = nil, withoutDeadline{}, withoutCancel{}
		f.command, f.commands, f.words = command{}, [2]Command{}, [10]string{}
		f.sent, f.native, f.replied, f.repeated = nil, nil, false, false
		f.decided.Store(false)
		flights.Put(f)
	}
	return a
}

// handOff runs a command, and leaves it behind when ctx ends. repeated says that it may have run before.
func (c *calls) handOff(ctx context.Context, do command, repeated bool) answer {
	if err := c.begin(); err != nil {
		return answer{err: err}
	}
	f := flights.Get().(*flight)
	f.calls, f.ctx, f.detached = c, withoutDeadline{ctx}, withoutCancel{ctx}
	f.command, f.repeated = do, repeated
	if b, is := c.client.(*batcher); is {
		if f.sent = f.first(); f.sent != nil {
			b.add(f)
			select {
			case <-f.replies:
			case <-ctx.Done():
				if b.leave(f) {
					if do.owner == "" {
						c.wg.Done()
					} else {
						c.left.Add(1)
						go f.late()
					}
					return answer{err: ctx.Err()}
				}
				<-f.replies // they came at the same moment
			}
			f.note(len(f.sent))
			if a, final := f.outcome(); final {
				c.wg.Done()
				a.repeated = f.repeated
				return f.recycle(a)
			}
			f.replied = true
		}
	}
	go f.goroutine()
	select {
	case a := <-f.answer:
		return f.recycle(a)
	case <-ctx.Done():
		c.left.Add(1)
		if f.decided.CompareAndSwap(false, true) {
			return answer{err: ctx.Err()}
		}
		c.left.Add(-1) // the answer came at the same moment
		return f.recycle(<-f.answer)
	}
}

// begin registers a goroutine that Close waits for. The goroutine ends with wg.Done.
func (c *calls) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed.Load():
		return errClosed
	case c.left.Load() >= leftMax:
		return errStuck
	}
	c.wg.Add(1)
	return nil
}
