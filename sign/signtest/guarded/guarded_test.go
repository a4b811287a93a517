package guarded

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/sign"
)

// After a body that nobody has read, net/http's server waits for half a second.
func TestMain(m *testing.M) {
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func guard(g *core.Guard) func(http.Handler) http.Handler { return httpidem.New(g) }

// adapter is a harness for net/http whose Verify has a flaw, if flaw is the name of one.
func adapter(flaw string) Harness {
	h := NetHTTP(flaw, func(v *sign.Verifier) func(http.Handler) http.Handler { return flawed(flaw, v) }, guard)
	sound := h.Start
	h.Start = func(tb testing.TB, app App) string {
		switch flaw {
		case "the guard stands in front":
			app.Outer, app.Guard = app.Guard, nil
		case "no guard":
			app.Guard = nil
		case "no guard outside":
			app.Outer = nil
		case "no inner verifier":
			app.Inner = nil
		case "fields in front are lost":
			app.Fields = nil
		case "the limit in front is not obeyed":
			app.BodyLimit = 0
		}
		return sound(tb, app)
	}
	return h
}

// flawed is Verify, with a flaw.
func flawed(flaw string, v *sign.Verifier) func(http.Handler) http.Handler {
	var once sync.Once
	var first *http.Request // the first one that was verified
	var firstBody []byte
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if flaw == "no Verify" {
				next.ServeHTTP(w, r)
				return
			}
			if flaw == "the limit in front is no limit" {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					body = []byte("what is left of it")
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			verified, refusal := adapterkit.Verify(v, r)
			if refusal != nil && !(flaw == "replayed is good enough" && bytes.Contains(refusal.Body, []byte(`"replayed"`))) {
				refuse(w, r, flaw, refusal, next)
				return
			}
			if refusal != nil {
				signed := sign.Verified{KeyID: r.Header.Get("X-Key-Id"), Nonce: r.Header.Get("X-Nonce")}
				verified = r.WithContext(core.WithCaller(sign.NewContext(r.Context(), signed), signed.KeyID))
			}
			signed, _ := sign.From(verified.Context())
			caller, _ := core.CallerFrom(verified.Context())
			ctx := verified.Context()
			switch flaw {
			case "no caller":
				ctx = sign.NewContext(r.Context(), signed)
			case "no signature":
				ctx = core.WithCaller(r.Context(), caller)
			case "what is consumed counts":
				ctx = core.WithCaller(ctx, caller)
			case "the key id is the caller":
				ctx = core.WithCaller(ctx, signed.KeyID)
			case "one caller for all":
				ctx = core.WithCaller(ctx, "client")
			case "a caller for each message":
				ctx = core.WithCaller(ctx, signed.Nonce)
			case "the first one's signature":
				once.Do(func() { first = verified })
				ctx = first.Context()
			}
			verified = verified.WithContext(ctx)
			body, err := io.ReadAll(verified.Body)
			if err != nil {
				panic(err) // of a buffer
			}
			switch flaw {
			case "no body":
				body = nil
			case "the first kilobyte of the body":
				body = body[:min(len(body), 1024)]
			case "the first one's body":
				once.Do(func() { firstBody = body })
				body = firstBody
			}
			verified.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, verified)
		})
	}
}

// refuse writes a refusal.
func refuse(w http.ResponseWriter, r *http.Request, flaw string, refusal *core.Response, next http.Handler) {
	h := w.Header()
	for _, f := range refusal.Header {
		if flaw == "fields are added" {
			h.Add(f.Name, f.Value)
		} else {
			h.Set(f.Name, f.Value)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(refusal.Body)))
	status, body := refusal.Status, refusal.Body
	switch flaw {
	case "the connection is closed":
		h.Set("Connection", "close")
	case "the connection is closed without a word":
		panic(http.ErrAbortHandler)
	case "the handler runs all the same":
		next.ServeHTTP(httptest.NewRecorder(), r)
	case "refusals as plain text":
		h.Set("Content-Type", "text/plain")
	case "refusals with 403":
		status = http.StatusForbidden
	case "no challenge":
		h.Del("Www-Authenticate")
	case "refusals are not marked":
		h.Del(core.RefusedHeader)
	case "fields of others are cleared":
		h.Del("X-Outer")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// A sound adapter passes.
func TestSound(t *testing.T) { Run(t, adapter("")) }

// flaws are ways in which an adapter can be wrong, each with the case that must notice.
var flaws = []struct{ name, noticed string }{
	{"the guard stands in front", "refusals create nothing"},
	{"no guard", "tried again"},
	{"no guard", "running/duplicates that wait"},
	{"no guard outside", "guard outside/a large body"},
	{"refusals are not marked", "guard outside/a refusal is not kept"},
	{"refusals are not marked", "guard outside/and another inside"},
	{"refusals are not marked", "guard outside/a limit that only Verify has"},
	{"no Verify", "refusals create nothing"},
	{"no Verify", "running/a wrong signature"},
	{"no inner verifier", "Verify twice, the inner one refuses"},
	{"replayed is good enough", "sent again"},
	{"replayed is good enough", "nonces in the engine's store"},
	{"what is consumed counts", "sorted parameters/a client's key"},
	{"what is consumed counts", "sorted parameters/keys made of parameters"},
	{"no caller", "users/two owners"},
	{"the key id is the caller", "users/a key is changed"},
	{"no signature", "what the handler sees"},
	{"no signature", "without a guard"},
	{"one caller for all", "users/by address"},
	{"one caller for all", "users/users of a caller"},
	{"a caller for each message", "tried again"},
	{"the first one's signature", "running/a hundred clients at once"},
	{"no body", "keys made of parameters"},
	{"no body", "another body under the same key"},
	{"the first kilobyte of the body", "what the handler sees"},
	{"the first kilobyte of the body", "limits/the same"},
	{"the first one's body", "running/a hundred clients at once"},
	{"the handler runs all the same", "without a guard"},
	{"the connection is closed", "one connection"},
	{"the connection is closed without a word", "one connection"},
	{"refusals as plain text", "refusals create nothing"},
	{"refusals with 403", "refusals create nothing"},
	{"no challenge", "refusals create nothing"},
	{"fields are added", "a refusal's own fields"},
	{"fields of others are cleared", "a refusal's own fields"},
	{"fields in front are lost", "a refusal's own fields"},
	{"the limit in front is not obeyed", "limits/another's"},
	{"the limit in front is no limit", "limits/another's"},
}

// hurried is the patience with flawed adapters, some of which hang. A case that is cut short by it has
// found something.
const hurried = 100 * time.Millisecond

func TestFlawsAreNoticed(t *testing.T) {
	for _, f := range flaws {
		t.Run(f.name+"/"+f.noticed, func(t *testing.T) {
			require.NotEmpty(t, play(t, adapter(f.name), caseNamed(t, f.noticed), hurried))
		})
	}
}

// Each case is failed by an adapter that lets everything in and guards nothing.
func TestEveryCaseCanFail(t *testing.T) {
	lax := adapter("no Verify")
	lax.Start = func(start func(testing.TB, App) string) func(testing.TB, App) string {
		return func(tb testing.TB, app App) string {
			app.Outer, app.Guard = nil, nil
			return start(tb, app)
		}
	}(lax.Start)
	for _, c := range cases {
		assert.NotEmpty(t, play(t, lax, c, hurried), c.name)
	}
}

func TestEveryCaseIsWellFormed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range cases {
		require.False(t, seen[c.name], "twice: %s", c.name)
		seen[c.name] = true
		require.NotEmpty(t, c.why, c.name)
		require.NotNil(t, c.script, c.name)
	}
}

// sign knows nothing of core, and says by itself what core's guards look for.
func TestRefusalsHaveOneMark(t *testing.T) {
	require.Equal(t, core.RefusedHeader, sign.RefusedHeader)
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, c := range cases {
		if c.name == name {
			return c
		}
	}
	require.FailNow(t, "there is no case", name)
	return testCase{}
}
