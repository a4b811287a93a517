package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/idem-go/idem/core/store"
)

// Task is a policy compiled by an engine for what is not HTTP: messages, cron jobs, RPC. [Do]
// runs it. It is safe for concurrent use.
type Task struct{ guard *Guard }

// Task compiles p. p.Name is required: keys are stored under it, so that equal keys of
// different tasks do not meet; two tasks of one name have the same operations. What concerns
// requests and responses (Key, User, Failed, Authorize, Linger, parameters, header fields,
// BodyLimit) has no meaning here, and is a fault. It reports every fault of p at once, each as
// a *[ConfigError].
func (e *Engine) Task(p Policy) (*Task, error) {
	g, err := e.compile(p, false)
	if err != nil {
		return nil, err
	}
	return &Task{g}, nil
}

// MustTask is [Engine.Task] for policies that are fixed in the program; it panics with the
// faults.
func (e *Engine) MustTask(p Policy) *Task {
	t, err := e.Task(p)
	if err != nil {
		panic(err)
	}
	return t
}

// Policy returns the policy of t, with its defaults: for what runs tasks, and can't do with all of them.
func (t *Task) Policy() Policy { return t.guard.policy }

// Call says which operation a task is to carry out.
type Call struct {
	// Key is the operation's identity within the task and the user: the id of a message, say. It
	// is required, and may have any bytes.
	Key string
	// User is whose operation it is. Empty: it is nobody's in particular. More than 64 bytes are
	// stored as a hash.
	User string
	// Fingerprint tells a repetition from a reuse: a call with the same Key and another
	// Fingerprint is refused ([CodeKeyReused]). It may be a digest of the message, or the
	// message; more than 64 bytes are stored as a hash. Empty: the key alone decides.
	Fingerprint string
}

// Result is what [Do] returns.
type Result[T any] struct {
	// Value is what the function returned, now or the first time.
	Value T
	// Replayed says that the function ran earlier, and that Value was stored then.
	Replayed bool
	// Attempt is the number of the run that this call made; 0 if it made none.
	Attempt uint64
}

// Do runs fn once for call under the task's policy. Its value is stored: if T is []byte as it
// is, else as JSON. A value that can't be encoded is returned, but not stored.
//
// A duplicate gets, by [Policy.Duplicate], the stored value, or a *[Refusal], which errors.Is its
// [Code]: [CodeInProgress], [CodeDuplicate] (with Reject), [CodeUncertain], [CodeKeyReused], or
// [CodeResultUnavailable] (the value was not stored, for it had more than [Policy.ResponseLimit]
// bytes or could not be encoded; or it can't be decoded as a T). fn was not run either with
// [CodeKeyMissing] (an empty key), [CodeStoreUnavailable] (the store cannot be reached) and
// [CodeShuttingDown] (after [Engine.Drain]), nor with CodeInProgress when ctx ends while a duplicate
// waits. Within fn, another Do with the same task, call and context is part of the same run, and
// just calls its function; one with another task of the same name, and the same call, gets
// [CodeGuardConflict].
//
// If fn returns an error, Do returns it as it is, and the run has failed (see
// [Policy].OnFailure). fn gets a context with which [RunFrom] tells the attempt. It ends when
// ctx ends, when the claim is lost, or at a shutdown.
func Do[T any](ctx context.Context, t *Task, call Call, fn func(ctx context.Context) (T, error)) (Result[T], error) {
	var r Result[T]
	op := taskRun{guard: t.guard, call: call}
	op.fn = func(ctx context.Context) (err error) {
		r.Value, err = fn(ctx)
		return err
	}
	op.encode = func() ([]byte, error) {
		if b, ok := any(&r.Value).(*[]byte); ok {
			return *b, nil
		}
		return json.Marshal(r.Value)
	}
	op.decode = func(stored []byte) error {
		if b, ok := any(&r.Value).(*[]byte); ok {
			*b = stored // it is the caller's, see waiter.ownCopy
			return nil
		}
		var v T // of what can't be decoded, nothing is returned
		err := json.Unmarshal(stored, &v)
		if err == nil {
			r.Value = v
		}
		return err
	}
	err := t.guard.once(ctx, &op)
	r.Replayed, r.Attempt = op.replayed, op.attempt
	return r, err
}

// taskRun is an operation that is a function.
type taskRun struct {
	guard    *Guard
	call     Call
	fn       func(context.Context) error
	encode   func() ([]byte, error)
	decode   func([]byte) error
	replayed bool
	attempt  uint64
}

func (t *taskRun) identify() identity {
	if t.call.Key == "" {
		return identity{refusal: refusalKeyMissing}
	}
	fingerprint := t.call.Fingerprint
	if len(fingerprint) > 64 {
		sum := sha256.Sum256([]byte(fingerprint))
		fingerprint = hex.EncodeToString(sum[:])
	}
	return identity{key: t.guard.taskKey(t.call), fingerprint: fingerprint}
}

func (t *taskRun) request() *Request                             { return nil }
func (t *taskRun) stored(context.Context, store.Grant) *Response { return nil }

func (t *taskRun) route() string { return "DO " + t.guard.policy.Name }

func (t *taskRun) perform(c *runContext) (outcome, error) {
	t.attempt = c.attempt
	err := t.fn(c)
	c.done = true
	o := outcome{failed: err != nil, err: err}
	if t.guard.policy.Duplicate == Reject {
		return o, err // nothing of it will ever be shown
	}
	o.result = unavailable
	if err != nil {
		return o, err
	}
	value, fault := t.encode()
	switch {
	case fault != nil:
		o.err = fault
	case len(value) <= t.guard.policy.ResponseLimit:
		o.result = append(append(make([]byte, 0, 1+len(value)), resultValue), value...)
	}
	return o, nil
}

func (t *taskRun) deliver(time.Duration) error { return nil }

func (t *taskRun) replay(_ context.Context, grant store.Grant) (int, *Refusal, error) {
	if len(grant.Result) == 0 || grant.Result[0] != resultValue {
		return 0, refusalUnavailable, nil
	}
	if err := t.decode(grant.Result[1:]); err != nil {
		return 0, refusalUnavailable, err
	}
	t.replayed = true
	return 0, nil, nil
}

func (t *taskRun) refuse(_ context.Context, r *Refusal) error { return r }

func (t *taskRun) unprotected(ctx context.Context) error { return t.fn(ctx) }

func (t *taskRun) result(v Verdict) ([]byte, error) {
	if v.response != nil {
		return nil, errors.New("idem: Settled is for HTTP; use SettledValue")
	}
	if t.guard.policy.Duplicate == Reject {
		return nil, nil
	}
	if len(v.value) > t.guard.policy.ResponseLimit {
		return unavailable, nil
	}
	return append([]byte{resultValue}, v.value...), nil
}

// taskKey is the key of a task: its name stands where HTTP has method and route.
func (g *Guard) taskKey(call Call) Key {
	k := make([]byte, 0, len(g.engine.prefix)+len(call.User)+len(g.policy.Name)+len(call.Key)+16)
	k = g.appendOperation(k, User{ID: call.User}, "DO", g.policy.Name)
	k = append(k, "K="...)
	return Key{string(appendPart(k, call.Key))}
}
