package profile_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/profile"
)

// The table of docs/agents.md is tested over TCP, in examples/profiles. Here are the refusals that it has no row for.
func TestRefusals(t *testing.T) {
	for code, want := range map[codes.Code][3]string{ // ACP: type; AdCP: code, recovery
		codes.KeyInvalid:        {"invalid_request", "INVALID_REQUEST", "correctable"},
		codes.BodyTooLarge:      {"invalid_request", "INVALID_REQUEST", "correctable"},
		codes.UserMissing:       {"invalid_request", "AUTH_MISSING", "correctable"},
		codes.NotAuthorized:     {"invalid_request", "PERMISSION_DENIED", "correctable"},
		codes.RateLimited:       {"invalid_request", "RATE_LIMITED", "transient"},
		codes.ResultUnavailable: {"processing_error", "IDEMPOTENCY_EXPIRED", "correctable"},
		codes.KeyExpired:        {"invalid_request", "IDEMPOTENCY_EXPIRED", "correctable"},
		codes.Uncertain:         {"processing_error", "SERVICE_UNAVAILABLE", "transient"},
		codes.BodyConsumed:      {"processing_error", "CONFIGURATION_ERROR", "terminal"},
		codes.GuardConflict:     {"processing_error", "CONFIGURATION_ERROR", "terminal"},
		codes.StoreUnavailable:  {"service_unavailable", "SERVICE_UNAVAILABLE", "transient"},
		codes.ShuttingDown:      {"service_unavailable", "SERVICE_UNAVAILABLE", "transient"},
		codes.Unfinished:        {"service_unavailable", "SERVICE_UNAVAILABLE", "transient"},
	} {
		acp := refused(t, profile.ACP(), code)
		assert.Equal(t, map[string]any{"type": want[0], "code": string(code), "message": code.Detail()}, acp)
		if code != codes.KeyInvalid { // it has a row
			assert.Equal(t, map[string]any{"code": string(code), "content": code.Detail()}, refused(t, profile.UCP(), code))
		}
		adcp := refused(t, adcp(t), code)
		e := adcp["adcp_error"].(map[string]any)
		assert.Equal(t, []any{"failed", []any{e}, want[1], want[2]}, []any{adcp["status"], adcp["errors"], e["code"], e["recovery"]}, code)
	}
}

// An agent is told whole seconds, rounded up: an hour at most.
func TestRetryAfterOfAdCP(t *testing.T) {
	for after, want := range map[time.Duration]int64{time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 2 * time.Hour: 3600} {
		r := core.NewRefusal(codes.StoreUnavailable, nil)
		r.Request, r.RetryAfter = &core.Request{}, after
		assert.Contains(t, string(adcp(t).Refuse(context.Background(), r).Body), fmt.Sprintf(`"retry_after":%d}`, want), after)
	}
}

// Paths are told apart by each of their values, and a key that was sent twice is not on the refusal.
func TestPathsAndKeysOfACP(t *testing.T) {
	g := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(profile.ACP())
	runs := 0
	mux := http.NewServeMux()
	mux.Handle("POST /{a}/{b}", httpidem.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })))
	for _, path := range []string{"/ab/c", "/a/bc", "/ab/d"} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Idempotency-Key", "k")
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.Equal(t, 3, runs)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/a/b", nil)
	r.Header["Idempotency-Key"] = []string{"k", "j"}
	mux.ServeHTTP(w, r)
	assert.Equal(t, 400, w.Code)
	assert.Empty(t, w.Header()["Idempotency-Key"])
}

// adcpSecret is a secret of AdCP.
const adcpSecret = "0123456789abcdef0123456789abcdef"

func adcp(t *testing.T) core.Policy {
	p, err := profile.AdCP([]byte(adcpSecret))
	require.NoError(t, err)
	return p
}

// Accounts are told apart by their identity, however it is written. The payload is compared as it is: another spelling is a conflict.
func TestAccountsOfAdCP(t *testing.T) {
	const natural = `{"brand":{"domain":"a.test","countries":["NL","BE"]},"operator":"o.test"}`
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{natural, `{"operator":"o.test","sandbox":false,"brand":{"countries":["BE","NL"],"domain":"a.test"}}`, true},
		{natural, `{"operator":"o.test","brand":{"countries":["nl","NL","BE"],"domain":"a.test","industries":["x"]}}`, true},
		{natural, `{"operator":"o.test","brand":{"domain":"a.test"}}`, false},
		{natural, natural[:len(natural)-1] + `,"sandbox":true}`, false},
		{natural, natural[:len(natural)-1] + `,"currency":"EUR"}`, false},
		{natural, natural[:len(natural)-1] + `,"timezone":"Europe/Paris"}`, false},
		{natural, strings.Replace(natural, "o.test", "p.test", 1), false},
		{natural, strings.Replace(natural, `"countries"`, `"brand_id":"b","countries"`, 1), false},
		{natural[:len(natural)-1] + `,"operator_unit":{"id":"1","name":"A"}}`, natural[:len(natural)-1] +
			`,"operator_unit":{"id":"1","name":"B"}}`, true},
		{natural[:len(natural)-1] + `,"operator_unit":{"id":"1"}}`, natural[:len(natural)-1] + `,"operator_unit":{"id":"2"}}`, false},
		{`{"account_id":"a"}`, `{"account_id":"b"}`, false},
		{`{"account_id":"a","brand":{"domain":"a.test"}}`, `{"account_id":"a"}`, true},
		{`{"account_id":1}`, `{"account_id":1.0}`, true},
		{`{"account_id":100}`, `{"account_id":1E+2}`, true},
		{`{"account_id":0.10}`, `{"account_id":10e-2}`, true},
		{`{"account_id":-0}`, `{"account_id":0e9}`, true},
		{`{"account_id":-1}`, `{"account_id":1}`, false},
		{`{"account_id":9007199254740993}`, `{"account_id":9007199254740992}`, false},
		{`["a"]`, `null`, false},
	} {
		runs := 0
		g := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(adcp(t))
		h := httpidem.New(g)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
		var last int
		for _, account := range []string{tc.a, tc.b} {
			r := httptest.NewRequest(http.MethodPost, "/tasks/create",
				strings.NewReader(`{"idempotency_key":"550e8400-e29b-41d4-a716-446655440000","account":`+account+`,"n":`+account+`}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			last = w.Code
		}
		assert.Equal(t, tc.same, runs == 1, "%s and %s: %d", tc.a, tc.b, last)
	}
}

// The stored key shows no digest that can be made without the secret, and another secret is another key space.
func TestSecretOfAdCP(t *testing.T) {
	keys := map[string]bool{}
	for _, secret := range []string{adcpSecret, strings.ToUpper(adcpSecret)} {
		p, err := profile.AdCP([]byte(secret))
		require.NoError(t, err)
		inner, err := memstore.New(memstore.Config{})
		require.NoError(t, err)
		store := &noted{Store: inner}
		h := httpidem.New(core.MustNew(core.Config{Store: store, User: core.SharedByAllCallers()}).MustGuard(p))
		r := httptest.NewRequest(http.MethodPost, "/tasks",
			strings.NewReader(`{"idempotency_key":"550e8400-e29b-41d4-a716-446655440000","account":{"account_id":"acct_1"}}`))
		r.Header.Set("Content-Type", "application/json")
		h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), r)
		require.NotEmpty(t, store.key)
		keys[store.key] = true
		for _, guess := range []string{`{"account_id":"acct_1"}` + "\n", `["[\"account_id\",\"acct_1\"]",""]`} {
			sum := sha256.Sum256([]byte(guess))
			assert.NotContains(t, store.key, hex.EncodeToString(sum[:16]))
		}
	}
	assert.Len(t, keys, 2)
	for _, p := range []func([]byte) (core.Policy, error){profile.AdCP, profile.AdCPRead} {
		_, err := p(make([]byte, 31))
		assert.ErrorContains(t, err, "at least 32")
	}
}

// noted is a store that notes the key of the last claim.
type noted struct {
	store.Store
	key string
}

func (n *noted) Acquire(ctx context.Context, key string, c store.Claim) (store.Grant, error) {
	n.key = key
	return n.Store.Acquire(ctx, key, c)
}

// refused returns the body of a refusal that a handler behind the policy reports, with the status of its code.
func refused(t *testing.T, p core.Policy, code codes.Code) (body map[string]any) {
	w := serve(t, p, `{"idempotency_key":"550e8400-e29b-41d4-a716-446655440000"}`, func(w http.ResponseWriter, r *http.Request) {
		httpidem.Refuse(w, r, core.NewRefusal(code, nil))
	})
	assert.Equal(t, code.Status(), w.Code)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	return body
}

func serve(t *testing.T, p core.Policy, body string, h http.HandlerFunc) *httptest.ResponseRecorder {
	g := core.MustNew(core.Config{User: core.SharedByAllCallers()}).MustGuard(p)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/tasks/create", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "550e8400-e29b-41d4-a716-446655440000")
	httpidem.New(g)(h).ServeHTTP(w, r)
	return w
}

// What an AdCP replay makes of a stored body: the envelope's members are set, and the rest keeps its bytes.
func TestReplayedBodies(t *testing.T) {
	for _, tc := range []struct{ stored, request, want string }{
		{`{}`, `{}`, `{"replayed":true}`},
		{` { } `, `{"context":{"a":[1,"}"]}}`, `{"replayed":true,"context":{"a":[1,"}"]}}`},
		{"{\n \"a\" : 1.0 ,\n\t\"replayed\":false, \"\\u0062\": {\"context\":1, \"x\":2}\n}", `{}`,
			`{"replayed":true,"a" : 1.0,"\u0062": {"context":1, "x":2}}`},
		{`{"context":{"old":1},"status":"completed"}`, `{"context":null}`, `{"replayed":true,"status":"completed","context":null}`},
		{`[1]`, `{}`, ``}, {`"text"`, `{}`, ``}, {``, `{}`, ``}, {`{"a":1`, `{}`, ``}, {`{} {}`, `{}`, ``}, {`{"a" 1}`, `{}`, ``},
	} {
		made := adcp(t).Replayed(context.Background(), &core.Request{Body: []byte(tc.request)},
			&core.Response{Status: 202, Body: []byte(tc.stored)})
		if tc.want == "" {
			assert.Nil(t, made, tc.stored)
			continue
		}
		require.NotNil(t, made, tc.stored)
		assert.Equal(t, fmt.Sprint(202, tc.want), fmt.Sprint(made.Status, string(made.Body)))
	}
	digested := &core.Response{Header: []core.Field{{Name: "content-digest", Value: "sha-256=:x:"},
		{Name: "X-A", Value: "1"}, {Name: "ETag", Value: `"1"`},
		{Name: "Repr-Digest", Value: "sha-256=:x:"}, {Name: "Digest", Value: "sha-256=x"}, {Name: "Content-MD5", Value: "x"}},
		Body: []byte(`{}`)}
	assert.Equal(t, digested.Header[1:2], adcp(t).Replayed(context.Background(), &core.Request{}, digested).Header)
	packed := &core.Response{Header: []core.Field{{Name: "Content-Encoding", Value: "gzip"}}, Body: []byte(`{}`)}
	assert.Nil(t, adcp(t).Replayed(context.Background(), &core.Request{}, packed))
}
