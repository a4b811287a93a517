package operations

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/core/internal/sealed"
	"github.com/idem-go/idem/core/internal/view"
	"github.com/idem-go/idem/core/store"
)

// Errors of [Of], and of the actions. Those of a store.Inspector are returned, too.
var (
	// ErrNoInspector is returned for a store whose records can't be listed.
	ErrNoInspector = errors.New("idem: the store has no Inspect capability, so its records can't be listed or changed")
	// ErrNotFound is returned if there is no such operation.
	ErrNotFound = errors.New("idem: there is no such operation")
	// ErrRunning is returned by Forget for an operation whose run holds its claim.
	ErrRunning = errors.New("idem: the operation is running: if it is forgotten, a second run may begin alongside the first")
	// ErrToken is returned by Forget for the record of a token: a token that is forgotten can be used once more.
	ErrToken = errors.New("idem: the record of a token can't be forgotten: the token could be used once more")
	// ErrUnsigned is returned for an action without an actor or a reason.
	ErrUnsigned = errors.New("idem: an action needs an actor and a reason")
	// ErrSealed is returned by Settle and SettleTask for the operation of a service that seals what it stores, if the engine has no
	// core.Config.Seal, one with other keys, or one that only opens: the service could not open the answer, or would not take it.
	ErrSealed = sealed.ErrUnsettled
)

// Operations are the operations of one service, or of all services on a store. It is safe for concurrent use.
type Operations struct {
	engine  *view.View[core.Event]
	audit   func(context.Context, Action) error
	inspect store.Inspector
}

// Options are the options of [Of].
type Options struct {
	// Audit is called before an action, and an error forbids it. It may write an append-only log, or check permissions. It is called
	// concurrently. Nil: all actions are allowed.
	Audit func(ctx context.Context, a Action) error
}

// Of returns the operations of an engine. An action is an event of the kind [core.Operated] for its [core.Config].Observe. The error is
// [ErrNoInspector].
func Of(engine *core.Engine, options Options) (*Operations, error) {
	o := &Operations{engine: view.Of(engine), audit: options.Audit}
	if o.inspect = o.engine.Store.Capabilities().Inspect; o.inspect == nil {
		return nil, ErrNoInspector
	}
	return o, nil
}

// Operation is what a store knows of an operation, as [Operations] have found it.
type Operation struct {
	// Digest is what logs call the operation's key: 16 hexadecimal digits.
	Digest string
	// Record is what the store knows. Its Key may name a user: do not log it. Lookup and LookupKey fill in its Result, or its Unopened if
	// that can't be opened: see core.ErrSealed.
	store.Record
	// Route is the method and route of a request, DO and the name of a task, or the policy of a token or of signed events.
	Route string
	// User is the user's part of the key: as it is, or, after a '#', hashed. It may have a mark of its source and a '#' before it.
	User string
	// Token says that the key is that of a token, and Task that the operation is one of a task, and no request.
	Token, Task bool
	// Next is a cursor for what follows this operation in its list, see Query.From. Empty: nothing follows. It contains the
	// stored key: do not log it.
	Next string

	user, clientKey string // those parts of the key, as they are stored; the second is empty if nobody has chosen one
}

// Query says which operations [Operations.List] returns. The zero Query asks for all.
type Query struct {
	// User is their user, in the clear, whatever its source is. Empty: any.
	User string
	// Route is their method and route, as Operation has it. Empty: any.
	Route string
	// Policy is the name of their policy. Empty: any.
	Policy string
	// States are their states. None: any; those that are abandoned are first, then those that run, in each the oldest first, where
	// the store can tell.
	States []store.State
	// OlderThan leaves out those that were begun more recently, by this process's clock and the store's. Zero: none is left out.
	OlderThan time.Duration
	// Limit is how many are returned at most. Zero: no limit.
	Limit int
	// From is the Next of the last operation of an earlier list with the same query: the list continues after it, at any later
	// time. Empty: the list begins. For any other text the error is [store.ErrCursor]. A store without an order
	// (Redis) has its records in pages of its own: a caller that breaks off before Limit gets the latest page once more.
	From string
}

// List returns operations, page by page, while the store goes on. An error ends the list.
func (o *Operations) List(ctx context.Context, q Query) iter.Seq2[Operation, error] {
	return o.list(ctx, q, false)
}

func (o *Operations) list(ctx context.Context, q Query, brief bool) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		phases := [][]store.State{q.States}
		ordered := o.engine.Store.Capabilities().ListsOldest
		if len(q.States) == 0 && ordered {
			phases = [][]store.State{{store.Abandoned}, {store.Running}, {store.Done, store.Free}}
		}
		at, err := parseCursor(q.From, len(phases))
		if err != nil {
			yield(Operation{}, err)
			return
		}
		for left := cmp.Or(max(q.Limit, 0), -1); at.phase < len(phases); {
			page, next, err := o.page(ctx, &q, phases[at.phase], at.page, left, brief)
			if err != nil {
				yield(Operation{}, err)
				return
			}
			after := cursor{phase: at.phase, page: next}
			if next == "" {
				after = cursor{phase: at.phase + 1}
			}
			page = at.unseen(page, ordered)
			for i, op := range page {
				last, enough := i == len(page)-1, left == 1
				switch { // this one may be gone when the list goes on
				case last && after.phase < len(phases):
					op.Next = after.String()
				case last: // nothing follows
				case ordered:
					op.Next = cursor{at.phase, at.page, op.Digest}.String()
				case enough: // the page may have another order then
					shown := at.last
					for _, op := range page[:i+1] {
						shown += op.Digest
					}
					op.Next = cursor{at.phase, at.page, shown}.String()
				default:
					op.Next = at.String()
				}
				if !yield(op, nil) || enough {
					return
				}
				left--
			}
			at = after
		}
	}
}

// page returns a page of operations that q asks for, and the store's cursor of the next one.
func (o *Operations) page(ctx context.Context, q *Query, states []store.State, from string, left int,
	brief bool) (page []Operation, next string, err error) {
	if left < 0 {
		left = 1000
	}
	ask := store.Query{Prefix: o.engine.Prefix, Policy: q.Policy, States: states, Limit: left, Brief: brief, Match: func(key string) bool {
		op, ok := o.parse(key)
		return ok && (q.Route == "" || op.Route == q.Route) && (q.User == "" || op.isOf(q.User))
	}}
	records, next, err := o.records(ctx, ask, from)
	for _, r := range records {
		if q.OlderThan <= 0 || !r.Begun.IsZero() && time.Since(r.Begun) >= q.OlderThan {
			op, _ := o.parse(r.Key)
			op.Record = r
			page = append(page, op)
		}
	}
	return page, next, err
}

// Lookup returns the operation that text names, with its result: a digest of a key, as in logs, or an operation id. The error is
// [ErrNotFound] if there is none. It scans the store's keys.
func (o *Operations) Lookup(ctx context.Context, text string) (Operation, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	ask := store.Query{Prefix: o.engine.Prefix, Limit: 1000, Match: func(key string) bool { _, ok := o.parse(key); return ok }}
	if id, err := store.ParseID(text); err == nil && id != (store.ID{}) { // to a store, the zero one is any
		ask.ID = id
	} else if b, err := hex.DecodeString(text); err != nil || len(b) != 8 {
		return Operation{}, fmt.Errorf("idem: %q is neither the digest of a key (16 hexadecimal digits) nor an operation id (32)", text)
	} else {
		ask.Match = func(key string) bool { return canon.Digest(key) == text }
	}
	return o.find(ctx, ask)
}

// LookupKey returns the operation of a user under a key that the client has chosen, or that is the id of a signed event, with its
// result. route is as in Operation, or empty: any. If the key exists in several scopes (core.ScopeKey), it returns one of them. The
// error is [ErrNotFound] if there is none.
func (o *Operations) LookupKey(ctx context.Context, user, route, key string) (Operation, error) {
	return o.find(ctx, store.Query{Prefix: o.engine.Prefix, Limit: 1000, Match: func(stored string) bool {
		op, ok := o.parse(stored)
		return ok && key != "" && op.clientKey == appendPart(key) && (route == "" || op.Route == route) && op.isOf(user)
	}})
}

// find returns the first record that is asked for, with its result.
func (o *Operations) find(ctx context.Context, ask store.Query) (Operation, error) {
	for from := ""; ; {
		page, next, err := o.records(ctx, ask, from)
		if err != nil {
			return Operation{}, err
		}
		for _, r := range page {
			op, ok := o.parse(r.Key)
			if !ok {
				continue
			}
			op.Record, err = o.record(ctx, r.Key)
			if errors.Is(err, store.ErrNoRecord) || err == nil && !ask.Wants(&op.Record) { // by now it is another operation's
				continue
			}
			return op, err
		}
		if from = next; from == "" {
			return Operation{}, ErrNotFound
		}
	}
}

// records returns a page of the store's list, and the cursor of the next one.
func (o *Operations) records(ctx context.Context, ask store.Query, from string) ([]store.Record, string, error) {
	ctx, cancel := o.limit(ctx)
	defer cancel()
	return o.inspect.List(ctx, ask, from)
}

func (o *Operations) record(ctx context.Context, key string) (store.Record, error) {
	ctx, cancel := o.limit(ctx)
	defer cancel()
	return o.inspect.Lookup(ctx, key)
}

// States are the states of operations, in the order in which they need somebody.
func States() []store.State {
	return []store.State{store.Abandoned, store.Running, store.Free, store.Done}
}

// Count is how many operations of a state there are.
type Count struct {
	State store.State
	N     int
	// More says that there may be more: they were not counted further.
	More bool
}

// counted is how far operations are counted where each state is looked for by itself.
const counted = 1000

// Count counts the operations of each of [States], in that order. If [Operations.Counts], it counts up to 1,000 of each; else it goes
// through all of them, once.
func (o *Operations) Count(ctx context.Context) ([]Count, error) {
	counts := make([]Count, len(States()))
	for i, state := range States() {
		counts[i].State = state
	}
	queries := []Query{{}}
	if o.Counts() {
		queries = nil
		for _, state := range States() {
			queries = append(queries, Query{States: []store.State{state}, Limit: counted})
		}
	}
	for _, q := range queries {
		for op, err := range o.list(ctx, q, true) {
			if err != nil {
				return nil, err
			}
			c := &counts[slices.Index(States(), op.State)]
			c.N++
			c.More = c.N == q.Limit
		}
	}
	return counts, nil
}

// Counts reports whether the store finds operations of a state without going through all others, so that they can be counted.
func (o *Operations) Counts() bool { return o.engine.Store.Capabilities().ListsOldest }

// Answer returns the stored response of an operation that Lookup has found; false if there is none.
func (o *Operations) Answer(op Operation) (adapter.Response, bool) { return o.engine.Decode(op.Result) }

// By says who acts, and why. Both are required.
type By struct{ Actor, Reason string }

// Action is what an operator does.
type Action struct {
	// What is "release", "settle" or "forget".
	What      string
	Operation Operation
	By
}

// Release lets an abandoned operation run again, even under core.Uncertain: the next request under its key runs, as a takeover.
// If the service seals what it stores, and the engine has no core.Config.Seal, the record keeps its remark.
func (o *Operations) Release(ctx context.Context, op Operation, by By) error {
	return o.do(ctx, Action{"release", op, by}, store.Change{To: store.Free}, nil)
}

// Settle finishes an abandoned or free operation with an answer that every duplicate gets, for the time of retention. The status must be
// final, from 200 to 999, and the answer must be sendable: no line breaks in a header field, no body with 204, 205 and 304. A task has no
// response: settle it with SettleTask. The record of a token is kept at least as long as without this, so that the token can't be used
// once more.
func (o *Operations) Settle(ctx context.Context, op Operation, answer *adapter.Response, retention time.Duration, by By) error {
	var fault error
	if op.Task {
		fault = errors.New("idem: a task has a value, not a response")
	} else {
		fault = unsendable(answer)
	}
	var result []byte
	if fault == nil {
		result = o.engine.Encode(answer)
	}
	if op.Token && retention > 0 {
		retention = max(retention, op.Remaining)
	}
	return o.do(ctx, Action{"settle", op, by}, store.Change{To: store.Done, Result: result, Retention: retention}, fault)
}

// unsendable returns why an answer can't be sent as it is.
func unsendable(answer *adapter.Response) error {
	switch {
	case answer == nil || answer.Status < 200 || answer.Status > 999:
		return errors.New("idem: the status must be from 200 to 999")
	case len(answer.Body) > 0 &&
		slices.Contains([]int{http.StatusNoContent, http.StatusResetContent, http.StatusNotModified}, answer.Status):
		return fmt.Errorf("idem: a response with status %d can't have a body", answer.Status)
	}
	for _, f := range answer.Header {
		noToken := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }
		noText := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
		if f.Name == "" || strings.ContainsFunc(f.Name, noToken) || strings.ContainsFunc(f.Value, noText) {
			return fmt.Errorf("idem: %q: %q can't be sent as a header field", f.Name, f.Value)
		}
	}
	return nil
}

// SettleTask finishes an abandoned or free operation of a task, as Settle does, with the value that its function would have returned:
// the bytes themselves for a []byte, else JSON.
func (o *Operations) SettleTask(ctx context.Context, op Operation, value []byte, retention time.Duration, by By) error {
	var fault error
	if !op.Task {
		fault = errors.New("idem: a request has a response with a status, not a value")
	}
	return o.do(ctx, Action{"settle", op, by},
		store.Change{To: store.Done, Result: o.engine.EncodeValue(value), Retention: retention}, fault)
}

// Forget removes the record of an operation: the next request is a first one, and runs. A running one whose lease has not passed is
// refused with [ErrRunning], unless evenIfRunning is set.
func (o *Operations) Forget(ctx context.Context, op Operation, evenIfRunning bool, by By) error {
	var fault error
	if op.Token {
		fault = ErrToken
	} else if op.State == store.Running && !evenIfRunning {
		fault = ErrRunning
	}
	return o.do(ctx, Action{"forget", op, by}, store.Change{}, fault)
}

// do makes the change, unless there is a fault, or the audit forbids it.
func (o *Operations) do(ctx context.Context, a Action, c store.Change, err error) error {
	if err == nil {
		err = c.Validate(a.Operation.State)
	}
	if err == nil && (strings.TrimSpace(a.Actor) == "" || strings.TrimSpace(a.Reason) == "") {
		err = ErrUnsigned
	}
	if err == nil && o.audit != nil {
		if err = o.audit(ctx, a); err != nil {
			err = fmt.Errorf("idem: the audit has forbidden it: %w", err)
		}
	}
	if err == nil {
		c.Remark = store.Note(fmt.Sprintf("%s by %s: %s", a.What, a.Actor, a.Reason))
		ctx, cancel := o.limit(ctx)
		defer cancel()
		err = o.inspect.Change(ctx, a.Operation.Key, a.Operation.Record, c)
	}
	op := &a.Operation
	o.engine.Observe(ctx, op.Key, core.Event{Kind: core.Operated, Policy: op.Policy, Route: op.Route, ID: op.ID, Attempt: op.Attempt,
		Action: a.What, Actor: a.Actor, Reason: a.Reason, Err: err})
	return err
}

func (o *Operations) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.engine.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, o.engine.Timeout)
}
