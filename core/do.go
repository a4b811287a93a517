package core

import (
	"context"
	"errors"
)

// Result is what [Engine.Do] returns.
type Result struct {
	// Value is what the function returned, now or the first time.
	Value []byte
	// Replayed says that the function ran earlier, and that Value was stored then.
	Replayed bool
	// Attempt is the number of the run that this call made; 0 if it made none.
	Attempt uint64
}

// Do runs fn once for key under p: for messages, cron jobs, RPC, and whatever else is
// not HTTP. The key is stored under p.Name, which is required, so that equal keys of
// different tasks do not meet.
//
// A duplicate gets, by p.Duplicate, the stored value, or one of these errors (test with
// errors.Is): [ErrInProgress], [ErrDuplicate] (with Reject), [ErrUncertain],
// [ErrResultUnavailable]. [ErrKeyMissing] is returned for an empty key, and
// [ErrStoreUnavailable] when the store cannot be reached and fn was not run. A faulty
// policy is reported as by [Engine.Guard]. Within fn, another Do with the same engine, name
// and key, and with fn's context, is part of the same run and just calls its function.
//
// If fn returns an error, Do returns it as it is, and the record is released (or, with
// OnFailure set to Keep, kept without a value). A value of more than p.ResponseLimit
// bytes is returned but not stored. fn gets a context that ends when the claim is
// lost, and from which [RunFrom] tells the attempt. p.Key, p.User, p.Failed,
// p.Authorize and what concerns parameters and headers have no meaning here.
func (e *Engine) Do(ctx context.Context, key string, p Policy, fn func(ctx context.Context) ([]byte, error)) (Result, error) {
	g, err := e.compile(p, false)
	if err != nil {
		return Result{}, err
	}
	t := task{guard: g, id: key, fn: fn}
	err = g.once(ctx, &t)
	return t.result, err
}

// task is an operation that is a function.
type task struct {
	guard  *Guard
	id     string
	fn     func(ctx context.Context) ([]byte, error)
	result Result
}

func (t *task) identify() identity {
	if t.id == "" {
		return identity{refusal: ErrKeyMissing}
	}
	return identity{key: t.guard.taskKey(t.id)}
}

func (t *task) request() *Request { return nil }
func (t *task) route() string     { return "DO " + t.guard.policy.Name }

func (t *task) perform(c *runContext) (outcome, error) {
	t.result.Attempt = c.run.attempt
	value, err := t.fn(c)
	t.result.Value = value
	o := outcome{failed: err != nil, err: err}
	switch {
	case err != nil, len(value) > t.guard.policy.ResponseLimit:
		o.result = unavailable
	case t.guard.policy.Duplicate != Reject:
		o.result = append(append(make([]byte, 0, 1+len(value)), resultValue), value...)
	}
	return o, err
}

func (t *task) deliver() error { return nil }

func (t *task) replay(_ context.Context, result []byte) (int, *Refusal, error) {
	if len(result) == 0 || result[0] != resultValue {
		return 0, ErrResultUnavailable, nil
	}
	t.result = Result{Value: result[1:], Replayed: true}
	return 0, nil, nil
}

func (t *task) refuse(r *Refusal) error { return r }

func (t *task) unprotected(ctx context.Context) (err error) {
	t.result.Value, err = t.fn(ctx)
	return err
}

func (t *task) settle(v Verdict) ([]byte, error) {
	if v.response != nil {
		return nil, errors.New("idem: Settled is for HTTP; use SettledValue")
	}
	if len(v.value) > t.guard.policy.ResponseLimit {
		return unavailable, nil
	}
	return append([]byte{resultValue}, v.value...), nil
}

// taskKey is the key of a task: its name stands where HTTP has method and route.
func (g *Guard) taskKey(id string) Key {
	k := make([]byte, 0, len(g.engine.prefix)+len(g.policy.Name)+len(id)+16)
	k = append(k, g.engine.prefix...)
	k = append(k, "U=M="...)
	k = appendRoute(k, "DO", g.policy.Name)
	k = append(k, "K="...)
	return Key(appendPart(k, id))
}
