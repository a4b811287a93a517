package sign_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// The example of docs/signing.md.
func TestV1Vector(t *testing.T) {
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(designSecret)))
	m := &sign.Message{
		Method: "POST", Target: "/transfers/a%2Fb?x=2&x=1", Host: "API.example.com",
		Source: &fixture.Source{Header: http.Header{
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {`"k-1"`},
		}, Body: []byte(`{"amount":5,"to":"bob"}`)},
	}
	scheme := standardV1(t)
	s := &sign.Signature{KeyID: "demo", Created: 1700000000, Nonce: "n-0123456789abcdef", Covered: []string{"Content-Type"}}
	added, err := scheme.Sign(m, s, key)
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"X-Key-Id":         {"demo"},
		"X-Timestamp":      {"1700000000"},
		"X-Nonce":          {"n-0123456789abcdef"},
		"X-Signature":      {"v1=dd48cdea89f6d7454263c0263ea01cd98542d15cbcd22d45d27289d62797b1ce"},
		"X-Signed-Headers": {"content-type;idempotency-key"},
	}, added.Header)

	maps.Copy(m.Source.(*fixture.Source).Header, added.Header)
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Clock: func() time.Time { return time.Unix(1700000060, 0) }}))
	verified, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, "demo", verified.KeyID)
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeReplayed)
}

func TestV1OptionFaults(t *testing.T) {
	_, err := sign.NewV1(sign.V1Options{KeyID: "X Key", Nonce: "x-timestamp", Cover: []string{"Host"}, Require: []string{"X-Signature", "é"}})
	for _, fault := range []string{"V1Options.KeyID", "two fields have one name", `V1Options.Cover: "Host"`, `V1Options.Require: "X-Signature"`, `"é"`} {
		require.ErrorContains(t, err, fault)
	}
}

// Services have names and rules of their own.
func TestV1Options(t *testing.T) {
	scheme, err := sign.NewV1(sign.V1Options{
		KeyID: "x-app", Timestamp: "x-ca-timestamp", Nonce: "X-CA-Nonce", SignedHeaders: "X-Ca-Signed", Signature: "X-Ca-Signature",
		Cover: []string{"x-tenant"}, Require: []string{"content-type"},
	})
	require.NoError(t, err)
	key := newHMAC(t, "demo")
	options := sign.RequestOptions{Scheme: scheme, Clock: fixedClock}
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock}))
	r := signedRequest(t, key, options)
	require.Equal(t, "demo", r.Header.Get("X-App"))
	require.Equal(t, "content-type;idempotency-key", r.Header.Get("X-Ca-Signed"))
	require.Empty(t, r.Header.Get("X-Signature"))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)

	r = signedRequest(t, key, options)
	r.Header.Set("X-Tenant", "added")
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.ReasonUncovered)
	require.NoError(t, sign.Request(r, key, options))
	require.Equal(t, "content-type;idempotency-key;x-tenant", r.Header.Get("X-Ca-Signed"))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)

	r.Header.Del("Content-Type")
	require.ErrorIs(t, sign.Request(r, key, options), sign.ReasonUncovered)
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.ReasonUncovered)
}

// The form of everything that V1 reads.
func TestV1Parse(t *testing.T) {
	key := newHMAC(t, "demo")
	good := fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: fixedClock}))
	mac := good.Source.(*fixture.Source).Header.Get("X-Signature")
	for _, c := range []struct {
		field string
		want  error
		lines []string
	}{
		{"X-Key-Id", sign.CodeMissing, nil},
		{"X-Key-Id", sign.CodeMissing, []string{""}},
		{"X-Key-Id", sign.CodeDuplicateHeader, []string{"demo", "demo"}},
		{"X-Key-Id", sign.CodeMalformed, []string{"de mo"}},
		{"X-Key-Id", sign.CodeMalformed, []string{"dé"}},
		{"X-Key-Id", sign.CodeMalformed, []string{strings.Repeat("d", 129)}},
		{"X-Key-Id", sign.ReasonUnknownKey, []string{strings.Repeat("d", 128)}},
		{"X-Timestamp", sign.CodeMissing, nil},
		{"X-Timestamp", sign.CodeDuplicateHeader, []string{"1700000000", "1700000000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"+1700000000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"-1700000000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"1700 000000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"01700000000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"17e8"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"1700000000.0"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"1_700_000_000"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"0x6553f100"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"１７００００００００"}},
		{"X-Timestamp", sign.CodeMalformed, []string{"9223372036854775808"}},
		{"X-Timestamp", sign.CodeNotYetValid, []string{"9223372036854775807"}},
		{"X-Timestamp", sign.CodeNotYetValid, []string{"1700000000000"}}, // milliseconds
		{"X-Timestamp", sign.CodeExpired, []string{"0"}},
		{"X-Nonce", sign.CodeMissing, nil},
		{"X-Nonce", sign.CodeDuplicateHeader, []string{"n-0123456789abcdef", "n-0123456789abcdeg"}},
		{"X-Nonce", sign.CodeMalformed, []string{strings.Repeat("n", 15)}},
		{"X-Nonce", sign.ReasonBadSignature, []string{strings.Repeat("n", 16)}},
		{"X-Nonce", sign.ReasonBadSignature, []string{strings.Repeat("n", 128)}},
		{"X-Nonce", sign.CodeMalformed, []string{strings.Repeat("n", 129)}},
		{"X-Nonce", sign.CodeMalformed, []string{"n/0123456789abcdef"}},
		{"X-Nonce", sign.CodeMalformed, []string{"n-0123456789abcdef\n"}},
		{"X-Signature", sign.CodeMissing, nil},
		{"X-Signature", sign.CodeDuplicateHeader, []string{mac, mac}},
		{"X-Signature", sign.CodeMalformed, []string{mac[3:]}},
		{"X-Signature", sign.CodeMalformed, []string{"v1="}},
		{"X-Signature", sign.CodeMalformed, []string{mac[:len(mac)-1]}},
		{"X-Signature", sign.CodeMalformed, []string{mac[:len(mac)-2]}},
		{"X-Signature", sign.CodeMalformed, []string{mac + "00"}},
		{"X-Signature", sign.CodeMalformed, []string{strings.ToUpper(mac[:4]) + mac[4:66] + "A"}},
		{"X-Signature", sign.CodeMalformed, []string{"v1=" + strings.Repeat("A", 64)}},
		{"X-Signature", sign.CodeMalformed, []string{mac + "," + mac}},
		{"X-Signature", sign.CodeMalformed, []string{"v1 =" + mac[3:]}},
		{"X-Signature", sign.CodeMalformed, []string{"=" + mac[3:]}},
		{"X-Signature", sign.CodeMalformed, []string{"v1-ed25519=" + mac[3:]}},
		{"X-Signature", sign.CodeMalformed, []string{"v9=" + strings.Repeat("0", 130)}},
		{"X-Signature", sign.ReasonWrongAlgorithm, []string{"v1-ed25519=" + strings.Repeat("0", 128)}},
		{"X-Signature", sign.ReasonWrongAlgorithm, []string{"v2=" + mac[3:]}},
		{"X-Signature", sign.ReasonWrongAlgorithm, []string{"none=00"}},
		{"X-Signature", sign.CodeMalformed, []string{strings.Repeat("v", 33) + "=00"}},
		{"X-Signature", sign.ReasonBadSignature, []string{"v1=" + strings.Repeat("0", 64)}},
		{"X-Signed-Headers", sign.ReasonUncovered, nil}, // the Idempotency-Key is there
		{"X-Signed-Headers", sign.ReasonUncovered, []string{""}},
		{"X-Signed-Headers", sign.ReasonUncovered, []string{"content-type"}},
		{"X-Signed-Headers", sign.ReasonUncovered, []string{"content-type;idempotency-key;x-absent"}},
		{"X-Signed-Headers", sign.ReasonUncovered, []string{"idempotency-key"}}, // the Content-Type is there
		{"X-Signed-Headers", sign.CodeDuplicateHeader, []string{"content-type;idempotency-key", "content-type"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"idempotency-key;content-type"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type;content-type;idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"Content-Type;idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type;idempotency-key;"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{";content-type;idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type; idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type,idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type;host;idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-length;content-type;idempotency-key"}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{"content-type;idempotency-key;x-signature"}},
		{"Content-Encoding", sign.ReasonUncovered, []string{"gzip"}},
		{"Idempotency-Key", sign.ReasonUncovered, nil},
		{"Idempotency-Key", sign.ReasonBadSignature, []string{`"k-2"`}},
		{"Idempotency-Key", sign.CodeDuplicateHeader, []string{`"k-1"`, `"k-2"`}},
		{"Content-Type", sign.CodeDuplicateHeader, []string{"application/json", "text/plain"}},
		{"Content-Type", sign.CodeMalformed, []string{"application/json\nidempotency-key:k-1"}},
		{"Content-Type", sign.CodeMalformed, []string{"application/json\x00"}},
		{"Host", sign.CodeDuplicateHeader, []string{"api.example.com", "evil.example.com"}},
	} {
		m := fixture.Message(signedRequest(t, key, sign.RequestOptions{Clock: fixedClock, Cover: []string{}}))
		m.Source.(*fixture.Source).Header[c.field] = c.lines
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Clock: fixedClock}))
		_, err := v.Verify(t.Context(), m)
		require.ErrorIs(t, err, c.want, "%s: %q", c.field, c.lines)
	}
}

// White space around a value belongs to the wire (RFC 9110, section 5.5), and servers take it away. What
// they leave of it (of folded lines, say) would reach the handler unsigned.
func TestV1RefusesWhiteSpaceAroundValues(t *testing.T) {
	key := newHMAC(t, "demo")
	for _, value := range []string{"application/json ", "\tapplication/json", " "} {
		m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
		m.Source.(*fixture.Source).Header["Content-Type"] = []string{value}
		_, err := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeMalformed)
	}
}

// Whatever part of a message is changed, its signature is not the message's any more.
func TestV1CoversTheMessage(t *testing.T) {
	signer, verifier := newEd25519(t)
	secret := newHMAC(t, "demo")
	for _, key := range [][2]*sign.Key{{secret, secret}, {signer, verifier}} {
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key[1])), Clock: fixedClock}))
		for name, change := range map[string]func(*sign.Message){
			"method":            func(m *sign.Message) { m.Method = "PATCH" },
			"method's case":     func(m *sign.Message) { m.Method = "post" },
			"host":              func(m *sign.Message) { m.Host = "api.example.org" },
			"port":              func(m *sign.Message) { m.Host += ":443" },
			"absolute form":     func(m *sign.Message) { m.Target, m.Host = "http://evil.example.com"+m.Target, "evil.example.com" },
			"decoded path":      func(m *sign.Message) { m.Target = "/transfers/a/b?x=2&x=1" },
			"encoded path":      func(m *sign.Message) { m.Target = "/transfers/%61%2Fb?x=2&x=1" },
			"slash":             func(m *sign.Message) { m.Target = "//transfers/a%2Fb?x=2&x=1" },
			"trailing slash":    func(m *sign.Message) { m.Target = "/transfers/a%2Fb/?x=2&x=1" },
			"dots":              func(m *sign.Message) { m.Target = "/x/../transfers/a%2Fb?x=2&x=1" },
			"order of query":    func(m *sign.Message) { m.Target = "/transfers/a%2Fb?x=1&x=2" },
			"more query":        func(m *sign.Message) { m.Target += "&" },
			"no query":          func(m *sign.Message) { m.Target = "/transfers/a%2Fb" },
			"query into path":   func(m *sign.Message) { m.Target = "/transfers/a%2Fb%3Fx=2&x=1" },
			"first byte":        func(m *sign.Message) { m.Source.(*fixture.Source).Body[0] ^= 1 },
			"last byte":         func(m *sign.Message) { b := m.Source.(*fixture.Source).Body; b[len(b)-1] ^= 0x80 },
			"one byte less":     func(m *sign.Message) { in := m.Source.(*fixture.Source); in.Body = in.Body[1:] },
			"one byte more":     func(m *sign.Message) { in := m.Source.(*fixture.Source); in.Body = append(in.Body, 0) },
			"no body":           func(m *sign.Message) { m.Source.(*fixture.Source).Body = nil },
			"another timestamp": func(m *sign.Message) { m.Source.(*fixture.Source).Header.Set("X-Timestamp", "1700000001") },
		} {
			m := fixture.Message(signedRequest(t, key[0], sign.RequestOptions{Clock: fixedClock}))
			change(m)
			_, err := v.Verify(t.Context(), m)
			require.ErrorIs(t, err, sign.ReasonBadSignature, name)
		}
		for name, change := range map[string]func(*sign.Message){
			"host's case":   func(m *sign.Message) { m.Host = "API.Example.com" },
			"absolute form": func(m *sign.Message) { m.Target = "http://api.example.com" + m.Target },
			"unsigned overrides": func(m *sign.Message) {
				h := m.Source.(*fixture.Source).Header
				h.Set("X-Forwarded-Host", "evil.example.com")
				h.Set("X-HTTP-Method-Override", "DELETE")
				h.Set("X-Request-Uri", "/admin")
			},
		} {
			m := fixture.Message(signedRequest(t, key[0], sign.RequestOptions{Clock: fixedClock}))
			change(m)
			_, err := v.Verify(t.Context(), m)
			require.NoError(t, err, name)
		}
	}
}

// The public key of a pair is known to everybody: as a secret it must be good for nothing.
func TestV1AlgorithmBelongsToTheKey(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, public))))}))
	forged := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "ed"}, public))
	_, err = v.Verify(t.Context(), fixture.Message(signedRequest(t, forged, sign.RequestOptions{})))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)

	genuine := sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, private))
	verified, err := v.Verify(t.Context(), fixture.Message(signedRequest(t, genuine, sign.RequestOptions{})))
	require.NoError(t, err)
	require.Equal(t, sign.Ed25519, verified.Algorithm)

	rsaKey := newRSA(t)
	r := signedRequest(t, genuine, sign.RequestOptions{})
	require.ErrorIs(t, sign.Request(r, rsaKey, sign.RequestOptions{}), sign.ReasonWrongAlgorithm)
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(rsaKey))})).Verify(t.Context(), fixture.Message(withKeyID(r, "rsa")))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
}

func withKeyID(r *http.Request, id string) *http.Request {
	r.Header.Set("X-Key-Id", id)
	return r
}

// A message without a body, query or header fields of interest is signed like any other.
func TestV1Bare(t *testing.T) {
	key := newHMAC(t, "demo")
	r, err := http.NewRequest("GET", "http://api.example.com", nil)
	require.NoError(t, err)
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{}))
	require.NotContains(t, r.Header, "X-Signed-Headers")
	m := fixture.Message(r)
	require.Equal(t, "/", m.Path())
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), m)
	require.NoError(t, err)

	// Nothing has to say for which host it is in HTTP/1.0.
	m.Host = ""
	_, err = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed)
}

// No character of a message can begin another line of what is signed.
func TestRequestLinesWithControlCharacters(t *testing.T) {
	key := newHMAC(t, "demo")
	for _, change := range []func(*sign.Message){
		func(m *sign.Message) { m.Method = "POST\napi" },
		func(m *sign.Message) { m.Method = "" },
		func(m *sign.Message) { m.Target += "\n" },
		func(m *sign.Message) { m.Target = "/\x00" },
		func(m *sign.Message) { m.Target += "#fragment" }, // which some servers cut off
		func(m *sign.Message) { m.Host = "a\nb" },
	} {
		m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
		change(m)
		_, err := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key))})).Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeMalformed)
	}
}

func TestMessageTargets(t *testing.T) {
	for _, c := range []struct{ target, host, authority, path, query string }{
		{"/a?b", "h", "h", "/a", "b"},
		{"/a?b?c", "h", "h", "/a", "b?c"},
		{"/a?", "h", "h", "/a", ""},
		{"/", "h:1", "h:1", "/", ""},
		{"", "h", "h", "/", ""},
		{"*", "h", "h", "*", ""},
		{"/a://b/c", "h", "h", "/a://b/c", ""},
		{"/?u=http://b/c", "h", "h", "/", "u=http://b/c"},
		{"http://g", "h", "g", "/", ""},
		{"http://g?q", "h", "g", "/", "q"},
		{"HTTP://g:80/a%2Fb?q", "h", "g:80", "/a%2Fb", "q"},
		{"http:///a", "h", "", "/a", ""},
		{"http://u@g/a", "h", "u@g", "/a", ""},
	} {
		m := &sign.Message{Target: c.target, Host: c.host}
		query, present := m.Query()
		require.Equal(t, []string{c.authority, c.path, c.query}, []string{m.Authority(), m.Path(), query}, c.target)
		require.Equal(t, strings.Contains(c.target, "?"), present)
	}
}

func TestV1Allocations(t *testing.T) {
	if race.Enabled {
		t.Skip("sync.Pool drops what it is given at random under the race detector")
	}
	key := newHMAC(t, "demo")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Nonces: fixture.AnyNonce{}}))
	m := fixture.Message(signedRequest(t, key, sign.RequestOptions{}))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		again := *m
		if _, err := v.Verify(t.Context(), &again); err != nil {
			panic(err)
		}
	}), 5.0)
}
