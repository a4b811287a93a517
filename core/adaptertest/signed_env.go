package adaptertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// attackGroup are attacks on one service. They share a server.
type attackGroup struct {
	name    string
	needs   Features
	change  func(*service) // nil: nothing
	attacks []attack
}

// attack is one attack, or what must work beside it.
type attack struct {
	name  string // "": the group's
	why   string // the rule, or what has gone wrong without it
	front bool   // a server may answer all of it by itself
	do    func(p *attackRun)
}

// service is the service whose verifier is attacked.
type service struct {
	sign    sign.Config
	core    core.Config
	pattern string       // of the one route, for POST; empty: every method and every path
	policy  *core.Policy // of a guard behind the verifier; nil: there is none
	outer   *core.Policy // of a guard in front of it
	inner   *sign.Config // of a second verifier behind it
	handler Handler      // nil: it answers with what it has seen
	app     App          // all but Routes
}

// signedEnv is that service on a server, and what its parts have seen.
type signedEnv struct {
	h       Harness
	nonces  *nonces
	store   *recorder // the engine's
	own     bool      // refusals have a body of the service's own
	guarded bool      // there is a guard, so that handlers have a run
	scheme  string    // the scheme's name
	addr    string

	mu     sync.Mutex
	runs   int
	events []event
	kept   []keptContext
}

// nonces counts what is asked of it, and fails as it is told.
type nonces struct {
	sign.MemoryNonces
	calls atomic.Int64
	down  atomic.Bool
}

// Use implements sign.NonceStore.
func (n *nonces) Use(ctx context.Context, keyID, nonce string, ttl time.Duration) (bool, error) {
	n.calls.Add(1)
	if n.down.Load() {
		return false, errors.New("adaptertest: the nonce store is made to fail")
	}
	return n.MemoryNonces.Use(ctx, keyID, nonce, ttl)
}

// event is what the observer was told, and its key's id as it was then.
type event struct {
	sign.Event
	keyID string
}

// keptContext is the context of a request that a handler keeps, and what it said then.
type keptContext struct {
	context.Context
	signed sign.Verified
	caller string
}

func newSignedEnv(tb testing.TB, h Harness, g attackGroup) *signedEnv {
	tb.Helper()
	store, err := newRecorder()
	if err != nil {
		tb.Fatal(err)
	}
	e := &signedEnv{h: h, nonces: new(nonces), store: store}
	s := &service{
		sign: sign.Config{Keys: ring(), Nonces: e.nonces, Clock: func() time.Time { return noon }, Observe: e.observe},
		core: core.Config{Store: store, User: core.UserFromCaller()},
	}
	if g.change != nil {
		g.change(s)
	}
	engine, err := core.New(s.core)
	if err != nil {
		tb.Fatal(err)
	}
	route := Route{Pattern: s.pattern, Handler: s.handler}
	if s.handler == nil {
		route.Handler = e.handle
	}
	if s.pattern != "" {
		route.Method = "POST"
	}
	for _, config := range []*sign.Config{&s.sign, s.inner} {
		if config == nil {
			continue
		}
		v, err := sign.NewVerifier(*config)
		if err != nil {
			tb.Fatal(err)
		}
		route.Verifiers = append(route.Verifiers, v)
	}
	guard := func(policy *core.Policy) *core.Guard {
		if policy == nil {
			return nil
		}
		g, err := engine.Guard(*policy)
		if err != nil {
			tb.Fatal(err)
		}
		return g
	}
	route.Guard, route.Outer = guard(s.policy), guard(s.outer)
	e.own, e.guarded, e.scheme = s.sign.Refuse != nil, s.policy != nil || s.outer != nil, "v1"
	if s.sign.Scheme != nil {
		e.scheme = s.sign.Scheme.Name()
	}
	s.app.Routes = []Route{route}
	e.addr = h.Start(tb, s.app)
	return e
}

func (e *signedEnv) observe(_ context.Context, ev sign.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event{ev, strings.Clone(ev.KeyID)})
}

// answer is what the handler says that it has seen.
type answer struct {
	Run     int    `json:"run"`
	KeyID   string `json:"key_id"`
	Caller  string `json:"caller"`
	Scheme  string `json:"scheme"`
	Time    int64  `json:"time"`
	Nonce   string `json:"nonce"`
	Method  string `json:"method"`
	Key     string `json:"idempotency_key"`
	Body    string `json:"body_sha256"`
	Problem string `json:"problem,omitempty"`
}

// theirTrailer is what anybody may send behind the body.
const theirTrailer = "X-Checksum"

// handle is the handler.
func (e *signedEnv) handle(c Call) error {
	v, ok := sign.From(c.Context())
	caller, called := core.CallerFrom(c.Context())
	body, err := c.Body()
	a := answer{
		KeyID: v.KeyID, Caller: caller, Scheme: v.Scheme, Time: v.Time.Unix(), Nonce: v.Nonce,
		Method: c.Method(), Key: c.Header("Idempotency-Key"), Body: digestOf(body),
	}
	own, ownOK := c.Verified()
	switch {
	case !ok:
		a.Problem = "sign.From finds nothing in the context"
	case !called:
		a.Problem = "core.CallerFrom finds nobody in the context"
	case (core.RunFrom(c.Context()) != nil) != e.guarded:
		a.Problem = "core.RunFrom finds nothing in the context, or a run where there is no guard"
	case err != nil:
		a.Problem = "the body cannot be read: " + err.Error()
	case c.Header(theirTrailer)+c.Trailer(theirTrailer) != "":
		a.Problem = "the request has a trailer that nobody has signed"
	case !ownOK || !reflect.DeepEqual(own, v):
		a.Problem = "the adapter's own function returns something else than sign.From"
	}
	then := v // of which nothing may change when the request is over
	then.KeyID, then.Owner, then.Nonce, then.Consumed = strings.Clone(v.KeyID), strings.Clone(v.Owner),
		strings.Clone(v.Nonce), slices.Clone(v.Consumed)
	for i, name := range then.Consumed {
		then.Consumed[i] = strings.Clone(name)
	}
	e.mu.Lock()
	e.runs++
	a.Run = e.runs
	e.kept = append(e.kept, keptContext{c.Context(), then, strings.Clone(caller)})
	e.mu.Unlock()
	text, _ := json.Marshal(a) // strings and numbers: cannot fail
	return c.Blob(200, "application/json", text)
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// count returns how often the handler has run so far.
func (e *signedEnv) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs
}

// takeEvents returns the events since its last call.
func (e *signedEnv) takeEvents() []event {
	e.mu.Lock()
	defer e.mu.Unlock()
	events := e.events
	e.events = nil
	return events
}

// attackRun is an attack under way.
type attackRun struct {
	testing.TB
	e      *signedEnv
	at     int // the message, from 1
	events []event
}

// run carries out a.
func (e *signedEnv) run(tb testing.TB, a attack) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", a.why)
		}
	})
	p := &attackRun{TB: tb, e: e}
	a.do(p)
	for _, ev := range p.events {
		if ev.KeyID != ev.keyID {
			p.problem("an event that named the key %q names %q by now", ev.keyID, ev.KeyID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range e.kept {
		v, _ := sign.From(k)
		caller, _ := core.CallerFrom(k)
		if !reflect.DeepEqual(v, k.signed) || caller != k.caller {
			p.problem("a context that was kept says %+v of %q, and said %+v of %q when it was new", v, caller, k.signed, k.caller)
		}
	}
	e.kept = nil
}

func (p *attackRun) problem(format string, args ...any) {
	p.Helper()
	p.Errorf("message %d: "+format, append([]any{p.at}, args...)...)
}

// verdict is what a request must come to.
type verdict struct {
	err error // nil: it is accepted
	// front: a server may refuse it in its own way in front of the verifier.
	front bool
	// either: it may be accepted or refused in any way; accepted, the handler must see what was signed.
	either bool
	// itself: as either, and the server may answer it with a success of its own, in front of the handler.
	itself bool
	// refused: it may be refused in any way.
	refused bool
	// unrouted: it is accepted, but the router behind the verifier may not know the path.
	unrouted bool
	// hidden is what it comes to on a server that has put the host of a target in absolute form in the place
	// of the Host field, as net/http does: nobody can compare them there. Nil: the same.
	hidden *verdict
}

var (
	accepted    = verdict{}
	missing     = refusedBy(sign.CodeMissing)
	malformed   = refusedBy(sign.CodeMalformed)
	duplicate   = refusedBy(sign.CodeDuplicateHeader)
	badMAC      = refusedBy(sign.ReasonBadSignature)
	notCovered  = refusedBy(sign.ReasonUncovered)
	unavailable = refusedBy(sign.CodeStoreUnavailable)
	tooLarge    = refusedBy(sign.CodeBodyTooLarge)
)

func refusedBy(kind error) verdict { return verdict{err: kind} }

// orFront is for requests that a server may refuse by itself.
func (w verdict) orFront() verdict {
	w.front = true
	return w
}

// orFrontFrom is orFront with this version of Go and later ones, whose net/http refuses the request.
func (w verdict) orFrontFrom(release string) verdict {
	if version.Compare(runtime.Version(), release) < 0 {
		return w
	}
	return w.orFront()
}

// orHidden is for requests that name two hosts.
func (w verdict) orHidden(hidden verdict) verdict {
	w.hidden = &hidden
	return w
}

// sent is a message and what has come of it.
type sent struct {
	m *message
	reply
	err          error
	runs, nonces int     // of the handler, and calls of the nonce store
	events       []event // of the verifiers
}

// send sends m and checks everything that there is to be seen.
func (p *attackRun) send(m *message, w verdict) sent {
	p.Helper()
	s := p.try(m, p.roundTrip)
	p.check(s, w)
	return s
}

func (p *attackRun) roundTrip(m *message) (reply, error) { return roundTrip(p.e.addr, m) }

// try sends m and checks nothing yet.
func (p *attackRun) try(m *message, send func(*message) (reply, error)) sent {
	p.Helper()
	p.at++
	p.e.takeEvents()
	runs, calls := p.e.count(), p.e.nonces.calls.Load()
	r, err := send(m)
	if err != nil {
		p.problem("%v", err)
	}
	s := sent{m, r, err, p.e.count() - runs, int(p.e.nonces.calls.Load() - calls), p.e.takeEvents()}
	p.events = append(p.events, s.events...)
	return s
}

// check compares what has come of a message with what should have.
func (p *attackRun) check(s sent, w verdict) {
	p.Helper()
	if s.err != nil {
		return
	}
	if w.hidden != nil && s.get(core.RefusedHeader) != string(codeOf(w.err)) {
		w = *w.hidden
	}
	if len(s.more) > 0 {
		p.problem("there is more than one answer: %q", s.more)
	}
	switch byItself := s.runs == 0 && s.isRefusal(s.m); {
	case w.itself && s.runs == 0 && len(s.events) == 0, w.front && len(s.events) == 0 && byItself:
		return
	case w.refused, w.either && s.status != http.StatusOK:
		if !byItself {
			p.problem("the answer is %d, and the handler has run %d times", s.status, s.runs)
		}
		return
	}
	p.checkEvents(s, w)
	switch {
	case w.err != nil:
		if s.runs != 0 {
			p.problem("the handler has run")
		}
		p.checkRefusal(s.reply, w, s.m)
	case w.unrouted && s.status == http.StatusNotFound && s.runs == 0:
	default:
		if s.runs != 1 {
			p.problem("the handler has run %d times", s.runs)
		}
		p.checkAccepted(s.reply, s.m)
	}
}

// isRefusal reports whether a server may answer so to a malformed request. A 500, and a connection that is
// closed without a word, are what becomes of a panic.
func (r reply) isRefusal(m *message) bool {
	switch r.status {
	case 0:
		return m.cut // the client has gone first
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return true
	}
	return 400 <= r.status && r.status < 500
}

// checkEvents checks what the observer was told, and that a nonce is used up by a good signature only.
func (p *attackRun) checkEvents(s sent, w verdict) {
	p.Helper()
	if len(s.events) != 1 {
		p.problem("the observer was told %d times", len(s.events))
	}
	for _, e := range s.events {
		// Of a message that is refused, it may not have been understood.
		if e.KeyID != s.m.keyID() && (w.err == nil || e.KeyID != "") {
			p.problem("the observer was told of the key %q", e.KeyID)
		}
		if e.Method != s.m.method || !strings.HasPrefix(e.RemoteAddr, "127.0.0.1:") || strings.Contains(e.Path, "?") {
			p.problem("the observer was told of a %s of %q by %q", e.Method, e.Path, e.RemoteAddr)
		}
		if w.err == nil && e.Err != nil || w.err != nil && (e.Err == nil || !errors.Is(e.Err, w.err)) {
			p.problem("the observer was told %v; it is %v", e.Err, w.err)
		}
	}
	if good := w.err == nil || w.err == sign.CodeReplayed || w.err == sign.CodeStoreUnavailable; !good && s.nonces != 0 {
		p.problem("the nonce store was asked for a message that is refused for another reason")
	}
}

func (p *attackRun) checkAccepted(r reply, m *message) {
	p.Helper()
	if r.status != http.StatusOK || r.get(core.ReplayedHeader) != "" {
		p.problem("it should be accepted; the answer is\n%s", r.raw)
		return
	}
	if m.method == http.MethodHead {
		return
	}
	var got answer
	if err := json.Unmarshal(r.body, &got); err != nil {
		p.problem("the answer is not the handler's: %v: %s", err, r.body)
		return
	}
	expected := answer{
		Run: got.Run, KeyID: m.keyID(), Caller: m.signer.owner, Scheme: p.e.scheme, Time: noon.Unix(), Nonce: got.Nonce,
		Method: m.method, Key: m.value("Idempotency-Key"), Body: digestOf(m.body),
	}
	if !m.sorted {
		expected.Nonce = m.value("X-Nonce")
	}
	if got != expected {
		p.problem("the handler has seen\n%+v, not\n%+v", got, expected)
	}
}

func (m *message) keyID() string {
	if m.sorted {
		return m.signer.id
	}
	return m.value("X-Key-Id")
}

// statuses are those that docs/problems.md names.
var statuses = map[sign.Code]int{
	sign.CodeMissing: 401, sign.CodeInvalid: 401, sign.CodeExpired: 401, sign.CodeNotYetValid: 401, sign.CodeReplayed: 401,
	sign.CodeMalformed: 400, sign.CodeDuplicateHeader: 400, sign.CodeBodyTooLarge: 413, sign.CodeStoreUnavailable: 503,
}

// codeOf returns the code that goes out for a kind.
func codeOf(kind error) sign.Code {
	if code, ok := kind.(sign.Code); ok {
		return code
	}
	return sign.CodeInvalid // of which reasons are
}

// checkRefusal checks what every refusal of a verifier has, and its problem unless the service makes the body.
func (p *attackRun) checkRefusal(r reply, w verdict, m *message) {
	p.Helper()
	code := codeOf(w.err)
	if r.status != statuses[code] {
		p.problem("it should be refused with %d %s; the answer is\n%s", statuses[code], code, r.raw)
		return
	}
	faults := append(checkField(r, "Cache-Control", "no-store"), checkField(r, core.RefusedHeader, string(code))...)
	if r.status == http.StatusUnauthorized {
		faults = append(faults, checkField(r, "Www-Authenticate", `Signature scheme="`+p.e.scheme+`"`)...)
	}
	if code == sign.CodeStoreUnavailable && r.get("Retry-After") == "" {
		faults = append(faults, "there is no Retry-After")
	}
	if date := r.lines("Date"); len(date) != 1 {
		faults = append(faults, fmt.Sprintf("the Date fields are %q", date))
	}
	if m.method != http.MethodHead && !p.e.own {
		faults = append(faults, checkProblem(r, string(code))...)
	}
	if (code == sign.CodeExpired || code == sign.CodeNotYetValid) && !p.e.h.Features.ServerDate {
		faults = append(faults, checkField(r, "Date", noon.UTC().Format(http.TimeFormat))...)
	}
	for _, fault := range faults {
		p.problem("%s", fault)
	}
}

// checkProblem returns what is wrong with an answer that has to be a problem (RFC 9457) with a code, of a verifier or of a
// guard. Nil: nothing.
func checkProblem(r reply, code string) (faults []string) {
	var got struct { // RFC 9457, section 3.1
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.Unmarshal(r.body, &got); err != nil {
		faults = append(faults, fmt.Sprintf("status %d, and the body is no problem: %v: %s", r.status, err, abridged(r.body)))
	} else if got.Code != code || got.Status != r.status || got.Title == "" || got.Detail == "" || !strings.HasSuffix(got.Type, "#"+code) {
		faults = append(faults, fmt.Sprintf("status %d, and the problem is %s; the code should be %s", r.status, abridged(r.body), code))
	}
	faults = append(faults, checkField(r, "Content-Type", "application/problem+json")...)
	faults = append(faults, checkField(r, "Content-Length", strconv.Itoa(len(r.body)))...)
	faults = append(faults, checkField(r, core.RefusedHeader, code)...)
	return append(faults, checkField(r, "Cache-Control", "no-store")...)
}

func checkField(r reply, name, value string) []string {
	if got := r.lines(name); !slices.Equal(got, []string{value}) {
		return []string{fmt.Sprintf("%s is %q, not %q", name, got, value)}
	}
	return nil
}
