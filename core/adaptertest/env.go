package adaptertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
)

// env is a case under way.
type env struct {
	testing.TB
	at        atomic.Int64 // the number of the step; handlers report, too
	c         testCase
	h         Harness
	store     *recorder
	addr      string
	bare      string // the address of the application without guards
	probe     *probe
	bareProbe *probe // of the application without guards
	engine    *core.Engine
	text      transcript
	done      chan struct{}
	firsts    []reply // the responses that handlers have made
	pending   map[string]*exchange
	open      map[string]*connection
	events    []core.Event // guarded by store.mu
	tokens    []string     // in turn: a name, and the token that it stands for
}

// exchange is a request that has been sent and not answered yet.
type exchange struct {
	request
	*connection
	listening bool   // the head of the response has been read
	heard     string // of its body, and not checked yet
}

func start(tb testing.TB, h Harness, c testCase) *env {
	tb.Helper()
	store, err := newRecorder()
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	s := &env{TB: tb, c: c, h: h, store: store, done: done,
		pending: map[string]*exchange{}, open: map[string]*connection{}}
	s.probe = newProbe(s, done)
	s.bareProbe = newProbe(nil, done)

	config := core.Config{Store: store, User: core.UserFromHeader("X-User"), Observe: s.observe}
	if c.config != nil {
		c.config(&config)
	}
	engine, err := core.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	s.engine = engine
	if c.backend != nil {
		s.probe.backend = Listen(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.backend(s.probe, w, r) }))
		s.bareProbe.backend = s.probe.backend
	}
	guard := func(p core.Policy) *core.Guard {
		if c.native {
			p.User = h.User("user")
		}
		g, err := engine.Guard(p)
		if err != nil {
			tb.Fatal(err)
		}
		return g
	}
	guarded, plain := c.app, c.app
	if c.after != nil {
		guarded.After = func(a Outcome) { c.after(s.probe, a) }
	}
	if c.incoming {
		guarded.Incoming = func(ctx context.Context) {
			context.AfterFunc(ctx, func() { s.probe.said <- "the client has left" })
		}
	}
	var shared *core.Guard
	if c.global {
		shared = guard(c.policy)
		guarded.Guard = shared
	}
	routes := c.routes
	if routes == nil {
		routes = []route{{}}
	}
	for _, r := range routes {
		built := Route{Method: r.method, Pattern: r.pattern}
		if r.issues != nil {
			built.Issues = guard(*r.issues)
		}
		if built.Method == "" {
			built.Method = "POST"
		}
		if built.Pattern == "" {
			built.Pattern = c.app.Group + "/orders"
		}
		built.Handler = s.behaviour(s.bareProbe)
		plain.Routes = append(plain.Routes, built)
		built.Handler = s.behaviour(s.probe)
		switch {
		case r.policy != nil:
			built.Guard = guard(*r.policy)
		case !c.global && !r.unguarded && r.issues == nil:
			built.Guard = guard(c.policy)
		}
		if r.verifier != nil {
			built.Verifiers = append(built.Verifiers, r.verifier)
		}
		guarded.Routes = append(guarded.Routes, built)
	}
	if s.probe.guard = shared; shared == nil {
		s.probe.guard = guarded.Routes[0].Guard
	}
	s.addr = h.Start(tb, guarded)
	if !c.noBare {
		s.bare = h.Start(tb, plain)
	}
	tb.Cleanup(func() { // before the servers are stopped, which may wait for handlers
		close(done)
		for _, x := range s.pending {
			x.Close()
		}
		for _, c := range s.open {
			c.Close()
		}
	})
	return s
}

func (s *env) behaviour(h *probe) Handler {
	handler := s.c.handler
	if handler == nil {
		handler = receipt
	}
	return func(c Call) error { return handler(h, c, h.next()) }
}

func (s *env) observe(_ context.Context, e core.Event) {
	if e.Kind == core.StoreIsLocal {
		return // it is the engine's, and has no route
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.events = append(s.events, e)
	s.store.changed.Broadcast()
}

// Errorf and Fatalf say at which step something is wrong.
func (s *env) Errorf(format string, args ...any) {
	s.Helper()
	s.TB.Errorf("step %d: "+format, append([]any{s.at.Load()}, args...)...)
}

func (s *env) Fatalf(format string, args ...any) {
	s.Helper()
	s.TB.Fatalf("step %d: "+format, append([]any{s.at.Load()}, args...)...)
}

// awaitRuns waits until every run that was begun is finished.
func (s *env) awaitRuns() {
	s.Helper()
	if !s.store.until(func() bool { return len(s.store.open) == 0 }) {
		s.Errorf("a claim was never completed or released")
	}
}

// finish ends the case: what the store has been told closes the transcript.
func (s *env) finish() string {
	s.Helper()
	s.awaitRuns()
	s.text.line("executions: %d", s.probe.count())
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, e := range s.store.entries {
		s.text.line("%s", e)
	}
	return s.masked(s.text.String())
}

// connect returns the kept connection of that name, or a new one for "".
func (s *env) connect(name string) *connection {
	s.Helper()
	if c := s.open[name]; c != nil {
		return c
	}
	c := s.dial(s.addr)
	if name != "" {
		s.open[name] = c
	}
	return c
}

func (s *env) dial(addr string) *connection {
	s.Helper()
	c, err := dial(addr)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return c
}

// unrecorded checks that nothing has made a record.
func (s *env) unrecorded(what string) {
	s.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if len(s.store.entries) > 0 {
		s.Errorf("%s is recorded: %q", what, s.store.entries)
	}
}

// step is one thing that a case does.
type step interface{ do(s *env) }

// ask sends a request and checks the answer.
type ask struct {
	request
	want
	on string // a connection to be kept; "": a new one
}

func (a ask) do(s *env) {
	s.Helper()
	a.answer(s)
}

// answer is do; it returns the answer.
func (a ask) answer(s *env) reply {
	s.Helper()
	r := s.asked(a.request)
	c := s.connect(a.on)
	if a.on == "" {
		defer c.Close()
	}
	before := s.probe.count()
	c.send(r)
	got, err := c.receive(r.method)
	if err != nil {
		s.Fatalf("%s %s: no response: %v", r.method, r.target, err)
	}
	if a.on != "" && strings.EqualFold(got.get("Connection"), "close") {
		c.Close() // nobody has read the body
		delete(s.open, a.on)
	}
	s.check(r, a.want, got, before)
	return got
}

// pipeline sends requests over one connection without waiting, and checks the answers.
type pipeline []ask

func (p pipeline) do(s *env) {
	s.Helper()
	c := s.connect("")
	defer c.Close()
	var all []byte
	for _, a := range p {
		all = append(all, s.filled(a.request.orDefaults()).message().bytes()...)
	}
	if _, err := c.Write(all); err != nil {
		s.Fatalf("%v", err)
	}
	for _, a := range p {
		r := s.asked(a.request)
		got, err := c.receive(r.method)
		if err != nil {
			s.Fatalf("%s %s: no response: %v", r.method, r.target, err)
		}
		a.noBare = true
		s.check(r, a.want, got, -1)
	}
}

// begin sends a request and waits until the handler holds.
type begin struct {
	as string
	request
}

func (b begin) do(s *env) {
	s.Helper()
	send(b).do(s)
	entered(1).do(s)
}

// send sends a request and does not wait.
type send struct {
	as string
	request
}

func (b send) do(s *env) {
	s.Helper()
	s.text.line("%s:", b.as)
	r := s.asked(b.request)
	x := &exchange{request: r, connection: s.connect("")}
	s.pending[b.as] = x
	x.send(r)
}

// resume lets as many held executions go.
type resume int

func (n resume) do(s *env) {
	for range n {
		s.probe.gate <- struct{}{}
	}
}

// entered waits until as many more handlers hold.
type entered int

func (n entered) do(s *env) {
	s.Helper()
	for range n {
		select {
		case <-s.probe.entered:
		case <-time.After(patience):
			s.Fatalf("the handler does not run")
		}
	}
}

// await checks the answer to a request that was sent before.
type await struct {
	as string
	want
}

func (a await) do(s *env) {
	s.Helper()
	x := s.pending[a.as]
	delete(s.pending, a.as)
	defer x.Close()
	got, err := x.receive(x.method)
	if err != nil {
		s.Fatalf("%s: no response: %v", a.as, err)
	}
	s.text.line("%s:", a.as)
	a.noBare = true // which execution it was is not known
	s.check(x.request, a.want, got, -1)
}

// leave closes the connection of a request without waiting for the answer. With testCase.incoming it waits until the service has
// seen it, if it can.
type leave struct{ as string }

func (l leave) do(s *env) {
	s.Helper()
	s.text.line("%s leaves", l.as)
	x := s.pending[l.as]
	delete(s.pending, l.as)
	// Not only half of it, and at once: the service must see the client go.
	_ = x.Conn.(*net.TCPConn).SetLinger(0)
	x.Close()
	if s.c.incoming && s.h.Features.ContextEnds {
		handlerSays("the client has left").do(s)
	}
}

// awaitRuns waits until all runs are finished, for responses that go out before they are.
type awaitRuns struct{}

func (awaitRuns) do(s *env) { s.awaitRuns() }

// handlerSays waits for what a handler has to say.
type handlerSays string

func (h handlerSays) do(s *env) {
	s.Helper()
	select {
	case got := <-s.probe.said:
		if got != string(h) {
			s.Errorf("the handler reports %q, not %q", got, string(h))
		}
	case <-time.After(patience):
		s.Fatalf("the handler does not report %q", string(h))
	}
}

// executions checks how often handlers have run so far.
type executions int

func (n executions) do(s *env) {
	s.Helper()
	if got := s.probe.count(); got != int(n) {
		s.Errorf("%d executions, not %d", got, int(n))
	}
}

// observed waits until an event of this kind has been reported.
type observed core.Kind

func (k observed) do(s *env) {
	s.Helper()
	if !s.store.until(func() bool {
		return slices.ContainsFunc(s.events, func(e core.Event) bool { return e.Kind == core.Kind(k) })
	}) {
		s.Errorf("no event says %q", core.Kind(k))
	}
}

// atOnce sends one request over many connections at once. One answer must be from the handler, and all others replays.
type atOnce struct {
	request
	size int
}

func (c atOnce) do(s *env) {
	s.Helper()
	s.text.line("%d at once:", c.size)
	r := s.asked(c.request)
	conns := make([]*connection, c.size)
	for i := range conns {
		conns[i] = s.connect("")
		defer conns[i].Close()
	}
	replies := make([]reply, c.size)
	errs := make([]error, c.size)
	ready := make(chan struct{})
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			<-ready
			conn.send(r)
			replies[i], errs[i] = conn.receive(r.method)
		})
	}
	close(ready)
	wg.Wait()

	for i, got := range replies {
		if errs[i] != nil {
			s.Errorf("no response: %v", errs[i])
		} else if got.get(core.ReplayedHeader) == "" {
			s.firsts = append(s.firsts, got)
		}
	}
	if len(s.firsts) != 1 {
		s.Fatalf("%d answers from the handler", len(s.firsts))
	}
	for _, got := range replies {
		if got.get(core.ReplayedHeader) != "" {
			s.checkReplay(got, 0)
		}
	}
	s.text.answered(s.firsts[0], s.c.ownText)
}

// then does anything else.
type then func(s *env)

func (f then) do(s *env) { s.Helper(); f(s) }

// want is what an answer must be. The zero want is an answer of the handler's, which has
// run once for it.
type want struct {
	status int // 0: any, that is to say the one in the transcript
	kind   kind
	code   codes.Code // of a refusal
	// body is what the body must be; "": any.
	body string
	// fields must be there, each name with exactly these lines.
	fields []adapter.Field
	absent []string
	// other says that the fields named may differ between the response and its replay.
	other []string
	// back says how many responses before the last one the replayed one was made.
	back int
	// noBare leaves out the comparison with the unguarded application.
	noBare bool
}

type kind uint8

const (
	ran      kind = iota
	replay        // the handler's last answer again
	remade        // what Policy.Replayed makes of it
	refusal       // by code
	passed        // without a guard's doing: one more execution, nothing in the store
	custom        // a refusal in an error format of the service's own
	foreign       // an answer of somebody else's: the handler has not run
	answered      // a stored answer that this case has not seen before
)

var (
	created  = want{status: 201}
	replayed = want{status: 201, kind: replay}
)

// of returns w for a replay of the response that was made so many before the last one.
func (w want) of(back int) want { w.back = back; return w }

func refused(code codes.Code) want { return want{kind: refusal, code: code} }

// check compares an answer with what is wanted. before is the number of executions
// before the request, or -1 if that is of no use.
func (s *env) check(r request, w want, got reply, before int) {
	s.Helper()
	what := r.method + " " + abridged([]byte(r.target))
	if w.status != 0 && got.status != w.status {
		s.Errorf("%s: status %d, not %d: %s", what, got.status, w.status, abridged(got.body))
	}
	if w.body != "" && string(got.body) != w.body {
		s.Errorf("%s: the body is %s, not %s", what, abridged(got.body), abridged([]byte(w.body)))
	}
	s.checkForm(what, got)
	more := 0
	switch w.kind {
	case ran, passed:
		more = 1
		s.firsts = append(s.firsts, got)
		if got.get(core.ReplayedHeader) != "" {
			s.Errorf("%s: the answer is marked as a replay", what)
		}
		if s.bare != "" && !w.noBare {
			s.checkBare(what, r, got)
		}
	case replay:
		s.checkReplay(got, w.back, w.other...)
	case refusal:
		s.checkRefusal(got, w.code)
	case custom, foreign:
		if got.get(core.ReplayedHeader) != "" {
			s.Errorf("%s: the answer is marked as a replay", what)
		}
	}
	if now := s.probe.count(); before >= 0 && now != before+more {
		s.Errorf("%s: the handler has run %d times for it, not %d", what, now-before, more)
	}
	for _, f := range w.fields {
		var lines []string
		for _, g := range w.fields {
			if g.Name == f.Name {
				lines = append(lines, g.Value)
			}
		}
		if got := got.lines(f.Name); !slices.Equal(got, lines) {
			s.Errorf("%s: %s is %q, not %q", what, f.Name, got, lines)
		}
	}
	for _, name := range w.absent {
		if got := got.lines(name); len(got) > 0 {
			s.Errorf("%s: %s is there: %q", what, name, got)
		}
	}
	s.text.answered(got, s.c.ownText && (w.kind == ran || w.kind == replay || w.kind == passed || w.kind == foreign))
}

// singular are the fields of which a response may have one line.
var singular = []string{"Date", "Content-Type", "Content-Length", "Content-Encoding", "Location", "Etag",
	"Cache-Control", "Retry-After", "Server", core.ReplayedHeader}

// checkForm checks what holds for every response.
func (s *env) checkForm(what string, got reply) {
	s.Helper()
	for _, name := range singular {
		if lines := got.lines(name); len(lines) > 1 {
			s.Errorf("%s: %s is doubled: %q", what, name, lines)
		}
	}
	if len(got.lines("Date")) != 1 && got.status >= 200 {
		s.Errorf("%s: Date is missing", what)
	}
}

// checkReplay compares a replay with the response that was made so many before the last.
func (s *env) checkReplay(got reply, back int, other ...string) {
	s.Helper()
	if back >= len(s.firsts) {
		s.Errorf("there is nothing that this could be a replay of: status %d, %s", got.status, abridged(got.body))
		return
	}
	if got.get(core.ReplayedHeader) != "true" {
		s.Errorf("not marked as a replay: status %d, %s", got.status, abridged(got.body))
		return
	}
	dropped := append([]string{core.ReplayedHeader, "Set-Cookie", "X-Request-Id", "Traceparent"}, other...)
	sameMessage(s, "the replay", s.firsts[len(s.firsts)-1-back], got, dropped...)
	// Servers on net/http find out the length of a body that fits into one buffer.
	if long := len(got.body) > 2048 && got.framing == "chunked"; !long && got.framing != "length" && got.framing != "none" {
		s.Errorf("the replay, whose length is known, ends by %q", got.framing)
	}
	if date, err := http.ParseTime(got.get("Date")); err != nil || date.Year() < 2020 {
		s.Errorf("the replay's Date is stale: %q", got.get("Date"))
	}
}

// checkBare sends the same request to the application without guards and compares.
func (s *env) checkBare(what string, r request, got reply) {
	s.Helper()
	s.bareProbe.runs.Store(int64(s.probe.count() - 1))
	c := s.dial(s.bare)
	defer c.Close()
	c.send(r)
	bare, err := c.receive(r.method)
	if err != nil {
		s.Fatalf("%s: no response without a guard: %v", what, err)
	}
	sameMessage(s, what+", compared with no guard", bare, got)
	if bare.framing == "length" && got.framing != "length" {
		s.Errorf("%s: without a guard the response has a Content-Length, with it it ends by %q", what, got.framing)
	}
	if !slices.EqualFunc(bare.hints, got.hints, func(a, b reply) bool {
		return a.status == b.status && slices.Equal(comparable(a, nil), comparable(b, nil))
	}) {
		s.Errorf("%s: the 1xx responses before it are %+v, without a guard %+v", what, got.hints, bare.hints)
	}
}

// checkRefusal checks a refusal by RFC 9457.
func (s *env) checkRefusal(got reply, code codes.Code) {
	s.Helper()
	for _, fault := range checkProblem(got, string(code)) {
		s.Errorf("%s", fault)
	}
	if v := got.lines(core.ReplayedHeader); v != nil {
		s.Errorf("the refusal is marked as a replay: %q", v)
	}
	if code == codes.InProgress || code == codes.StoreUnavailable || code == codes.RateLimited {
		if n, err := strconv.Atoi(got.get("Retry-After")); err != nil || n < 1 {
			s.Errorf("Retry-After is %q", got.get("Retry-After"))
		}
	}
}

func field(name, value string) adapter.Field {
	return adapter.Field{Name: textproto.CanonicalMIMEHeaderKey(name), Value: value}
}

func (r reply) String() string { return fmt.Sprintf("%d %q %q", r.status, r.fields, r.body) }

// sendTruncated sends a request that is cut short. It may be answered or not; it must neither run
// nor be recorded.
type sendTruncated struct{ request }

func (b sendTruncated) do(s *env) {
	s.Helper()
	r := s.asked(b.request)
	before := s.probe.count()
	c := s.connect("")
	defer c.Close()
	c.send(r)
	if got, err := c.receive(r.method); err == nil && got.status < 400 {
		s.Errorf("half a request is answered with %v", got)
	}
	if n := s.probe.count() - before; n != 0 {
		s.Errorf("half a request has run %d times", n)
	}
	s.unrecorded("half a request")
}

// sendUnchecked sends a request whose answer is the handler's but is not compared with anything:
// it is only kept for the replay.
type sendUnchecked struct{ request }

func (u sendUnchecked) do(s *env) {
	s.Helper()
	r := s.asked(u.request)
	c := s.connect("")
	defer c.Close()
	c.send(r)
	got, err := c.receive(r.method)
	if err != nil {
		s.Fatalf("no response: %v", err)
	}
	s.firsts = append(s.firsts, got)
}

// listen reads from a chunked response until text has come, and no further.
type listen struct{ as, text string }

func (l listen) do(s *env) {
	s.Helper()
	x := s.pending[l.as]
	if !x.listening {
		x.listening = true
		r, err := x.readHead()
		if err != nil {
			s.Fatalf("no response: %v", err)
		}
		if r.get("Transfer-Encoding") != "chunked" {
			s.Fatalf("the stream is not chunked: %v", r)
		}
		s.checkForm(l.as, r)
		s.text.answered(r, false)
	}
	for len(x.heard) < len(l.text) {
		chunk, err := x.chunk()
		if err != nil {
			s.Fatalf("the stream ends after %q: %v", x.heard, err)
		}
		x.heard += strings.ReplaceAll(string(chunk), ping, "")
	}
	if x.heard != l.text {
		s.Errorf("the stream says %q, not %q", x.heard, l.text)
	}
	x.heard = ""
	s.text.line("< … %s", abridged([]byte(l.text)))
}

// upgraded sends a request that asks for another protocol, and speaks it.
type upgraded struct {
	request
	say, hear string
}

func (u upgraded) do(s *env) {
	s.Helper()
	r := u.request.orDefaults()
	r.fields = append(slices.Clone(r.fields), field("Connection", "Upgrade"), field("Upgrade", "echo"))
	s.text.asked(r)
	c := s.connect("")
	defer c.Close()
	c.send(r)
	got, err := c.receive(r.method)
	if err != nil || got.status != 101 || got.get("Upgrade") != "echo" {
		s.Fatalf("not an upgrade: %v, %v", got, err)
	}
	s.text.line("< 101")
	if _, err := c.Write([]byte(u.say)); err != nil {
		s.Fatalf("%v", err)
	}
	heard, err := io.ReadAll(c.r)
	if err != nil || string(heard) != u.hear {
		s.Errorf("the connection says %q (%v), not %q", heard, err, u.hear)
	}
}
