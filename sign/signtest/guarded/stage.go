package guarded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/signtest"
)

// stage is where a case is played. Its methods, but for those that the server calls, are for one goroutine.
type stage struct {
	h        Harness
	store    *spyStore
	addr     string
	guarded  bool // there is a guard, so that handlers have a run
	at       int  // the request, from 1
	problems []string
	patience time.Duration // with what ought to happen soon
	open     *conn         // see connection

	entered chan struct{} // has one when the first run has begun
	gate    chan struct{} // the first run ends when it is closed

	mu     sync.Mutex
	runs   int
	kept   []kept
	events []*sign.Error // what the observer was told; nil: verified
}

// kept is what a handler keeps of a request, and what it was then.
type kept struct {
	ctx    context.Context
	signed sign.Verified
	caller string
}

// answer is what the handler says that it has seen.
type answer struct {
	Run     int    `json:"run"`
	KeyID   string `json:"key_id"`
	Caller  string `json:"caller"`
	Nonce   string `json:"nonce"`
	Key     string `json:"idempotency_key"`
	Body    string `json:"body_sha256"`
	Problem string `json:"problem,omitempty"`
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// handle is the handler.
func (s *stage) handle(seen signtest.Seen) []byte {
	v, ok := sign.From(seen.Context)
	caller, called := core.CallerFrom(seen.Context)
	ran := core.RunFrom(seen.Context) != nil
	a := answer{KeyID: v.KeyID, Caller: caller, Nonce: v.Nonce, Key: seen.Header("Idempotency-Key"), Body: digest(seen.Body)}
	switch {
	case !ok:
		a.Problem = "sign.From finds nothing in the context"
	case !called:
		a.Problem = "core.CallerFrom finds nobody in the context"
	case ran != s.guarded:
		a.Problem = "core.RunFrom finds nothing in the context, or a run where there is no guard"
	case seen.Err != nil:
		a.Problem = "the body cannot be read: " + seen.Err.Error()
	case seen.Verified != nil:
		if own, ok := seen.Verified(); !ok || !reflect.DeepEqual(own, v) {
			a.Problem = "the adapter's own function returns something else than sign.From"
		}
	}
	then := v // of which nothing may change when the request is over
	then.KeyID, then.Nonce, then.Consumed = strings.Clone(v.KeyID), strings.Clone(v.Nonce), slices.Clone(v.Consumed)
	for i, name := range then.Consumed {
		then.Consumed[i] = strings.Clone(name)
	}

	s.mu.Lock()
	s.runs++
	a.Run = s.runs
	s.kept = append(s.kept, kept{seen.Context, then, strings.Clone(caller)})
	gate := s.gate
	s.mu.Unlock()

	text, _ := json.Marshal(a) // strings and a number: cannot fail
	if a.Run == 1 {
		s.entered <- struct{}{}
		<-gate
	}
	return text
}

func (s *stage) observe(_ context.Context, e sign.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e.Err)
}

func (s *stage) ran() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// told is the last thing that the observer was told since the last call.
func (s *stage) told() (err *sign.Error, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if told = len(s.events) > 0; told {
		err = s.events[len(s.events)-1]
	}
	s.events = nil
	return err, told
}

func (s *stage) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf("request %d: ", s.at)+fmt.Sprintf(format, args...))
}

// try is a message and its answer.
type try struct {
	message
	reply
	runs int // how often the handler has run meanwhile
}

// send sends r, signed anew, on a connection of its own.
func (s *stage) send(r request) try { return s.sendAgain(r.message()) }

// sendAgain sends m, byte for byte.
func (s *stage) sendAgain(m message) try {
	return s.sendBy(func(m message) reply { return once(s.addr, m) }, m)
}

func (s *stage) sendBy(ask func(message) reply, m message) try {
	s.at++
	_, _ = s.told()
	before := s.ran()
	t := try{message: m, reply: ask(m)}
	t.runs = s.ran() - before
	if t.err != nil {
		s.problem("%v", t.err)
	}
	return t
}

// runsAs checks that t is answered by the handler, which has run for it, as the nth run of all. 0: any.
func (s *stage) runsAs(n int, t try) try {
	if t.runs != 1 && n != 0 {
		s.problem("the handler has run %d times", t.runs)
	}
	if t.status != http.StatusOK || t.header.Get(core.ReplayedHeader) != "" {
		s.problem("the handler should have answered; the answer is %d %q %s", t.status, t.header, t.body)
		return t
	}
	var got answer
	if err := json.Unmarshal(t.body, &got); err != nil {
		s.problem("the answer is not the handler's: %v: %s", err, t.body)
		return t
	}
	want := t.expect
	if want.Run = n; n == 0 {
		want.Run = got.Run
	}
	if got != want {
		s.problem("the handler has seen\n%+v, not\n%+v", got, want)
	}
	return t
}

// repeats checks that t is answered by the answer of first.
func (s *stage) repeats(first, t try) {
	if t.runs != 0 {
		s.problem("the handler has run %d times", t.runs)
	}
	if t.status != first.status || !bytes.Equal(t.body, first.body) || t.header.Get(core.ReplayedHeader) != "true" {
		s.problem("the answer is %d %q %s\nand no replay of %d %s", t.status, t.header, t.body, first.status, first.body)
	}
}

// refused checks that t is refused by the verifier for an error of that kind, and that the observer was told so.
func (s *stage) refused(kind sign.Kind, t try) try {
	if told, ok := s.told(); !ok || !errors.Is(asError(told), kind) {
		s.problem("the observer was told %v; it is %v", told, kind)
	}
	return s.refusedIn(kind, t)
}

// refusedIn is refused for one of several at once, of which the observer tells in any order.
func (s *stage) refusedIn(kind sign.Kind, t try) try {
	if t.runs != 0 {
		s.problem("the handler has run %d times", t.runs)
	}
	for _, fault := range signtest.CheckRefusal(kind, t.status, t.header, t.body) {
		s.problem("%s", fault)
	}
	return t
}

func asError(e *sign.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// stopped checks that t is verified and then refused by the guard.
func (s *stage) stopped(status int, code core.Code, t try) {
	if told, ok := s.told(); !ok || told != nil {
		s.problem("the observer was told %v; the guard is to refuse what is verified", told)
	}
	if t.runs != 0 {
		s.problem("the handler has run %d times", t.runs)
	}
	if t.status != status {
		s.problem("the status is %d, and not the %d of %s: %s", t.status, status, code, t.body)
		return
	}
	for _, fault := range signtest.CheckProblem(status, string(code), t.header, t.body) {
		s.problem("%s", fault)
	}
}

// claims checks how many operations were claimed so far.
func (s *stage) claims(n int) {
	if claims, _ := s.store.count(); claims != n {
		s.problem("%d operations were claimed in the store, not %d", claims, n)
	}
}

// awaitClaims waits until n more operations were claimed.
func (s *stage) awaitClaims(n int) {
	stuck := time.After(s.patience)
	for i := range n {
		select {
		case <-s.store.claimed:
		case <-stuck:
			s.problem("of %d requests %d come as far as the store", n, i)
			return
		}
	}
}

// hold makes the first run stay in the handler until release is called.
func (s *stage) hold() (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// begin sends r and returns when its handler runs, or when it was answered without one. end waits for
// the answer; it may be called once.
func (s *stage) begin(r request) (end func() try) {
	m := r.message()
	answered := make(chan reply, 1)
	go func() { answered <- once(s.addr, m) }()
	select {
	case <-s.entered:
	case r := <-answered:
		s.problem("it is answered before the handler ends: %d %s %v", r.status, r.body, r.err)
		answered <- r
	case <-time.After(s.patience):
		s.problem("the handler does not begin")
	}
	return func() try {
		t := try{message: m, reply: <-answered, runs: 1}
		if t.err != nil {
			s.problem("%v", t.err)
		}
		return t
	}
}

// checkKept looks once more at what handlers have kept: contexts outlive their requests.
func (s *stage) checkKept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		v, _ := sign.From(k.ctx)
		caller, _ := core.CallerFrom(k.ctx)
		if !reflect.DeepEqual(v, k.signed) || caller != k.caller {
			s.problem("a context that was kept says %+v of %q, and said %+v of %q when it was new", v, caller, k.signed, k.caller)
		}
	}
}

// connection returns the connection that is open, or a new one. Nil: there is none to be had.
func (s *stage) connection() *conn {
	if s.open == nil {
		c, err := dial(s.addr)
		if err != nil {
			s.problem("%v", err)
			return nil
		}
		s.open = c
	}
	return s.open
}

// hangUp closes the connection that is open.
func (s *stage) hangUp() {
	if s.open != nil {
		_ = s.open.Close() // it has served
		s.open = nil
	}
}
