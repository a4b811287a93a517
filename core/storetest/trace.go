package storetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/core/store"
)

// traceLine is a line of a trace: a call begins, or it has been answered.
type traceLine struct {
	Call   string `json:"call"`             // the same in both lines
	At     int64  `json:"at"`               // in nanoseconds, by the wall clock
	Answer string `json:"answer,omitempty"` // a state, "ok", "refused", "full" or "unknown"; empty: the call begins

	// What is asked.
	Key         string        `json:"key,omitempty"`
	Method      string        `json:"method,omitempty"`
	Owner       token         `json:"owner,omitzero"`
	Lease       time.Duration `json:"lease,omitempty"`
	Retention   time.Duration `json:"retention,omitempty"`
	Known       time.Duration `json:"known,omitempty"`
	Takeover    bool          `json:"takeover,omitempty"`
	GoesOn      bool          `json:"goesOn,omitempty"`
	Expected    store.State   `json:"expected,omitempty"`
	To          store.State   `json:"to,omitempty"`
	ID          token         `json:"id,omitzero"` // here and below: or what is answered
	Fingerprint []byte        `json:"fingerprint,omitempty"`
	Attempt     uint64        `json:"attempt,omitempty"`
	Bytes       []byte        `json:"bytes,omitempty"` // a result, or steps

	// What is answered.
	Free      bool          `json:"free,omitempty"`
	Expired   bool          `json:"expired,omitempty"`
	Remaining time.Duration `json:"remaining,omitempty"`
	Error     string        `json:"error,omitempty"` // for people
}

// token is an owner or an id, in hexadecimal.
type token [16]byte

func (t token) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, t[:]), nil }

func (t *token) UnmarshalText(text []byte) error {
	id, err := store.ParseID(string(text))
	*t = token(id)
	return err
}

// Traced returns a store that makes the calls of s, and writes each as two lines of JSON to w: one when it begins, and one when it has been
// answered. [CheckTrace] reads them. The calls of several stores on the same records, in one process or more, go to the same w.
//
// Each line is one call of w.Write, which must be safe for concurrent use, as that of an [os.File] is. If the first line can't be
// written, the call is not made, and fails. The lines have keys, results and the owners of claims.
//
// Lookups, lists and watches are not written, and the store has no Recall.
func Traced(s store.Store, w io.Writer) store.Store {
	owner := store.NewOwner()
	return &traced{Store: s, w: w, name: hex.EncodeToString(owner[:4]) + "-"}
}

type traced struct {
	store.Store
	w     io.Writer
	name  string
	calls atomic.Int64
}

func (t *traced) write(line traceLine) error {
	line.At = time.Now().UnixNano()
	b, err := json.Marshal(line)
	if err == nil {
		_, err = t.w.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("storetest: the trace can't be written: %w", err)
	}
	return nil
}

// call makes c, and writes its lines.
func (t *traced) call(ctx context.Context, key string, c call) (store.Grant, error) {
	name := t.name + strconv.FormatInt(t.calls.Add(1), 10)
	if err := t.write(asked(name, key, c)); err != nil {
		return store.Grant{}, err
	}
	a := c.on(ctx, t.Store, key)
	_ = t.write(answered(name, a)) // a call without this line may have been answered or not
	return a.grant, a.err
}

func (t *traced) Acquire(ctx context.Context, key string, claim store.Claim) (store.Grant, error) {
	return t.call(ctx, key, call{method: "Acquire", claim: claim})
}

func (t *traced) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	_, err := t.call(ctx, key, call{method: "Renew", owner: owner, lease: lease})
	return err
}

func (t *traced) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	_, err := t.call(ctx, key, call{method: "Complete", owner: owner, result: string(result), retention: retention})
	return err
}

func (t *traced) Release(ctx context.Context, key string, owner store.Owner) error {
	_, err := t.call(ctx, key, call{method: "Release", owner: owner})
	return err
}

func (t *traced) Abandon(ctx context.Context, key string, owner store.Owner) error {
	_, err := t.call(ctx, key, call{method: "Abandon", owner: owner})
	return err
}

func (t *traced) Capabilities() store.Capabilities {
	can := t.Store.Capabilities()
	can.Recall, can.RecallFor = nil, nil
	if can.Checkpoint != nil {
		can.Checkpoint = func(ctx context.Context, key string, owner store.Owner, steps []byte) error {
			_, err := t.call(ctx, key, call{method: "Checkpoint", owner: owner, result: string(steps)})
			return err
		}
		can.Fail = func(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
			_, err := t.call(ctx, key, call{method: "Fail", owner: owner, goesOn: goesOn})
			return err
		}
	}
	if can.Outlive != nil {
		can.Outlive = func(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
			_, err := t.call(ctx, key, call{method: "Outlive", owner: owner, result: string(result), retention: retention, known: known})
			return err
		}
	}
	if can.Inspect != nil {
		can.Inspect = tracedInspector{can.Inspect, t}
	}
	return can
}

type tracedInspector struct {
	store.Inspector
	traced *traced
}

func (i tracedInspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	_, err := i.traced.call(ctx, key, call{method: "Change", expected: expected, to: c.To, result: string(c.Result),
		retention: c.Retention, remark: c.Remark})
	return err
}

// asked is the line of a call that begins.
func asked(name, key string, c call) traceLine {
	if !utf8.ValidString(key) {
		key = strconv.Quote(key)
	}
	line := traceLine{Call: name, Key: key, Method: c.method, Owner: token(c.owner), Lease: c.lease, Retention: c.retention,
		Known: c.known, GoesOn: c.goesOn, To: c.to, Bytes: []byte(c.result)}
	switch c.method {
	case "Acquire":
		line.Owner, line.ID, line.Fingerprint = token(c.claim.Owner), token(c.claim.ID), []byte(c.claim.Fingerprint)
		line.Lease, line.Retention, line.Takeover, line.Attempt = c.claim.Lease, c.claim.Retention, c.claim.Takeover, c.claim.Attempt
	case "Change":
		line.ID, line.Expected, line.Attempt = token(c.expected.ID), c.expected.State, c.expected.Attempt
	}
	return line
}

// asCall is the call that begins with the line.
func (l *traceLine) asCall() call {
	about := store.About{ID: store.ID(l.ID)}
	return call{method: l.Method, owner: store.Owner(l.Owner), lease: l.Lease, retention: l.Retention, known: l.Known, goesOn: l.GoesOn,
		to: l.To, result: string(l.Bytes), from: l.At, till: math.MaxInt64,
		claim: store.Claim{Owner: store.Owner(l.Owner), About: about, Fingerprint: string(l.Fingerprint), Lease: l.Lease,
			Retention: l.Retention, Takeover: l.Takeover, Attempt: l.Attempt},
		expected: store.Record{About: about, State: l.Expected, Attempt: l.Attempt}}
}

// answered is the line of a call that has been answered.
func answered(name string, a answer) traceLine {
	g := a.grant
	line := traceLine{Call: name, Answer: "ok", ID: token(g.ID), Attempt: g.Attempt, Fingerprint: []byte(g.Fingerprint),
		Bytes: slices.Concat(g.Result, g.Steps), Free: g.Free, Expired: g.Expired, Remaining: g.Remaining}
	if g.State != 0 {
		line.Answer = g.State.String()
	}
	if a.err != nil {
		line.Error = a.err.Error()
		switch line.Answer = "unknown"; {
		case a.refused():
			line.Answer = "refused"
		case errors.Is(a.err, store.ErrFull):
			line.Answer = "full"
		}
	}
	return line
}

// asAnswer is the answer of the line. It returns false if there is none of that name.
func (l *traceLine) asAnswer() (a answer, ok bool) {
	switch l.Answer {
	case "ok":
		return a, true
	case "refused":
		return answer{err: store.ErrLost}, true
	case "full":
		return answer{err: store.ErrFull}, true
	case "unknown":
		return answer{err: errors.New(l.Error)}, true
	}
	a.grant = store.Grant{Attempt: l.Attempt, Free: l.Free, Expired: l.Expired, ID: store.ID(l.ID), Fingerprint: string(l.Fingerprint),
		Remaining: l.Remaining}
	if a.grant.State, ok = store.ParseState(l.Answer); a.grant.State == store.Acquired {
		a.grant.Steps = l.Bytes
	} else {
		a.grant.Result = l.Bytes
	}
	return a, ok
}

// CheckTrace reads what [Traced] has written, and returns nil if the calls under each key can be put in an order in which a store that
// keeps its contract answers them so. Leases and retentions count by the clocks of the processes that made the calls: these must show
// the same time, to a millisecond or so. The trace must have all calls since each key was first claimed. Half a line at the end is what a
// process that was killed may leave.
//
// The error has the first history that has no such order. It is an error, too, if the trace has no calls, or if a history has so many
// calls without an answer that its orders can't all be tried.
func CheckTrace(trace io.Reader) error {
	type place struct {
		key string
		at  int
	}
	histories, begun := map[string][]operation{}, map[string]place{}
	lines := json.NewDecoder(trace)
	for n := int64(1); ; n++ {
		var line traceLine
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if len(histories) == 0 {
				return errors.New("storetest: the trace has no calls")
			}
			for _, key := range slices.Sorted(maps.Keys(histories)) {
				if err := checkHistory(key, histories[key]); err != nil {
					return fmt.Errorf("storetest: %w", err)
				}
			}
			return nil
		case err != nil:
			return fmt.Errorf("storetest: line %d of the trace: %w", n, err)
		case line.Answer == "" && !slices.Contains(methods, line.Method):
			return fmt.Errorf("storetest: line %d of the trace: no call is named %q", n, line.Method)
		case line.Answer == "":
			begun[line.Call] = place{line.Key, len(histories[line.Key])}
			histories[line.Key] = append(histories[line.Key], operation{call: line.asCall(), answer: answer{err: errOpen},
				begun: n, returned: math.MaxInt64})
			continue
		}
		at, ok := begun[line.Call]
		a, is := line.asAnswer()
		if !ok || !is {
			return fmt.Errorf("storetest: line %d of the trace: %q is no answer, or call %q has not begun", n, line.Answer, line.Call)
		}
		op := &histories[at.key][at.at]
		if op.answer = a; !a.unknown() {
			op.returned, op.call.till = n, line.At
		} else if op.call.method == "Acquire" {
			// A store may release what a call has claimed that was given up.
			histories[at.key] = append(histories[at.key], operation{call: call{method: "Release", owner: op.call.owner, from: line.At,
				till: math.MaxInt64}, answer: a, begun: n, returned: math.MaxInt64})
		}
	}
}

var methods = []string{"Acquire", "Renew", "Complete", "Release", "Abandon", "Checkpoint", "Fail", "Outlive", "Change"}

var errOpen = errors.New("has not been answered")

// order is the search for an order of a history's calls. A history may have many calls of unknown outcome, and all sets of them are too
// many: here these are put into the order only where the answers can't be explained without.
type order struct {
	history []operation
	in      []byte // 1: the call is in the order
	calls   []int  // that are
	longest []int
	most    int  // unknown calls between two answers
	more    bool // would have been tried
	seen    map[progress]bool
}

type progress struct {
	in      string
	state   keyState
	unknown int
}

// mostProgress bounds a search: it is some seconds, and a gigabyte. Tests set it.
var mostProgress = 1 << 20

// checkHistory returns an error unless the history has an order: it is linearizable.
func checkHistory(key string, history []operation) error {
	o := order{history: history, in: make([]byte, len(history)), more: true}
	for ; o.more; o.most++ {
		o.more, o.seen = false, map[progress]bool{}
		if o.goesOn(keyState{}, 0) {
			return nil
		}
		if len(o.seen) >= mostProgress {
			return fmt.Errorf("whether the history of %q has an order could not be decided:\n%s", key, tell(history, o.longest))
		}
	}
	return fmt.Errorf("the history of %q has no order. At most %d of its calls can be put in one:\n%s", key, len(o.longest),
		tell(history, o.longest))
}

// goesOn reports whether the order can be completed from a state, so many unknown calls after the last answer.
func (o *order) goesOn(state keyState, unknown int) bool {
	if len(o.calls) > len(o.longest) {
		o.longest = slices.Clone(o.calls)
	}
	first := int64(math.MaxInt64) // to return: what begins later comes behind it
	for i, op := range o.history {
		if o.in[i] == 0 {
			first = min(first, op.returned)
		}
	}
	at := progress{string(o.in), state, unknown}
	if first == math.MaxInt64 || o.seen[at] || len(o.seen) >= mostProgress {
		return first == math.MaxInt64
	}
	o.seen[at] = true
	for _, open := range []bool{false, true} {
		if open && unknown == o.most {
			o.more = true
			continue
		}
		for i, op := range o.history {
			if o.in[i] == 1 || op.begun > first || open != (op.returned == math.MaxInt64) {
				continue
			}
			may, next := op.call.step(state, op.answer)
			if !may {
				continue
			}
			behind := 0
			if open {
				behind = unknown + 1
			}
			o.in[i], o.calls = 1, append(o.calls, i)
			if o.goesOn(next, behind) {
				return true
			}
			o.in[i], o.calls = 0, o.calls[:len(o.calls)-1]
		}
	}
	return false
}

// traced has what the clients of a case ask of its stores written into a trace, if the stores' time is the machine's. checkTrace checks it.
func (s *env) traced(storeOf func(client int) store.Store) (_ func(client int) store.Store, checkTrace func()) {
	if s.Advance != nil {
		return storeOf, func() {}
	}
	var trace traceBuffer
	return func(client int) store.Store { return Traced(storeOf(client), &trace) }, func() {
		s.Helper()
		if err := CheckTrace(&trace); err != nil {
			s.Error(err)
		}
	}
}

// traceBuffer is a buffer for a trace.
type traceBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *traceBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(line)
}
