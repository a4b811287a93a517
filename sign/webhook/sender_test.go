package webhook_test

import (
	"cmp"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/webhook"
)

const senderBody = `{"id":"evt_1","event_id":"Ev08MFMKH6","type":"paid","amount":5}`

// senderVectors are what senders and their libraries publish.
var senderVectors = []struct {
	from         string
	scheme       sign.Scheme
	secret, body string
	time         int64
	header       http.Header
	event        string
}{
	{
		"docs.github.com, Validating webhook deliveries", webhook.GitHub("acme"),
		"It's a Secret to Everybody", "Hello, World!", 0,
		http.Header{"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		"sha256=dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f",
	},
	{
		"docs.slack.dev, Verifying requests from Slack", webhook.Slack("acme"),
		"8f742231b10e8888abcd99yyyzzz85a5",
		"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
			"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=" +
			"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
			"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
		1531420618,
		http.Header{
			"X-Slack-Request-Timestamp": {"1531420618"},
			"X-Slack-Signature":         {"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
		},
		"sha256=",
	},
	{
		"github.com/slack-go/slack, security_test.go", webhook.Slack("acme"),
		"e6b19c573432dcc6b075501d51b51bb8",
		`{"token":"aF5ynEYQH0dFN9imlgcADxDB","team_id":"XXXXXXXXX","api_app_id":"YYYYYYYYY","event":{"type":"app_mention",` +
			`"user":"AAAAAAAAA","text":"<@EEEEEEEEE> hello world","client_msg_id":"477cc591-ch73-a14z-4db8-g0cd76321bec",` +
			`"ts":"1531431954.000073","channel":"TTTTTTTTT","event_ts":"1531431954.000073"},"type":"event_callback",` +
			`"event_id":"TvBP7LRED7","event_time":1531431954,"authed_users":["EEEEEEEEE"]}`,
		1531431954,
		http.Header{
			"X-Slack-Request-Timestamp": {"1531431954"},
			"X-Slack-Signature":         {"v0=adada4ed31709aef585c2580ca3267678c6a8eaeb7e0c1aca3ee57b656886b2c"},
		},
		"TvBP7LRED7",
	},
	{
		"github.com/sqlpage/SQLPage, the test of its function hmac", webhook.Shopify("acme"),
		"test-webhook-secret", `{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}`, 0,
		http.Header{"X-Shopify-Hmac-Sha256": {"QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="}},
		"sha256=",
	},
}

func senderKey(secret string) *sign.Key {
	return sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "acme"}, secret))
}

func senderMessage(header http.Header, body string) *sign.Message {
	return &sign.Message{Method: "POST", Target: "/hooks", Host: "shop.test", Source: &fixture.Source{Header: header, Body: []byte(body)}}
}

func senderVerifier(scheme sign.Scheme, at int64, keys ...*sign.Key) *sign.Verifier {
	return fixture.Verifier(sign.Config{Scheme: scheme, Clock: func() time.Time { return time.Unix(at, 0) }}, keys...)
}

// delivery is the POST of body that a sender signs at a time.
func delivery(t *testing.T, scheme sign.Scheme, key *sign.Key, at int64, body string, fields ...string) *http.Request {
	t.Helper()
	return fixture.Sign(t, signtest.NewRequest(t, nil, "http://shop.test/hooks", body, fields...), key, sign.RequestOptions{
		Scheme: scheme, Clock: func() time.Time { return time.Unix(at, 0) },
	})
}

func TestSenderVectors(t *testing.T) {
	for _, c := range senderVectors {
		key := senderKey(c.secret)
		v := senderVerifier(c.scheme, c.time, key)
		verified, err := v.Verify(t.Context(), senderMessage(c.header, c.body))
		require.NoError(t, err, c.from)
		require.Equal(t, c.scheme.Name(), verified.Scheme)
		require.True(t, strings.HasPrefix(verified.EventID, c.event), "%s: %s", c.from, verified.EventID)

		r := delivery(t, c.scheme, key, c.time, c.body)
		r.Header.Del("Content-Type")
		require.Equal(t, c.header, r.Header, c.from)

		// No sender signs the method, a coding or an Idempotency-Key: a guard would go by them.
		for _, change := range []func(*sign.Message){
			func(m *sign.Message) { m.Method = "GET" }, func(m *sign.Message) { m.Method = "PUT" },
			func(m *sign.Message) { m.Method = "post" },
			func(m *sign.Message) { fixture.SourceOf(m).Header.Set("Content-Encoding", "gzip") },
			func(m *sign.Message) { fixture.SourceOf(m).Header.Set("Idempotency-Key", "k-1") },
		} {
			m := senderMessage(c.header.Clone(), c.body)
			change(m)
			_, err := v.Verify(t.Context(), m)
			require.ErrorIs(t, err, sign.ReasonUncovered, c.from)
		}
	}
	c := senderVectors[0]
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "webhooks"}, c.secret))
	verified, err := senderVerifier(webhook.GitHub(""), 0, key).Verify(t.Context(), senderMessage(c.header, c.body))
	require.NoError(t, err)
	require.Equal(t, "webhooks", verified.KeyID, "the id of keys by default")
}

// A sender signs with the old secret and with the new one while the secret is being changed. A message without one of the
// signatures is the same message.
func TestStripeSignsWithSeveralSecrets(t *testing.T) {
	const at = 1700000000
	scheme := webhook.Stripe("acme")
	signature := func(key *sign.Key) string {
		value, ok := strings.CutPrefix(delivery(t, scheme, key, at, senderBody).Header.Get("Stripe-Signature"), "t=1700000000,v1=")
		require.True(t, ok)
		return value
	}
	older, newer := senderKey("whsec_the older secret"), senderKey("whsec_the newer secret")
	a, b := signature(older), signature(newer)
	wrong := strings.Repeat("0", 64)
	both := "t=1700000000,v1=" + a + ",v1=" + b + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
	verify := func(v *sign.Verifier, field string) (sign.Verified, error) {
		return v.Verify(t.Context(), senderMessage(http.Header{"Stripe-Signature": {field}}, senderBody))
	}
	for _, keys := range [][]*sign.Key{{older}, {newer}, {older, newer}} {
		v := senderVerifier(scheme, at, keys...)
		verified, err := verify(v, both)
		require.NoError(t, err)
		require.Equal(t, "evt_1", verified.EventID)
		require.Equal(t, int64(at), verified.Time.Unix())
		for _, again := range []string{both, "t=1700000000,v1=" + a, "v1=" + b + ",t=1700000000", "t=1700000000,v1=" + wrong + ",v1=" + a} {
			_, err := verify(v, again)
			require.Error(t, err, again)
		}
	}
	for why, c := range map[string]struct {
		field string
		want  sign.Code
	}{
		"another signature":        {"t=1700000000,v1=" + wrong, sign.CodeInvalid},
		"another time":             {"t=1700000001,v1=" + a, sign.CodeInvalid},
		"eight signatures":         {"t=1700000000" + strings.Repeat(",v1="+a, 8), ""},
		"out of the window":        {"t=1699999000,v1=" + a, sign.CodeExpired},
		"no timestamp":             {"v1=" + a, sign.CodeMissing},
		"no signature known":       {"t=1700000000,v0=" + a, sign.CodeMissing},
		"two timestamps":           {"t=1700000000,t=1700000001,v1=" + a, sign.CodeMalformed},
		"a signed timestamp":       {"t=-1700000000,v1=" + a, sign.CodeMalformed},
		"a zero in front":          {"t=01700000000,v1=" + a, sign.CodeMalformed},
		"capital letters":          {"t=1700000000,v1=" + strings.ToUpper(a), ""},
		"one that is none, first":  {"t=1700000000,v1=zz,v1=" + a, ""},
		"one that is none, last":   {"t=1700000000,v1=" + a + ",v1=" + a[2:], ""},
		"one that is none, only":   {"t=1700000000,v1=zz", sign.CodeMalformed},
		"one that is none, of two": {"t=1700000000,v1=zz,v1=" + wrong, sign.CodeInvalid},
		"a short signature":        {"t=1700000000,v1=" + a[2:], sign.CodeMalformed},
		"an item without a name":   {"t=1700000000,v1=" + a + ",", sign.CodeMalformed},
		"more than can be meant":   {"t=1700000000" + strings.Repeat(",v1="+a, 9), sign.CodeMalformed},
		"blanks":                   {"t=1700000000, v1=" + a, ""},
		"the scheme's name missed": {"t=1700000000," + a, sign.CodeMalformed},
	} {
		_, err := verify(senderVerifier(scheme, at, older), c.field)
		if c.want == "" {
			require.NoError(t, err, why)
			continue
		}
		require.ErrorIs(t, err, c.want, why)
	}
}

// The id of an event is that of the body's top level.
func TestEventIDs(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for body, want := range map[string]string{
		`{"id":"evt_1"}`:                 "evt_1",
		`{"id":"evt_1","data":{"id":2}}`: "evt_1",
		`{"id":"` + long(255) + `"}`:     long(255),
		`{"id":"` + long(256) + `"}`:     "",
		` {"id":"evt_1"}`:                "",
		`{"data":{"id":"evt_1"}}`:        "",
		`{"id":17}`:                      "",
		`{"id":""}`:                      "",
		`{"id":"evt_1"`:                  "",
		`[]`:                             "",
		``:                               "",
	} {
		key := senderKey("whsec_the older secret")
		sent := fixture.Message(delivery(t, webhook.Stripe("acme"), key, 7, body))
		verified, err := senderVerifier(webhook.Stripe("acme"), 7, key).Verify(t.Context(), sent)
		require.NoError(t, err)
		require.Equal(t, cmp.Or(want, "sha256="+sign.NonceOf([]byte(body))), verified.EventID)
	}
}

// Where a guard stops replays, a webhook that comes again as it is has its answer, and no nonce is used: of each scheme that names
// events. Its time and its signature are checked as ever, and other messages have nonces.
func TestWebhooksGuardedByKey(t *testing.T) {
	const at = 1700000000
	key := senderKey("whsec_a secret of the sender's")
	standard := sign.Must(webhook.NewStandard(webhook.StandardConfig{KeyID: "acme"}))
	standardKey := sign.Must(webhook.NewStandardKey(sign.KeyConfig{ID: "acme"}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	for _, c := range []struct {
		scheme  sign.Scheme
		key     *sign.Key
		guarded bool
		again   error
	}{
		{webhook.Stripe("acme"), key, false, sign.CodeReplayed}, {webhook.Stripe("acme"), key, true, nil},
		{webhook.Slack("acme"), key, true, nil}, {webhook.ACP("acme"), key, true, nil}, {standard, standardKey, true, nil},
		{sign.Must(sign.NewV1(sign.V1Config{})), signtest.Demo, true, sign.CodeReplayed},
	} {
		now := int64(at)
		v := fixture.Verifier(sign.Config{Scheme: c.scheme, GuardedByKey: c.guarded,
			Clock: func() time.Time { return time.Unix(now, 0) }}, c.key)
		r := delivery(t, c.scheme, c.key, at, senderBody)
		_, err := v.Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		verified, err := v.Verify(t.Context(), fixture.Message(r))
		if c.again != nil {
			require.ErrorIs(t, err, c.again, c.scheme.Name())
			continue
		}
		require.NoError(t, err, c.scheme.Name())
		require.NotEmpty(t, verified.EventID)
		require.Empty(t, verified.Nonce)
		require.Equal(t, int64(at), verified.Time.Unix())
		_, err = v.Verify(t.Context(), fixture.Message(delivery(t, c.scheme, c.key, at-61, senderBody)))
		require.ErrorIs(t, err, sign.CodeExpired)
		r.Body = io.NopCloser(strings.NewReader("{}"))
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, sign.ReasonBadSignature)
	}
}

func TestSenderKeys(t *testing.T) {
	for secret, problem := range map[string]string{
		"":                              "has 0 bytes; 16 to 256",
		"0123456789abcde":               "has 15 bytes",
		strings.Repeat("ab", 128) + "c": "has 257 bytes",
		strings.Repeat("a", 20):         "repeated",
		"the secret of a file\n":        `ends with white space ("\n")`,
		" \tthe secret of a table":      `begins with white space (" \t")`,
	} {
		_, err := webhook.NewSenderKey(sign.KeyConfig{ID: "acme"}, secret)
		require.ErrorContains(t, err, problem)
	}
	for _, secret := range []string{"0123456789abcdef", strings.Repeat("ab", 128)} {
		_, err := senderKey(secret).Sign([]byte("x"))
		require.ErrorContains(t, err, "signs nothing else", "it may be too short for other schemes")
	}

	// A key of another kind is not a sender's.
	signer, verifier := fixture.Pair("ed", fixture.Private().Ed25519)
	r := signtest.NewRequest(t, nil, "http://shop.test/hooks", senderBody)
	require.ErrorIs(t, sign.Request(r, signer, sign.RequestOptions{Scheme: webhook.GitHub("ed")}), sign.ReasonWrongAlgorithm)
	sent := senderMessage(senderVectors[0].header, senderVectors[0].body)
	_, err := senderVerifier(webhook.GitHub("ed"), 0, verifier).Verify(t.Context(), sent)
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
}

// ACP's signature is Stripe's, in a field of its own.
func TestACP(t *testing.T) {
	const at, body = 1709123456, `{"type":"order_create","data":{"type":"order","id":"ord_123"}}`
	key := senderKey("the secret of a merchant")
	r := delivery(t, webhook.ACP("acme"), key, at, body)
	value := r.Header.Get("Merchant-Signature")
	require.Regexp(t, `^t=1709123456,v1=[0-9a-f]{64}$`, value)
	require.Equal(t, delivery(t, webhook.Stripe("acme"), key, at, body).Header.Get("Stripe-Signature"), value)
	r.Header.Set("Merchant-Signature", "t=1709123456,v1="+strings.ToUpper(strings.TrimPrefix(value, "t=1709123456,v1=")))
	v := senderVerifier(webhook.ACP("acme"), at, key)
	verified, err := v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	require.Equal(t, "sha256="+sign.NonceOf([]byte(body)), verified.EventID)
	r.Header.Set("Merchant-Signature", value)
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeReplayed, "in another spelling")
}

// FuzzSenders sends anything: nothing panics, and nothing that was not signed is accepted.
func FuzzSenders(f *testing.F) {
	schemes := []sign.Scheme{
		webhook.Stripe("acme"), webhook.Slack("acme"), webhook.GitHub("acme"), webhook.Shopify("acme"),
		sign.Must(webhook.NewStandard(webhook.StandardConfig{KeyID: "acme"})),
	}
	for i := range schemes {
		f.Add(uint8(i), "", "t=1700000000,v1="+strings.Repeat("0", 64), "1700000000", "{}")
	}
	f.Add(uint8(1), "", senderVectors[1].header.Get("X-Slack-Signature"), "1531420618", senderVectors[1].body)
	f.Add(uint8(3), "", "QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw=", "", "\xff")
	f.Add(uint8(4), webhookMessageID, webhookEd25519+" "+webhookHMAC, "1614265330", webhookPayload)
	f.Add(uint8(4), "msg.1", "v1,", "1614265330.", "")
	key := senderKey("a secret that nobody has signed with")
	f.Fuzz(func(t *testing.T, which uint8, id, signature, timestamp, body string) {
		m := senderMessage(http.Header{
			"Stripe-Signature": {signature}, "X-Slack-Signature": {signature}, "X-Slack-Request-Timestamp": {timestamp},
			"X-Hub-Signature-256": {signature}, "X-Shopify-Hmac-Sha256": {signature}, "Webhook-Id": {id}, "Webhook-Timestamp": {timestamp},
			"Webhook-Signature": {signature},
		}, body)
		_, err := fixture.Verifier(sign.Config{Scheme: schemes[int(which)%len(schemes)], Observe: new(fixture.Observer).Observe},
			key).Verify(t.Context(), m)
		require.Error(t, err)
	})
}
