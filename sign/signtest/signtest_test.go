package signtest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idem-go/idem/internal/leak"
	"github.com/idem-go/idem/sign"
)

// After a body that nobody has read, net/http's server waits for half a second.
func TestMain(m *testing.M) {
	leak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// harness mounts what make makes of an app, by an adapter that may have a flaw, too.
func harness(name, flaw string, build func(app App) verifying) Harness {
	return Harness{
		Name: name, HTTP2: true,
		Start: func(tb testing.TB, app App) string {
			v := build(app)
			return startNetHTTP(tb, app, func(next http.Handler) http.Handler { return adapter(v, flaw, next) })
		},
		Nonces: func(_ testing.TB, n int) []sign.NonceStore {
			one, stores := sign.NewMemoryNonces(0), make([]sign.NonceStore, n)
			for i := range stores {
				stores[i] = one
			}
			return stores
		},
	}
}

// The verifier of package sign, behind the plainest of adapters.
func TestSound(t *testing.T) {
	Run(t, harness("sound", "", func(app App) verifying { return app.Verifier }))
}

// A verifier by another hand passes as well: the suite asks for what is defined, not for
// what package sign happens to do.
func TestReferee(t *testing.T) {
	Run(t, harness("referee", "", func(app App) verifying {
		if app.config.Scheme != nil {
			return app.Verifier // it knows v1 only
		}
		return newReferee(app.config, "")
	}))
}

// flaws are ways in which a verifier or an adapter can be wrong, each with a row that must notice, by group
// and name.
var flaws = []struct{ name, noticed string }{
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
	{"the handler gets no body", "keys/the good one"},
	{"the handler gets the method that it wants", "fields that override/X-HTTP-Method-Override with another method"},
	{"the handler runs all the same", "signatures/all zero"},
	{"the context knows nothing", "keys/the good one"},
	{"the context knows the wrong one", "keys/the good one"},
}

// Each flaw is noticed by the row that exists because of it: the rows can fail.
func TestFlawsAreNoticed(t *testing.T) {
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			g, r := rowNamed(t, f.noticed)
			b := newBench(t, harness(f.name, f.name, func(app App) verifying { return newReferee(app.config, f.name) }), g)
			require.NotEmpty(t, b.play(t, r).problems)
		})
	}
}

// lax lets everything in, and strict nothing: each row has an answer that one of them does not give.
type lax struct{ c sign.Config }

func (l lax) Verify(ctx context.Context, m *sign.Message) (sign.Verified, error) {
	v := sign.Verified{Scheme: "v1", Algorithm: sign.HMACSHA256}
	v.KeyID, _ = m.Field("X-Key-Id")
	v.Nonce, _ = m.Field("X-Nonce")
	stamp, _ := m.Field("X-Timestamp")
	n, _ := strconv.ParseInt(stamp, 10, 64) // 0 is as good as any
	v.Time = time.Unix(n, 0)
	if v.KeyID == ed.id {
		v.Algorithm = sign.Ed25519
	}
	_, _ = l.c.Nonces.Use(ctx, v.KeyID, v.Nonce, minute) // it lets them in, whatever is said
	l.c.Observe(ctx, sign.Event{Scheme: "v1", KeyID: v.KeyID})
	return v, nil
}

func (lax) Refusal(context.Context, error) *sign.Refusal { panic("it refuses nothing") }

type strict struct{ *referee }

func (s strict) Verify(ctx context.Context, _ *sign.Message) (sign.Verified, error) {
	s.c.Observe(ctx, sign.Event{Scheme: "v1", Err: sign.Errorf(sign.CodeInvalid, "")})
	return sign.Verified{}, sign.CodeInvalid
}

func TestEveryRowCanFail(t *testing.T) {
	failed := make(map[string]bool)
	for _, build := range []func(App) verifying{
		func(app App) verifying { return lax{app.config} },
		func(app App) verifying { return strict{newReferee(app.config, "")} },
	} {
		for _, g := range groups {
			b := newBench(t, harness("lax or strict", "", build), g)
			for _, r := range g.rows {
				failed[g.name+"/"+r.name] = failed[g.name+"/"+r.name] || len(b.play(t, r).problems) > 0
			}
		}
	}
	for _, g := range groups {
		for _, r := range g.rows {
			name := g.name + "/" + r.name
			assert.True(t, failed[name] || mayEndInFront(r), name)
		}
	}
}

// mayEndInFront reports whether net/http may answer all that a row sends by itself.
func mayEndInFront(r row) bool {
	return !slices.ContainsFunc(r.steps, func(s step) bool {
		switch a := s.(type) {
		case ask:
			return !a.want.front && !a.want.either && !a.want.refused
		case ask2:
			return !a.want.front
		}
		return true
	})
}

func rowNamed(t *testing.T, name string) (group, row) {
	t.Helper()
	for _, g := range groups {
		if rest, ok := strings.CutPrefix(name, g.name+"/"); ok {
			for _, r := range g.rows {
				if r.name == rest {
					return g, r
				}
			}
		}
	}
	require.FailNow(t, "there is no row", name)
	return group{}, row{}
}

func TestEveryRowIsWellFormed(t *testing.T) {
	seen := make(map[string]bool)
	for _, g := range groups {
		for _, r := range g.rows {
			name := g.name + "/" + r.name
			require.False(t, seen[name], "twice: %s", name)
			seen[name] = true
			require.NotEmpty(t, r.why, name)
			require.NotEmpty(t, r.steps, name)
		}
	}
}

func TestMalformedResponsesAreNoticed(t *testing.T) {
	for _, raw := range []string{"HTTP/1.1 banana\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "hello"} {
		_, err := parse([]byte(raw), "GET")
		require.Error(t, err, raw)
	}
	r, err := parse([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nmore"), "POST")
	require.NoError(t, err)
	require.Equal(t, 204, r.status)
	require.Equal(t, "more", string(r.more))
	r, err = parse(nil, "GET")
	require.NoError(t, err)
	require.Zero(t, r.status, "the connection was closed")
}
