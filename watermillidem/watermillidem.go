package watermillidem

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

// Config configures the middleware. The zero Config works as the package comment says.
type Config struct {
	// Policy is a task's policy, see [core.Engine.Task]. Its Name is the consumer's name: a message that
	// one handler with this name has run is not run by another one. If Name is empty, it is the name
	// of the Router's handler, so that each handler is a consumer of its own.
	Policy core.TaskPolicy

	// Key returns the key of a message; middleware.MessageHasher of Watermill has this type. Nil means
	// the UUID. If Key returns an error or an empty key, the message gets a [Permanent] error
	// (key_invalid, key_missing). With the Policy's Presence Optional, one with an empty key is handled unprotected, each time. Key
	// must be safe for concurrent use.
	Key func(msg *message.Message) (string, error)

	// Metadata are the names of metadata that are part of the fingerprint, in addition to the payload.
	// Missing and empty metadata are equal.
	Metadata []string

	// Pause is how long a message with a [Temporary] error is held before the error is returned,
	// because many brokers deliver it again at once. It ends early with the message's context. Zero
	// means 1 second. Set a negative one for brokers that delay redelivery themselves.
	Pause time.Duration
}

const defaultPause = time.Second

// New returns a middleware that protects handlers with engine. It is safe for concurrent use, and may be
// mounted on a Router or on any number of handlers. The error joins every fault of c.Policy, each a
// *[core.ConfigError].
func New(engine *core.Engine, c Config) (message.HandlerMiddleware, error) {
	p := c.Policy
	p.Name = cmp.Or(p.Name, "the name of a handler")
	_, err := engine.Task(p)
	if p.Duplicate.IsReject() && p.OnFailure == core.Keep {
		err = errors.Join(err, &core.ConfigError{Field: "TaskPolicy.OnFailure",
			Problem: "is Keep under Reject: the redelivery of a failed message would be acknowledged, and the message lost"})
	}
	if err != nil {
		return nil, err
	}
	c.Metadata = slices.Sorted(slices.Values(c.Metadata))
	c.Pause = cmp.Or(c.Pause, defaultPause)
	return (&consumer{engine: engine, config: c}).middleware, nil
}

// MustNew is [New] for configurations that are fixed in the program. It panics if there is a fault.
func MustNew(engine *core.Engine, c Config) message.HandlerMiddleware {
	m, err := New(engine, c)
	if err != nil {
		panic(err)
	}
	return m
}

// RefusedError says that a message was not run. errors.Is matches the [codes.Code] of its Refusal.
type RefusedError struct {
	Refusal *core.Refusal
}

// Error returns the reason.
func (e *RefusedError) Error() string {
	return "watermillidem: the message was not run: " + e.Refusal.Error()
}

// Unwrap returns the refusal.
func (e *RefusedError) Unwrap() error { return e.Refusal }

// Permanent reports whether err is a [RefusedError] that every redelivery gets again: uncertain,
// key_reused, key_missing, key_invalid, result_unavailable, guard_conflict. Use it as the filter of
// Watermill's PoisonQueueWithFilter.
func Permanent(err error) bool {
	e, ok := errors.AsType[*RefusedError](err)
	return ok && !e.passes()
}

// Temporary reports whether err is a [RefusedError] after which a redelivery may run: in_progress,
// store_unavailable, shutting_down. Such a message does not belong in a poison queue: it is still running,
// or has not begun.
func Temporary(err error) bool {
	e, ok := errors.AsType[*RefusedError](err)
	return ok && e.passes()
}

func (e *RefusedError) passes() bool { return e.Refusal.RetryAfter > 0 }

// consumer is the state of a middleware.
type consumer struct {
	engine *core.Engine
	config Config
	tasks  sync.Map // a *core.Task for each name
}

func (c *consumer) middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) { return c.handle(msg, next) }
}

func (c *consumer) handle(msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	outside := msg.Context()
	task, err := c.task(outside)
	if err != nil {
		return nil, err
	}
	call := core.Call{Key: msg.UUID, Fingerprint: c.fingerprint(msg)}
	if c.config.Key != nil {
		if call.Key, err = c.config.Key(msg); err != nil {
			return nil, &RefusedError{core.NewRefusal(codes.KeyInvalid, err)}
		}
	}
	var run *core.Run
	ran := false
	result, err := core.Do(outside, task, call, func(ctx context.Context) (produced, error) {
		ran, run = true, core.RunFrom(ctx)
		msg.SetContext(ctx)
		defer msg.SetContext(outside)
		return next(msg)
	})
	if ran {
		detach(run, result.Value)
		return result.Value, err
	}
	refusal, refused := errors.AsType[*core.Refusal](err)
	switch {
	case !refused:
		return result.Value, err // a replay
	case refusal.Code == codes.Duplicate:
		return nil, nil
	}
	e := &RefusedError{refusal}
	if e.passes() {
		sleep(outside, c.config.Pause)
	}
	return nil, e
}

// task returns the task of a message's consumer. The error is that of [core.Engine.Task], for a consumer
// without a name outside of a Router.
func (c *consumer) task(ctx context.Context) (*core.Task, error) {
	name := cmp.Or(c.config.Policy.Name, message.HandlerNameFromCtx(ctx))
	if task, ok := c.tasks.Load(name); ok {
		return task.(*core.Task), nil
	}
	p := c.config.Policy
	p.Name = name
	task, err := c.engine.Task(p)
	if err != nil {
		return nil, err
	}
	one, _ := c.tasks.LoadOrStore(name, task)
	return one.(*core.Task), nil
}

func (c *consumer) fingerprint(msg *message.Message) string {
	sum := sha256.Sum256(msg.Payload)
	if len(c.config.Metadata) > 0 {
		text := sum[:]
		for _, name := range c.config.Metadata {
			for _, s := range []string{name, msg.Metadata.Get(name)} {
				text = binary.AppendUvarint(text, uint64(len(s)))
				text = append(text, s...)
			}
		}
		sum = sha256.Sum256(text)
	}
	var digest [2 * sha256.Size]byte
	hex.Encode(digest[:], sum[:])
	return string(digest[:])
}

// detach gives messages that were made with the run's context one that does not end: they are published
// after the run's has ended.
func detach(run *core.Run, msgs []*message.Message) {
	for _, m := range msgs {
		if m != nil && core.RunFrom(m.Context()) == run {
			m.SetContext(context.WithoutCancel(m.Context()))
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
