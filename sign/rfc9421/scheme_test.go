package rfc9421

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

func TestOptionErrorsAreReportedAtOnce(t *testing.T) {
	_, err := New(Config{
		Label: "Sig", Tag: "t\n", Cover: []string{"Host", "X-Fine", "not a name"}, Require: []string{"Signature", "@scheme", "@status"},
	})
	require.Equal(t, []string{
		"rfc9421.Config.Label", "rfc9421.Config.Tag", "rfc9421.Config.Cover", "rfc9421.Config.Cover",
		"rfc9421.Config.Require", "rfc9421.Config.Require",
	}, fixture.ConfigErrors(t, err))
}

// What sign.Request makes passes a verifier, for each kind of key.
func TestSignAndVerify(t *testing.T) {
	c := sign.Config{Scheme: newScheme(t, Config{})}
	for algorithm, pair := range fixture.Pairs("demo") {
		signer, verifier := pair[0], pair[1]
		r := signtest.NewRequest(t, nil, "https://API.example.com:443/transfers/a%2Fb?x=2&x=1", body200, "Idempotency-Key", `"k-1"`)
		fixture.Sign(t, r, signer, sign.RequestOptions{Scheme: c.Scheme, Lifetime: 10 * time.Second})
		require.Contains(t, r.Header.Get("Signature-Input"), `;alg="`+string(algorithm)+`"`)
		require.Contains(t, r.Header.Get("Signature-Input"), `;expires=1700000010;`)
		verified, err := fixture.Verifier(c, verifier).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		nonce := verified.Nonce
		require.Equal(t, sign.Verified{KeyID: "demo", Owner: "demo", Scheme: "rfc9421", Algorithm: signer.Algorithm(),
			Time: fixture.Now, Nonce: nonce}, verified)
		require.Contains(t, r.Header.Get("Signature-Input"), `nonce="`+nonce+`"`)
		if signer != verifier {
			require.ErrorContains(t, sign.Request(r, verifier, sign.RequestOptions{Scheme: c.Scheme}), "verify only")
		}
	}
}

// What the signature of the example is: everything that is added, and what was signed.
func TestSigned(t *testing.T) {
	s, m, key := newScheme(t, Config{}), testMessage(), signtest.Demo
	sig := &sign.Signature{KeyID: "demo", Created: testTime, Nonce: testNonce,
		Covered: []string{"Content-Type", "Content-Encoding", "CONTENT-TYPE"}}
	added, err := s.Sign(m, sig, key)
	require.NoError(t, err)
	const params = `("@method" "@authority" "@path" "@query" "content-digest" "content-type" "idempotency-key")` +
		`;created=1700000000;keyid="demo";alg="hmac-sha256";nonce="n-0123456789abcdef"`
	base := strings.Join([]string{
		`"@method": POST`,
		`"@authority": api.example.com`,
		`"@path": /transfers/a%2Fb`,
		`"@query": ?x=2&x=1`,
		`"content-digest": ` + digestOf(body200),
		`"content-type": application/json`,
		`"idempotency-key": "k-1"`,
		`"@signature-params": ` + params,
	}, "\n")
	mac, err := key.Sign([]byte(base))
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"Content-Digest":  {digestOf(body200)},
		"Signature-Input": {"sig1=" + params},
		"Signature":       {"sig1=:" + base64.StdEncoding.EncodeToString(mac) + ":"},
	}, added.Header)
	require.Equal(t, base, s.SigningString(m, sig, key))
}

// Which change of what is covered shows is proved by the suite, and by the vectors: here is what each change is called.
func TestChanges(t *testing.T) {
	s, key := newScheme(t, Config{Cover: []string{"X-Seen"}}), signtest.Demo
	set := func(name string, values ...string) func(*sign.Message) {
		return func(m *sign.Message) { headerOf(m)[name] = values }
	}
	for _, c := range []struct {
		name   string
		change func(*sign.Message)
		want   error
	}{
		{"nothing", func(*sign.Message) {}, nil},
		{"a field that is not covered", set("X-Other", "1"), nil},
		{"digest twice", set("Content-Digest", digestOf(body200), digestOf(body200)), sign.CodeDuplicateHeader},
		{"a second Idempotency-Key", set("Idempotency-Key", `"k-1"`, `"k-2"`), sign.CodeDuplicateHeader},
		{"an encoding that nobody has signed", set("Content-Encoding", "gzip"), sign.ReasonUncovered},
		{"a covered field", set("Content-Type", "text/plain"), sign.ReasonBadSignature},
		{"blanks around a covered field", set("Content-Type", " application/json\t"), sign.CodeMalformed},
		{"a field that must be covered", set("X-Seen", "1"), sign.ReasonUncovered},
		{"a line feed in a covered field", set("Content-Type", "application/json\n\"x\": y"), sign.CodeMalformed},
		{"a byte that is not ASCII", set("Content-Type", "application/json;\xe9"), sign.CodeMalformed},
		{"a path that is not ASCII", func(m *sign.Message) { m.Target = "/é" }, sign.CodeMalformed},
		{"the algorithm", func(m *sign.Message) {
			set("Signature-Input", strings.Replace(headerOf(m).Get("Signature-Input"), "hmac-sha256", "ed25519", 1))(m)
		}, sign.ReasonWrongAlgorithm},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testMessage()
			signWith(t, s, m, key, "content-type")
			require.ErrorIs(t, verify(t, s, m, signtest.Forger), sign.ReasonBadSignature)
			c.change(m)
			require.ErrorIs(t, verify(t, s, m, key), c.want)
		})
	}
}

func TestContentDigest(t *testing.T) {
	s, key := newScheme(t, Config{}), signtest.Demo
	sum := sha512.Sum512([]byte(body200))
	good256, good512 := digestOf(body200), "sha-512=:"+base64.StdEncoding.EncodeToString(sum[:])+":"
	bad256, bad512 := digestOf("x"), rfcDigest
	const md5 = "md5=:1B2M2Y8AsgTpgAmY7PhCfg==:"
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"sha-256", good256, nil},
		{"sha-512", good512, nil},
		{"both", good256 + ", " + good512, nil},
		{"both, otherwise put", good512 + "  ,\t" + good256, nil},
		{"a weak one beside", md5 + ", " + good256, nil},
		{"unknown ones beside", "sha3=?1, x=(1 2);y, " + good256 + ", z", nil},
		{"another body's", bad256, sign.ReasonDigestMismatch},
		{"one of them another body's", good256 + ", " + bad512, sign.ReasonDigestMismatch},
		{"the other of them another body's", bad256 + ", " + good512, sign.ReasonDigestMismatch},
		{"weak ones only", md5 + ", sha=:2jmj7l5rSw0yVb/vlWAYkK/YBwk=:, unixsum=:AAA=:, unixcksum=:AAAA:, adler=:AAAA:, crc32c=:AAAA:",
			sign.ReasonUncovered},
		{"unknown ones only", "sha-384=:AAAA:", sign.ReasonUncovered},
		{"empty", "", sign.ReasonUncovered},
		{"a member twice", good256 + ", " + good256, sign.CodeMalformed},
		{"a bad member, then a good one", bad256 + ", " + good256, sign.CodeMalformed},
		{"too long", strings.Replace(good512, "sha-512", "sha-256", 1), sign.CodeMalformed},
		{"too short beside a good one", "sha-256=:AAAA:, " + good512, sign.CodeMalformed},
		{"with a parameter", good256 + ";x", sign.CodeMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testMessage()
			signByHand(t, s, m, key, "sig1="+strictList+strictParams)
			headerOf(m).Set("Content-Digest", c.value)
			if c.want != sign.CodeMalformed {
				signByHand(t, s, m, key, "sig1="+strictList+strictParams)
			}
			require.ErrorIs(t, verify(t, s, m, key), c.want)
		})
	}
}

// A message without a body needs no digest, unless that is required. One with a body does.
func TestNoBody(t *testing.T) {
	s, key := newScheme(t, Config{}), signtest.Demo
	for _, c := range []struct {
		name, body, digest string
		options            Config
		want               error
	}{
		{"nothing", "", "", Config{}, nil},
		{"nothing, but required", "", "", Config{Require: []string{"Content-Digest"}}, sign.ReasonUncovered},
		{"a body that came later", "{}", "", Config{}, sign.ReasonUncovered},
		{"a digest that came later", "", digestOf(""), Config{}, sign.ReasonUncovered},
		{"both", "{}", digestOf("{}"), Config{}, sign.ReasonUncovered},
	} {
		m := &sign.Message{Method: "DELETE", Target: "/a", Host: "example.com",
			Source: &fixture.Source{Header: http.Header{"Content-Digest": {"-"}}}}
		signByHand(t, s, m, key, `sig1=("@method" "@authority" "@path" "@query")`+strictParams)
		headerOf(m).Del("Content-Digest")
		if c.digest != "" {
			headerOf(m).Set("Content-Digest", c.digest)
		}
		setBody(m, c.body)
		require.ErrorIs(t, verify(t, newScheme(t, c.options), m, key), c.want, c.name)
	}
	m := testMessage()
	setBody(m, "")
	signWith(t, s, m, key)
	require.Equal(t, digestOf(""), headerOf(m).Get("Content-Digest"), "this package signs one")
	require.NoError(t, verify(t, s, m, key))
	setBody(m, "{}")
	require.ErrorIs(t, verify(t, s, m, key), sign.ReasonDigestMismatch)
}

// The values of the derived components (RFC 9421, section 2.2).
func TestDerivedComponents(t *testing.T) {
	plain, proxied := newScheme(t, Config{}), newScheme(t, Config{HTTPS: true})
	for _, c := range []struct {
		component string
		message   sign.Message
		scheme    *profile
		want      string
	}{
		{"@method", sign.Message{Method: "m-search"}, plain, "m-search"},
		{"@authority", sign.Message{Target: "/", Host: "www.Example.com"}, plain, "www.example.com"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:80"}, plain, "example.com"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:"}, plain, "example.com"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:443"}, plain, "example.com:443"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:443", TLS: true}, plain, "example.com"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:80", TLS: true}, plain, "example.com:80"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:443"}, proxied, "example.com"},
		{"@authority", sign.Message{Target: "/", Host: "example.com:80"}, proxied, "example.com:80"},
		{"@authority", sign.Message{Target: "/", Host: "[2001:DB8::80]"}, plain, "[2001:db8::80]"},
		{"@authority", sign.Message{Target: "/", Host: "[2001:db8::1]:80"}, plain, "[2001:db8::1]"},
		{"@authority", sign.Message{Target: "http://A.example/x", Host: "b.example"}, plain, "a.example"},
		{"@scheme", sign.Message{}, plain, "http"},
		{"@scheme", sign.Message{TLS: true}, plain, "https"},
		{"@scheme", sign.Message{}, proxied, "https"},
		{"@request-target", sign.Message{Target: "/path?param=value"}, plain, "/path?param=value"},
		{"@request-target", sign.Message{Target: "https://www.example.com/path?param=value"}, plain,
			"https://www.example.com/path?param=value"},
		{"@path", sign.Message{Target: "/%61//../b%2fc;x=1"}, plain, "/%61//../b%2fc;x=1"},
		{"@query", sign.Message{Target: "/path?param=value&foo=bar&baz=bat%2Dman"}, plain, "?param=value&foo=bar&baz=bat%2Dman"},
		{"@query", sign.Message{Target: "/path"}, plain, "?"},
		{"@target-uri", sign.Message{Target: "/path?param=value", Host: "www.example.com", TLS: true}, plain,
			"https://www.example.com/path?param=value"},
		{"@target-uri", sign.Message{Target: "/path", Host: "www.example.com"}, plain, "http://www.example.com/path"},
		{"@target-uri", sign.Message{Target: "/path?", Host: "www.example.com"}, proxied, "https://www.example.com/path?"},
		{"@target-uri", sign.Message{Target: "http://www.example.com?x", Host: "-"}, plain, "http://www.example.com/?x"},
		{"@target-uri", sign.Message{Target: "*", Host: "www.example.com:80"}, plain, "http://www.example.com"},
	} {
		base, err := c.scheme.appendBase(nil, &c.message, []string{c.component}, "")
		require.NoError(t, err)
		require.Equal(t, `"`+c.component+`": `+c.want+"\n", string(base), "%+v", c.message)
	}
}

func TestCoverAndRequire(t *testing.T) {
	key, open, strictest := signtest.Demo, newScheme(t, Config{}),
		newScheme(t, Config{Cover: []string{"x-a"}, Require: []string{"X-B", "@Scheme"}})
	trySign := func(s *profile, m *sign.Message, covered ...string) error {
		_, err := s.Sign(m, &sign.Signature{KeyID: "demo", Created: testTime, Nonce: testNonce, Covered: covered}, key)
		return err
	}
	m := testMessage()
	require.ErrorIs(t, trySign(strictest, m), sign.ReasonUncovered, "there is no X-B")
	headerOf(m).Set("X-B", "")
	signWith(t, strictest, m, key)
	require.Contains(t, headerOf(m).Get("Signature-Input"), `"content-digest" "@scheme" "content-type" "idempotency-key" "x-b")`)
	require.NoError(t, verify(t, strictest, m, key))
	require.NoError(t, verify(t, open, m, key))
	headerOf(m).Set("X-A", "1")
	require.ErrorIs(t, verify(t, strictest, m, key), sign.ReasonUncovered)
	signWith(t, strictest, m, key)
	require.NoError(t, verify(t, strictest, m, key))
	headerOf(m)["X-A"] = []string{"1", "2"}
	require.ErrorIs(t, verify(t, strictest, m, key), sign.CodeDuplicateHeader)
	require.ErrorIs(t, trySign(strictest, m), sign.CodeDuplicateHeader)

	headerOf(m).Set("X-A", "1")
	for _, c := range []struct {
		covered []string
		want    error
	}{
		{[]string{"x-a", "x-b"}, sign.ReasonUncovered},
		{[]string{"x-a", "@scheme"}, sign.ReasonUncovered},
		{[]string{"x-a", "x-b", "@target-uri"}, nil}, // which has the scheme in it
	} {
		signWith(t, open, m, key, c.covered...)
		require.ErrorIs(t, verify(t, strictest, m, key), c.want, c.covered)
	}
	for _, name := range []string{"Host", "Connection", "Content-Length", "Signature", "@status", "@query-param", "a b", ""} {
		require.ErrorIs(t, trySign(open, m, name), sign.ReasonUncovered, name)
	}
}

// A Content-Type is covered, whatever the client asks for, and is not accepted uncovered unless the options say so.
func TestContentTypeIsCovered(t *testing.T) {
	key, strict, lax := signtest.Demo, newScheme(t, Config{}), newScheme(t, Config{UnsignedContentType: true})
	m := testMessage()
	signWith(t, strict, m, key)
	require.Contains(t, headerOf(m).Get("Signature-Input"), `"content-type"`)
	headerOf(m).Set("Content-Type", "text/xml")
	require.ErrorIs(t, verify(t, lax, m, key), sign.ReasonBadSignature)

	signWith(t, lax, m, key)
	require.NotContains(t, headerOf(m).Get("Signature-Input"), `"content-type"`)
	require.ErrorIs(t, verify(t, strict, m, key), sign.ReasonUncovered)
	headerOf(m).Set("Content-Type", "application/json")
	require.NoError(t, verify(t, lax, m, key))
}

func TestTag(t *testing.T) {
	key := signtest.Demo
	none, mine, other := newScheme(t, Config{}), newScheme(t, Config{Tag: "mine"}), newScheme(t, Config{Tag: "other"})
	m := testMessage()
	signWith(t, mine, m, key)
	require.NoError(t, verify(t, mine, m, key))
	for _, s := range []*profile{none, other} { // it is meant for somebody else
		err := verify(t, s, m, key)
		require.ErrorIs(t, err, sign.CodeInvalid)
		require.ErrorContains(t, err, `for the application "mine"`)
	}
	signWith(t, none, m, key)
	require.ErrorIs(t, verify(t, mine, m, key), sign.CodeMissing)
}

func TestExpires(t *testing.T) {
	s, m := newScheme(t, Config{}), testMessage()
	signByHand(t, s, m, signtest.Demo, "sig1="+strictList+strictParams+";expires=1700000010")
	for after, want := range map[int64]error{0: nil, 10: nil, 11: sign.CodeExpired, 61: sign.CodeExpired,
		-60: nil, -61: sign.CodeNotYetValid} {
		v := fixture.Verifier(sign.Config{Scheme: s, Clock: func() time.Time { return time.Unix(testTime+after, 999) }}, signtest.Demo)
		_, err := v.Verify(t.Context(), unread(m))
		require.ErrorIs(t, err, want, after)
	}
}

func TestSigningString(t *testing.T) {
	s, m := newScheme(t, Config{}), testMessage()
	m.Target += "&access_token=hunter2&z=3"
	headerOf(m).Set("Authorization", "Bearer hunter2")
	headerOf(m).Set("Cookie", "session=hunter2")
	signWith(t, s, m, signtest.Demo, "authorization", "cookie", "content-type", "@request-target", "@target-uri")
	var keyID, text string
	v := fixture.Verifier(sign.Config{Scheme: s,
		Observe: func(_ context.Context, e sign.Event) { keyID, text = e.KeyID, e.SigningString() }}, signtest.Demo)
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
	const query = "?x=2&x=1&access_token=[redacted]&z=3\n"
	for _, line := range []string{
		`"@method": POST` + "\n", `"@query": ` + query, `"@request-target": /transfers/a%2Fb` + query,
		`"@target-uri": http://api.example.com/transfers/a%2Fb` + query, `"authorization": [redacted]` + "\n",
		`"content-type": application/json` + "\n", `"cookie": [redacted]` + "\n", `"@signature-params": ("@method" `,
	} {
		require.Contains(t, text, line)
	}
	for _, secret := range []string{"hunter2", "0123456789abcdef0123456789abcdef", "A-1"} {
		require.NotContains(t, text, secret)
	}

	// A message that was not understood has none, and a key id only if that was understood.
	input := headerOf(m).Get("Signature-Input")
	headerOf(m).Del("Content-Type")
	for value, want := range map[string]string{input: "demo", strings.Replace(input, "demo", "de mo", 1): "", "sig1": ""} {
		headerOf(m).Set("Signature-Input", value)
		_, err = v.Verify(t.Context(), m)
		require.Error(t, err)
		require.Equal(t, want, keyID)
		require.Empty(t, text)
	}
}

// What a verification allocates does not grow unnoticed; BenchmarkVerify says how much it is.
func TestVerifyAllocates(t *testing.T) {
	s, key, signed := newScheme(t, Config{}), signtest.Demo, testMessage()
	signWith(t, s, signed, key, "content-type")
	v := fixture.Verifier(sign.Config{Scheme: s, Nonces: fixture.AnyNonce{}}, key)
	m := unread(signed)
	allocs := testing.AllocsPerRun(100, func() {
		again := *m
		if _, err := v.Verify(t.Context(), &again); err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, allocs, 40.0)
}
