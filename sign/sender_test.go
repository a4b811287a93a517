package sign_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

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
		"docs.github.com, Validating webhook deliveries", sign.GitHub("acme"),
		"It's a Secret to Everybody", "Hello, World!", 0,
		http.Header{"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		"sha256=dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f",
	},
	{
		"docs.slack.dev, Verifying requests from Slack", sign.Slack("acme"),
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
		"github.com/slack-go/slack, security_test.go", sign.Slack("acme"),
		"e6b19c573432dcc6b075501d51b51bb8",
		`{"token":"aF5ynEYQH0dFN9imlgcADxDB","team_id":"XXXXXXXXX","api_app_id":"YYYYYYYYY","event":{"type":"app_mention","user":"AAAAAAAAA","text":"<@EEEEEEEEE> hello world","client_msg_id":"477cc591-ch73-a14z-4db8-g0cd76321bec","ts":"1531431954.000073","channel":"TTTTTTTTT","event_ts":"1531431954.000073"},"type":"event_callback","event_id":"TvBP7LRED7","event_time":1531431954,"authed_users":["EEEEEEEEE"]}`,
		1531431954,
		http.Header{
			"X-Slack-Request-Timestamp": {"1531431954"},
			"X-Slack-Signature":         {"v0=adada4ed31709aef585c2580ca3267678c6a8eaeb7e0c1aca3ee57b656886b2c"},
		},
		"TvBP7LRED7",
	},
	{
		"github.com/sqlpage/SQLPage, the test of its function hmac", sign.Shopify("acme"),
		"test-webhook-secret", `{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}`, 0,
		http.Header{"X-Shopify-Hmac-Sha256": {"QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="}},
		"sha256=",
	},
}

func senderKey(tb testing.TB, secret string) *sign.Key {
	tb.Helper()
	key, err := sign.NewSenderKey(sign.KeyOptions{ID: "acme"}, secret)
	require.NoError(tb, err)
	return key
}

func senderMessage(header http.Header, body string) *sign.Message {
	return &sign.Message{Method: "POST", Target: "/hooks", Host: "shop.test", Source: &fixture.Source{Header: header, Body: []byte(body)}}
}

func senderVerifier(scheme sign.Scheme, at int64, keys ...*sign.Key) *sign.Verifier {
	return sign.Must(sign.NewVerifier(sign.Config{
		Scheme: scheme, Keys: sign.Must(sign.NewRing(keys...)), Clock: func() time.Time { return time.Unix(at, 0) },
	}))
}

func TestSenderVectors(t *testing.T) {
	for _, c := range senderVectors {
		key := senderKey(t, c.secret)
		verified, err := senderVerifier(c.scheme, c.time, key).Verify(t.Context(), senderMessage(c.header, c.body))
		require.NoError(t, err, c.from)
		require.Equal(t, c.scheme.Name(), verified.Scheme)
		require.True(t, strings.HasPrefix(verified.EventID, c.event), "%s: %s", c.from, verified.EventID)

		r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(c.body))
		require.NoError(t, err)
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: c.scheme, Clock: func() time.Time { return time.Unix(c.time, 0) }}))
		require.Equal(t, c.header, r.Header, c.from)
	}
}

// A sender signs with the old secret and with the new one while the secret is being changed. Whoever takes one of the
// signatures out has no other message.
func TestStripeSignsWithSeveralSecrets(t *testing.T) {
	const at = 1700000000
	scheme := sign.Stripe("acme")
	signature := func(key *sign.Key) string {
		r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(senderBody))
		require.NoError(t, err)
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: func() time.Time { return time.Unix(at, 0) }}))
		value, ok := strings.CutPrefix(r.Header.Get("Stripe-Signature"), "t=1700000000,v1=")
		require.True(t, ok)
		return value
	}
	older, newer := senderKey(t, "whsec_the older secret"), senderKey(t, "whsec_the newer secret")
	a, b := signature(older), signature(newer)
	wrong := strings.Repeat("0", 64)
	both := "t=1700000000,v1=" + a + ",v1=" + b + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"

	for _, keys := range [][]*sign.Key{{older}, {newer}, {older, newer}} {
		v := senderVerifier(scheme, at, keys...)
		verified, err := v.Verify(t.Context(), senderMessage(http.Header{"Stripe-Signature": {both}}, senderBody))
		require.NoError(t, err)
		require.Equal(t, "evt_1", verified.EventID)
		require.Equal(t, int64(at), verified.Time.Unix())
		for _, again := range []string{both, "t=1700000000,v1=" + a, "v1=" + b + ",t=1700000000", "t=1700000000,v1=" + wrong + ",v1=" + a} {
			_, err := v.Verify(t.Context(), senderMessage(http.Header{"Stripe-Signature": {again}}, senderBody))
			require.Error(t, err, again)
		}
	}
	for why, c := range map[string]struct {
		field string
		want  sign.Code
	}{
		"another signature":        {"t=1700000000,v1=" + wrong, sign.CodeInvalid},
		"another time":             {"t=1700000001,v1=" + a, sign.CodeInvalid},
		"out of the window":        {"t=1699999000,v1=" + a, sign.CodeExpired},
		"no timestamp":             {"v1=" + a, sign.CodeMissing},
		"no signature known":       {"t=1700000000,v0=" + a, sign.CodeMissing},
		"two timestamps":           {"t=1700000000,t=1700000001,v1=" + a, sign.CodeMalformed},
		"a signed timestamp":       {"t=-1700000000,v1=" + a, sign.CodeMalformed},
		"a zero in front":          {"t=01700000000,v1=" + a, sign.CodeMalformed},
		"capital letters":          {"t=1700000000,v1=" + strings.ToUpper(a), sign.CodeMalformed},
		"a short signature":        {"t=1700000000,v1=" + a[2:], sign.CodeMalformed},
		"an item without a name":   {"t=1700000000,v1=" + a + ",", sign.CodeMalformed},
		"more than can be meant":   {"t=1700000000" + strings.Repeat(",v1="+a, 9), sign.CodeMalformed},
		"blanks":                   {"t=1700000000, v1=" + a, sign.CodeMalformed},
		"the scheme's name missed": {"t=1700000000," + a, sign.CodeMalformed},
	} {
		v := senderVerifier(scheme, at, older)
		_, err := v.Verify(t.Context(), senderMessage(http.Header{"Stripe-Signature": {c.field}}, senderBody))
		require.ErrorIs(t, err, c.want, why)
	}
}

// A redelivery of the same event is verified each time, for the guard to answer it. What nobody signs changes nothing.
func TestSendersRedeliver(t *testing.T) {
	for _, c := range []struct {
		scheme      sign.Scheme
		noTimestamp bool
		event       string
	}{
		{sign.Stripe("acme"), false, "evt_1"},
		{sign.Slack("acme"), false, "Ev08MFMKH6"},
		{sign.GitHub("acme"), true, "sha256=" + sign.NonceOf([]byte(senderBody))},
		{sign.Shopify("acme"), true, "sha256=" + sign.NonceOf([]byte(senderBody))},
	} {
		at := int64(1700000000)
		key := senderKey(t, "whsec_the older secret")
		v := sign.Must(sign.NewVerifier(sign.Config{Scheme: c.scheme, Keys: sign.Must(sign.NewRing(key)), Clock: func() time.Time { return time.Unix(at, 0) }}))
		deliver := func(sent int64) (sign.Verified, error) {
			r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(senderBody))
			require.NoError(t, err)
			r.Header.Set("X-GitHub-Delivery", fmt.Sprint(sent))
			r.Header.Set("X-Shopify-Event-Id", fmt.Sprint(sent))
			require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: c.scheme, Clock: func() time.Time { return time.Unix(sent, 0) }}))
			return v.Verify(t.Context(), fixture.Message(r))
		}
		first, err := deliver(at)
		require.NoError(t, err)
		require.Equal(t, c.event, first.EventID)
		require.Equal(t, c.noTimestamp, first.Time.IsZero())
		require.Equal(t, c.noTimestamp, first.Nonce == "")
		_, err = deliver(at)
		if c.noTimestamp {
			require.NoError(t, err, "%s: a redelivery has the same bytes", c.scheme.Name())
		} else {
			require.ErrorIs(t, err, sign.CodeReplayed, c.scheme.Name())
		}
		at += 7200
		again, err := deliver(at)
		require.NoError(t, err)
		require.Equal(t, first.EventID, again.EventID)
	}
}

// The id of an event stands in the body, at the top level.
func TestEventIDs(t *testing.T) {
	key := senderKey(t, "whsec_the older secret")
	for body, want := range map[string]string{
		`{"id":"evt_1"}`:                 "evt_1",
		` {"id":"evt_1"}`:                "",
		`{"data":{"id":"evt_1"}}`:        "",
		`{"id":17}`:                      "",
		`{"id":""}`:                      "",
		`{"id":"evt_1"`:                  "",
		`[]`:                             "",
		``:                               "",
		`{"id":"` + long(256) + `"}`:     "",
		`{"id":"` + long(255) + `"}`:     long(255),
		`{"id":"` + long(1<<20-9) + `"}`: "",
		`{"id":"evt_1","data":{"id":2}}`: "evt_1",
	} {
		r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: sign.Stripe("acme"), Clock: fixedClock}))
		verified, err := senderVerifier(sign.Stripe("acme"), now.Unix(), key).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		if want == "" {
			want = "sha256=" + sign.NonceOf([]byte(body))
		}
		require.Equal(t, want, verified.EventID)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

func TestSenderKeys(t *testing.T) {
	for secret, fault := range map[string]string{
		"":                         "has 0 bytes; 16 to 256",
		"0123456789abcde":          "has 15 bytes",
		strings.Repeat("ab", 129):  "has 258 bytes",
		strings.Repeat("a", 20):    "repeated",
		"the secret of a file\n":   `ends with white space ("\n")`,
		" \tthe secret of a table": `begins with white space (" \t")`,
	} {
		_, err := sign.NewSenderKey(sign.KeyOptions{ID: "acme"}, secret)
		require.ErrorContains(t, err, fault)
	}
	key := senderKey(t, "It's a Secret to Everybody")
	_, err := key.Sign([]byte("x"))
	require.Error(t, err, "it is too short for other schemes")
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", key, key, key), "Everybody")

	// A key of another kind is no sender's.
	signer, verifier := newEd25519(t)
	r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(senderBody))
	require.NoError(t, err)
	require.ErrorIs(t, sign.Request(r, signer, sign.RequestOptions{Scheme: sign.GitHub("ed")}), sign.ReasonWrongAlgorithm)
	_, err = senderVerifier(sign.GitHub("ed"), 0, verifier).Verify(t.Context(), senderMessage(senderVectors[0].header, senderVectors[0].body))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
}

// A guard lets safe methods pass, and no sender signs the method.
func TestSendersUsePOST(t *testing.T) {
	for _, c := range senderVectors {
		for _, method := range []string{"GET", "HEAD", "PUT", "post"} {
			m := senderMessage(c.header, c.body)
			m.Method = method
			_, err := senderVerifier(c.scheme, c.time, senderKey(t, c.secret)).Verify(t.Context(), m)
			require.ErrorIs(t, err, sign.ReasonUncovered, c.from)
		}
	}
}

// A key under the standard id is found without naming one.
func TestSendersHaveAKeyID(t *testing.T) {
	c := senderVectors[0]
	key, err := sign.NewSenderKey(sign.KeyOptions{ID: "webhooks"}, c.secret)
	require.NoError(t, err)
	verified, err := senderVerifier(sign.GitHub(""), 0, key).Verify(t.Context(), senderMessage(c.header, c.body))
	require.NoError(t, err)
	require.Equal(t, "webhooks", verified.KeyID)
}

// brokenScheme changes what another scheme has found.
type brokenScheme struct {
	sign.Scheme
	change func(*sign.Signature)
}

func (b brokenScheme) Check(m *sign.Message, s *sign.Signature, key *sign.Key) error {
	err := b.Scheme.Check(m, s, key)
	b.change(s)
	return err
}

// A scheme that forgets what tells messages apart lets none through.
func TestSchemesWithoutNonceRefuse(t *testing.T) {
	c := senderVectors[2]
	for _, change := range []func(*sign.Signature){
		func(s *sign.Signature) { s.Nonce = "" },
		func(s *sign.Signature) { s.NoTimestamp, s.EventID = true, "" },
	} {
		v := senderVerifier(brokenScheme{c.scheme, change}, c.time, senderKey(t, c.secret))
		_, err := v.Verify(t.Context(), senderMessage(c.header, c.body))
		require.ErrorIs(t, err, sign.CodeInvalid)
		require.ErrorContains(t, err, "scheme slack has set no")
	}
}

// FuzzSenders sends anything: nothing panics, and nothing that was not signed is accepted.
func FuzzSenders(f *testing.F) {
	schemes := []sign.Scheme{sign.Stripe("acme"), sign.Slack("acme"), sign.GitHub("acme"), sign.Shopify("acme")}
	for i := range schemes {
		f.Add(uint8(i), "t=1700000000,v1="+strings.Repeat("0", 64), "1700000000", "{}")
	}
	f.Add(uint8(1), senderVectors[1].header.Get("X-Slack-Signature"), "1531420618", senderVectors[1].body)
	f.Add(uint8(2), "sha256=", "", "")
	f.Add(uint8(3), "QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw=", "", "\xff")
	key := senderKey(f, "a secret that nobody has signed with")
	f.Fuzz(func(t *testing.T, which uint8, signature, timestamp, body string) {
		scheme := schemes[int(which)%len(schemes)]
		m := senderMessage(http.Header{
			"Stripe-Signature": {signature}, "X-Slack-Signature": {signature}, "X-Slack-Request-Timestamp": {timestamp},
			"X-Hub-Signature-256": {signature}, "X-Shopify-Hmac-Sha256": {signature},
		}, body)
		v := sign.Must(sign.NewVerifier(sign.Config{
			Scheme: scheme, Keys: sign.Must(sign.NewRing(key)), Clock: fixedClock,
			Observe: func(_ context.Context, e sign.Event) { _ = e.SigningString() },
		}))
		_, err := v.Verify(t.Context(), m)
		require.Error(t, err)
		require.NotNil(t, v.Answer(t.Context(), err))
	})
}
