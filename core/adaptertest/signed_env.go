package adaptertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// service is the service whose verifier is attacked. A group, or a case, changes what it needs another way.
type service struct {
	sign    sign.Config
	core    core.Config
	pattern string       // of the one route, for POST; empty: every method and every path
	policy  *core.Policy // of a guard behind the verifier; nil: there is none
	outer   *core.Policy // of a guard in front of it
	inner   *sign.Config // of a second verifier behind it
	// engineNonces: the verifier's nonces are those of the engine.
	engineNonces bool
	handler      Handler         // nil: it answers with what it has seen
	errors       bool            // App.Errors
	fields       []adapter.Field // App.Outer
	bodyLimit    int64           // App.BodyLimit
}

// signedEnv is that service, on one server or several, and what its parts have seen.
type signedEnv struct {
	h       Harness
	clock   *clock
	nonces  *nonces   // nil: the verifier has others
	store   *recorder // the engine's
	keyring *failingKeys
	memory  *sign.MemoryNonces // those of the group "a full memory"
	own     bool               // refusals have a body of the service's own
	guarded bool               // there is a guard, so that handlers have a run
	scheme  string             // the scheme's name
	addrs   []string
	entered chan struct{} // has one when the first run has begun

	mu     sync.Mutex
	runs   int
	gate   chan struct{} // unless nil, the first run ends when it is closed
	events []event
	kept   []keptContext
}

// event is what the observer was told.
type event struct {
	sign.Event
	signingString string
	keyID         string // Event.KeyID as it was then
}

// keptContext is the context of a request that a handler keeps, and what it said then.
type keptContext struct {
	context.Context
	signed sign.Verified
	caller string
}

func newSignedEnv(tb testing.TB, h Harness, g attackGroup) *signedEnv {
	tb.Helper()
	c := &clock{at: noon}
	store, err := newRecorder()
	if err != nil {
		tb.Fatal(err)
	}
	e := &signedEnv{h: h, clock: c, nonces: newNonces(c), store: store, keyring: &failingKeys{ring: ring()}, scheme: "v1", entered: make(chan struct{}, 1)}
	var stores []sign.NonceStore
	count := max(g.servers, 1)
	if g.shared {
		if h.Nonces == nil {
			tb.Skipf("%s has no nonce store of its own here", h.Name)
		}
		e.nonces, stores = nil, h.Nonces(tb, count)
	}
	for i := range count {
		s := &service{
			sign: sign.Config{Keys: e.keyring, Nonces: e.nonces, Clock: c.now, Observe: e.observe},
			core: core.Config{Store: store, User: core.UserFromCaller()},
		}
		if g.shared {
			s.sign.Nonces = stores[i]
		}
		if g.change != nil {
			g.change(e, s)
		}
		e.own, e.guarded = s.sign.Refuse != nil, s.policy != nil || s.outer != nil
		if s.sign.Scheme != nil {
			e.scheme = s.sign.Scheme.Name()
		}
		e.addrs = append(e.addrs, h.Start(tb, e.app(tb, s)))
	}
	return e
}

// app is the application of s.
func (e *signedEnv) app(tb testing.TB, s *service) App {
	tb.Helper()
	engine, err := core.New(s.core)
	if err != nil {
		tb.Fatal(err)
	}
	if s.engineNonces {
		e.nonces, s.sign.Nonces = nil, engine.Nonces()
	}
	route := Route{Pattern: s.pattern, Handler: e.handle}
	if s.handler != nil {
		route.Handler = s.handler
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
	return App{Routes: []Route{route}, Errors: s.errors, Outer: s.fields, BodyLimit: s.bodyLimit, verifier: s.sign}
}

func (e *signedEnv) observe(_ context.Context, ev sign.Event) {
	text := ev.SigningString()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event{ev, text, strings.Clone(ev.KeyID)})
}

// answer is what the handler says that it has seen.
type answer struct {
	Run       int    `json:"run"`
	KeyID     string `json:"key_id"`
	Caller    string `json:"caller"`
	Scheme    string `json:"scheme"`
	Algorithm string `json:"algorithm"`
	Time      int64  `json:"time"`
	Nonce     string `json:"nonce"`
	Method    string `json:"method"`
	Key       string `json:"idempotency_key"`
	Body      string `json:"body_sha256"`
	Problem   string `json:"problem,omitempty"`
}

// theirTrailer is what anybody may send behind the body.
const theirTrailer = "X-Checksum"

// handle is the handler.
func (e *signedEnv) handle(c Call) error {
	v, ok := sign.From(c.Context())
	caller, called := core.CallerFrom(c.Context())
	body, err := c.Body()
	a := answer{
		KeyID: v.KeyID, Caller: caller, Scheme: v.Scheme, Algorithm: string(v.Algorithm), Time: v.Time.Unix(), Nonce: v.Nonce,
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
	then.KeyID, then.Owner, then.Nonce, then.Consumed = strings.Clone(v.KeyID), strings.Clone(v.Owner), strings.Clone(v.Nonce), slices.Clone(v.Consumed)
	for i, name := range then.Consumed {
		then.Consumed[i] = strings.Clone(name)
	}
	e.mu.Lock()
	e.runs++
	a.Run = e.runs
	e.kept = append(e.kept, keptContext{c.Context(), then, strings.Clone(caller)})
	gate := e.gate
	e.mu.Unlock()
	text, _ := json.Marshal(a) // strings and numbers: cannot fail
	if a.Run == 1 && gate != nil {
		e.entered <- struct{}{}
		<-gate
	}
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

// keptContexts returns the contexts that handlers have kept since the last call.
func (e *signedEnv) keptContexts() []keptContext {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.kept
	e.kept = nil
	return kept
}

// failingKeys is the ring, and a database that may not answer.
type failingKeys struct {
	ring *sign.Ring
	mu   sync.Mutex
	fail func(ctx context.Context) error
}

// Keys implements sign.KeyStore.
func (k *failingKeys) Keys(ctx context.Context, id string) ([]*sign.Key, error) {
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

func (k *failingKeys) failing(f func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = f
}
