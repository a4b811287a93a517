package sign_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/race"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// The example of docs/signing.md.
func TestV1Vector(t *testing.T) {
	private := ed25519.NewKeyFromSeed([]byte(designSecret))
	const signed = `
demo
POST
api.example.com
/transfers/a%2Fb
x=2&x=1
1700000000
n-0123456789abcdef
29ddb7bbd60d67fa1591798dc16ecfeddfbfbb48c6353113c32659d4e76a6078
content-type;idempotency-key
content-type:application/json
idempotency-key:"k-1"`
	for _, c := range []struct {
		key       *sign.Key
		signature string
	}{
		{signtest.Demo, "v1=dd48cdea89f6d7454263c0263ea01cd98542d15cbcd22d45d27289d62797b1ce"},
		{sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, private)),
			"v1-ed25519=" + hex.EncodeToString(ed25519.Sign(private, []byte("v1-ed25519"+signed)))},
	} {
		m := &sign.Message{
			Method: "POST", Target: "/transfers/a%2Fb?x=2&x=1", Host: "API.example.com",
			Source: &fixture.Source{Header: http.Header{
				"Content-Type": {"application/json"}, "Idempotency-Key": {`"k-1"`},
			}, Body: []byte(`{"amount":5,"to":"bob"}`)},
		}
		s := &sign.Signature{KeyID: "demo", Created: 1700000000, Nonce: "n-0123456789abcdef", Covered: []string{"Content-Type"}}
		added, err := standardV1.Sign(m, s, c.key)
		require.NoError(t, err)
		require.Equal(t, http.Header{
			"X-Key-Id":         {"demo"},
			"X-Timestamp":      {"1700000000"},
			"X-Nonce":          {"n-0123456789abcdef"},
			"X-Signature":      {c.signature},
			"X-Signed-Headers": {"content-type;idempotency-key"},
		}, added.Header)

		maps.Copy(fixture.SourceOf(m).Header, added.Header)
		v := fixture.Verifier(sign.Config{}, c.key)
		verified, err := v.Verify(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, sign.Verified{KeyID: "demo", Owner: "demo", Scheme: "v1", Algorithm: c.key.Algorithm(), Time: now,
			Nonce: "n-0123456789abcdef"}, verified)
		_, err = v.Verify(t.Context(), m)
		require.ErrorIs(t, err, sign.CodeReplayed)
	}
}

func TestV1Options(t *testing.T) {
	_, err := sign.NewV1(sign.V1Config{KeyID: "X Key", Nonce: "x-timestamp", Cover: []string{"Host"},
		Require: []string{"X-Signature", "é"}})
	for _, problem := range []string{"V1Config.KeyID", "two fields have the same name", `V1Config.Cover: "Host"`,
		`V1Config.Require: "X-Signature"`, `"é"`} {
		require.ErrorContains(t, err, problem)
	}

	// Names and rules of a service's own.
	c := sign.Config{Scheme: sign.Must(sign.NewV1(sign.V1Config{
		KeyID: "x-app", Timestamp: "x-ca-timestamp", Nonce: "X-CA-Nonce", SignedHeaders: "X-Ca-Signed", Signature: "X-Ca-Signature",
		Cover: []string{"x-tenant"}, Require: []string{"content-type"},
	}))}
	options := sign.RequestOptions{Scheme: c.Scheme}
	r := signedRequest(t, signtest.Demo, options)
	require.Equal(t, "demo", r.Header.Get("X-App"))
	require.Equal(t, "content-type;idempotency-key", r.Header.Get("X-Ca-Signed"))
	require.Empty(t, r.Header.Get("X-Signature"))
	require.NoError(t, fixture.Verify(t, c, r, signtest.Demo))

	r.Header.Set("X-Tenant", "added")
	require.ErrorIs(t, fixture.Verify(t, c, r, signtest.Demo), sign.ReasonUncovered)
	fixture.Sign(t, r, signtest.Demo, options)
	require.Equal(t, "content-type;idempotency-key;x-tenant", r.Header.Get("X-Ca-Signed"))
	require.NoError(t, fixture.Verify(t, c, r, signtest.Demo))

	r.Header.Del("Content-Type")
	require.ErrorIs(t, sign.Request(r, signtest.Demo, options), sign.ReasonUncovered)
	require.ErrorIs(t, fixture.Verify(t, c, r, signtest.Demo), sign.ReasonUncovered)

	// The Content-Type alone may be left unsigned.
	c.Scheme = sign.Must(sign.NewV1(sign.V1Config{UnsignedContentType: true}))
	r = signedRequest(t, signtest.Demo, sign.RequestOptions{Scheme: c.Scheme, Cover: []string{}})
	require.Equal(t, "idempotency-key", r.Header.Get("X-Signed-Headers"))
	r.Header.Set("Content-Type", "text/xml")
	require.NoError(t, fixture.Verify(t, c, r, signtest.Demo))
	r.Header.Set("X-Signed-Headers", "")
	require.ErrorIs(t, fixture.Verify(t, c, r, signtest.Demo), sign.ReasonUncovered)
}

// Each row replaces a field of a good message. Every other test of grammar is where the function is.
func TestV1Parse(t *testing.T) {
	request := signedRequest(t, signtest.Demo, sign.RequestOptions{Cover: []string{}})
	check := func(want error, field string, lines ...string) {
		t.Helper()
		m := fixture.Message(request)
		fixture.SourceOf(m).Header[field] = lines
		_, err := fixture.Verifier(sign.Config{}, signtest.Demo).Verify(t.Context(), m)
		require.ErrorIs(t, err, want, "%s: %q", field, lines)
	}
	for field, missing := range map[string]error{
		"X-Key-Id": sign.CodeMissing, "X-Timestamp": sign.CodeMissing, "X-Nonce": sign.CodeMissing, "X-Signature": sign.CodeMissing,
		"X-Signed-Headers": sign.ReasonUncovered, "Content-Type": sign.ReasonUncovered, "Idempotency-Key": sign.ReasonUncovered,
	} {
		good := request.Header.Get(field)
		check(nil, field, good)
		check(missing, field)
		check(sign.CodeDuplicateHeader, field, good, good)
		check(sign.CodeDuplicateHeader, field, good, "")
		if strings.HasPrefix(field, "X-") {
			check(missing, field, "")
		}
	}
	check(sign.CodeDuplicateHeader, "Content-Encoding", "gzip", "br")
	check(sign.CodeDuplicateHeader, "Host", "api.example.com", "evil.example.com")

	mac := request.Header.Get("X-Signature")
	for _, c := range []struct {
		field  string
		want   error
		values []string
	}{
		{"X-Key-Id", sign.CodeMalformed, []string{"de mo"}},
		{"X-Key-Id", sign.ReasonUnknownKey, []string{strings.Repeat("d", 128)}},
		{"X-Timestamp", sign.CodeMalformed, []string{"+1700000000"}},
		{"X-Timestamp", sign.CodeNotYetValid, []string{"9223372036854775807", "1700000000000"}}, // the second in milliseconds
		{"X-Timestamp", sign.CodeExpired, []string{"0"}},
		{"X-Timestamp", sign.ReasonBadSignature, []string{"1700000001"}},
		{"X-Nonce", sign.CodeMalformed, []string{"n/0123456789abcdef"}},
		{"X-Nonce", sign.ReasonBadSignature, []string{"n-0123456789abcdef"}},
		{"X-Signature", sign.CodeMalformed, []string{
			mac[3:], "v1", "v1=", "=" + mac[3:], "v1 =" + mac[3:], mac[:20] + " " + mac[20:], mac[:len(mac)-1], mac[:len(mac)-2],
			mac + "00", mac + "," + mac, mac[:66] + "A", mac[:66] + "g", "v1-ed25519=" + mac[3:], "v9=" + strings.Repeat("0", 130),
			"none=", strings.Repeat("v", 33) + "=00",
		}},
		{"X-Signature", sign.ReasonWrongAlgorithm, []string{
			"v1-ed25519=" + strings.Repeat("0", 128), "v2=" + mac[3:], "V1=" + mac[3:], "none=00", strings.Repeat("v", 32) + "=00",
		}},
		{"X-Signature", sign.ReasonBadSignature, []string{"v1=" + strings.Repeat("0", 64)}},
		{"X-Signed-Headers", sign.ReasonUncovered, []string{
			"content-type", "idempotency-key", "content-type;idempotency-key;x-absent", "*;content-type;idempotency-key",
		}},
		{"X-Signed-Headers", sign.CodeMalformed, []string{
			"idempotency-key;content-type", "content-type;content-type;idempotency-key", "Content-Type;idempotency-key",
			"content-type;idempotency-key;", ";content-type;idempotency-key", ";", "content-type; idempotency-key",
			"content-type,idempotency-key", "content-type;idempotency-key;x:y", "content-type;host;idempotency-key",
			"connection;content-type;idempotency-key", "content-length;content-type;idempotency-key",
			"content-type;idempotency-key;x-signature", "content-type;idempotency-key;x-signed-headers",
		}},
		{"Content-Encoding", sign.ReasonUncovered, []string{"gzip", ""}},
		{"Idempotency-Key", sign.ReasonBadSignature, []string{`"k-2"`, ""}},
		// White space around a value is not signed (RFC 9110, section 5.5). What a server leaves of it would reach the handler.
		{"Content-Type", sign.CodeMalformed,
			[]string{"application/json\nidempotency-key:k-1", "application/json\x00", "application/json ", "\tapplication/json", " "}},
	} {
		for _, value := range c.values {
			check(c.want, c.field, value)
		}
	}
}

// If any part of a message is changed, its signature is bad.
func TestV1CoversTheMessage(t *testing.T) {
	check := func(want error, what string, change func(*sign.Message, *fixture.Source)) {
		t.Helper()
		m := signedMessage(t, signtest.Demo)
		change(m, fixture.SourceOf(m))
		_, err := fixture.Verifier(sign.Config{}, signtest.Demo).Verify(t.Context(), m)
		require.ErrorIs(t, err, want, what)
	}
	check(sign.ReasonBadSignature, "method's case", func(m *sign.Message, _ *fixture.Source) { m.Method = "post" })
	for _, host := range []string{"api.example.org", "api.example.com:443", "api.example.com."} {
		check(sign.ReasonBadSignature, host, func(m *sign.Message, _ *fixture.Source) { m.Host = host })
	}
	for _, target := range []string{ // nothing is decoded, cleaned or sorted
		"/transfers/a/b?x=2&x=1", "/transfers/%61%2Fb?x=2&x=1", "/transfers/a%2fb?x=2&x=1", "//transfers/a%2Fb?x=2&x=1",
		"/transfers/a%2Fb/?x=2&x=1", "/x/../transfers/a%2Fb?x=2&x=1", "/transfers/a%2Fb?x=1&x=2", "/transfers/a%2Fb?x=2&x=1&",
		"/transfers/a%2Fb?x=2;x=1", "/transfers/a%2Fb", "/transfers/a%2Fb%3Fx=2&x=1",
	} {
		check(sign.ReasonBadSignature, target, func(m *sign.Message, _ *fixture.Source) { m.Target = target })
	}
	check(sign.ReasonBadSignature, "absolute form", func(m *sign.Message, _ *fixture.Source) {
		m.Target, m.Host = "http://evil.example.com"+m.Target, "evil.example.com"
	})
	check(nil, "host's case", func(m *sign.Message, _ *fixture.Source) { m.Host = "API.Example.com" })
	check(nil, "absolute form", func(m *sign.Message, _ *fixture.Source) { m.Target = "http://api.example.com" + m.Target })
	check(nil, "unsigned fields", func(_ *sign.Message, s *fixture.Source) {
		for _, name := range []string{"X-Forwarded-Host", "X-HTTP-Method-Override", "X-Request-Uri", "X-Original-URL", "X-Other"} {
			s.Header.Add(name, "/admin")
			s.Header.Add(name, "DELETE")
		}
	})
}

// The public key of a pair is known to everybody: its bytes must be no secret.
func TestV1AlgorithmBelongsToTheKey(t *testing.T) {
	private := ed25519.NewKeyFromSeed([]byte(designSecret))
	public := private.Public().(ed25519.PublicKey)
	verifier := sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, public))
	forged := signedRequest(t, sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "demo"}, public)), sign.RequestOptions{})
	require.ErrorIs(t, fixture.Verify(t, sign.Config{}, forged, verifier), sign.ReasonWrongAlgorithm)

	_, rsa := fixture.Pair("rsa", fixture.Private().RSA)
	require.ErrorIs(t, sign.Request(forged, rsa, sign.RequestOptions{}), sign.ReasonWrongAlgorithm)
	forged.Header.Set("X-Key-Id", "rsa")
	require.ErrorIs(t, fixture.Verify(t, sign.Config{}, forged, rsa), sign.ReasonWrongAlgorithm)
}

// A message without body, query and fields of interest is signed like any other.
func TestV1Bare(t *testing.T) {
	r, err := http.NewRequest("", "http://api.example.com", nil)
	require.NoError(t, err)
	fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{})
	require.NotContains(t, r.Header, "X-Signed-Headers")
	require.NoError(t, fixture.Verify(t, sign.Config{}, r, signtest.Demo))

	// An empty field can be signed, and one of the client's own.
	r.Header.Set("X-Empty", "")
	r.Header.Set("X-Tenant", "a:b")
	fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{Cover: []string{"x-tenant", "X-Empty", "X-TENANT", "X-Absent"}})
	require.Equal(t, "x-empty;x-tenant", r.Header.Get("X-Signed-Headers"))
	require.NoError(t, fixture.Verify(t, sign.Config{}, r, signtest.Demo))
	r.Header.Set("X-Tenant", "a, b")
	require.ErrorIs(t, fixture.Verify(t, sign.Config{}, r, signtest.Demo), sign.ReasonBadSignature)
}

func TestV1Allocations(t *testing.T) {
	race.Skip(t, "sync.Pool drops what it is given at random under the race detector")
	v := fixture.Verifier(sign.Config{Nonces: fixture.AnyNonce{}}, signtest.Demo)
	m := signedMessage(t, signtest.Demo)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		again := *m
		if _, err := v.Verify(t.Context(), &again); err != nil {
			panic(err)
		}
	}), 5.0)
}
