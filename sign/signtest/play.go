package signtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/sign"
)

// bench is the application under attack, on one server or several.
type bench struct {
	h       Harness
	clock   *clock
	nonces  *nonces // nil: the group has others
	keyring *flakyKeys
	memory  *sign.MemoryNonces // those of the group "a full memory"
	own     bool               // refusals have a body of the house's own
	scheme  string             // the scheme's name
	addrs   []string

	mu     sync.Mutex
	runs   int
	events []event
}

// event is what the observer was told.
type event struct {
	sign.Event
	signingString string
	keyID         string // Event.KeyID as it was then
}

func newBench(tb testing.TB, h Harness, g group) *bench {
	tb.Helper()
	c := &clock{at: noon}
	b := &bench{h: h, clock: c, nonces: newNonces(c), keyring: &flakyKeys{ring: ring()}, scheme: "v1"}
	var stores []sign.NonceStore
	count := max(g.servers, 1)
	if g.http2 && !h.HTTP2 {
		tb.Skipf("%s does not speak HTTP/2", h.Name)
	}
	if g.shared {
		if h.Nonces == nil {
			tb.Skipf("%s has no nonce store of its own here", h.Name)
		}
		b.nonces, stores = nil, h.Nonces(tb, count)
	}
	for i := range count {
		config := sign.Config{Keys: b.keyring, Nonces: b.nonces, Clock: c.now, Observe: b.observe}
		if g.shared {
			config.Nonces = stores[i]
		}
		if g.config != nil {
			g.config(b, &config)
		}
		b.own = config.Refuse != nil
		if config.Scheme != nil {
			b.scheme = config.Scheme.Name()
		}
		v, err := sign.NewVerifier(config)
		if err != nil {
			tb.Fatal(err)
		}
		b.addrs = append(b.addrs, h.Start(tb, App{Verifier: v, Pattern: g.pattern, Handle: b.handle, config: config}))
	}
	return b
}

func (b *bench) observe(_ context.Context, e sign.Event) {
	text := e.SigningString()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, event{e, text, strings.Clone(e.KeyID)})
}

// answer is what the handler says that it has seen.
type answer struct {
	KeyID     string `json:"key_id"`
	Scheme    string `json:"scheme"`
	Algorithm string `json:"algorithm"`
	Time      int64  `json:"time"`
	Nonce     string `json:"nonce"`
	Method    string `json:"method"`
	Key       string `json:"idempotency_key"`
	Body      string `json:"body_sha256"`
	Problem   string `json:"problem,omitempty"`
}

func (b *bench) handle(s Seen) []byte {
	b.mu.Lock()
	b.runs++
	b.mu.Unlock()
	v, ok := sign.From(s.Context)
	digest := sha256.Sum256(s.Body)
	a := answer{
		KeyID: v.KeyID, Scheme: v.Scheme, Algorithm: v.Algorithm.String(), Time: v.Time.Unix(), Nonce: v.Nonce,
		Method: s.Method, Key: s.Header("Idempotency-Key"), Body: hex.EncodeToString(digest[:]),
	}
	switch {
	case !ok:
		a.Problem = "sign.From finds nothing in the context"
	case s.Err != nil:
		a.Problem = "the body cannot be read: " + s.Err.Error()
	case s.Verified != nil:
		if own, ok := s.Verified(); !ok || !reflect.DeepEqual(own, v) {
			a.Problem = "the adapter's own function returns something else than sign.From"
		}
	}
	text, _ := json.Marshal(a) // strings and numbers: cannot fail
	return text
}

// flakyKeys is the ring, and a database that may not answer.
type flakyKeys struct {
	ring *sign.Ring
	mu   sync.Mutex
	fail func(ctx context.Context) error
}

// Keys implements sign.KeySource.
func (k *flakyKeys) Keys(ctx context.Context, id string) ([]*sign.Key, error) {
	k.mu.Lock()
	fail := k.fail
	k.mu.Unlock()
	if fail != nil {
		if err := fail(ctx); err != nil {
			return nil, err
		}
	}
	return k.ring.Keys(ctx, id)
}

func (k *flakyKeys) failing(f func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = f
}

// play is a row that is being carried out.
type play struct {
	b        *bench
	tb       testing.TB
	at       int // the step, from 1
	kept     map[string]*message
	told     []event // in all steps
	problems []string
}

func (b *bench) play(tb testing.TB, r row) *play {
	tb.Helper()
	b.clock.set(noon)
	b.nonces.heal()
	b.keyring.failing(nil)
	p := &play{b: b, tb: tb, kept: make(map[string]*message)}
	for i, s := range r.steps {
		p.at = i + 1
		s.do(p)
	}
	for _, e := range p.told {
		if e.KeyID != e.keyID {
			p.problem("an event that named the key %q names %q by now", e.keyID, e.KeyID)
		}
	}
	return p
}

func (n *nonces) heal() {
	if n != nil {
		n.failing(nil)
	}
}

func (p *play) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("step %d: ", p.at)+fmt.Sprintf(format, args...))
}

// request is how a message is made: what is changed before it is signed, by somebody who
// can sign, and after, by anybody.
type request struct{ before, after []change }

type change func(m *message)

// good is a request in which everything that v1 knows is used.
var good request

// with changes what is signed.
func (r request) with(c ...change) request {
	return request{slices.Concat(r.before, c), r.after}
}

// then changes what has been signed.
func (r request) then(c ...change) request {
	return request{r.before, slices.Concat(r.after, c)}
}

const (
	goodBody   = `{"amount":5,"to":"bob"}`
	goodTarget = "/transfers/a%2Fb?x=2&x=1"
)

func (r request) message() *message {
	m := &message{
		method: "POST",
		target: goodTarget,
		lines: []line{
			{"Host", " api.example.com"},
			{"Content-Type", " application/json"},
			{"Idempotency-Key", ` "k-1"`},
			{"X-Key-Id", " demo"},
			{"X-Timestamp", fmt.Sprintf(" %d", noon.Unix())},
			{"X-Nonce", " " + newNonce()},
			{"X-Signed-Headers", " content-type;idempotency-key"},
		},
		body:   []byte(goodBody),
		signer: demo,
	}
	for _, c := range r.before {
		c(m)
	}
	m.sign()
	for _, c := range r.after {
		c(m)
	}
	return m
}

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// want is what a request must come to.
type want struct {
	err sign.Kind // nil: it is accepted
	// front: a server may refuse it in its own way in front of the verifier.
	front bool
	// either: it may be accepted or refused in any way; accepted, the handler must see what
	// was signed.
	either bool
	// itself: as either, and the server may answer it with a success of its own, in front of the handler.
	itself bool
	// refused: it may be refused in any way.
	refused bool
	// unrouted: it is accepted, but the router behind the verifier may not know the path.
	unrouted bool
	// hidden is what it comes to on a server that has put the host of a target in absolute form in the place
	// of the Host field, as net/http does: nobody can compare them there. Nil: the same.
	hidden *want
}

var accepted = want{}

func refused(kind sign.Kind) want { return want{err: kind} }

// orFront is for requests that a server may refuse by itself.
func (w want) orFront() want {
	w.front = true
	return w
}

// orFrontFrom is orFront with this version of Go and later ones, whose net/http refuses the request.
func (w want) orFrontFrom(release string) want {
	if version.Compare(runtime.Version(), release) < 0 {
		return w
	}
	return w.orFront()
}

// orHidden is for requests that name two hosts.
func (w want) orHidden(hidden want) want {
	w.hidden = &hidden
	return w
}

// ask sends a request.
type ask struct {
	request request
	want    want
	as      string // keeps the message under this name, for again
}

func (a ask) do(p *play) {
	m := a.request.message()
	if a.as != "" {
		p.kept[a.as] = m
	}
	p.send(m, a.want)
}

// again sends a message that was kept, byte for byte, unless something is changed.
type again struct {
	as      string
	want    want
	changes []change
}

func (a again) do(p *play) {
	m := p.kept[a.as].clone()
	for _, c := range a.changes {
		c(m)
	}
	p.send(m, a.want)
}

// keep makes a message without sending it.
type keep struct {
	as      string
	request request
}

func (k keep) do(p *play) { p.kept[k.as] = k.request.message() }

// at sets the verifier's clock, counted from noon.
type at time.Duration

func (a at) do(p *play) { p.b.clock.set(noon.Add(time.Duration(a))) }

// slowly sends all of a request but its last byte, lets the time pass, and sends the rest.
type slowly struct {
	request request
	takes   time.Duration
	want    want
}

func (s slowly) do(p *play) {
	m := s.request.message()
	looked := make(chan struct{}, 1)
	p.b.keyring.failing(func(context.Context) error {
		select {
		case looked <- struct{}{}:
		default:
		}
		return nil
	})
	defer p.b.keyring.failing(nil)
	m.meanwhile = func() {
		// When a verifier has looked up the key, it has looked at the clock. One whose server reads bodies
		// first has not begun.
		select {
		case <-looked:
		case <-time.After(time.Second):
		}
		p.b.clock.set(noon.Add(s.takes))
	}
	p.send(m, s.want)
}

// alike sends requests whose answers must be the same, byte for byte but for the Date.
type alike []ask

func (a alike) do(p *play) {
	var first reply
	for i, one := range a {
		r := p.send(one.request.message(), one.want)
		if i == 0 {
			first = r
		} else if first.withoutDate() != r.withoutDate() {
			p.problem("request %d is answered\n%s\nwhich is not the first one's\n%s", i+1, r.raw, first.raw)
		}
	}
}

// crowd sends the same message n times at once, over all servers in turn: one is accepted, once.
type crowd struct {
	n       int
	request request
}

func (c crowd) do(p *play) {
	m := c.request.message()
	runs := p.b.count()
	replies := make([]reply, c.n)
	errs := make([]error, c.n)
	var wg sync.WaitGroup
	for i := range c.n {
		wg.Go(func() { replies[i], errs[i] = send(p.b.addrs[i%len(p.b.addrs)], m) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		p.problem("%v", err)
		return
	}
	good := 0
	for _, r := range replies {
		if r.status == http.StatusOK {
			good++
			continue
		}
		p.checkRefusal(r, refused(sign.CodeReplayed), m)
	}
	if good != 1 || p.b.count()-runs != 1 {
		p.problem("of %d identical messages %d were accepted, and the handler has run %d times", c.n, good, p.b.count()-runs)
	}
}

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs
}

// told returns the events since the last call.
func (b *bench) told() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

// send sends m to the first server and checks everything that there is to be seen.
func (p *play) send(m *message, w want) reply {
	p.b.told()
	runs, calls := p.b.count(), p.b.nonces.calledOr0()
	r, err := send(p.b.addrs[0], m)
	if err != nil {
		p.problem("%v", err)
		return r
	}
	runs, calls = p.b.count()-runs, p.b.nonces.calledOr0()-calls
	events := p.b.told()
	p.told = append(p.told, events...)
	if w.hidden != nil && r.header.Get(refusedHeader) != string(codeOf(w.err)) {
		w = *w.hidden
	}
	if len(r.more) > 0 {
		p.problem("there is more than one answer: %q", r.more)
	}
	p.checkSecrets(m, r, events)

	if w.itself && runs == 0 && len(events) == 0 {
		return r
	}
	if w.refused || w.either && r.status != http.StatusOK {
		if runs != 0 || !r.isRefusal(m) {
			p.problem("the answer is %d, and the handler has run %d times", r.status, runs)
		}
		return r
	}
	if w.front && len(events) == 0 && r.isRefusal(m) && runs == 0 {
		return r
	}
	if len(events) != 1 {
		p.problem("the observer was told %d times", len(events))
	}
	for _, e := range events {
		p.checkEvent(e, m, w)
	}
	p.checkNonces(calls, w)
	switch {
	case w.err != nil:
		if runs != 0 {
			p.problem("the handler has run")
		}
		p.checkRefusal(r, w, m)
	case w.unrouted && r.status == http.StatusNotFound && runs == 0:
	default:
		if runs != 1 {
			p.problem("the handler has run %d times", runs)
		}
		p.checkAccepted(r, m)
	}
	return r
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

func (n *nonces) calledOr0() int {
	if n == nil {
		return 0
	}
	return n.called()
}

// checkNonces: a nonce is burnt by a good signature only.
func (p *play) checkNonces(calls int, w want) {
	switch {
	case p.b.nonces == nil:
	case w.err == nil || w.err == sign.CodeReplayed:
		if calls != 1 {
			p.problem("the nonce store was asked %d times", calls)
		}
	case w.err != sign.CodeStoreUnavailable && calls != 0:
		p.problem("the nonce store was asked for a message that is refused for another reason")
	}
}

func (p *play) checkEvent(e event, m *message, w want) {
	// Of a message that is refused, it may not have been understood.
	if e.KeyID != m.keyID() && (w.err == nil || e.KeyID != "") {
		p.problem("the observer was told of the key %q", e.KeyID)
	}
	if w.err == nil {
		if e.Err != nil {
			p.problem("the observer was told: %v", e.Err)
		}
		return
	}
	if e.Err == nil {
		p.problem("the observer was told that it is good; it is %v", w.err)
		return
	}
	if !errors.Is(e.Err, w.err) {
		p.problem("the observer was told %v; it is %v", e.Err, w.err)
	}
}

func (p *play) checkAccepted(r reply, m *message) {
	if r.status != http.StatusOK {
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
	digest := sha256.Sum256(m.body)
	expected := answer{
		KeyID: m.keyID(), Scheme: p.b.scheme, Algorithm: sign.HMACSHA256.String(), Nonce: m.nonce(),
		Method: m.method, Key: m.value("Idempotency-Key"), Body: hex.EncodeToString(digest[:]),
	}
	_, _ = fmt.Sscan(m.timestamp(), &expected.Time)
	if m.signer.private != nil {
		expected.Algorithm = sign.Ed25519.String()
	}
	if got != expected {
		p.problem("the handler has seen\n%+v, not\n%+v", got, expected)
	}
}

func (p *play) checkRefusal(r reply, w want, m *message) {
	code := codeOf(w.err)
	if r.status != statuses[code] {
		p.problem("it should be refused with %d %s; the answer is\n%s", statuses[code], code, r.raw)
		return
	}
	faults := checkFields(code, p.b.scheme, r.header)
	if m.method != http.MethodHead && !p.b.own {
		faults = append(faults, CheckProblem(r.status, string(code), r.header, r.body)...)
	}
	for _, fault := range faults {
		p.problem("%s", fault)
	}
	if (code == sign.CodeExpired || code == sign.CodeNotYetValid) && !p.b.h.OwnDate {
		p.field(r, "Date", p.b.clock.now().UTC().Format(http.TimeFormat))
	}
}

func (p *play) field(r reply, name, value string) {
	for _, fault := range checkField(r.header, name, value) {
		p.problem("%s", fault)
	}
}

// checkSecrets looks for what must not be found in the answer, nor in what is meant for logs. What
// a server says in front of the verifier is its own business.
func (p *play) checkSecrets(m *message, r reply, events []event) {
	texts := make(map[string]string)
	if len(events) > 0 {
		texts["the answer"] = string(r.raw)
	}
	for _, e := range events {
		texts["the signing string"] = e.signingString
		if e.Err != nil {
			texts["the error"] = e.Err.Error()
		}
	}
	for where, text := range texts {
		for what, secret := range p.secrets(m) {
			if strings.Contains(text, secret) {
				p.problem("%s is in %s:\n%s", what, where, text)
			}
		}
	}
}

// secrets are the key's secret, the signature that the message should have had, and its body.
func (p *play) secrets(m *message) map[string]string {
	found := make(map[string]string)
	for _, who := range parties {
		if who.id != m.keyID() || who.secret == nil {
			continue
		}
		mac := who.mac(m)
		found["the secret of "+who.id] = string(who.secret)
		found["the expected signature"] = hex.EncodeToString(mac)
		found["the expected signature in base64"] = base64.StdEncoding.EncodeToString(mac)
		found["the expected signature in bytes"] = string(mac)
	}
	if len(m.body) >= 16 && !bytes.Contains(m.body, []byte("\x00")) {
		found["the body"] = string(m.body)
	}
	if v := m.value("Authorization"); v != "" {
		found["a credential"] = v
	}
	return found
}
