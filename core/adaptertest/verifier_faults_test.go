package adaptertest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/idem-go/idem/adapterkit"
	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/sign"
)

// verifierFaults are ways in which the reference verifier, or the plain adapter in front of it, can be wrong, each with an attack
// that must notice.
var verifierFaults = []struct{ name, noticed string }{
	{"signs no key id", "keys/the good one"},
	{"signs no method", "keys/the good one"},
	{"signs no host", "keys/the good one"},
	{"signs no path", "keys/the good one"},
	{"signs no query", "keys/the good one"},
	{"signs no timestamp", "keys/the good one"},
	{"signs no nonce", "keys/the good one"},
	{"signs no body", "keys/the good one"},
	{"signs no list", "keys/the good one"},

	{"the past is not looked at", "time/-W-1"},
	{"the future is not looked at", "time/+W+1"},
	{"no window at all", "time/-W-1"},
	{"the window is exclusive", "time/-W"},
	{"the time is looked at once", "time/a body that is held back"},
	{"fractions count", "time/fractions of a second"},
	{"ParseInt", "timestamps/plus sign"},
	{"ParseInt with base 0", "timestamps/underscores"},
	{"ParseFloat", "timestamps/exponent"},
	{"Sscan", "timestamps/inner blank"},
	{"a wrapped number", "timestamps/overflow of 64 bits"},
	{"milliseconds", "timestamps/milliseconds"},

	{"no nonces", "nonces/sent again"},
	{"the nonce before the signature", "nonces/a victim's nonce"},
	{"nonces are kept for W", "nonces/sent again until it has left the window"},
	{"nonces without a margin", "nonces/the clock goes back"},
	{"nonces are not per key", "nonces/the same nonce under two key ids"},
	{"nonces are joined", "nonces/key ids and nonces that join to the same"},
	{"nonces in lower case", "nonces/nonces that differ in case"},
	{"nonces of any length", "nonces/15 characters"},
	{"nonces of any characters", "nonces/comma"},
	{"a nonce is no must", "nonces/missing"},
	{"a nonce store for each server", "two servers/a hundred at once"},
	{"look, then mark", "two servers/a hundred at once"},
	{"a full memory forgets", "a full memory/refuses"},
	{"no quota", "a quota/used up"},
	{"replays count", "a quota/used up"},
	{"a quota for each alone", "a quota/of all"},
	{"a store that is down lets in", "nonce store/down"},
	{"a store that is down says replayed", "nonce store/read-only"},
	{"no deadline for stores", "nonce store/slow"},
	{"a key source that is down says unknown", "key source/down"},

	{"keys have no validity", "keys/what cannot be told apart"},
	{"keys are good by the message's time", "keys/a key before its time, by a later timestamp"},
	{"revoked keys are good", "keys/what cannot be told apart"},
	{"an unknown key has a title of its own", "keys/what cannot be told apart"},
	{"an unknown key is refused before the body is read", "the body's limit/over it, whoever has signed"},
	{"what is not known has an empty secret", "keys/an empty secret"},
	{"the message picks the algorithm", "algorithms/a public key as a secret"},
	{"the tag does not count", "algorithms/v2"},
	{"Sum instead of Write", "algorithms/the MAC of nothing"},
	{"as many bytes as there are", "signatures/one byte"},
	{"half of it", "signatures/the last digit flipped"},
	{"signatures in a list", "signatures/two in a list, the good one first"},
	{"signatures in capitals", "signatures/upper case"},
	{"signatures in base64", "signatures/base64"},
	{"blanks in signatures", "signatures/a blank inside"},

	{"the first of two lines", "duplicated fields/X-Nonce twice, the bad one last"},
	{"the last of two lines", "duplicated fields/X-Key-Id twice, the bad one first"},
	{"equal lines are one", "duplicated fields/Idempotency-Key twice, the same"},
	{"signed fields are joined", "duplicated fields/a signed field of one's own twice"},
	{"names in any order", "the list of signed fields/not sorted"},
	{"names in any case", "the list of signed fields/upper case"},
	{"blanks in the list", "the list of signed fields/blanks"},
	{"every name may be signed", "the list of signed fields/x-signature"},
	{"what is not there is empty", "the list of signed fields/a field that is not there, as empty"},
	{"the Idempotency-Key need not be signed", "the list of signed fields/an Idempotency-Key that was added"},
	{"the Content-Type need not be signed", "the list of signed fields/without the Content-Type"},
	{"an empty Idempotency-Key need not be signed", "the list of signed fields/an empty Idempotency-Key that was added"},
	{"space inside is one blank", "signed fields/space inside, kept"},
	{"values in lower case", "signed fields/the type in capitals"},
	{"no limit of the header", "the size of the header/120 lines"},
	{"targets are free", "the size of the header/a target of 40 KiB"},

	{"the decoded path", "paths/%2F and /"},
	{"the cleaned path", "paths/.."},
	{"no trailing slash", "paths/a trailing slash"},
	{"the path in lower case", "paths/case"},
	{"escapes in capitals", "paths/%2F and %2f"},
	{"the sorted query", "queries/order"},
	{"the parsed query", "queries/; and nothing"},
	{"the unescaped query", "queries/+ and %20"},
	{"a query without sign", "queries/key, secret and sign"},
	{"the host without its port", "hosts/a port added"},
	{"the public host is forgotten", "a public host/signed for it"},
	{"hosts may differ", "HTTP 2/another Host"},
	{"every host is ours", "two hosts/a third"},

	{"the body as text", "bodies/a line feed more"},
	{"the first kilobyte of the body", "bodies/a large one"},
	{"the Content-Encoding need not be signed", "bodies/said to be compressed"},
	{"the body decompressed", "bodies/compressed, signed as plain"},
	{"no limit of the body", "the body's limit/over it, in chunks"},

	{"refusals may be cached", "signatures/all zero"},
	{"refusals are not marked", "signatures/all zero"},
	{"no challenge", "signatures/all zero"},
	{"no Retry-After", "nonce store/down"},
	{"the server's Date", "time/-W-1"},
	{"Date twice", "signatures/all zero"},
	{"refusals as plain text", "signatures/all zero"},
	{"refusals with 403", "signatures/all zero"},
	{"the reason goes out", "keys/what cannot be told apart"},
	{"the expected signature in the log", "signatures/all zero"},
	{"the body in the log", "signatures/all zero"},
	{"events name no key", "keys/the good one"},
	{"events in memory that is used again", "keys/what an observer keeps"},

	{"trusts X-Request-Uri", "fields that override/X-Request-Uri to make up for a change"},
	{"trusts X-Original-URL", "fields that override/X-Original-URL to make up for a change"},
	{"trusts X-Rewrite-URL", "fields that override/X-Rewrite-URL to make up for a change"},
	{"trusts X-Forwarded-Host", "fields that override/X-Forwarded-Host to make up for a change"},
	{"trusts Forwarded", "fields that override/Forwarded to make up for a change"},
	{"trusts X-HTTP-Method-Override", "fields that override/X-HTTP-Method-Override to make up for a change"},
	{"the method in capitals", "methods/post"},
	{"a panic on what is not ASCII", "timestamps/full-width digits"},
	{"HEAD is GET", "methods/HEAD"},
	{"PATCH is left out", "methods/PATCH"},
	{"URL.Path", "paths/%2F and /"},
	{"URL.String()", "paths/a backslash"},
	{"URL without query", "keys/the good one"},
	{"Query().Encode()", "queries/order"},
	{"Host without port", "hosts/a port"},
	{"no Host of its own", "hosts/another host"},
	{"Get for Values", "duplicated fields/Content-Type twice, the bad one last"},
	{"the handler gets the trailer as header", "bodies/an Idempotency-Key in the trailer"},
	{"the handler gets the trailer", "bodies/a trailer"},
	{"the handler gets no body", "keys/the good one"},
	{"the handler gets the method that it wants", "fields that override/X-HTTP-Method-Override with another method"},
	{"the handler runs all the same", "signatures/all zero"},
	{"the context knows nothing", "keys/the good one"},
	{"the context knows the wrong one", "keys/the good one"},
}

// verifying is a verifier, or something that looks like one.
type verifying interface {
	Verify(ctx context.Context, m *sign.Message) (sign.Verified, error)
	Answer(ctx context.Context, err error) *sign.Answer
}

// plainly is a harness for the plainest of adapters in front of what build makes of a configuration. The adapter may have a fault, too.
func plainly(name string, build func(sign.Config) verifying) Harness {
	h := NetHTTP(name, sound)
	h.Start = func(tb testing.TB, app App) string {
		a := sound
		a.Verify = func(*sign.Verifier) middleware {
			v := build(app.verifier)
			return func(next http.Handler) http.Handler { return verify(v, name, next) }
		}
		return startNetHTTP(tb, app, a)
	}
	h.Nonces = func(_ testing.TB, n int) []sign.NonceStore {
		one, stores := new(sign.MemoryNonces), make([]sign.NonceStore, n)
		for i := range stores {
			stores[i] = one
		}
		return stores
	}
	return h
}

// source shows a request of net/http to a verifier.
type source struct{ r *http.Request }

func (s *source) Values(name string) []string { return s.r.Header.Values(name) }

func (s *source) HeaderSize() (lines, size int) {
	for name, values := range s.r.Header {
		for _, v := range values {
			lines++
			size += len(name) + len(v)
		}
	}
	return lines, size
}

func (s *source) RemoteAddr() string { return s.r.RemoteAddr }

func (s *source) ReadBody(limit int64) ([]byte, error) {
	if s.r.ContentLength > limit {
		return nil, sign.CodeBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(s.r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > limit:
		return nil, sign.CodeBodyTooLarge
	}
	s.r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// verify is the plainest of adapters for net/http, with a fault if it is one of those that it can have.
func verify(v verifying, fault string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &sign.Message{Method: r.Method, Target: r.RequestURI, Host: r.Host, Source: &source{r}}
		if tamper := tampers[fault]; tamper != nil {
			tamper(m, r)
		}
		verified, err := v.Verify(r.Context(), m)
		if err == nil {
			serveVerified(w, r, fault, verified, next)
			return
		}
		refusal := v.Answer(r.Context(), err)
		maps.Copy(w.Header(), refusal.Header)
		if fault == "Date twice" {
			w.Header().Add("Date", "Tue, 14 Nov 2023 22:12:19 GMT")
			w.Header().Add("Date", "Tue, 14 Nov 2023 22:12:19 GMT")
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(refusal.Body)))
		w.WriteHeader(refusal.Status)
		_, _ = w.Write(refusal.Body)
		if fault == "the handler runs all the same" {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
	})
}

// serveVerified calls the handler behind the verifier.
func serveVerified(w http.ResponseWriter, r *http.Request, fault string, v sign.Verified, next http.Handler) {
	trailer := r.Trailer
	r.Trailer = nil
	switch fault {
	case "the handler gets no body":
		r.Body = http.NoBody
	case "the handler gets the method that it wants":
		if m := r.Header.Get("X-HTTP-Method-Override"); m != "" {
			r.Method = m
		}
	case "the context knows nothing":
		next.ServeHTTP(w, r)
		return
	case "the context knows the wrong one":
		v.KeyID = "bob"
	case "the handler gets the trailer as header":
		for name, values := range trailer {
			r.Header[name] = values
		}
	case "the handler gets the trailer":
		r.Trailer = trailer
	}
	next.ServeHTTP(w, r.WithContext(core.WithCaller(sign.NewContext(r.Context(), v), v.Owner)))
}

func trusting(field string, change func(m *sign.Message, value string)) func(*sign.Message, *http.Request) {
	return func(m *sign.Message, r *http.Request) {
		if v := r.Header.Get(field); v != "" {
			change(m, v)
		}
	}
}

func setHost(m *sign.Message, v string)   { m.Host = v }
func setTarget(m *sign.Message, v string) { m.Target = v }
func setMethod(m *sign.Message, v string) { m.Method = v }

// tampers are the ways in which an adapter hands on something else than what was sent.
var tampers = map[string]func(m *sign.Message, r *http.Request){
	"trusts X-Request-Uri":          trusting("X-Request-Uri", setTarget),
	"trusts X-Original-URL":         trusting("X-Original-URL", setTarget),
	"trusts X-Rewrite-URL":          trusting("X-Rewrite-URL", setTarget),
	"trusts X-Forwarded-Host":       trusting("X-Forwarded-Host", setHost),
	"trusts X-HTTP-Method-Override": trusting("X-HTTP-Method-Override", setMethod),
	"trusts Forwarded": trusting("Forwarded", func(m *sign.Message, v string) {
		for part := range strings.SplitSeq(v, ";") {
			if host, ok := strings.CutPrefix(part, "host="); ok {
				m.Host = host
			}
		}
	}),
	"the method in capitals": func(m *sign.Message, _ *http.Request) { m.Method = strings.ToUpper(m.Method) },
	"a panic on what is not ASCII": func(_ *sign.Message, r *http.Request) {
		if strings.Trim(r.Header.Get("X-Timestamp"), visible+" \t") != "" {
			panic("a digit that is none")
		}
	},
	"HEAD is GET": func(m *sign.Message, _ *http.Request) {
		if m.Method == http.MethodHead {
			m.Method = http.MethodGet
		}
	},
	"PATCH is left out": func(m *sign.Message, _ *http.Request) {
		if m.Method == http.MethodPatch {
			m.Method = http.MethodPost
		}
	},
	"URL.Path":           func(m *sign.Message, r *http.Request) { m.Target = r.URL.Path + "?" + r.URL.RawQuery },
	"URL.String()":       func(m *sign.Message, r *http.Request) { m.Target = r.URL.String() },
	"URL without query":  func(m *sign.Message, r *http.Request) { m.Target = r.URL.EscapedPath() },
	"Query().Encode()":   func(m *sign.Message, r *http.Request) { m.Target = r.URL.EscapedPath() + "?" + r.URL.Query().Encode() },
	"Host without port":  func(m *sign.Message, _ *http.Request) { m.Host, _, _ = strings.Cut(m.Host, ":") },
	"no Host of its own": func(m *sign.Message, _ *http.Request) { m.Host = "api.example.com" },
	"Get for Values":     func(m *sign.Message, r *http.Request) { m.Source = &firsts{source{r}} },
}

// firsts knows the first line of each field.
type firsts struct{ source }

func (f *firsts) Values(name string) []string {
	return f.source.Values(name)[:min(1, len(f.source.Values(name)))]
}

// signedFaults are ways in which httpidem's Verify, or the order of what is mounted, can be wrong where there is a guard as well, with the
// cases that must notice.
var signedFaults = []struct {
	name    string
	noticed []string
}{
	{"the guard stands in front", []string{"refusals create nothing"}},
	{"no guard", []string{"tried again", "running/duplicates that wait"}},
	{"no guard outside", []string{"guard outside/a large body"}},
	{"refusals are not marked", []string{"guard outside/a refusal is not kept", "guard outside/and another inside", "guard outside/a limit that only Verify has"}},
	{"no Verify", []string{"refusals create nothing", "running/a wrong signature"}},
	{"no inner verifier", []string{"Verify twice, the inner one refuses"}},
	{"replayed is good enough", []string{"sent again", "nonces in the engine's store"}},
	{"what is consumed counts", []string{"sorted parameters/a client's key", "sorted parameters/keys made of parameters"}},
	{"no caller", []string{"users/two owners"}},
	{"the key id is the caller", []string{"users/a key is changed"}},
	{"no signature", []string{"what the handler sees", "without a guard"}},
	{"one caller for all", []string{"users/by address", "users/users of a caller"}},
	{"a caller for each message", []string{"tried again"}},
	{"the first one's signature", []string{"running/a hundred clients at once"}},
	{"no body", []string{"bound by the framework", "keys made of parameters", "another body under the same key"}},
	{"the first kilobyte of the body", []string{"what the handler sees", "limits/the same"}},
	{"the first one's body", []string{"running/a hundred clients at once"}},
	{"the handler runs all the same", []string{"without a guard"}},
	{"the connection is closed", []string{"one connection"}},
	{"the connection is closed without a word", []string{"one connection"}},
	{"refusals as plain text", []string{"refusals create nothing"}},
	{"refusals with 403", []string{"refusals create nothing"}},
	{"no challenge", []string{"refusals create nothing"}},
	{"fields are added", []string{"a refusal's own fields"}},
	{"fields of others are cleared", []string{"a refusal's own fields"}},
	{"fields in front are lost", []string{"a refusal's own fields"}},
	{"the limit in front is not obeyed", []string{"limits/another's"}},
	{"the limit in front is no limit", []string{"limits/another's"}},
}

// signedWith is a harness for httpidem with one of signedFaults.
func signedWith(fault string) Harness {
	a := sound
	a.Verify = func(v *sign.Verifier) middleware { return faultyVerify(fault, v) }
	h := NetHTTP(fault, a)
	start := h.Start
	h.Start = func(tb testing.TB, app App) string {
		r := &app.Routes[0]
		switch fault {
		case "the guard stands in front":
			r.Outer, r.Guard = r.Guard, nil
		case "no guard":
			r.Guard = nil
		case "no guard outside":
			r.Outer = nil
		case "no guard at all":
			r.Outer, r.Guard = nil, nil
		case "no inner verifier":
			r.Verifiers = r.Verifiers[:1]
		case "fields in front are lost":
			app.Outer = nil
		case "the limit in front is not obeyed":
			app.BodyLimit = 0
		}
		return start(tb, app)
	}
	return h
}

// faultyVerify is Verify, with a fault.
func faultyVerify(fault string, v *sign.Verifier) func(http.Handler) http.Handler {
	var once sync.Once
	var first *http.Request // the first one that was verified
	var firstBody []byte
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if fault == "no Verify" || fault == "no guard at all" {
				next.ServeHTTP(w, r)
				return
			}
			if fault == "the limit in front is no limit" {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					body = []byte("what is left of it")
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			verified, refusal := adapterkit.Verify(v, r)
			if refusal != nil && !(fault == "replayed is good enough" && bytes.Contains(refusal.Body, []byte(`"replayed"`))) {
				refuse(w, r, fault, refusal, next)
				return
			}
			if refusal != nil {
				signed := sign.Verified{KeyID: r.Header.Get("X-Key-Id"), Nonce: r.Header.Get("X-Nonce")}
				verified = r.WithContext(core.WithCaller(sign.NewContext(r.Context(), signed), signed.KeyID))
			}
			signed, _ := sign.From(verified.Context())
			caller, _ := core.CallerFrom(verified.Context())
			ctx := verified.Context()
			switch fault {
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
			switch fault {
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
func refuse(w http.ResponseWriter, r *http.Request, fault string, refusal *adapter.Response, next http.Handler) {
	h := w.Header()
	for _, f := range refusal.Header {
		if fault == "fields are added" {
			h.Add(f.Name, f.Value)
		} else {
			h.Set(f.Name, f.Value)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(refusal.Body)))
	status, body := refusal.Status, refusal.Body
	switch fault {
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
