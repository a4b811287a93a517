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

	left   atomic.Int32 // goroutines left behind
	closed atomic.Bool

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

// doing calls the server. It may go on after its caller has gone, and must not use what
// belongs to the caller.
type doing func(ctx context.Context) rueidis.RedisResult

// call runs do, and returns when do does or ctx ends. again says that do may have been
// carried out more than once.
//
// If late is set, do goes on for its answer when ctx has ended, and late is called with it.
func (c *calls) call(ctx context.Context, do doing, late func(rueidis.RedisResult)) (message rueidis.RedisMessage, again bool, err error) {
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return message, again, err
		}
		if c.closed.Load() {
			return message, again, errClosed
		}
		message, err = c.handOff(ctx, do, late).ToMessage()
		if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
			return message, again, err
		}
		if ended := ctx.Err(); ended != nil {
			return message, again, ended
		}
		// Of the callers that wait for a connection, one makes it. When his context ends,
		// the others get its error, and have sent nothing yet. (Nearly: a client that
		// renews its credentials may end a connection in the same way.) Any other failure
		// may have come after the server has acted.
		foreign := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !foreign || tries == triesMax {
			return message, again, err
		}
		again = true
	}
}

// flight is a call that has been handed off. Either the caller waits for it to the end, or
// leaves it behind, or both happen at once and the first of them counts.
type flight struct {
	answer  chan rueidis.RedisResult
	decided atomic.Bool
}

// handOff runs do in a goroutine of its own, and leaves that behind when ctx ends.
func (c *calls) handOff(ctx context.Context, do doing, late func(rueidis.RedisResult)) rueidis.RedisResult {
	if err := c.begin(); err != nil {
		return rueidis.NewErrorResult(err)
	}
	f := &flight{answer: make(chan rueidis.RedisResult, 1)}
	go func() {
		defer c.wg.Done()
		on := ctx
		if late != nil {
			on = context.WithoutCancel(ctx)
		}
		result := do(undated{on})
		f.answer <- result
		if !f.decided.CompareAndSwap(false, true) {
			if late != nil {
				late(result)
			}
			c.left.Add(-1)
		}
	}()
	select {
	case result := <-f.answer:
		return result
	case <-ctx.Done():
		c.left.Add(1)
		if f.decided.CompareAndSwap(false, true) {
			return rueidis.NewErrorResult(ctx.Err())
		}
		c.left.Add(-1) // it has come at the same moment
		return <-f.answer
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
