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
// server that does not answer (1,024 commands). So a call is made in a goroutine of its own,
// which is left behind when the context ends. That costs a busy machine some 2 µs, a fifth
// of what the call does. It is spared where it isn't needed: while nothing has failed of
// late, and other calls are under way, but too few to fill a queue. Then there is
// a connection, for its end would have failed the others.
type calls struct {
	client rueidis.Client
	born   time.Time

	flying   atomic.Int32 // calls under way, in the client's hands
	left     atomic.Int32 // goroutines left behind
	restless atomic.Int64 // since born, in ns: when to trust the connections again; 0: they are trusted
	closed   atomic.Bool

	mu sync.Mutex     // between begin and Close
	wg sync.WaitGroup // goroutines: of calls, and the others of the store
}

const (
	// crowd is how many calls may be under way in their callers' own goroutines.
	crowd = 256
	// mistrust is how long after a failure the connections are not trusted: longer than
	// a client needs, by its default, to give up one that is silent.
	mistrust = 15 * time.Second
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

// call runs do, which calls the server, and returns when do does or ctx ends. do may go on
// after that, and must not use what belongs to the caller.
//
// cached says that do most likely finds the answer in the client's cache. It is then made in
// the caller's goroutine even if it is alone. If it meets with a connection that has just
// ended, it may have to wait for a new one: until its own deadline if it is the one that
// connects, else until that of the one that does.
func (c *calls) call(ctx context.Context, cached bool, do func(ctx context.Context) rueidis.RedisResult) (rueidis.RedisMessage, error) {
	for tries := 1; ; tries++ {
		if err := ctx.Err(); err != nil {
			return rueidis.RedisMessage{}, err
		}
		if c.closed.Load() {
			return rueidis.RedisMessage{}, errClosed
		}
		message, err := c.dispatch(ctx, cached, do).ToMessage()
		if _, answered := rueidis.IsRedisErr(err); err == nil || answered {
			if r := c.restless.Load(); r != 0 && c.now() > r {
				c.restless.CompareAndSwap(r, 0)
			}
			return message, err
		}
		c.restless.Store(c.now() + int64(mistrust))
		if ended := ctx.Err(); ended != nil {
			return message, ended
		}
		// Of the callers that wait for a connection, one makes it. When his context ends,
		// the others get its error, and have sent nothing yet. Only then may a call be
		// made again, for any other failure may have come after the server has acted.
		foreign := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !foreign || tries == triesMax {
			return message, err
		}
	}
}

// dispatch runs do where it belongs.
func (c *calls) dispatch(ctx context.Context, cached bool, do func(ctx context.Context) rueidis.RedisResult) rueidis.RedisResult {
	n := c.flying.Add(1)
	calm := n <= crowd && c.restless.Load() == 0
	if !calm || n == 1 && !cached {
		return c.handOff(ctx, do)
	}
	defer c.flying.Add(-1)
	if cached {
		return do(ctx)
	}
	return do(undated{ctx})
}

// now returns the time since the store was made, in ns. It is more than zero.
func (c *calls) now() int64 { return max(1, int64(time.Since(c.born))) }

// flight is a call that has been handed off. Either the caller waits for it to the end, or
// leaves it behind, or both happen at once and the first of them counts.
type flight struct {
	answer  chan rueidis.RedisResult
	decided atomic.Bool
}

// handOff runs do in a goroutine of its own, and leaves that behind when ctx ends.
func (c *calls) handOff(ctx context.Context, do func(ctx context.Context) rueidis.RedisResult) rueidis.RedisResult {
	if err := c.begin(); err != nil {
		c.flying.Add(-1)
		return rueidis.NewErrorResult(err)
	}
	f := &flight{answer: make(chan rueidis.RedisResult, 1)}
	go func() {
		defer c.wg.Done()
		f.answer <- do(undated{ctx})
		c.flying.Add(-1)
		if !f.decided.CompareAndSwap(false, true) {
			c.left.Add(-1)
		}
	}()
	select {
	case result := <-f.answer:
		return result
	case <-ctx.Done():
		c.left.Add(1)
		if !f.decided.CompareAndSwap(false, true) {
			c.left.Add(-1)
		}
		return rueidis.NewErrorResult(ctx.Err())
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
