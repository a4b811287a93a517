package core_test

import (
	"bytes"
	"crypto/fips140"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/internal/keycases"
)

// However a key is printed, logged or encoded, its digest comes out.
func TestKeysPrintAsDigests(t *testing.T) {
	key := core.NewKey("idem:U=alice")
	const digest = "f86b3730625e0f62"
	type event struct {
		Key core.Key `json:"key"`
	}
	for name, value := range map[string]any{
		"a key": key, "a pointer": &key, "a map's key": map[core.Key]int{key: 1}, "a map's value": map[string]core.Key{"k": key},
		"a list": []core.Key{key}, "a struct": event{key}, "an array's map": [1]map[core.Key]event{{key: {key}}},
		"an Event": core.Event{Key: key}, "an Uncertainty": core.Uncertainty{Key: key},
	} {
		var out bytes.Buffer
		fmt.Fprintln(&out, value)
		if name != "a pointer" { // which %d and %x show as a number
			fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d %t %20v %T", value, value, value, value, value, value, value, value, value, value)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("logged", "value", value, slog.Group("group", "value", value))
		}
		require.NoError(t, json.NewEncoder(&out).Encode(value), name)
		require.NoError(t, json.NewEncoder(&out).Encode(map[string]any{"value": value}), name)
		assert.NotContains(t, out.String(), "alice", name)
		assert.NotContains(t, out.String(), fmt.Sprintf("%x", "alice"), name)
		assert.Contains(t, out.String(), digest, name)
	}
	assert.Equal(t, "map["+digest+":1]", fmt.Sprint(map[core.Key]int{key: 1}))
	encoded, err := json.Marshal(map[core.Key]event{key: {key}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"`+digest+`":{"key":"`+digest+`"}}`, string(encoded))

	assert.Equal(t, "idem:U=alice", key.Raw())
	assert.Empty(t, core.Key{}.String())
}

// The keys of keys.json, derived without a framework. The adapters are held
// to the same file over TCP.
func TestKeysOfTheGoldenFile(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("most of the keys hold an MD5, which FIPS 140 does not allow")
	}
	engine := core.MustNew(core.Config{})
	entries := keycases.All()
	require.GreaterOrEqual(t, len(entries), 150)
	for _, entry := range entries {
		t.Run(entry.Name, func(t *testing.T) {
			guard, err := engine.Guard(entry.Policy())
			require.NoError(t, err)
			key, fingerprint, err := guard.Key(entry.Request())
			if entry.Refusal != "" {
				var refusal *core.Refusal
				require.ErrorAs(t, err, &refusal)
				assert.Equal(t, entry.Refusal, refusal.Code, entry.Why)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, entry.Key, key.Raw(), entry.Why)
			assert.Equal(t, entry.Fingerprint, fingerprint, entry.Why)
		})
	}
}

// Entries that say that two requests are, or are not, one operation.
func TestKeysOfTheGoldenFileAmongEachOther(t *testing.T) {
	byName := map[string]string{} // key and fingerprint
	for _, entry := range keycases.All() {
		require.NotContains(t, byName, entry.Name)
		byName[entry.Name] = entry.Key + " " + entry.Fingerprint
	}
	check := func(pair [2]string, check func(assert.TestingT, any, any, ...any) bool) {
		for _, name := range pair {
			require.Contains(t, byName, name)
		}
		check(t, byName[pair[0]], byName[pair[1]], pair)
	}
	for _, same := range [][2]string{
		{"JSON, sorted and without space", "JSON, in another order and with space"},
		{"a form", "a form, another charset"},
		{"a multipart form", "a multipart form, another boundary"},
		{"a multipart form, files before fields of their name", "a multipart form, fields before files of their name"},
		{"JSON, sorted and without space", "JSON, its type in capitals"},
		{"JSON, sorted and without space", "a header field that the policy does not name"},
		{"JSON, sorted and without space", "a header field that the policy names, absent"},
		{"JSON by suffix", "JSON by suffix, in capitals"},
		{"text like a form", "raw bytes, a media type in capitals"},
		{"a form, a field in place of the query", "a form, a field in place of the query, in another order"},
		{"a multipart form", "a multipart form, a file name with a path"},
		{"a multipart form, without file names", "a multipart form, without file names, another one"},
		{"a precondition", "a precondition, spaces around"},
		{"a path parameter", "consumed names, a path parameter"},
		{"a wildcard, escaped slash", "a wildcard, escaped in another way"},
		{"a query", "consumed names, in a query"},
		{"a client key, consumed names", "a client key, consumed names, signed anew"},
		{"a client key, bare", "a client key, quoted"},
	} {
		check(same, assert.Equal)
	}
	for _, other := range [][2]string{
		{"nothing at all", "an empty object"},
		{"JSON, integers beyond float64", "JSON, integers beyond float64, the neighbour"},
		{"JSON as text, sorted and without space", "JSON, sorted and without space"},
		{"text like a form", "a form"},
		{"text like a form", "a query like a form"},
		{"a query like a form", "a form"},
		{"a form", "a query, and a form's names"},
		{"a form, a query that says something else", "a form, a field in place of the query"},
		{"text like a form", "raw bytes, another media type"},
		{"JSON by suffix", "JSON by another suffix"},
		{"JSON by suffix", "JSON, identity"},
		{"nothing at all", "a media type without a body"},
		{"a multipart form", "a multipart form, another file name"},
		{"a multipart form", "a multipart form, without file names"},
		{"a multipart form", "a multipart form, a field like a file and its name"},
		{"JSON, sorted and without space", "a precondition"},
		{"JSON, sorted and without space", "a precondition, empty"},
		{"a precondition", "another precondition"},
		{"a precondition on several lines", "a precondition on several lines, the other way round"},
		{"a header field that the policy does not name", "header fields that the policy names"},
		{"header fields before raw bytes", "raw bytes like header fields"},
		{"header fields like a form and like a type", "a form like a header field"},
		{"a client key, metadata and coordinates", "a client key, another latitude"},
		{"a client key, bare", "a client key, a precondition and a media type"},
		{"a multipart form", "a multipart form, a field like a file"},
		{"a path parameter, percent", "a path parameter, escaped percent"},
		{"a wildcard", "a wildcard, escaped slash"},
		{"a query and JSON", "a query with a line feed and JSON"},
		{"a user of 65 bytes", "a user like a digest"},
	} {
		check(other, assert.NotEqual)
	}
}

// OrParams: the key if there is one, and else the parameters, each with the defaults of its own kind.
func TestOrParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := core.Policy{RefuseExpired: time.Hour,
			Key: core.Header(core.OrParams, core.Named("X-Key"), core.Exclude("trace", "ts"), core.EchoKey())}
		g := core.MustNew(core.Config{User: byUser}).MustGuard(p)
		ask := func(body string, key ...string) *call {
			c := post(body, nil)
			c.header["X-Key"] = key
			return c
		}
		for _, step := range []struct {
			c    *call
			want string
		}{
			{ask(`{"n":1}`, "a"), "attempt 1"},
			{ask(`{"n":1}`, "b"), "attempt 1"},
			{ask(`{"n":1}`), "attempt 1"},
			{ask(`{"n":1,"trace":7,"ts":8}`), "replay"},
			{ask(`{"n":2}`), "attempt 1"},
			{ask(`{"n":2}`, "a"), "key_reused"},
			{ask(`{"n":1,"trace":7,"ts":8}`, "a"), "replay"},
			{ask(`{"n":1}`, ""), "key_invalid"},
			{ask(`{"n":1}`, "a", "b"), "key_invalid"},
			{ask(`{"n":3}`, "c").doing(handlerOf(402)), "attempt 1"}, // the client can choose another key
			{ask(`{"n":3}`, "c"), "replay"},
			{ask(`{"n":3}`).doing(handlerOf(402)), "attempt 1"}, // it can't
			{ask(`{"n":3}`), "attempt 1"},
		} {
			assert.Equal(t, step.want, outcome(t, g, step.c), step.c.body)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, "replay", outcome(t, g, ask(`{"n":1}`, "a")), "for a day")
		assert.Equal(t, "attempt 1", outcome(t, g, ask(`{"n":1}`)), "for a minute")

		keyed, _, err := g.Key(&core.Request{Method: "POST", Route: "/orders", Headers: ask("", "k")})
		assert.NoError(t, err)
		bare, _, err := g.Key(&core.Request{Method: "POST", Route: "/orders", Headers: ask("")})
		assert.NoError(t, err)
		assert.Contains(t, keyed.Raw(), "K=k")
		assert.Contains(t, bare.Raw(), "P=")
	})
}

// A key at which no policy looks is told of, once for each route.
func TestIgnoredKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		key  core.KeySource
		want int
	}{
		"parameters": {core.Params(), 2},
		"fields":     {core.Params(core.Fields("n")), 2},
		"a token":    {core.Token(someTokens), 2},
		"a header":   {core.Header(core.Required), 0},
		"either":     {core.Header(core.OrParams), 0},
		"a function": {core.Func(func(*core.Request) (string, error) { return "k", nil }), 0},
	} {
		var observed events
		g := core.MustNew(core.Config{User: byUser, Observe: observed.add}).MustGuard(core.Policy{Name: "n", Key: tc.key})
		for i, route := range []string{"/orders", "/orders", "/payments", "/payments"} {
			c := post(`{"n":1}`, nil).withKey("k")
			c.route = route
			if i%2 == 0 {
				c.method = "PURGE"
			}
			serve(t, g, c)
			serve(t, g, post(`{"n":1}`, nil))
		}
		assert.Equal(t, tc.want, count(observed.kinds(), core.KeyIgnored), name)
	}
}
