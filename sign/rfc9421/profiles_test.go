package rfc9421

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// signInput signs m as a peer would that says input in Signature-Input.
func signInput(t *testing.T, s *profile, m *sign.Message, key *sign.Key, input string) {
	t.Helper()
	p := parameters{agent: true}
	label, text := cutMember(input)
	require.NoError(t, p.read(text), input)
	base, err := s.appendBase(nil, m, p.components, "")
	require.NoError(t, err, input)
	signature, err := key.Sign(appendParams(base, text))
	require.NoError(t, err)
	headerOf(m).Set("Signature-Input", input)
	headerOf(m).Set("Signature", label+"=:"+base64.StdEncoding.EncodeToString(signature)+":")
}

// A profile takes what its protocol says, and what could be used against somebody it refuses.
func TestProfiles(t *testing.T) {
	thumbprint := sign.Must(sign.NewKey(sign.KeyConfig{ID: "-"}, fixture.Private().Ed25519)).Thumbprint()
	key := func(id string) *sign.Key {
		return sign.Must(sign.NewKey(sign.KeyConfig{ID: id, Purpose: "request-signing"}, fixture.Private().Ed25519))
	}
	const (
		agent  = `"signature-agent";key="sig1"`
		wba    = `;created=1700000000;expires=1700000300;keyid="<thumbprint>";tag="web-bot-auth"`
		nonced = `;nonce="n-0123456789abcdef"`
		adcp   = `;created=1700000000;expires=1700000300;nonce="KXYnfEfJ0PBRZXQyVXfVQA";keyid="demo";` +
			`alg="ed25519";tag="adcp/request-signing/v1"`
		target = `"@method" "@target-uri" "@authority"`
		typed  = ` "content-type" "content-digest"`
		ucpGet = `("@method" "@authority" "@path")`
		shop   = `"@method" "@authority" "@path"`
	)
	without := func(from, part string) string { return strings.Replace(from, part, "", 1) }
	nonceOf := func(bytes int) string { return base64.RawURLEncoding.EncodeToString(make([]byte, bytes)) }
	either := AdCP31()
	either.UnsignedBody = true
	for _, c := range []struct {
		profile Config
		name    string
		request string // method, target, body, and a header field, by |
		input   string // of sig1, unless it says another label
		want    error
	}{
		{UCP(), "a GET", "GET|/c||", ucpGet + `;keyid="demo"`, nil},
		{UCP(), "a GET with a query", "GET|/c?x=1||", `("@method" "@authority" "@path" "@query");keyid="demo"`, nil},
		{UCP(), "a HEAD", "HEAD|/c||", ucpGet + `;keyid="demo"`, nil},
		{UCP(), "a type without a body", "GET|/c||Content-Type: text/plain", ucpGet + `;keyid="demo"`, nil},
		{UCP(), "a nonce, which does not count", "GET|/c||", ucpGet + `;nonce="x";keyid="demo"`, nil},
		{UCP(), "a GET whose query is empty, and not covered", "GET|/c?||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a GET whose query is not covered", "GET|/c?x=1||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a POST without a body", "POST|/c||Idempotency-Key: k-1", `(` + shop + ` "idempotency-key");keyid="demo"`, nil},
		{UCP(), "a QUERY", "QUERY|/c||", ucpGet + `;keyid="demo"`, nil},
		{UCP(), "a POST without a key", "POST|/c||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a PUT without a key", "PUT|/c||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a PATCH without a key", "PATCH|/c||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a DELETE without a key", "DELETE|/c||", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a POST whose key is not covered", "POST|/c||Idempotency-Key: k-1", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a GET whose key is not covered", "GET|/c||Idempotency-Key: k-1", ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a body", "POST|/c|{}|Idempotency-Key: k-1", `(` + shop + ` "idempotency-key"` + typed + `);keyid="demo"`, nil},
		{UCP(), "a body without its type", "POST|/c|{}|Idempotency-Key: k-1",
			`(` + shop + ` "idempotency-key" "content-digest");keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a body that has no type", "GET|/c|{}|Content-Type: ",
			`(` + shop + ` "content-digest");keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "a body without a digest", "POST|/c|{}|Idempotency-Key: k-1",
			`(` + shop + ` "idempotency-key" "content-type");keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "no method", "GET|/c||", `("@authority" "@path");keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "no host", "GET|/c||", `("@method" "@path");keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "no key id", "GET|/c||", ucpGet + `;created=1700000000`, sign.CodeMissing},
		{UCP(), "UCP-Agent not covered", `GET|/c||UCP-Agent: profile="https://p.test/ucp"`, ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "UCP-Agent over http", `GET|/c||UCP-Agent: profile="http://p.test/ucp"`,
			`(` + shop + ` "ucp-agent");keyid="demo"`, sign.CodeMalformed},
		{UCP(), "UCP-Agent with two profiles", `GET|/c||UCP-Agent: profile="https://a.test/", profile="https://b.test/"`,
			`(` + shop + ` "ucp-agent");keyid="demo"`, sign.CodeMalformed},
		{UCP(), "Signature-Agent not covered", `GET|/c||Signature-Agent: sig1="https://a.test"`,
			ucpGet + `;keyid="demo"`, sign.ReasonUncovered},
		{UCP(), "created in the window", "GET|/c||", ucpGet + `;created=1700000050;keyid="demo"`, nil},
		{UCP(), "created before the window", "GET|/c||", ucpGet + `;created=1699999900;keyid="demo"`, sign.CodeExpired},
		{UCP(), "expired, without created", "GET|/c||", ucpGet + `;expires=1699999999;keyid="demo"`, sign.CodeExpired},
		{UCP(), "another tag", "GET|/c||", ucpGet + `;keyid="demo";tag="adcp/request-signing/v1"`, sign.CodeInvalid},
		{UCP(), "both", `GET|/c||Signature-Agent: sig1="https://a.test"`, `(` + shop + ` ` + agent + `)` + wba, nil},
		{UCP(), "both, by another key id", `GET|/c||Signature-Agent: sig1="https://a.test"`, `(` + shop + ` ` + agent + `)` +
			strings.Replace(wba, "<thumbprint>", "demo", 1), sign.ReasonBadSignature},
		{UCP(), "both, without expires", `GET|/c||Signature-Agent: sig1="https://a.test"`, `(` + shop + ` ` + agent + `)` +
			without(wba, ";expires=1700000300"), sign.CodeMissing},
		{UCP(), "the least of Web Bot Auth", `GET|/c||Signature-Agent: sig1="https://a.test"`,
			`("@authority" ` + agent + `)` + wba, sign.ReasonUncovered},

		{WebBotAuth(), "the least", `GET|/c?x=1||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` + wba, nil},
		{WebBotAuth(), "@target-uri", `GET|/c?x=1||Signature-Agent: sig1="https://a.test"`, `("@target-uri" ` + agent + `)` + wba, nil},
		{WebBotAuth(), "a GET with a nonce", `GET|/c||Signature-Agent: sig1="https://a.test"`,
			`("@authority" ` + agent + `)` + wba + nonced, nil},
		{WebBotAuth(), "two agents, and one of them is meant", `GET|/c||Signature-Agent: a="http://a.test", sig1="https://b.test"`,
			`("@authority" "signature-agent";key="a" ` + agent + `)` + wba, nil},
		{WebBotAuth(), "a label that was changed", `GET|/c||Signature-Agent: a="https://a.test", sig1="https://b.test"`,
			`("@authority" "signature-agent";key="a")` + wba, nil},
		{WebBotAuth(), "the whole field", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" "signature-agent")` + wba, nil},
		{WebBotAuth(), "a string, as in earlier drafts", `GET|/c||Signature-Agent: "https://a.test"`,
			`("@authority" "signature-agent")` + wba, nil},
		{WebBotAuth(), "no host", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@path" ` + agent + `)` + wba, sign.ReasonUncovered},
		{WebBotAuth(), "no agent", "GET|/c||", `("@authority")` + wba, sign.CodeMissing},
		{WebBotAuth(), "an agent that is not covered", `GET|/c||Signature-Agent: sig1="https://a.test"`,
			`("@authority")` + wba, sign.ReasonUncovered},
		{WebBotAuth(), "two agents, and none of them is meant", `GET|/c||Signature-Agent: a="https://a.test", b="https://b.test"`,
			`("@authority" "signature-agent";key="a" "signature-agent";key="b")` + wba, sign.CodeMalformed},
		{WebBotAuth(), "an agent over http", `GET|/c||Signature-Agent: sig1="http://a.test"`,
			`("@authority" ` + agent + `)` + wba, sign.CodeMalformed},
		{WebBotAuth(), "an agent that is no string", `GET|/c||Signature-Agent: sig1=1`,
			`("@authority" ` + agent + `)` + wba, sign.CodeMalformed},
		{WebBotAuth(), "the URL of a JWK Set", `GET|/c||Signature-Agent: sig1="https://a.test/keys"`,
			`("@authority" ` + agent + `)` + wba, nil},
		{WebBotAuth(), "a member with a parameter", `GET|/c||Signature-Agent: sig1="https://a.test/keys";type=jwks_uri`,
			`("@authority" ` + agent + `)` + wba, sign.CodeMalformed},
		{WebBotAuth(), "the same, in a field that is covered as a whole", `GET|/c||Signature-Agent: sig1="https://a.test/keys";x`,
			`("@authority" "signature-agent")` + wba, sign.CodeMalformed},
		{WebBotAuth(),
			"a member with a parameter, and one that counts", `GET|/c||Signature-Agent: a="https://a.test";x, b="https://b.test"`,
			`("@authority" "signature-agent";key="a" "signature-agent";key="b")` + wba, nil},
		{WebBotAuth(), "a QUERY", `QUERY|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` + wba, nil},
		{WebBotAuthMeunier(), "a directory that is no origin", `GET|/c||Signature-Agent: sig1="https://a.test/keys";type=directory`,
			`("@authority" ` + agent + `)` + wba, sign.CodeInvalid},
		{WebBotAuthMeunier(), "a directory with a query", `GET|/c||Signature-Agent: sig1="https://a.test/?x=1";type=directory`,
			`("@authority" ` + agent + `)` + wba, sign.CodeInvalid},
		{WebBotAuthMeunier(), "a type that is not known", `GET|/c||Signature-Agent: sig1="https://a.test/keys";type=cimd`,
			`("@authority" ` + agent + `)` + wba, sign.CodeInvalid},
		{WebBotAuth(), "no created", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` +
			without(wba, ";created=1700000000"), sign.CodeMissing},
		{WebBotAuth(), "no expires", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` +
			without(wba, ";expires=1700000300"), sign.CodeMissing},
		{WebBotAuth(), "no tag", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` +
			without(wba, `;tag="web-bot-auth"`), sign.CodeMissing},
		{WebBotAuth(), "a key id that is not the thumbprint", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent +
			`)` + strings.Replace(wba, "<thumbprint>", "demo", 1), sign.ReasonBadSignature},
		{WebBotAuth(), "a shared secret", `GET|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent + `)` + wba +
			`;alg="hmac-sha256"`, sign.ReasonWrongAlgorithm},
		{WebBotAuth(), "a GET with a body", `GET|/c|{}|Signature-Agent: sig1="https://a.test"`,
			`("@authority" ` + agent + `)` + wba, sign.ReasonUncovered},
		{WebBotAuth(), "a POST by the least", `POST|/c||Signature-Agent: sig1="https://a.test"`, `("@authority" ` + agent +
			`)` + wba + nonced, sign.ReasonUncovered},
		{WebBotAuth(), "a POST", `POST|/c|{}|Signature-Agent: sig1="https://a.test"`,
			`(` + shop + ` ` + agent + typed + `)` + wba + nonced, nil},
		{WebBotAuth(), "a POST whose type is not covered", `POST|/c|{}|Signature-Agent: sig1="https://a.test"`, `(` + shop + ` ` + agent +
			` "content-digest")` + wba + nonced, sign.ReasonUncovered},
		{WebBotAuth(), "a POST without a nonce", `POST|/c||Signature-Agent: sig1="https://a.test"`,
			`(` + shop + ` ` + agent + `)` + wba, sign.CodeMissing},

		{AdCP(), "a body", "POST|/c|{}|", `(` + target + typed + `)` + adcp, nil},
		{AdCP(), "no body", "GET|/c||", `(` + target + `)` + adcp, nil},
		{AdCP(), "another label", "GET|/c||", `sig2=(` + target + `)` + adcp, sign.CodeMissing},
		{AdCP(), "a path in another spelling", "POST|/x/../%63|{}|", `(` + target + typed + `)` + adcp, nil},
		{AdCP(), "members of one name", `POST|/c|{"a":{"b":1,"c":[{"b":1},{"b":2}],"b":2}}|`,
			`(` + target + typed + `)` + adcp, sign.CodeMalformed},
		{AdCP(), "members of one name, spelled in two ways", `POST|/c|{"idempotency_key":1,"idempotency\u005fkey":2}|`,
			`(` + target + typed + `)` + adcp, sign.CodeMalformed},
		{AdCP(), "values that are alike", `POST|/c|[{"a":"a","b":["a","a"]},{"a":"b"}]|`, `(` + target + typed + `)` + adcp, nil},
		{AdCP(), "no JSON", "POST|/c|{} {}|", `(` + target + typed + `)` + adcp, sign.CodeMalformed},
		{AdCP(), "no JSON, as it says", "POST|/c|text|Content-Type: text/plain", `(` + target + typed + `)` + adcp, sign.CodeMalformed},
		{AdCP(), "half a body", `POST|/c|{"a":[1|`, `(` + target + typed + `)` + adcp, sign.CodeMalformed},
		{AdCP(), "a body that has no type", "POST|/c|{}|Content-Type: ", `(` + target + ` "content-digest")` + adcp, sign.ReasonUncovered},
		{AdCP(), "a body without a digest", "POST|/c|{}|", `(` + target + ` "content-type")` + adcp, sign.ReasonUncovered},
		{AdCP(), "more than 300 s", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "1700000300", "1700000301", 1), sign.CodeMalformed},
		{AdCP(), "5 minutes old", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.NewReplacer("1700000000", "1699999640", "1700000300", "1699999940").Replace(adcp), nil},
		{AdCP(), "older", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.NewReplacer("1700000000", "1699999640", "1700000300", "1699999939").Replace(adcp), sign.CodeExpired},
		{AdCP(), "60 s ahead", "POST|/c|{}|", `(` + target + typed + `)` + strings.Replace(adcp, "1700000000", "1700000060", 1), nil},
		{AdCP(), "61 s ahead", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "1700000000", "1700000061", 1), sign.CodeNotYetValid},
		{AdCP(), "no created", "POST|/c|{}|", `(` + target + typed + `)` + without(adcp, ";created=1700000000"), sign.CodeMissing},
		{AdCP(), "no algorithm", "POST|/c|{}|", `(` + target + typed + `)` + without(adcp, `;alg="ed25519"`), sign.CodeMissing},
		{AdCP(), "a nonce of 96 bytes", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "KXYnfEfJ0PBRZXQyVXfVQA", nonceOf(96), 1), nil},
		{AdCP(), "a nonce of 97 bytes", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "KXYnfEfJ0PBRZXQyVXfVQA", nonceOf(97), 1), sign.CodeMalformed},
		{AdCP(), "a short nonce", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "KXYnfEfJ0PBRZXQyVXfVQA", "KXYnfEfJ0PBRZXQyVXfV", 1), sign.CodeMalformed},
		{AdCP(), "a nonce with padding", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "KXYnfEfJ0PBRZXQyVXfVQA", "KXYnfEfJ0PBRZXQyVXfVQA==", 1), sign.CodeMalformed},
		{AdCP(), "the tag of webhooks", "POST|/c|{}|", `(` + target + typed + `)` +
			strings.Replace(adcp, "request", "webhook", 1), sign.CodeInvalid},
		{AdCP31(), "a body without a digest", "POST|/c|{}|", `(` + target + ` "content-type")` + adcp, sign.ReasonUncovered},
		{either, "an unsigned body", "POST|/c|{}|", `(` + target + ` "content-type")` + adcp, nil},
		{either, "another body than that of the digest", "POST|/c|{}|Content-Digest: " + digestOf("[]"),
			`(` + target + typed + `)` + adcp, sign.ReasonDigestMismatch},
	} {
		t.Run(c.profile.rules.name+"/"+c.name, func(t *testing.T) {
			s := newScheme(t, c.profile)
			part := strings.SplitN(c.request, "|", 4)
			h := http.Header{}
			if part[2] != "" {
				h.Set("Content-Type", "application/json")
				if strings.Contains(c.input, `"content-digest"`) {
					h.Set("Content-Digest", digestOf(part[2]))
				}
			}
			if name, value, ok := strings.Cut(part[3], ": "); ok {
				h.Set(name, value)
				if value == "" {
					h.Del(name)
				}
			}
			m := &sign.Message{Method: part[0], Target: part[1], Host: "api.example.com",
				Source: &fixture.Source{Header: h, Body: []byte(part[2])}}
			input := strings.Replace(c.input, "<thumbprint>", thumbprint, 1)
			if input[0] == '(' {
				input = "sig1=" + input
			}
			signInput(t, s, m, key("demo"), input)
			verifier := fixture.Verifier(sign.Config{Scheme: s, GuardedByKey: true}, key("demo"), key(thumbprint))
			_, err := verifier.Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want)
			if c.want == nil && c.profile.rules != ucp && strings.Contains(c.input, ";nonce=") {
				_, err = verifier.Verify(t.Context(), unread(m))
				require.ErrorIs(t, err, sign.CodeReplayed)
			}
		})
	}
}

// Of several signatures one good one is enough, in any order, also if the others are expired, of a stranger or for somebody else.
func TestSeveralSignatures(t *testing.T) {
	demo := sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, fixture.Private().Ed25519))
	thumb := sign.Must(sign.NewKey(sign.KeyConfig{ID: demo.Thumbprint()}, fixture.Private().Ed25519))
	bot := `;created=1700000000;expires=1700000300;keyid="` + thumb.ID() + `";tag="web-bot-auth";nonce="n-0123456789abcdef"`
	const ucpList = `("@method" "@authority" "@path");keyid="demo"`
	message := func(s *profile, inputs ...string) *sign.Message {
		h := http.Header{"Signature-Agent": {`a="https://a.test/keys"`}}
		if s.rules == ucp {
			h = http.Header{}
		}
		m := &sign.Message{Method: "GET", Target: "/c", Host: "shop.test", Source: &fixture.Source{Header: h}}
		var values []string
		for _, input := range inputs {
			signInput(t, s, m, demo, input)
			value := h.Get("Signature")
			if strings.Contains(input, "stranger") {
				value = strings.Replace(value, "=:", "=:AAAA", 1)
			}
			values = append(values, value)
		}
		h.Set("Signature-Input", strings.Join(inputs, ", "))
		h.Set("Signature", strings.Join(values, ", "))
		return m
	}
	for name, c := range map[string]struct {
		profile Config
		inputs  []string
		want    error
	}{
		"good, and a stranger's": {UCP(), []string{`a=` + ucpList, `b=("@method" "@authority" "@path");keyid="stranger"`}, nil},
		"a stranger's, and good": {UCP(), []string{`b=("@method" "@authority" "@path");keyid="stranger"`, `a=` + ucpList}, nil},
		"too little, and good":   {UCP(), []string{`b=("@authority");keyid="demo"`, `a=` + ucpList}, nil},
		"expired, and good":      {UCP(), []string{`b=` + ucpList + `;created=1600000000`, `a=` + ucpList}, nil},
		"a proxy's, and good":    {UCP(), []string{`b=` + ucpList + `;tag="proxy"`, `a=` + ucpList}, nil},
		"a proxy's, and expired": {UCP(),
			[]string{`b=` + ucpList + `;tag="proxy"`, `a=` + ucpList + `;created=1600000000`}, sign.CodeExpired},
		"two strangers'": {UCP(), []string{`b=("@method" "@authority" "@path");keyid="stranger"`,
			`a=("@method" "@authority" "@path");keyid="stranger-2"`}, sign.ReasonUnknownKey},
		"five": {UCP(),
			[]string{`a=` + ucpList, `b=` + ucpList, `c=` + ucpList, `d=` + ucpList, `e=` + ucpList}, sign.CodeMalformed},
		"a bot's, and a proxy's": {WebBotAuth(),
			[]string{`b=("@authority");keyid="proxy";created=1700000000`, `a=("@authority" "signature-agent";key="a")` + bot}, nil},
		"one label twice": {UCP(), []string{`a=` + ucpList, `a=` + ucpList}, sign.CodeMalformed},
		"two, and one label says": {func() Config { c := UCP(); c.Label = "b"; return c }(),
			[]string{`a=` + ucpList, `b=` + ucpList + `;tag="proxy"`}, sign.CodeInvalid},
		"two in another profile": {Config{},
			[]string{`a=` + strictList + strictParams, `b=` + strictList + strictParams}, sign.CodeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScheme(t, c.profile)
			var m *sign.Message
			if c.profile.rules == nil {
				m = testMessage()
				signByHand(t, s, m, demo, strings.Join(c.inputs, ", "))
			} else {
				m = message(s, c.inputs...)
			}
			var base string
			verifier := fixture.Verifier(sign.Config{Scheme: s, GuardedByKey: true,
				Observe: func(_ context.Context, e sign.Event) { base = e.SigningString() }}, demo, thumb)
			verified, err := verifier.Verify(t.Context(), m)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				return
			}
			require.Contains(t, []string{demo.ID(), thumb.ID()}, verified.KeyID)
			require.Contains(t, base, verified.KeyID, "the signing string is that of the good one")
			if verified.Nonce != "" {
				_, err := verifier.Verify(t.Context(), unread(m))
				require.ErrorIs(t, err, sign.CodeReplayed)
			}
		})
	}
	unreachable := fixture.Verifier(sign.Config{Scheme: newScheme(t, UCP()), GuardedByKey: true, Keys: unreachable{}})
	_, err := unreachable.Verify(t.Context(), message(newScheme(t, UCP()), `b=`+ucpList+`;created=1600000000`, `a=`+ucpList))
	require.ErrorIs(t, err, sign.CodeStoreUnavailable)
}

// unreachable is a store of keys that does not answer.
type unreachable struct{}

func (unreachable) Keys(context.Context, string) ([]*sign.Key, error) {
	return nil, context.DeadlineExceeded
}

// A key of another purpose, or of none, is none of AdCP's, and the one of webhooks signs no request.
func TestPurposes(t *testing.T) {
	for _, c := range []struct {
		profile Config
		purpose string
		want    error
	}{
		{AdCP(), "request-signing", nil},
		{AdCP(), "webhook-signing", sign.ReasonWrongPurpose},
		{AdCP(), "", sign.ReasonWrongPurpose},
		{AdCPWebhooks(), "request-signing", nil},
		{AdCPWebhooks(), "webhook-signing", nil},
		{AdCPWebhooks(), "governance-signing", sign.ReasonWrongPurpose},
	} {
		key := sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo", Purpose: c.purpose}, fixture.Private().ECDSA))
		config := sign.Config{Scheme: newScheme(t, c.profile)}
		r := signtest.NewRequest(t, nil, "https://shop.test/c?x=1", "{}")
		fixture.Sign(t, r, key, sign.RequestOptions{Scheme: config.Scheme})
		require.Contains(t, r.Header.Get("Signature-Input"),
			`("@method" "@target-uri" "@authority" "content-digest" "content-type");created=1700000000;expires=1700000300;`)
		require.Equal(t, c.profile.rules.base64URL, !strings.HasSuffix(r.Header.Get("Signature"), "==:"))
		require.ErrorIs(t, fixture.Verify(t, config, r, key), c.want, c.purpose)
	}
}

// A message does not say which algorithm it is signed by, so the key must be of one that the profile uses.
func TestProfilesUseNoSharedSecrets(t *testing.T) {
	s := newScheme(t, UCP())
	m := &sign.Message{Method: "GET", Target: "/", Host: "shop.test", Source: &fixture.Source{Header: http.Header{}}}
	signInput(t, s, m, signtest.Demo, `sig1=("@method" "@authority" "@path");keyid="demo"`)
	_, err := fixture.Verifier(sign.Config{Scheme: s, GuardedByKey: true}, signtest.Demo).Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
}

// A refusal has AdCP's code and status 401, unless it is no fault of the signature, or of the client.
func TestAdCPAnswers(t *testing.T) {
	message := func(body string) *sign.Message {
		m := &sign.Message{Method: "POST", Target: "/c", Host: "shop.test",
			Source: &fixture.Source{Header: http.Header{}, Body: []byte(body)}}
		signInput(t, newScheme(t, AdCP()), m, signtest.Demo,
			`sig1=("@method" "@target-uri" "@authority");created=1700000000;expires=1700000300;`+
				`nonce="KXYnfEfJ0PBRZXQyVXfVQA";keyid="demo";alg="ed25519";tag="adcp/request-signing/v1"`)
		return m
	}
	elsewhere := message("")
	elsewhere.Host = "other.test"
	for _, c := range []struct {
		config    sign.Config
		m         *sign.Message
		status    int
		challenge []string
	}{
		{sign.Config{}, message(""), 401, []string{`Signature error="request_signature_key_unknown"`}},
		{sign.Config{Keys: unreachable{}}, message(""), 503, []string{`Signature error="request_signature_jwks_unavailable"`}},
		{sign.Config{BodyLimit: 1}, message("{}"), 413, nil},
		{sign.Config{Hosts: []string{"shop.test"}}, elsewhere, 401, []string{`Signature error="request_target_uri_malformed"`}},
		{sign.Config{Refuse: func(context.Context, *sign.Error) *sign.Answer { return &sign.Answer{} }}, message(""), 401,
			[]string{`Signature error="request_signature_key_unknown"`}},
		{sign.Config{Refuse: func(context.Context, *sign.Error) *sign.Answer { return &sign.Answer{Status: 418} }}, message(""), 418,
			[]string{`Signature error="request_signature_key_unknown"`}},
	} {
		c.config.Scheme = newScheme(t, AdCP())
		v := fixture.Verifier(c.config)
		_, err := v.Verify(t.Context(), c.m)
		answer := v.Answer(t.Context(), err)
		require.Equal(t, c.status, answer.Status, err)
		require.Equal(t, c.challenge, answer.Header["Www-Authenticate"])
		if c.config.Refuse == nil {
			require.Contains(t, string(answer.Body), `"status":`+strconv.Itoa(c.status))
		}
	}
}

// An option that would weaken a profile in which it has no meaning is a fault.
func TestProfileOptions(t *testing.T) {
	for field, c := range map[string]Config{"UnsignedContentType": UCP(), "UnsignedBody": AdCP()} {
		c.UnsignedContentType, c.UnsignedBody = field == "UnsignedContentType", field == "UnsignedBody"
		_, err := New(c)
		require.Equal(t, []string{"rfc9421.Config." + field}, fixture.ConfigErrors(t, err))
	}
	_, err := New(Config{UnsignedBody: true})
	require.Equal(t, []string{"rfc9421.Config.UnsignedBody"}, fixture.ConfigErrors(t, err))
}

// Where AdCP's vectors have no case.
func TestCanonicalURL(t *testing.T) {
	for path, want := range map[string]string{"/a/b/..": "/a/", "/a/.": "/a/", "/..": "/", "/a//./b": "/a//b"} {
		require.Equal(t, want, canonicalPath(path), path)
	}
	for host, want := range map[string]string{"Shop.Test.:8443": "shop.test:8443", ".shop.test": "", "shop..test": "", "shop.test..": ""} {
		require.Equal(t, want, canonicalHost(host), host)
	}
}

func TestBase64URL(t *testing.T) {
	for given, want := range map[string]string{
		"sig1=:-_-8:":            "sig1=:+/+8:",
		"sig1=:-_8:":             "sig1=:+/8=:",
		"sig1=:-w:, b=:AA==:":    "sig1=:+w==:, b=:AA==:",
		"sig1=:+_8:":             "sig1=:+_8:", // neither the one nor the other
		"sig1=:-_8=:":            "sig1=:-_8=:",
		"sig1=:AAAAA:":           "sig1=:AAAAA:",
		`sig1=":a-:", sig2=:-w:`: `sig1=":a-:", sig2=:-w:`,
		"sig1=:-w":               "sig1=:-w",
	} {
		require.Equal(t, want, fromBase64URL(given), given)
	}
	require.Equal(t, "sig1=:-_8:", toBase64URL("sig1=:+/8=:"))
}

// What a client cannot sign, its verifier would refuse.
func TestProfilesDoNotSign(t *testing.T) {
	ed := sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, fixture.Private().Ed25519))
	own := sign.Must(sign.NewKey(sign.KeyConfig{ID: ed.Thumbprint()}, fixture.Private().Ed25519))
	for _, c := range []struct {
		name     string
		profile  Config
		key      *sign.Key
		fields   []string
		lifetime time.Duration
		want     error
		url      string
	}{
		{"UCP, a shared secret", UCP(), signtest.Demo, []string{"Idempotency-Key", "k-1"}, 0, sign.ReasonWrongAlgorithm, ""},
		{"UCP, no Idempotency-Key", UCP(), ed, nil, 0, sign.ReasonUncovered, ""},
		{"Web Bot Auth, no agent", WebBotAuth(), own, nil, 0, sign.CodeMissing, ""},
		{"Web Bot Auth, another id", WebBotAuth(), ed, []string{"Signature-Agent", `sig1="https://a.test"`}, 0, sign.CodeInvalid, ""},
		{"AdCP, too long a life", AdCP(), ed, nil, 301 * time.Second, sign.CodeMalformed, ""},
		{"AdCP, RSA", AdCP(), sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, fixture.Private().RSA)),
			nil, 0, sign.ReasonWrongAlgorithm, ""},
		{"AdCP, a zone of IPv6", AdCP(), ed, nil, 0, sign.ReasonBadTarget, "https://[fe80::1%25eth0]/"},
	} {
		r := signtest.NewRequest(t, nil, cmp.Or(c.url, "https://shop.test/c"), "{}", c.fields...)
		err := sign.Request(r, c.key, sign.RequestOptions{Scheme: newScheme(t, c.profile), Lifetime: c.lifetime})
		require.ErrorIs(t, err, c.want, c.name)
	}
}

// The key is looked for where what is signed says, together with its id.
func TestLocate(t *testing.T) {
	key := sign.Must(sign.NewKey(sign.KeyConfig{ID: "-"}, fixture.Private().Ed25519))
	key = sign.Must(sign.NewKey(sign.KeyConfig{ID: key.Thumbprint()}, fixture.Private().Ed25519))
	for _, c := range []struct {
		profile     Config
		field, name string
		want        string
	}{
		{UCP(), "UCP-Agent", `profile="https://p.test/.well-known/ucp"`, "https://p.test/.well-known/ucp"},
		{UCP(), "Signature-Agent", `sig1="https://p.test/ucp";type=jwks_uri`, "https://p.test/ucp"},
		{WebBotAuth(), "Signature-Agent", `sig1="https://a.test:8443"`,
			"https://a.test:8443/.well-known/http-message-signatures-directory"},
		{WebBotAuth(), "Signature-Agent", `x="https://x.test/keys.json?v=1"`, "https://x.test/keys.json?v=1"},
		{WebBotAuth(), "Signature-Agent", `x="https://x.test/keys", sig1="https://a.test/"`,
			"https://a.test/.well-known/http-message-signatures-directory"},
		{WebBotAuthMeunier(), "Signature-Agent", `x="https://x.test";type=jwks_uri`, "https://x.test"},
		{WebBotAuthMeunier(), "Signature-Agent", `x="https://x.test/keys"`, "https://x.test/keys"},
		{WebBotAuthMeunier(), "Signature-Agent", `x="https://x.test";type=jwks_uri, sig1="https://a.test/";type=directory`,
			"https://a.test/.well-known/http-message-signatures-directory"},
	} {
		keys := &located{}
		config := sign.Config{Scheme: newScheme(t, c.profile), Keys: keys, GuardedByKey: true}
		r := signtest.NewRequest(t, nil, "https://shop.test/c", "{}", c.field, c.name, "Idempotency-Key", "k-1")
		fixture.Sign(t, r, key, sign.RequestOptions{Scheme: config.Scheme})
		require.ErrorIs(t, fixture.Verify(t, config, r), sign.ReasonUnknownKey)
		require.Equal(t, &located{sign.KeyStore(nil), c.want, key.ID()}, keys)
	}
}

type located struct {
	sign.KeyStore
	url, id string
}

func (l *located) KeysAt(_ context.Context, url, id string) ([]*sign.Key, error) {
	l.url, l.id = strings.Clone(url), strings.Clone(id)
	return nil, nil
}

// A verifier of UCP must be told that a guard is there. It does not use nonces up: the same message is the same operation.
func TestUCPLeavesReplaysToAGuard(t *testing.T) {
	s, key := newScheme(t, UCP()), sign.Must(sign.NewKey(sign.KeyConfig{ID: "demo"}, fixture.Private().Ed25519))
	config := sign.Config{Scheme: s, Keys: sign.Must(sign.NewRing(key)), Clock: fixture.Clock}
	_, err := sign.NewVerifier(config)
	require.Equal(t, []string{"Config.GuardedByKey"}, fixture.ConfigErrors(t, err))
	config.GuardedByKey = true
	verifier := sign.Must(sign.NewVerifier(config))
	r := signtest.NewRequest(t, nil, "https://shop.test/c", "{}", "Idempotency-Key", "k-1")
	fixture.Sign(t, r, key, sign.RequestOptions{Scheme: s})
	for range 2 {
		verified, err := verifier.Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		require.Equal(t, sign.Verified{KeyID: "demo", Owner: "demo", Scheme: "ucp", Algorithm: sign.Ed25519,
			Time: fixture.Now, EventID: "k-1"}, verified)
	}
	ids := map[string]bool{}
	for _, target := range []string{"/c", "/c?"} {
		r := sign.Must(http.NewRequest("GET", "https://shop.test"+target, nil))
		fixture.Sign(t, r, key, sign.RequestOptions{Scheme: s})
		verified, err := verifier.Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err, target)
		ids[verified.EventID] = true
	}
	require.Len(t, ids, 2, "a GET needs no key, and is an event of its own")
}
