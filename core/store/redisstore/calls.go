package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// calls makes the calls to the server, each of which returns at its context's end.
//
// The client does not do that by itself: who meets with a connection that is being made
// waits for it, whatever his context says, and so does who meets with a full queue to a
// server that does not answer (1,024 commands, of all who share the client). So a call is
// made in a goroutine of its own, which is left behind when the context ends.
type calls struct {
	client rueidis.Client

	left        atomic.Int32 // goroutines left behind
	closed      atomic.Bool
	scriptsOnly atomic.Bool // a server does not know the command for a claim

	mu sync.Mutex     // between begin and Close
	wg sync.WaitGroup // goroutines: of calls, and the others of the store
}

const (
	// leftMax bounds the goroutines that are left behind. They end when the connection
	// answers, breaks, or is given up.
	leftMax = 4096
	// triesMax is how often a call is made that others' contexts have ended.
	triesMax = 4
)

var (
	errClosed = errors.New("redisstore: the store is closed")
	errStuck  = errors.New("redisstore: the server does not answer, and too many calls wait for it already")
)

// undated hides a context's deadline from the client, but not its end. A client that sees
// a deadline may break a connection when it passes, which all callers share.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// endless hides a context's end as well. It is context.WithoutCancel and undated in one, of
// which every claim makes one.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Time{}, false }
func (endless) Done() <-chan struct{}       { return nil }
func (endless) Err() error                  { return nil }

// script is a *rueidis.Lua.
type script interface {
	Exec(ctx context.Context, client rueidis.Client, keys, args []string) rueidis.RedisResult
}

// command is a script to be run. It may still be under way when its caller has gone, so it
// holds nothing that belongs to the caller: only strings.
type command struct {
	script script
	key    string
	args   [3]string
	n      int // how many args there are
	// owner, unless empty, is the one that the script makes a claim for. If it does so when
	// nobody waits for it any more, the claim must not stand in the way, and is released.
	owner string
}

// call runs a command, and returns when that has been done or ctx ends. again says that it may
// have been carried out more than once.
func (c *calls) call(ctx context.Context, do command) (a answer, again bool, err error) {
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return a, again, err
		}
		if c.closed.Load() {
			return a, again, errClosed
		}
		if a = c.handOff(ctx, do); a.answered() {
			return a, again, a.err
		}
		if ended := ctx.Err(); ended != nil {
			return a, again, ended
		}
		// Of the callers that wait for a connection, one makes it. When his context ends,
		// the others get its error, and have sent nothing yet. (Nearly: a client that
		// renews its credentials may end a connection in the same way.) Any other failure
		// may have come after the server has acted.
		foreign := errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)
		if !foreign || tries == triesMax {
			return a, again, a.err
		}
		again = true
	}
}

// flight is a command that has been handed off. Either the caller waits for it to the end, or
// leaves it behind, or both happen at once and the first of them counts.
//
// Flights are pooled, but for those that the server has not answered: the client may still
// hold what it was given for them. A flight that is done belongs to its caller alone: the last thing
// that the goroutine does with it is to send the answer.
type flight struct {
	calls   *calls
	undated undated // of the caller's context, as endless is
	endless endless
	command command
	keys    [1]string
	pair    [2]rueidis.Completed // see claim
	decided atomic.Bool
	answer  chan answer
	fly     func() // carryOut, made once
}

var flights = sync.Pool{New: func() any {
	f := &flight{answer: make(chan answer, 1)}
	f.fly = f.carryOut
	return f
}}

// carryOut is the goroutine of a flight.
func (f *flight) carryOut() {
	c, do := f.calls, &f.command
	defer c.wg.Done()
	var a answer
	if do.owner == "" {
		a = f.run(&f.undated)
	} else {
		a = f.claim(&f.endless) // it goes on for its answer
	}
	if f.decided.CompareAndSwap(false, true) {
		f.answer <- a
		return
	}
	if do.owner != "" && a.number > 0 {
		releaseScript.Exec(context.Background(), c.client, f.keys[:], []string{do.owner})
	}
	c.left.Add(-1)
}

// end lets go of a flight whose answer has been taken.
func (f *flight) end(a answer) answer {
	if a.answered() {
		f.calls, f.undated, f.endless = nil, undated{}, endless{}
		f.command, f.keys, f.pair = command{}, [1]string{}, [2]rueidis.Completed{}
		f.decided.Store(false)
		flights.Put(f)
	}
	return a
}

// handOff runs a command in a goroutine of its own, and leaves that behind when ctx ends.
func (c *calls) handOff(ctx context.Context, do command) answer {
	if err := c.begin(); err != nil {
		return answer{err: err}
	}
	f := flights.Get().(*flight)
	f.calls, f.undated, f.endless = c, undated{ctx}, endless{ctx}
	f.command, f.keys[0] = do, do.key
	go f.fly()
	select {
	case a := <-f.answer:
		return f.end(a)
	case <-ctx.Done():
		c.left.Add(1)
		if f.decided.CompareAndSwap(false, true) {
			return answer{err: ctx.Err()}
		}
		c.left.Add(-1) // it has come at the same moment
		return f.end(<-f.answer)
	}
}

// begin announces a goroutine that Close waits for. It ends with wg.Done.
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
