package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
)

// The code of problems.md stands here as it stands there, and runs.

// envelope is the body of every refusal of this service.
func envelope(code, msg string) []byte {
	body, _ := json.Marshal(map[string]any{"code": code, "msg": msg, "data": nil}) // of strings: can't fail
	return body
}

func newEngine() (*core.Engine, error) {
	return core.New(core.Config{
		User: core.UserFromHeader("X-User"),
		Refuse: func(_ context.Context, r *core.Refusal) *core.Response {
			return &core.Response{
				Header: []core.Field{{Name: "Content-Type", Value: "application/json"}},
				Body:   envelope(string(r.Code), r.Detail),
			}
		},
	})
}

func newVerifier(engine *core.Engine, keys sign.KeyStore) (*sign.Verifier, error) {
	return sign.NewVerifier(sign.Config{
		Keys:    keys,
		Nonces:  engine.Nonces(),
		Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
		Refuse: func(_ context.Context, e *sign.Error) *sign.Answer {
			return &sign.Answer{
				Header: http.Header{"Content-Type": {"application/json"}},
				Body:   envelope(string(e.Code), e.Title()), // e.Detail is for logs
			}
		},
	})
}

// refuse answers err if it is a refusal, such as an error of NewToken, and reports whether it has answered.
func refuse(w http.ResponseWriter, r *http.Request, err error) bool {
	var refusal *core.Refusal
	if !errors.As(err, &refusal) {
		return false
	}
	resp := core.RefusalResponse(r.Context(), err, nil) // has Idempotency-Refused, Cache-Control, Retry-After
	for _, field := range resp.Header {
		w.Header().Set(field.Name, field.Value)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.Status)
	_, _ = w.Write(envelope(string(refusal.Code), refusal.Detail))
	return true
}

// Whoever refuses, the answer has the service's own format.
func TestOneFormat(t *testing.T) {
	engine, err := newEngine()
	require.NoError(t, err)
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, []byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	verifier, err := newVerifier(engine, sign.Must(sign.NewRing(key)))
	require.NoError(t, err)
	policy := core.OneShotToken(limitedTokens(nil))
	policy.Name = "order"
	orders, payments := engine.MustGuard(policy), engine.MustGuard(core.ClientKey())

	search := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, core.NewRefusal(codes.RateLimited, nil))
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httpidem.New(orders)(search))
	mux.Handle("POST /payments", httpidem.New(payments)(search))
	mux.Handle("POST /webhooks", httpidem.Verify(verifier)(search))
	mux.Handle("GET /search", search)
	mux.Handle("GET /tokens", httpidem.IssueToken(orders))
	mux.HandleFunc("GET /checkout", func(w http.ResponseWriter, r *http.Request) {
		_, err := httpidem.NewToken(r, orders)
		refuse(w, r, err)
	})
	for _, refused := range []struct {
		by, request      string
		keys             []string
		status           int
		code, retryAfter string
	}{
		{"a guard", "POST /payments", nil, 400, "key_missing", ""},
		{"a guard that wants a token", "POST /orders", nil, 400, "token_missing", ""},
		{"the verifier", "POST /webhooks", nil, 401, "missing", ""},
		{"a limit", "GET /search", nil, 429, "rate_limited", "1"},
		{"a limit behind a guard", "POST /payments", []string{"k-1"}, 429, "rate_limited", "1"},
		{"a limit of tokens for programs", "GET /tokens", nil, 429, "rate_limited", "3600"},
		{"a limit of tokens for pages", "GET /checkout", nil, 429, "rate_limited", "3600"},
	} {
		method, path, _ := strings.Cut(refused.request, " ")
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("X-User", "ann")
		r.Header["Idempotency-Key"] = refused.keys
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		require.Equal(t, refused.status, w.Code, refused.by)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"), refused.by)
		require.Equal(t, refused.code, w.Header().Get(core.RefusedHeader), refused.by)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), refused.by)
		require.Equal(t, refused.retryAfter, w.Header().Get("Retry-After"), refused.by)
		require.Regexp(t, `^\{"code":"`+refused.code+`","data":null,"msg":"[A-Z][^"]+"\}$`, w.Body.String(), refused.by)
	}
}
