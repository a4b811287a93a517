package interop_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/jwk"
	"github.com/idem-go/idem/sign/rfc9421"
)

// vectors are those of a file in testdata, which says where they are from.
func vectors(t *testing.T, file string) map[string]json.RawMessage {
	t.Helper()
	var all struct{ Files map[string]json.RawMessage }
	read(t, sign.Must(os.ReadFile("testdata/"+file)), &all)
	require.NotEmpty(t, all.Files)
	return all.Files
}

func read(t *testing.T, text []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, into))
}

// adcpVector is a vector of AdCP.
type adcpVector struct {
	Now     int64 `json:"reference_now"`
	Request struct {
		Method, URL, Body string
		Headers           map[string]string
	}
	Capability struct {
		Digest string `json:"covers_content_digest"`
	} `json:"verifier_capability"`
	Keys     []string        `json:"jwks_ref"`
	Override json.RawMessage `json:"jwks_override"`
	Base     string          `json:"expected_signature_base"`
	Expected struct {
		Success bool
		Code    string `json:"error_code"`
	} `json:"expected_outcome"`
}

// message is the request as a server gets it.
func (v *adcpVector) message() *sign.Message {
	_, rest, _ := strings.Cut(v.Request.URL, "://")
	host, target, _ := strings.Cut(rest, "/")
	header := make(http.Header)
	for name, value := range v.Request.Headers {
		header.Set(name, value)
	}
	return &sign.Message{
		Method: v.Request.Method, Target: "/" + target, Host: host,
		Source: &fixture.Source{Header: header, Body: []byte(v.Request.Body)},
	}
}

// ring has the keys that the vector says its verifier has, of the suite's set.
func (v *adcpVector) ring(t *testing.T, set json.RawMessage) *sign.Ring {
	t.Helper()
	ring := new(sign.Ring)
	if v.Override != nil {
		set = v.Override
		var named map[string]json.RawMessage
		if read(t, set, &named); named["keys"] == nil { // by kid
			set = sign.Must(json.Marshal(map[string]any{"keys": slices.Collect(maps.Values(named))}))
		}
	}
	for _, k := range sign.Must(jwk.ParseSet(set, "")) {
		if v.Override != nil || slices.Contains(v.Keys, k.ID()) {
			require.NoError(t, ring.Add(k))
		}
	}
	return ring
}

// adcpNotApplicable are vectors of what this package does not have.
var adcpNotApplicable = map[string]string{
	"request negative/018-digest-covered-when-forbidden.json": "covers_content_digest is never forbidden here",
	"webhook negative/019-revocation-stale.json":              "revocation lists are not polled",
}

func TestAdCPVectors(t *testing.T) {
	for suite, counted := range map[string]string{"request": "43 passed, 1 not applicable", "webhook": "28 passed, 1 not applicable"} {
		passed, not := 0, 0
		files := vectors(t, "adcp-"+suite+"-signing.json")
		for _, file := range slices.Sorted(maps.Keys(files)) {
			if !strings.Contains(file, "/") {
				continue // keys.json, and cases of other kinds
			}
			name := suite + " " + file
			if adcpNotApplicable[name] != "" {
				not++
				continue
			}
			ok := t.Run(name, func(t *testing.T) {
				var v adcpVector
				read(t, files[file], &v)
				c := rfc9421.AdCP31()
				c.UnsignedBody = v.Capability.Digest == "either"
				switch {
				case suite == "webhook":
					c = rfc9421.AdCPWebhooks()
				case strings.HasPrefix(file, "profile-3.2/"):
					c = rfc9421.AdCP()
				}
				var earlier adcpVector // of the same key, for the vectors that want one
				read(t, files["negative/016-replayed-nonce.json"], &earlier)
				runAdCP(t, &v, &earlier, c, v.ring(t, files["keys.json"]))
			})
			if ok {
				passed++
			}
		}
		require.Equal(t, counted, fmt.Sprintf("%d passed, %d not applicable", passed, not), "README.md says so")
	}
}

func runAdCP(t *testing.T, v, earlier *adcpVector, c rfc9421.Config, ring *sign.Ring) {
	var base string
	config := sign.Config{
		Keys: ring, Scheme: sign.Must(rfc9421.New(c)), Clock: func() time.Time { return time.Unix(v.Now, 0) },
		Observe: func(_ context.Context, e sign.Event) { base = e.SigningString() },
	}
	_, code, _ := strings.Cut(v.Expected.Code, "_") // behind request_ or webhook_
	switch code {
	case "signature_key_revoked":
		ring.Revoke(v.Keys[0])
	case "signature_rate_abuse":
		config.NonceQuota = 1
	}
	verifier := sign.Must(sign.NewVerifier(config))
	if code == "signature_replayed" || code == "signature_rate_abuse" {
		_, err := verifier.Verify(t.Context(), earlier.message())
		require.NoError(t, err)
	}
	verified, err := verifier.Verify(t.Context(), v.message())
	if v.Expected.Success {
		require.NoError(t, err)
		require.Equal(t, v.Keys[0], verified.KeyID)
		if v.Base != "" {
			require.Equal(t, v.Base, base)
		}
		return
	}
	answer := verifier.Answer(t.Context(), err)
	require.Equal(t, http.StatusUnauthorized, answer.Status)
	require.Equal(t, []string{`Signature error="` + v.Expected.Code + `"`}, answer.Header["Www-Authenticate"], err)
}

// What a client of this package signs for a URL is what AdCP says. What has no canonical form is refused by a verifier.
func TestAdCPCanonicalURLs(t *testing.T) {
	var set struct {
		Cases []struct {
			Name      string
			URL       string `json:"input_url"`
			Target    string `json:"expected_target_uri"`
			Authority string `json:"expected_authority"`
			Reject    bool
		}
	}
	read(t, vectors(t, "adcp-request-signing.json")["canonicalization.json"], &set)
	c := rfc9421.AdCP()
	c.HTTPS = false // the client knows
	scheme := sign.Must(rfc9421.New(c))
	key, _ := fixture.Pair("demo", fixture.Private().Ed25519)
	passed, not := 0, 0
	for _, tc := range set.Cases {
		if strings.ContainsFunc(tc.URL, func(r rune) bool { return r > 127 }) {
			not++ // clients of this package want the ASCII form of a name
			continue
		}
		passed++
		var v adcpVector
		v.Request.Method, v.Request.URL = "POST", tc.URL
		if tc.Reject {
			m := v.message()
			headers := fixture.Sign(t, sign.Must(http.NewRequest("POST", "https://shop.test/p", nil)), key,
				sign.RequestOptions{Scheme: scheme}).Header
			m.Source = &fixture.Source{Header: headers}
			_, err := fixture.Verifier(sign.Config{Scheme: scheme}, key).Verify(t.Context(), m)
			require.ErrorIs(t, err, sign.CodeMalformed, tc.Name)
			continue
		}
		text := ""
		fixture.Sign(t, sign.Must(http.NewRequest("POST", tc.URL, nil)), key, sign.RequestOptions{
			Scheme: scheme, Observe: func(_ *http.Request, signed string) { text = signed },
		})
		require.Contains(t, text, `"@target-uri": `+tc.Target+"\n"+`"@authority": `+tc.Authority+"\n", tc.Name)
	}
	require.Equal(t, "34 passed, 3 not applicable", fmt.Sprintf("%d passed, %d not applicable", passed, not), "README.md says so")
}

// The vectors of Web Bot Auth: those of the drafts up to -01, and what its reference implementation refuses.
func TestWebBotAuthVectors(t *testing.T) {
	files := vectors(t, "web-bot-auth.json")
	verify := func(t *testing.T, key json.RawMessage, agent, input, signature string, at time.Time) error {
		keys := sign.Must(jwk.ParseSet(slices.Concat([]byte(`{"keys":[`), key, []byte(`]}`)), "agent"))
		require.Len(t, keys, 1)
		// The directory of the draft names a key by its thumbprint.
		var j map[string]any
		read(t, key, &j)
		j["kid"] = keys[0].Thumbprint()
		keys = sign.Must(jwk.ParseSet(sign.Must(json.Marshal(map[string]any{"keys": []any{j}})), "agent"))
		header := http.Header{"Signature-Input": {input}, "Signature": {signature}}
		if agent != "" {
			header.Set("Signature-Agent", agent)
		}
		m := &sign.Message{Method: "GET", Target: "/path/to/resource", Host: "example.com:443", Source: &fixture.Source{Header: header}}
		return func() error {
			_, err := fixture.Verifier(sign.Config{Scheme: sign.Must(rfc9421.New(rfc9421.WebBotAuth())),
				Clock: func() time.Time { return at }}, keys...).Verify(t.Context(), m)
			return err
		}()
	}
	passed, not := 0, 0
	var ed25519Key json.RawMessage
	for _, file := range []string{"web_bot_auth_architecture_v1.json", "web_bot_auth_architecture_v2.json"} {
		var all []struct {
			Key       json.RawMessage
			Created   int64 `json:"created_ms"`
			Signature string
			Input     string `json:"signature_input"`
			Agent     string `json:"signature_agent"`
		}
		read(t, files[file], &all)
		for _, v := range all {
			ed25519Key = v.Key // the last ones have it
			at := time.UnixMilli(v.Created)
			err := verify(t, v.Key, v.Agent, v.Input, v.Signature, at)
			if v.Agent == "" { // dropped from draft -02, which wants a Signature-Agent
				require.ErrorIs(t, err, sign.CodeMissing)
				not++
				continue
			}
			require.NoError(t, err, v.Input)
			passed++
			// The same, tampered with: all the draft's ways to fail.
			late := at.Add(time.Hour + time.Second)
			for want, err := range map[error]error{
				sign.CodeExpired:     verify(t, v.Key, v.Agent, v.Input, v.Signature, late),
				sign.CodeNotYetValid: verify(t, v.Key, v.Agent, v.Input, v.Signature, at.Add(-time.Hour)),
				sign.CodeInvalid: verify(t, v.Key, v.Agent,
					strings.Replace(v.Input, `tag="web-bot-auth"`, `tag="not-web-bot-auth"`, 1), v.Signature, at),
				sign.ReasonBadSignature: verify(t, v.Key, strings.Replace(v.Agent, "signature-agent.test", "other.test", 1),
					v.Input, v.Signature, at),
			} {
				require.ErrorIs(t, err, want, v.Input)
			}
		}
	}
	require.Equal(t, "4 passed, 4 not applicable", fmt.Sprintf("%d passed, %d not applicable", passed, not), "README.md says so")

	// The refusals in crates/web-bot-auth/src/lib.rs (version as in testdata, Apache-2.0).
	const (
		of = `;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=1735693200;` +
			`nonce="gubxywVx7hzbYKatLgzuKDllDAIXAkz41PydU7aOY7vT+Mb3GJNxW0qD4zJ+IOQ1NVtg+BNbTCRUMt1Ojr5BgA=="`
		minimal = `sig1=("@authority");created=1735689600` + of
		value   = "sig1=:uz2SAv+VIemw+Oo890bhYh6Xf5qZdLUgv6/PbiQfCFXcX/vt1A8Pf7OcgL2yUDUYXFtffNpkEr5W6dldqFrkDg==:"
		member  = `sig1=("@authority" "signature-agent";key="agent1");alg="ed25519";keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";` +
			`nonce="ZO3/XMEZjrvSnLtAP9M7jK0WGQf3J+pbmQRUpKDhF9/jsNCWqUh2sq+TH4WTX3/GpNoSZUa8eNWMKqxWp2/c2g==";tag="web-bot-auth";` +
			`created=1749331474;expires=1749331484`
		value1 = "sig1=:3q7S1TtbrFhQhpcZ1gZwHPCFHTvdKXNY1xngkp6lyaqqqv3QZupwpu/wQG5a7qybnrj2vZYMeVKuWepm+rNkDw==:"
	)
	for name, v := range map[string]struct {
		agent, input, signature string
		at                      int64
		want                    error
	}{
		"test_missing_tags_break_web_bot_auth": {"", minimal + `;tag="not-web-bot-auth"`,
			value, 1735689600, sign.CodeInvalid},
		"test_signature_agents_are_required_in_signature_input": {`"https://myexample.com"`, minimal + `;tag="web-bot-auth"`,
			value, 1735689600, sign.ReasonUncovered},
		"test_malformed_signature_agents_are_rejected": {"not a structured field", member,
			value1, 1749331474, sign.CodeMalformed},
		"GHSA-x9cc-346q-g27m: nothing of the request is covered": {`sig1="https://myexample.com"`,
			strings.Replace(member, `"@authority" "signature-agent";key="agent1"`, "", 1), value1, 1749331474, sign.ReasonUncovered},
	} {
		require.ErrorIs(t, verify(t, ed25519Key, v.agent, v.input, v.signature, time.Unix(v.at, 0)), v.want, name)
	}

	var thumbprints []struct{ JWK, Thumbprint string }
	read(t, files["thumbprint.json"], &thumbprints)
	for _, v := range thumbprints {
		var j map[string]any
		read(t, []byte(v.JWK), &j)
		delete(j, "alg") // RS256, which does not verify here
		keys := sign.Must(jwk.ParseSet(sign.Must(json.Marshal(map[string]any{"keys": []any{j}})), ""))
		require.Len(t, keys, 1)
		require.Equal(t, v.Thumbprint, keys[0].Thumbprint())
	}
}

// What the specification of UCP shows (its page Message Signatures at fdcf8934, Apache-2.0): its keys, and its requests,
// whose signatures are cut off there and are made anew here.
func TestUCPExamples(t *testing.T) {
	keys := sign.Must(jwk.ParseSet([]byte(`{"keys":[
		{"kid":"key-2024-01-15","kty":"EC","crv":"P-256","x":"WKn-ZIGevcwGIyyrzFoZNBdaq9_TsqzGl96oc0CWuis","y":"y77t-RvAHRKTsSGdIYUfweuOvwrvDD-Q3Hv5J0fSKbE","use":"sig","alg":"ES256"},
		{"kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U","kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig","alg":"EdDSA"}
	]}`), ""))
	require.Len(t, keys, 2)
	require.Equal(t, keys[1].ID(), keys[1].Thumbprint())

	const platform = `profile="https://platform.example/.well-known/ucp"`
	scheme := sign.Must(rfc9421.New(rfc9421.UCP()))
	// of the second key: RFC 9421, appendix B.1.4
	seed := sign.Must(base64.RawURLEncoding.DecodeString("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"))
	for _, c := range []struct {
		method, path, body string
		fields             map[string]string
		input              string
		key                any
		at                 int64
	}{
		{"POST", "/checkout-sessions", `{"line_items":[]}`,
			map[string]string{"UCP-Agent": platform, "Idempotency-Key": "550e8400-e29b-41d4-a716-446655440000"},
			`("@method" "@authority" "@path" "ucp-agent" "idempotency-key" "content-digest" "content-type");keyid="platform-2026"`,
			fixture.Private().ECDSA, 0},
		{"GET", "/checkout-sessions/chk_123", "", nil, `("@method" "@authority" "@path");keyid="platform-2026"`,
			fixture.Private().ECDSA, 0},
		{"POST", "/mcp", `{"jsonrpc":"2.0","id":1}`,
			map[string]string{"UCP-Agent": platform, "Idempotency-Key": "550e8400-e29b-41d4-a716-446655440000"},
			`("@method" "@authority" "@path" "content-digest" "content-type" "ucp-agent" "idempotency-key");keyid="platform-2026"`,
			fixture.Private().ECDSA, 0},
		{"POST", "/checkout-sessions", `{"line_items":[]}`, map[string]string{
			"UCP-Agent": platform, "Idempotency-Key": "550e8400-e29b-41d4-a716-446655440000",
			"Signature-Agent": `sig1="https://platform.example/.well-known/ucp";type=jwks_uri`,
		}, `("@method" "@authority" "@path" "signature-agent";key="sig1" "ucp-agent" "idempotency-key" "content-digest" "content-type");` +
			`keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";created=1738617600;expires=1738621200;tag="web-bot-auth"`,
			ed25519.NewKeyFromSeed(seed), 1738617600},
	} {
		header := make(http.Header)
		for name, value := range c.fields {
			header.Set(name, value)
		}
		if c.body != "" {
			header.Set("Content-Type", "application/json")
			header.Set("Content-Digest", digestOf(c.body))
		}
		values := map[string]string{
			`"@method"`: c.method, `"@authority"`: "merchant.example.com", `"@path"`: c.path,
			`"signature-agent";key="sig1"`: `"https://platform.example/.well-known/ucp";type=jwks_uri`,
		}
		list, params, _ := strings.Cut(c.input[1:], ")")
		var base strings.Builder
		for _, name := range strings.Fields(list) {
			value, ok := values[name]
			if !ok {
				value = header.Get(strings.Trim(name, `"`))
			}
			fmt.Fprintf(&base, "%s: %s\n", name, value)
		}
		fmt.Fprintf(&base, `"@signature-params": (%s)%s`, list, params)
		_, rest, _ := strings.Cut(params, `keyid="`)
		id, _, _ := strings.Cut(rest, `"`)
		key := sign.Must(sign.NewKey(sign.KeyConfig{ID: id}, c.key))
		header.Set("Signature-Input", "sig1="+c.input)
		header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(sign.Must(key.Sign([]byte(base.String()))))+":")
		m := &sign.Message{Method: c.method, Target: c.path, Host: "merchant.example.com:443",
			Source: &fixture.Source{Header: header, Body: []byte(c.body)}}
		config := sign.Config{Scheme: scheme, GuardedByKey: true, Clock: func() time.Time { return time.Unix(c.at, 0) }}
		_, err := fixture.Verifier(config, key).Verify(t.Context(), m)
		require.NoError(t, err, c.input)
	}
}

// What UCP leaves open, a guard closes: a message that comes again is the same operation.
func TestUCPBehindAGuard(t *testing.T) {
	key, public := fixture.Pair("platform-2026", fixture.Private().ECDSA)
	scheme := sign.Must(rfc9421.New(rfc9421.UCP()))
	verifier := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(public)), Scheme: scheme, GuardedByKey: true}))
	for name, source := range map[string]core.KeySource{"by its key": core.Header(core.Required), "by its event": core.CallerEvent()} {
		guard := sign.Must(core.New(core.Config{})).MustGuard(core.Policy{Key: source, User: core.UserFromCaller()})
		runs := 0
		mux := http.NewServeMux()
		mux.Handle("POST /checkout",
			httpidem.Verify(verifier)(httpidem.New(guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))))
		r := newRequest(t, serve(t, mux)+"/checkout")
		r.Header.Set("Idempotency-Key", "550e8400-e29b-41d4-a716-446655440000")
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: scheme}))
		for range 3 {
			status, code := send(t, r, body)
			require.Equal(t, 200, status, code)
		}
		require.Equal(t, 1, runs, name)
	}
}
