package core

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/store"
)

// Task is a policy compiled by an engine for operations that are not HTTP requests: messages, cron jobs,
// RPC. [Do] runs it. It is safe for concurrent use.
type Task struct{ guard *Guard }

// Task compiles p. It reports every fault of p at once, each as a *[ConfigError].
func (e *Engine) Task(p TaskPolicy) (*Task, error) {
	g, err := e.compileTask(p)
	if err != nil {
		return nil, err
	}
	return &Task{g}, nil
}

// MustTask is [Engine.Task] for a policy that is fixed in the program. It panics with the faults.
func (e *Engine) MustTask(p TaskPolicy) *Task {
	t, err := e.Task(p)
	if err != nil {
		panic(err)
	}
	return t
}

// Record returns what the policy of t says about records, with the defaults filled in. It is for packages that run tasks and
// support only some policies.
func (t *Task) Record() Record { return t.guard.policy.Record }

// Digest returns a digest of content, of 64 hexadecimal digits, for keys ([Call].Key) that are made of content. It is SHA-256.
// Under [Config].Seal it is HMAC-SHA-256, bound to the task's name, so that anyone who reads the key can't find the content by
// trying.
func (t *Task) Digest(content []byte) string {
	if d := t.guard.engine.digests; d.written() {
		return d.of(t.guard.taskKey(Call{}), content)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Call identifies the operation that [Do] carries out.
type Call struct {
	// Key is the operation's identity within the task and the user, such as the id of a message. It is required, unless
	// [TaskPolicy].Presence is [Optional], and may contain any bytes.
	Key string
	// User is the user whose operation it is. Empty: it belongs to no user. More than 64 bytes are stored as a hash.
	User string
	// Fingerprint tells a retry from a reuse of the Key: a call with the same Key and another Fingerprint is refused
	// ([codes.KeyReused]). It may be the message or a digest of it. More than 64 bytes are stored as a hash; under [Config].Seal
	// any number is stored as an HMAC. If all calls leave it empty, the Key alone decides.
	Fingerprint string
}

// Result is what [Do] returns.
type Result[T any] struct {
	// Value is what the function returned, now or the first time.
	Value T
	// Replayed says that the function ran for an earlier call, and Value was stored then.
	Replayed bool
	// Attempt is the number of the run that this call made; 0 if it made none.
	Attempt uint64
}

// Do runs fn once for call, under the policy of t, and stores its value: unchanged if T is []byte or [json.RawMessage], otherwise
// as JSON. What JSON leaves out of a T (unexported fields, say) is not replayed. If fn returns an error, Do returns it unchanged,
// and the run has failed (see [Record].OnFailure).
//
// A value that can't be encoded, or that would change when it is replayed, is returned, but not stored. Such values are:
//
//   - one whose JSON, decoded as a T and encoded again, is different, such as a string anywhere in it that is not UTF-8 (use []byte
//     for it);
//   - one with an interface that would hold another type (bytes, an int, a time or a struct in an any);
//   - a struct that has only unexported fields.
//
// If ctx has ended before the call, Do returns its error and does nothing.
//
// fn gets a context from which [RunFrom] returns the run. The context ends when ctx ends (or [TaskPolicy].Linger later), when the
// lease is lost, and at a shutdown.
//
// A call without a Key, under [Optional], has no run: fn is called each time, its value is not stored, and its context is that of
// ctx, with a run that is [Run.Unprotected]. The same applies under [TaskPolicy].FailOpen, when the store has failed.
//
// A duplicate gets the stored value, or an error that is a *[Refusal] and, to errors.Is, a [codes.Code]:
//
//   - [codes.InProgress]: another call runs, and [TaskPolicy].Duplicate does not wait, its limit is reached, or ctx has ended.
//   - [codes.Duplicate]: the operation is done, under [Reject].
//   - [codes.Uncertain], [codes.KeyReused]: see there.
//   - [codes.ResultUnavailable]: the operation is done, but there is no value for this call. It was not stored, because it had more
//     than [TaskPolicy].ResultLimit bytes or could not be encoded without a loss; or it can't be opened ([ErrSealed]), or decoded
//     as a T.
//
// Other refusals without a run are [codes.KeyMissing] (call.Key is empty, and required), [codes.StoreUnavailable] and
// [codes.ShuttingDown] (after [Engine.Drain]).
//
// Within fn, a Do with the same task, call and context belongs to the same run, and simply calls its function. A Do with another
// task of the same name and the same call gets [codes.GuardConflict].
func Do[T any](ctx context.Context, t *Task, call Call, fn func(ctx context.Context) (T, error)) (Result[T], error) {
	var r Result[T]
	op := taskCall{guard: t.guard, call: call}
	op.fn = func(ctx context.Context) (err error) {
		r.Value, err = fn(ctx)
		return err
	}
	op.encode = func() ([]byte, error) { return encodeValue(&r.Value) }
	op.decode = func(stored []byte) error {
		v, err := decodeValue[T](stored)
		if err == nil { // one that is decoded in part is not returned
			r.Value = v
		}
		return err
	}
	err := op.do(ctx)
	r.Replayed, r.Attempt = op.replayed, op.attempt
	return r, err
}

// encodeValue returns what is stored of a value. The error says that a replay would have another one.
func encodeValue[T any](value *T) ([]byte, error) {
	switch v := any(value).(type) {
	case *[]byte:
		return *v, nil
	case *json.RawMessage: // Marshal would leave out its blanks
		if len(*v) > 0 && !json.Valid(*v) {
			return nil, errLossy
		}
		return *v, nil
	case *string: // the usual one: it need not be decoded
		if !utf8.ValidString(*v) {
			return nil, errLossy
		}
		return json.Marshal(*v)
	}
	encoded, err := marshal(value)
	if err != nil {
		return nil, err
	}
	replayed, err := decodeValue[T](encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLossy, err)
	}
	again, err := marshal(&replayed)
	if err != nil || !bytes.Equal(again, encoded) || !sameTypes(reflect.ValueOf(value), reflect.ValueOf(&replayed)) {
		return nil, errLossy
	}
	return encoded, nil
}

// decodeValue reads what encodeValue has returned. stored belongs to the value.
func decodeValue[T any](stored []byte) (value T, err error) {
	switch v := any(&value).(type) {
	case *[]byte:
		*v = stored
	case *json.RawMessage:
		if len(stored) > 0 { // an empty one, unlike nil, is no JSON
			*v = stored
		}
	default:
		err = json.Unmarshal(stored, &value)
	}
	return value, err
}

// marshal is json.Marshal, but leaves <, > and & in a json.RawMessage as they are.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// sameTypes reports whether two values whose JSON is equal have the same types also where T has an interface: that which held an int holds
// a float64, and so on. What JSON sees nothing of is another value, too.
func sameTypes(a, b reflect.Value) bool {
	t := a.Type()
	if t != b.Type() {
		return false
	}
	if marshals(t) || a.CanAddr() && marshals(reflect.PointerTo(t)) { // as in package json
		return true
	}
	switch a.Kind() {
	case reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || sameTypes(a.Elem(), b.Elem()))
	case reflect.Pointer:
		return a.IsNil() || b.IsNil() || sameTypes(a.Elem(), b.Elem())
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() <= reflect.Complex128 { // a number: there may be a million of bytes
			return true
		}
		for i := range min(a.Len(), b.Len()) {
			if !sameTypes(a.Index(i), b.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for key, value := range a.Seq2() {
			if other := b.MapIndex(key); other.IsValid() && !sameTypes(value, other) {
				return false
			}
		}
	case reflect.Struct:
		seen, same := sameFields(a, b)
		return same && (seen || a.IsZero())
	}
	return true
}

// sameFields is sameTypes of the fields that JSON sees, and reports whether there are any.
func sameFields(a, b reflect.Value) (seen, same bool) {
	seen = a.NumField() == 0
	for field, value := range a.Fields() {
		seen = seen || field.Anonymous || field.IsExported()
		if field.Tag.Get("json") == "-" {
			continue
		}
		other := b.FieldByIndex(field.Index)
		if field.IsExported() {
			same = sameTypes(value, other)
		} else if same = true; field.Anonymous && value.Kind() == reflect.Struct { // whose fields may be exported
			_, same = sameFields(value, other)
		}
		if !same {
			return seen, false
		}
	}
	return seen, true
}

// marshals reports whether values of type t say themselves what their JSON is.
func marshals(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

var errLossy = errors.New("idem: the value would change when it is replayed: a round trip through JSON changes it, or a type in it")

// taskCall is one call of Do, whatever its type of values.
type taskCall struct {
	guard    *Guard
	call     Call
	fn       func(context.Context) error
	encode   func() ([]byte, error)
	decode   func([]byte) error
	replayed bool
	attempt  uint64
}

// do does what the guard decides about the call.
func (t *taskCall) do(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // fn would begin in vain
	}
	id := t.identify()
	d := t.guard.decide(ctx, &id)
	switch d.action {
	case toRun:
		return t.run(d.run)
	case toPass:
		return t.fn(t.guard.passing(ctx, &id, &d))
	case toReplay:
		if t.replayed, d.cause = t.replay(d.grant); t.replayed {
			t.guard.observe(ctx, Event{Kind: Replayed, Route: id.route, Key: id.key, ID: d.grant.ID, Remark: d.grant.Remark,
				Waited: d.waited})
			return nil
		}
		d.refusal = refusalUnavailable
	}
	return t.guard.refuse(ctx, &id, &d) // a copy: the caller may change it
}

func (t *taskCall) identify() identity {
	id := identity{route: "DO " + t.guard.policy.Name}
	if t.call.Key == "" {
		if id.pass = t.guard.keyless; !id.pass {
			id.refusal = refusalKeyMissing
		}
		return id
	}
	id.key = t.guard.taskKey(t.call)
	if t.guard.ignores {
		return id // a record with another one would not go on
	}
	if id.fingerprint = t.call.Fingerprint; len(id.fingerprint) > 64 {
		sum := sha256.Sum256([]byte(id.fingerprint))
		id.fingerprint = hex.EncodeToString(sum[:])
	}
	if d := t.guard.engine.digests; d != nil && id.fingerprint != "" {
		id.fingerprint, id.other = forms(d, id.fingerprint, d.of(id.key, []byte(t.call.Fingerprint)))
	}
	return id
}

// run runs the function under the claim of c.
func (t *taskCall) run(c *runContext) error {
	told := adapter.Unrendered // until the function has returned
	defer func() { c.settlePanic(told) }()
	c.announce()
	t.attempt = c.attempt
	err := t.fn(c)
	told = adapter.Answered
	o := outcome{again: true, err: err}
	if err != nil {
		o.ending = hasFailed
	}
	if t.guard.policy.Duplicate.kind != rejects { // else the value is never replayed
		o.result = unavailable
	}
	if err == nil && o.result != nil {
		value, fault := t.encode()
		switch {
		case fault != nil:
			o.err = fault
		case len(value) <= t.guard.policy.ResponseLimit:
			o.result = append(append(make([]byte, 0, 1+len(value)), resultValue), value...)
		}
	}
	_ = c.settle(o) // a task has an answer: what its function returned
	return err
}

// replay decodes a stored value, if there is one.
func (t *taskCall) replay(grant store.Grant) (ok bool, err error) {
	if len(grant.Result) == 0 || grant.Result[0] != resultValue {
		return false, grant.Unopened
	}
	err = t.decode(grant.Result[1:])
	return err == nil, err
}

// taskKey is the key of a task: its name is where HTTP has method and route.
func (g *Guard) taskKey(call Call) Key {
	k := make([]byte, 0, len(g.engine.prefix)+len(call.User)+len(g.policy.Name)+len(call.Key)+16)
	k = g.appendOperation(k, User{ID: call.User}, "DO", g.policy.Name)
	k = append(k, "K="...)
	return Key{string(appendPart(k, call.Key))}
}
