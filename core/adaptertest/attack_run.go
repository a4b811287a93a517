package adaptertest

import (
	"bytes"
	"context"
	"crypto/rand"
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

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// attackRun is an attack under way.
type attackRun struct {
	testing.TB
	e      *signedEnv
	at     int // the step, from 1
	kept   map[string]*message
	events []event // in all steps
}

// run carries out a.
func (e *signedEnv) run(tb testing.TB, a attack) {
	tb.Helper()
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the rule: %s", a.why)
		}
	})
	e.clock.set(noon)
	e.nonces.failing(nil)
	e.keyring.failing(nil)
	p := &attackRun{TB: tb, e: e, kept: make(map[string]*message)}
	for i, step := range a.steps {
		p.at = i + 1
		step.do(p)
	}
	for _, ev := range p.events {
		if ev.KeyID != ev.keyID {
			p.problem("an event that named the key %q names %q by now", ev.keyID, ev.KeyID)
		}
	}
	for _, k := range e.keptContexts() {
		v, _ := sign.From(k)
		caller, _ := core.CallerFrom(k)
		if !reflect.DeepEqual(v, k.signed) || caller != k.caller {
			p.problem("a context that was kept says %+v of %q, and said %+v of %q when it was new", v, caller, k.signed, k.caller)
		}
	}
}

func (p *attackRun) problem(format string, args ...any) {
	p.Helper()
	p.Errorf("step %d: "+format, append([]any{p.at}, args...)...)
}

// signedRequest is how a message is made: what is changed before it is signed, by somebody who
// can sign, and after, by anybody.
type signedRequest struct{ before, after []change }

type change func(m *message)

// good is a request in which everything that v1 knows is used.
var good signedRequest

// with changes what is signed.
func (r signedRequest) with(c ...change) signedRequest {
	return signedRequest{slices.Concat(r.before, c), r.after}
}

// then changes what has been signed.
func (r signedRequest) then(c ...change) signedRequest {
	return signedRequest{r.before, slices.Concat(r.after, c)}
}

const (
	goodBody   = `{"amount":5,"to":"bob"}`
	goodTarget = "/transfers/a%2Fb?x=2&x=1"
)

func (r signedRequest) message() *message {
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

// verdict is what a request must come to.
type verdict struct {
	err error // nil: it is accepted
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
	hidden *verdict
}

var accepted = verdict{}

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

// sendSigned sends a request.
type sendSigned struct {
	request signedRequest
	want    verdict
	as      string // keeps the message under this name, for again
}

func (a sendSigned) do(p *attackRun) {
	m := a.request.message()
	if a.as != "" {
		p.kept[a.as] = m
	}
	p.send(m, a.want)
}

// resend sends a message that was kept, byte for byte, unless something is changed.
type resend struct {
	as      string
	want    verdict
	changes []change
}

func (a resend) do(p *attackRun) {
	m := p.kept[a.as].clone()
	for _, c := range a.changes {
		c(m)
	}
	p.send(m, a.want)
}

// prepare makes a message without sending it.
type prepare struct {
	as      string
	request signedRequest
}

func (k prepare) do(p *attackRun) { p.kept[k.as] = k.request.message() }

// clockAt sets the verifier's clock, counted from noon.
type clockAt time.Duration

func (a clockAt) do(p *attackRun) { p.e.clock.set(noon.Add(time.Duration(a))) }

// sendSlowly sends all of a request but its last byte, lets the time pass, and sends the rest.
type sendSlowly struct {
	request signedRequest
	takes   time.Duration
	want    verdict
}

func (s sendSlowly) do(p *attackRun) {
	m := s.request.message()
	looked := make(chan struct{}, 1)
	p.e.keyring.failing(func(context.Context) error {
		select {
		case looked <- struct{}{}:
		default:
		}
		return nil
	})
	defer p.e.keyring.failing(nil)
	m.meanwhile = func() {
		// When a verifier has looked up the key, it has looked at the clock. One whose server reads bodies
		// first has not begun.
		select {
		case <-looked:
		case <-time.After(time.Second):
		}
		p.e.clock.set(noon.Add(s.takes))
	}
	p.send(m, s.want)
}

// sameAnswers sends requests whose answers must be the same, byte for byte but for the Date.
type sameAnswers []sendSigned

func (a sameAnswers) do(p *attackRun) {
	var first reply
	for i, one := range a {
		r := p.send(one.request.message(), one.want).reply
		if i == 0 {
			first = r
		} else if first.withoutDate() != r.withoutDate() {
			p.problem("request %d is answered\n%s\nwhich is not the first one's\n%s", i+1, r.raw, first.raw)
		}
	}
}

// sendAtOnce sends the same message n times at once, over all servers in turn: one is accepted, once.
type sendAtOnce struct {
	n       int
	request signedRequest
}

func (c sendAtOnce) do(p *attackRun) {
	m := c.request.message()
	runs := p.e.count()
	replies := make([]reply, c.n)
	errs := make([]error, c.n)
	var wg sync.WaitGroup
	for i := range c.n {
		wg.Go(func() { replies[i], errs[i] = roundTrip(p.e.addrs[i%len(p.e.addrs)], m) })
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
		p.checkRefusal(r, refusedBy(sign.CodeReplayed), m)
	}
	if good != 1 || p.e.count()-runs != 1 {
		p.problem("of %d identical messages %d were accepted, and the handler has run %d times", c.n, good, p.e.count()-runs)
	}
}

// sent is a message and what has come of it.
type sent struct {
	m *message
	reply
	err         error
	runs, calls int     // of the handler, and of the nonce store
	events      []event // of the verifiers
}

// send sends m to the first server and checks everything that there is to be seen.
func (p *attackRun) send(m *message, w verdict) sent {
	p.Helper()
	s := p.try(m, p.roundTrip)
	p.check(s, w)
	return s
}

func (p *attackRun) roundTrip(m *message) (reply, error) { return roundTrip(p.e.addrs[0], m) }

// try sends m and checks nothing yet.
func (p *attackRun) try(m *message, send func(*message) (reply, error)) sent {
	p.Helper()
	p.e.takeEvents()
	runs, calls := p.e.count(), p.e.nonces.called()
	r, err := send(m)
	if err != nil {
		p.problem("%v", err)
	}
	s := sent{m, r, err, p.e.count() - runs, p.e.nonces.called() - calls, p.e.takeEvents()}
	p.events = append(p.events, s.events...)
	return s
}

// check compares what has come of a message with what should have.
func (p *attackRun) check(s sent, w verdict) {
	p.Helper()
	if s.err != nil {
		return
	}
	m, r, runs, events := s.m, s.reply, s.runs, s.events
	if w.hidden != nil && r.get(core.RefusedHeader) != string(codeOf(w.err)) {
		w = *w.hidden
	}
	if len(r.more) > 0 {
		p.problem("there is more than one answer: %q", r.more)
	}
	p.checkSecrets(m, r, events)

	if w.itself && runs == 0 && len(events) == 0 {
		return
	}
	if w.refused || w.either && r.status != http.StatusOK {
		if runs != 0 || !r.isRefusal(m) {
			p.problem("the answer is %d, and the handler has run %d times", r.status, runs)
		}
		return
	}
	if w.front && len(events) == 0 && r.isRefusal(m) && runs == 0 {
		return
	}
	if len(events) != 1 {
		p.problem("the observer was told %d times", len(events))
	}
	for _, e := range events {
		p.checkEvent(e, m, w)
	}
	p.checkNonces(s.calls, w)
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

// checkNonces: a nonce is burnt by a good signature only.
func (p *attackRun) checkNonces(calls int, w verdict) {
	switch {
	case p.e.nonces == nil:
	case w.err == nil || w.err == sign.CodeReplayed:
		if calls != 1 {
			p.problem("the nonce store was asked %d times", calls)
		}
	case w.err != sign.CodeStoreUnavailable && calls != 0:
		p.problem("the nonce store was asked for a message that is refused for another reason")
	}
}

func (p *attackRun) checkEvent(e event, m *message, w verdict) {
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

func (p *attackRun) checkAccepted(r reply, m *message) {
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
		Run: got.Run, KeyID: m.keyID(), Caller: m.signer.owner(), Scheme: p.e.scheme, Algorithm: string(sign.HMACSHA256), Nonce: m.nonce(),
		Method: m.method, Key: m.value("Idempotency-Key"), Body: digestOf(m.body),
	}
	_, _ = fmt.Sscan(m.timestamp(), &expected.Time)
	if m.signer.private != nil {
		expected.Algorithm = string(sign.Ed25519)
	}
	if got != expected {
		p.problem("the handler has seen\n%+v, not\n%+v", got, expected)
	}
}

func (p *attackRun) checkRefusal(r reply, w verdict, m *message) {
	code := codeOf(w.err)
	if r.status != statuses[code] {
		p.problem("it should be refused with %d %s; the answer is\n%s", statuses[code], code, r.raw)
		return
	}
	faults := checkSignatureRefusal(code, p.e.scheme, r)
	if m.method != http.MethodHead && !p.e.own {
		faults = append(faults, checkProblem(r, string(code))...)
	}
	if (code == sign.CodeExpired || code == sign.CodeNotYetValid) && !p.e.h.Features.ServerDate {
		faults = append(faults, checkField(r, "Date", p.e.clock.now().UTC().Format(http.TimeFormat))...)
	}
	for _, fault := range faults {
		p.problem("%s", fault)
	}
}

// checkSecrets looks for what must not be found in the answer, nor in what is meant for logs. What
// a server says in front of the verifier is its own business.
func (p *attackRun) checkSecrets(m *message, r reply, events []event) {
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
func (p *attackRun) secrets(m *message) map[string]string {
	found := make(map[string]string)
	for _, who := range signers {
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
