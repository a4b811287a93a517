package sign_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/sortedparams"
)

// What the reference libraries sign in their tests
// (https://github.com/standard-webhooks/standard-webhooks, libraries/go).
const (
	webhookSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhookPrivate = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
	// The public key that belongs to it, by OpenSSL.
	webhookPublic    = "whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g="
	webhookMessageID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	webhookPayload   = `{"test": 2432232314}`
	webhookHMAC      = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	webhookEd25519   = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
)

var webhookTime = time.Unix(1614265330, 0)

func webhookKey(tb testing.TB, secret string) *sign.Key {
	tb.Helper()
	key, err := sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks"}, secret)
	require.NoError(tb, err)
	return key
}

func webhookScheme(tb testing.TB, o sign.StandardWebhooksOptions) sign.Scheme {
	tb.Helper()
	s, err := sign.NewStandardWebhooks(o)
	require.NoError(tb, err)
	return s
}

// webhookVerifier has a clock that can be set, and the keys.
func webhookVerifier(tb testing.TB, at *time.Time, o sign.StandardWebhooksOptions, keys ...*sign.Key) *sign.Verifier {
	tb.Helper()
	return sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(keys...)), Scheme: webhookScheme(tb, o), Clock: func() time.Time { return *at },
	}))
}

// webhookDelivery is the reference message, signed by key at webhookTime.
func webhookDelivery(tb testing.TB, o sign.StandardWebhooksOptions, key *sign.Key) *http.Request {
	tb.Helper()
	r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(webhookPayload))
	require.NoError(tb, err)
	r.Header.Set("Content-Type", "application/json")
	name := o.ID
	if name == "" {
		name = "Webhook-Id"
	}
	r.Header.Set(name, webhookMessageID)
	require.NoError(tb, sign.Request(r, key, sign.RequestOptions{
		Scheme: webhookScheme(tb, o), Clock: func() time.Time { return webhookTime },
	}))
	return r
}

func TestWebhookVectors(t *testing.T) {
	for _, c := range []struct{ secret, signature string }{
		{webhookSecret, webhookHMAC},
		{webhookPrivate, webhookEd25519},
	} {
		key := webhookKey(t, c.secret)
		r := webhookDelivery(t, sign.StandardWebhooksOptions{}, key)
		require.Equal(t, webhookMessageID, r.Header.Get("webhook-id"))
		require.Equal(t, "1614265330", r.Header.Get("webhook-timestamp"))
		require.Equal(t, c.signature, r.Header.Get("webhook-signature"))

		at := webhookTime
		v := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key)
		verified, err := v.Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		require.Equal(t, sign.Verified{
			KeyID: "webhooks", Owner: "webhooks", Scheme: "standard-webhooks", Algorithm: key.Algorithm(), Time: webhookTime,
			Nonce: webhookMessageID + ".1614265330", EventID: webhookMessageID,
		}, verified)
	}
}

// The secrets are those of the reference libraries, and keys do not depend on how they are written.
func TestWebhookKeys(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	require.NoError(t, err)
	require.Len(t, secret, 24, "the shortest secret of the specification, and shorter than 32")
	_, err = sign.NewHMACKey(sign.KeyOptions{ID: "webhooks"}, secret)
	require.ErrorContains(t, err, "at least 32")

	seed := []byte("TESTSIGNINGKEYDONOTUSETHISFORANY")
	require.Equal(t, "whsk_"+base64.StdEncoding.EncodeToString(seed), webhookPrivate)
	private := webhookKey(t, webhookPrivate)
	require.Equal(t, sign.Ed25519, private.Algorithm())

	for _, c := range []struct{ why, secret, fault string }{
		{"no secret", "", "has 0 bytes; 16 to 64"},
		{"case counts", "WHSEC_" + strings.TrimPrefix(webhookSecret, "whsec_"), "begins with something else"},
		{"nothing behind the prefix", "whsec_", "has 0 bytes; 16 to 64"},
		{"too short", "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcde")), "has 15 bytes"},
		{"too short, without the prefix", base64.StdEncoding.EncodeToString([]byte("0123456789abcde")), "has 15 bytes"},
		{"something else than base64", "my secret of the year 2026", "not base64"},
		{"too long", "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("0123456789abc", 5))), "has 65 bytes"},
		{"one byte repeated", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)), "repeated"},
		{"the end of a file", webhookSecret + "\r\n", `ends with white space ("\r\n")`},
		{"another line", webhookSecret[:20] + "\n" + webhookSecret[20:], "not base64"},
		{"the alphabet of URLs", "whsec_" + strings.Repeat("-_", 16), "not base64"},
		{"hexadecimal digits are base64, too, but of another length", "whpk_" + strings.Repeat("0123456789abcdef", 4), "has 48 bytes; a public key has 32"},
		{"the seed alone is no public key's length when it is cut", "whpk_" + base64.StdEncoding.EncodeToString(seed[:31]), "has 31 bytes"},
		{"a private key that is cut", "whsk_" + base64.StdEncoding.EncodeToString(seed[:31]), "has 31 bytes; a private key has 32 or 64"},
		{"seed and public key that do not belong together", "whsk_" + base64.StdEncoding.EncodeToString(append(seed, make([]byte, 32)...)), "does not belong"},
	} {
		_, err := sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks"}, c.secret)
		require.ErrorContains(t, err, c.fault, c.why)
		if text := strings.TrimPrefix(c.secret, "whsec_"); len(text) > 4 {
			require.NotContains(t, err.Error(), text, "the secret must not be in the error")
		}
	}
	_, err = sign.NewStandardWebhooksKey(sign.KeyOptions{ID: ""}, webhookSecret)
	require.ErrorContains(t, err, "KeyOptions.ID")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.NotContains(t, fmt.Sprintf(verb, webhookKey(t, webhookSecret)), "secret")
		require.NotContains(t, fmt.Sprintf(verb, webhookKey(t, webhookSecret)), fmt.Sprintf("%x", secret))
	}
}

// Ids with full stops, and secrets that are short or have no prefix, as Svix and the libraries of the specification
// have them.
func TestWebhooksInTheWild(t *testing.T) {
	for _, c := range []struct{ secret, id string }{
		{"whsec_" + base64.StdEncoding.EncodeToString([]byte("eighteen bytes 18b")), "msg_1"},
		{strings.TrimPrefix(webhookSecret, "whsec_"), "order.created.17"},
		{webhookSecret, "evt.2026-11-22.1700000000000"},
		{webhookSecret, "evt.0123456789"},
		{webhookSecret, "1614265330.a."},
	} {
		key := webhookKey(t, c.secret)
		r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(webhookPayload))
		require.NoError(t, err)
		r.Header.Set("webhook-id", c.id)
		at := webhookTime
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{
			Scheme: webhookScheme(t, sign.StandardWebhooksOptions{}), Clock: func() time.Time { return at },
		}))
		verified, err := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err, c.id)
		require.Equal(t, c.id+".1614265330", verified.Nonce)
	}
}

// A message whose body begins with a timestamp is also the text of another message, which has a longer id.
func TestAWebhookIsOneMessage(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	r, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader("1614265331."+webhookPayload))
	require.NoError(t, err)
	at := webhookTime
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{
		Scheme: webhookScheme(t, sign.StandardWebhooksOptions{}), Clock: func() time.Time { return at },
	}))
	setHeader("webhook-id", r.Header.Get("webhook-id")+".1614265330")(r)
	setHeader("webhook-timestamp", "1614265331")(r)
	replaceBody(webhookPayload)(r)
	_, err = webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeMalformed)
}

// A private key in each of its forms signs what the public key verifies.
func TestWebhookKeyPair(t *testing.T) {
	public := webhookKey(t, webhookPublic)
	seed, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookPrivate, "whsk_"))
	require.NoError(t, err)
	rest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookPublic, "whpk_"))
	require.NoError(t, err)
	for _, secret := range []string{webhookPrivate, "whsk_" + base64.StdEncoding.EncodeToString(append(seed, rest...))} {
		r := webhookDelivery(t, sign.StandardWebhooksOptions{}, webhookKey(t, secret))
		require.Equal(t, webhookEd25519, r.Header.Get("webhook-signature"))
		at := webhookTime
		_, err := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, public).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
	}
	r, err := http.NewRequest("POST", "http://shop.test/hooks", nil)
	require.NoError(t, err)
	require.ErrorContains(t, sign.Request(r, public, sign.RequestOptions{Scheme: webhookScheme(t, sign.StandardWebhooksOptions{})}), "verify only")
}

// Keys of webhooks may be short: no other scheme takes them. Other keys are good for webhooks.
func TestWebhookKeysAreForWebhooks(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	sorted, err := sortedparams.New(sortedparams.Options{})
	require.NoError(t, err)
	for _, scheme := range []sign.Scheme{nil, sorted} {
		r, err := http.NewRequest("POST", "http://shop.test/?a=1", nil)
		require.NoError(t, err)
		require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{Scheme: scheme}), sign.ReasonWrongAlgorithm)

		good := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: key.ID()}, []byte(designSecret)))
		require.NoError(t, sign.Request(r, good, sign.RequestOptions{Scheme: scheme, Clock: fixedClock}))
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock}))
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
	}

	o := sign.StandardWebhooksOptions{KeyID: "demo"}
	long := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(designSecret)))
	at := webhookTime
	_, err = webhookVerifier(t, &at, o, long).Verify(t.Context(), fixture.Message(webhookDelivery(t, o, long)))
	require.NoError(t, err)
	rsa := newRSA(t)
	_, err = webhookVerifier(t, &at, sign.StandardWebhooksOptions{KeyID: rsa.ID()}, rsa).Verify(t.Context(), fixture.Message(webhookDelivery(t, o, long)))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm, "an RSA key has no version")
}

// Each row changes a good delivery, and says why that must be refused, or must not.
var webhookAttacks = []struct {
	name, why string
	change    func(r *http.Request)
	want      error // nil: it is accepted
}{
	{"untouched", "the row that shows that the others are refused for what they change", func(*http.Request) {}, nil},
	{"body: one byte", "the body is signed", replaceBody(strings.Replace(webhookPayload, "4", "5", 1)), sign.ReasonBadSignature},
	{"body: one more space", "it is signed byte by byte, not as JSON", replaceBody(webhookPayload + " "), sign.ReasonBadSignature},
	{"body: empty", "the signature of something is not that of nothing", replaceBody(""), sign.ReasonBadSignature},
	{"id: another", "the id is the idempotency key: another one would handle the event twice", setHeader("webhook-id", webhookMessageID+"x"), sign.ReasonBadSignature},
	{"id: in capitals", "it is compared byte by byte", setHeader("webhook-id", strings.ToUpper(webhookMessageID)), sign.ReasonBadSignature},
	{"id: missing", "there is no nonce without it", setHeader("webhook-id", ""), sign.CodeMissing},
	{"id: twice", "a guard might take the one that was not signed", addHeader("webhook-id", webhookMessageID), sign.CodeDuplicateHeader},
	{"id: a timestamp behind a full stop", "two messages would have one text", setHeader("webhook-id", "msg.1614265330"), sign.CodeMalformed},
	{"id: a timestamp between full stops", "as above", setHeader("webhook-id", "msg.1.1614265330.x"), sign.CodeMalformed},
	{"id: too long", "nonces are kept, and must be bounded", setHeader("webhook-id", strings.Repeat("m", 129)), sign.CodeMalformed},
	{"id: blank within", "visible ASCII only", setHeader("webhook-id", "msg 1"), sign.CodeMalformed},
	{"id: control character", "it would get into logs and stores", setHeader("webhook-id", "msg\x001"), sign.CodeMalformed},
	{"id: quoted", "a guard takes \"a\" and a for one key, and quotes could begin another scheme's text", setHeader("webhook-id", `"msg"`), sign.CodeMalformed},
	{"id: comma", "a guard takes it for a list of keys, and refuses when the nonce is used up", setHeader("webhook-id", "msg,1"), sign.CodeMalformed},
	{"id: not ASCII", "two encodings look the same", setHeader("webhook-id", "müsg"), sign.CodeMalformed},
	{"id and timestamp: shifted", "what stood in the timestamp is the id's: msg.1614265330 at 0, say", func(r *http.Request) {
		r.Header.Set("webhook-id", webhookMessageID+".1614265330")
		replaceBody(strings.TrimPrefix(webhookPayload, "{"))(r)
	}, sign.CodeMalformed},
	{"timestamp: another, in the window", "it is signed", setHeader("webhook-timestamp", "1614265331"), sign.ReasonBadSignature},
	{"timestamp: too old", "first of all, time", setHeader("webhook-timestamp", "1614265269"), sign.CodeExpired},
	{"timestamp: too new", "in either direction", setHeader("webhook-timestamp", "1614265391"), sign.CodeNotYetValid},
	{"timestamp: missing", "without one it would be good for ever", setHeader("webhook-timestamp", ""), sign.CodeMissing},
	{"timestamp: twice", "which one?", addHeader("webhook-timestamp", "1614265330"), sign.CodeDuplicateHeader},
	{"timestamp: leading zero", "one text for one time: it is part of the nonce", setHeader("webhook-timestamp", "01614265330"), sign.CodeMalformed},
	{"timestamp: a fraction", "a full stop would move the delimiter", setHeader("webhook-timestamp", "1614265330.0"), sign.CodeMalformed},
	{"timestamp: sign", "digits only", setHeader("webhook-timestamp", "+1614265330"), sign.CodeMalformed},
	{"signature: missing", "nothing to verify", setHeader("webhook-signature", ""), sign.CodeMissing},
	{"signature: twice", "a list is one line", addHeader("webhook-signature", webhookHMAC), sign.CodeDuplicateHeader},
	{"signature: all zero", "no value of a signature is special", setHeader("webhook-signature", "v1,"+strings.Repeat("A", 43)+"="), sign.ReasonBadSignature},
	{"signature: one bit", "all of it counts", setHeader("webhook-signature", strings.Replace(webhookHMAC, "g0h", "h0h", 1)), sign.ReasonBadSignature},
	{"signature: truncated", "a prefix is not enough", setHeader("webhook-signature", webhookHMAC[:24]), sign.CodeMalformed},
	{"signature: extended", "nor is more than enough", setHeader("webhook-signature", webhookHMAC+"AAAA"), sign.CodeMalformed},
	{"signature: without padding", "one text for one signature", setHeader("webhook-signature", strings.TrimRight(webhookHMAC, "=")), sign.CodeMalformed},
	{"signature: stray bits", "the bits that base64 has over must be zero: one text for one signature", setHeader("webhook-signature", strings.Replace(webhookHMAC, "OE=", "OF=", 1)), sign.CodeMalformed},
	{"signature: a line feed within", "base64 decoders pass over it", setHeader("webhook-signature", webhookHMAC[:10]+"\n"+webhookHMAC[10:]), sign.CodeMalformed},
	{"signature: base64url", "another alphabet is another encoding", setHeader("webhook-signature", strings.NewReplacer("+", "-", "/", "_").Replace(webhookHMAC)), sign.CodeMalformed},
	{"signature: hexadecimal", "another encoding", setHeader("webhook-signature", "v1,83484cf52b04f8e4cf2531adfed9882ad4b2665137b852442d594d20e2c9d4e1"), sign.CodeMalformed},
	{"signature: no version", "which algorithm it is must be said", setHeader("webhook-signature", strings.TrimPrefix(webhookHMAC, "v1,")), sign.CodeMalformed},
	{"signature: no value", "a version alone is no signature", setHeader("webhook-signature", "v1,"), sign.CodeMalformed},
	{"signature: v1 said to be v1a", "the key decides, and the lengths must be right", setHeader("webhook-signature", strings.Replace(webhookHMAC, "v1", "v1a", 1)), sign.CodeMalformed},
	{"signature: in capitals", "versions are exact: V1 is another one, which is not known", setHeader("webhook-signature", strings.Replace(webhookHMAC, "v1", "V1", 1)), sign.ReasonWrongAlgorithm},
	{"signature: Ed25519 for an HMAC key", "the message cannot choose the algorithm", setHeader("webhook-signature", webhookEd25519), sign.ReasonWrongAlgorithm},
	{"signature: of a version to come", "what is not known proves nothing", setHeader("webhook-signature", "v2,"+strings.Repeat("A", 44)), sign.ReasonWrongAlgorithm},
	{"list: a good one among others", "a sender that changes its secret signs with both", setHeader("webhook-signature", "v2,x v1,"+strings.Repeat("A", 43)+"= "+webhookHMAC+" "+webhookEd25519), nil},
	{"list: eight", "the last of eight is looked at", setHeader("webhook-signature", strings.Repeat("v2,x ", 7)+webhookHMAC), nil},
	{"list: nine", "each costs a comparison or a verification", setHeader("webhook-signature", strings.Repeat("v2,x ", 8)+webhookHMAC), sign.CodeMalformed},
	{"list: a bad one beside a good one", "what is malformed is not read half", setHeader("webhook-signature", webhookHMAC+" v1,AAAA"), sign.CodeMalformed},
	{"list: a version alone", "nor is what has no value", setHeader("webhook-signature", "v2, "+webhookHMAC), sign.CodeMalformed},
	{"list: two blanks", "one separator", setHeader("webhook-signature", webhookHMAC+"  "+webhookHMAC), sign.CodeMalformed},
	{"list: commas", "one separator", setHeader("webhook-signature", webhookHMAC+","+webhookHMAC), sign.CodeMalformed},
	{"Idempotency-Key", "it looks as if it counted, and anybody on the way can change it", setHeader("Idempotency-Key", `"k-1"`), sign.ReasonUncovered},
	{"Idempotency-Key twice", "said before it is looked at what is signed", func(r *http.Request) {
		r.Header["Idempotency-Key"] = []string{"a", "b"}
	}, sign.CodeDuplicateHeader},
	{"Content-Encoding", "the handler would get another body than the one that was signed", setHeader("Content-Encoding", "gzip"), sign.ReasonUncovered},
	{"path", "NOT signed: a key for each endpoint", func(r *http.Request) { r.URL.Path = "/other" }, nil},
	{"method", "it is not signed, and a guard would take PUT for another operation", func(r *http.Request) { r.Method = "PUT" }, sign.ReasonUncovered},
	{"Content-Type", "NOT signed", setHeader("Content-Type", "text/plain"), nil},
}

func replaceBody(body string) func(*http.Request) {
	return func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body)) }
}

func setHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func addHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func TestWebhookAttacks(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	for _, c := range webhookAttacks {
		t.Run(c.name, func(t *testing.T) {
			r := webhookDelivery(t, sign.StandardWebhooksOptions{}, key)
			c.change(r)
			at := webhookTime
			v := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key)
			_, err := v.Verify(t.Context(), fixture.Message(r))
			if c.want == nil {
				require.NoError(t, err, c.why)
				return
			}
			require.ErrorIs(t, err, c.want, c.why)
			_, err = v.Verify(t.Context(), fixture.Message(webhookDelivery(t, sign.StandardWebhooksOptions{}, key)))
			require.NoError(t, err, "the good delivery's nonce must not have been used up")
		})
	}
}

// No id, time and body can be taken for other ones: the signed texts differ.
func TestWebhookTextsAreUnlike(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	scheme := webhookScheme(t, sign.StandardWebhooksOptions{})
	signature := func(rt *rapid.T, label string) (parts [3]string, signature string) {
		parts = [3]string{
			rapid.StringMatching(`[a1_]{1,3}`).Draw(rt, label+" id"),
			fmt.Sprint(rapid.Int64Range(0, 12).Draw(rt, label+" time")),
			rapid.StringMatching(`[a1.]{0,3}`).Draw(rt, label+" body"),
		}
		r, err := http.NewRequest("POST", "http://shop.test/", strings.NewReader(parts[2]))
		require.NoError(rt, err)
		r.Header.Set("webhook-id", parts[0])
		seconds, err := sign.ParseTimestamp(parts[1])
		require.NoError(rt, err)
		require.NoError(rt, sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: func() time.Time { return time.Unix(seconds, 0) }}))
		return parts, r.Header.Get("webhook-signature")
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, first := signature(rt, "first")
		b, second := signature(rt, "second")
		require.Equal(rt, a == b, first == second, "%q and %q", a, b)
	})
}

// Whatever is sent arrives, and cannot be sent again.
func TestWebhookRoundTrip(t *testing.T) {
	keys := []*sign.Key{webhookKey(t, webhookSecret), webhookKey(t, webhookPrivate)}
	rapid.Check(t, func(rt *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
		id := rapid.StringMatching("[!#$%&'*+\\-/0-9:=A-Z^_`a-z|~]{0,128}").Draw(rt, "id") // empty: made by the scheme
		key := rapid.SampledFrom(keys).Draw(rt, "key")
		r, err := http.NewRequest("POST", "http://shop.test/", strings.NewReader(string(body)))
		require.NoError(rt, err)
		if id != "" {
			r.Header.Set("webhook-id", id)
		}
		require.NoError(rt, sign.Request(r, key, sign.RequestOptions{Scheme: webhookScheme(t, sign.StandardWebhooksOptions{}), Clock: fixedClock}))
		at := now
		v := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key)
		verified, err := v.Verify(t.Context(), fixture.Message(r))
		require.NoError(rt, err)
		require.Equal(rt, r.Header.Get("webhook-id")+".1700000000", verified.Nonce)
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.ErrorIs(rt, err, sign.CodeReplayed)
	})
}

// A delivery that is tried again has the same id and a new timestamp: it is no replay. The same one again
// is.
func TestWebhookDeliveryTriedAgain(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	at := webhookTime
	v := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key)
	first := webhookDelivery(t, sign.StandardWebhooksOptions{}, key)
	_, err := v.Verify(t.Context(), fixture.Message(first))
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), fixture.Message(first))
	require.ErrorIs(t, err, sign.CodeReplayed)

	at = at.Add(5 * time.Second) // as the specification's example of a schedule has it
	again, err := http.NewRequest("POST", "http://shop.test/hooks", strings.NewReader(webhookPayload))
	require.NoError(t, err)
	again.Header.Set("webhook-id", webhookMessageID)
	require.NoError(t, sign.Request(again, key, sign.RequestOptions{Scheme: webhookScheme(t, sign.StandardWebhooksOptions{}), Clock: func() time.Time { return at }}))
	_, err = v.Verify(t.Context(), fixture.Message(again))
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), fixture.Message(first))
	require.ErrorIs(t, err, sign.CodeReplayed)
	at = webhookTime.Add(61 * time.Second)
	_, err = v.Verify(t.Context(), fixture.Message(first))
	require.ErrorIs(t, err, sign.CodeExpired)
}

// Both ways to change a secret: the receiver knows both for a while, or the sender signs with both.
func TestWebhookRotation(t *testing.T) {
	old, next := webhookKey(t, webhookSecret), webhookKey(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte("the secret of the next year, and on")))
	public, private := webhookKey(t, webhookPublic), webhookKey(t, webhookPrivate)
	at := webhookTime
	deliver := func(o sign.StandardWebhooksOptions, by *sign.Key, known ...*sign.Key) error {
		_, err := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, known...).Verify(t.Context(), fixture.Message(webhookDelivery(t, o, by)))
		return err
	}
	none, both := sign.StandardWebhooksOptions{}, sign.StandardWebhooksOptions{AlsoSign: []*sign.Key{old}}

	require.NoError(t, deliver(none, old, old, next))
	require.NoError(t, deliver(none, next, old, next))
	require.NoError(t, deliver(none, private, old, public), "from HMAC to Ed25519")
	require.ErrorIs(t, deliver(none, next, old), sign.ReasonBadSignature)
	require.NoError(t, deliver(both, next, old))
	require.NoError(t, deliver(both, next, next))
	require.NoError(t, deliver(both, private, old))
	require.NoError(t, deliver(both, private, public))
	require.ErrorIs(t, deliver(both, old, next), sign.ReasonBadSignature)

	ended := sign.Must(sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks", ValidUntil: webhookTime}, webhookSecret))
	require.NoError(t, deliver(none, next, ended, next))
	require.ErrorIs(t, deliver(none, old, ended, next), sign.ReasonBadSignature)
	require.ErrorIs(t, deliver(none, old, ended), sign.ReasonKeyExpired)
	require.ErrorIs(t, deliver(none, old), sign.ReasonUnknownKey)

	ring := sign.Must(sign.NewRing(old))
	ring.Revoke("webhooks")
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Scheme: webhookScheme(t, none), Clock: func() time.Time { return at }}))
	_, err := v.Verify(t.Context(), fixture.Message(webhookDelivery(t, none, old)))
	require.ErrorIs(t, err, sign.ReasonRevokedKey)
}

// Of eight keys and eight signatures there are 64 pairs, and whoever sends a message chooses the signatures: 16
// pairs are tried.
func TestWebhookTries(t *testing.T) {
	var secrets []string
	var keys []*sign.Key
	for range 8 {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		secrets = append(secrets, "whsec_"+base64.StdEncoding.EncodeToString(secret))
		keys = append(keys, webhookKey(t, secrets[len(secrets)-1]))
	}
	// The pairs of the sixth key are those from the 16th on, if there are three signatures.
	delivery := func(place int) *sign.Message {
		r := webhookDelivery(t, sign.StandardWebhooksOptions{}, keys[5])
		list := slices.Repeat([]string{"v1," + strings.Repeat("A", 43) + "="}, 3)
		list[place-16] = r.Header.Get("webhook-signature")
		r.Header.Set("webhook-signature", strings.Join(list, " "))
		return fixture.Message(r)
	}
	at := webhookTime
	for place, want := range map[int]error{16: nil, 17: sign.ReasonBadSignature, 18: sign.ReasonBadSignature} {
		_, err := webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, keys...).Verify(t.Context(), delivery(place))
		require.ErrorIs(t, err, want, "pair %d", place)
	}

	// When the keys are looked up again behind a slow body, and were made anew, the pairs are counted anew.
	v := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: webhookScheme(t, sign.StandardWebhooksOptions{}), Clock: func() time.Time { return at },
		Keys: keyFunc(func(context.Context, string) (made []*sign.Key, _ error) {
			for _, secret := range secrets {
				made = append(made, webhookKey(t, secret))
			}
			return made, nil
		}),
	}))
	m := delivery(16)
	m.Source.(*fixture.Source).Meanwhile = func() { at = at.Add(time.Second) }
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
}

// Names of one's own; an Idempotency-Key if one says so, or if it is the id.
func TestWebhookOptions(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	at := webhookTime
	svix := sign.StandardWebhooksOptions{ID: "svix-id", Timestamp: "svix-timestamp", Signature: "svix-signature"}
	r := webhookDelivery(t, svix, key)
	require.Equal(t, webhookHMAC, r.Header.Get("svix-signature"))
	require.Empty(t, r.Header.Get("webhook-signature"))
	_, err := webhookVerifier(t, &at, svix, key).Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	_, err = webhookVerifier(t, &at, sign.StandardWebhooksOptions{}, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeMissing)

	unsigned := sign.StandardWebhooksOptions{UnsignedIdempotencyKey: true}
	r = webhookDelivery(t, unsigned, key)
	r.Header.Set("Idempotency-Key", "k-1")
	_, err = webhookVerifier(t, &at, unsigned, key).Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{Scheme: webhookScheme(t, sign.StandardWebhooksOptions{})}), sign.ReasonUncovered)

	itself := sign.StandardWebhooksOptions{ID: "idempotency-key"}
	r = webhookDelivery(t, itself, key)
	require.Equal(t, webhookMessageID, r.Header.Get("Idempotency-Key"))
	_, err = webhookVerifier(t, &at, itself, key).Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k-1")
	_, err = webhookVerifier(t, &at, itself, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.ReasonBadSignature)

	r.Header.Set("Webhook-Id", "a.1614265330")
	r.Header.Del("Idempotency-Key")
	require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{Scheme: webhookScheme(t, sign.StandardWebhooksOptions{})}), sign.CodeMalformed)

	_, err = sign.NewStandardWebhooks(sign.StandardWebhooksOptions{
		ID: "a b", Timestamp: "Host", Signature: "host", KeyID: "a b", AlsoSign: []*sign.Key{nil, webhookKey(t, webhookPublic), newRSA(t), key, key, key, key, key},
	})
	require.Equal(t, []string{
		"StandardWebhooksOptions.ID", "StandardWebhooksOptions.Timestamp", "StandardWebhooksOptions.Signature", "StandardWebhooksOptions", "StandardWebhooksOptions.KeyID",
		"StandardWebhooksOptions.AlsoSign", "StandardWebhooksOptions.AlsoSign", "StandardWebhooksOptions.AlsoSign", "StandardWebhooksOptions.AlsoSign",
	}, fixture.ConfigErrors(t, err))
}

// Both sides show the same text, without the body.
func TestWebhookSigningString(t *testing.T) {
	key := webhookKey(t, webhookSecret)
	scheme := webhookScheme(t, sign.StandardWebhooksOptions{})
	var client string
	r, err := http.NewRequest("POST", "http://shop.test/", strings.NewReader(webhookPayload))
	require.NoError(t, err)
	r.Header.Set("webhook-id", webhookMessageID)
	require.NoError(t, sign.Request(r, key, sign.RequestOptions{
		Scheme: scheme, Clock: func() time.Time { return webhookTime },
		Observe: func(_ *http.Request, text string) { client = text },
	}))
	require.Equal(t, "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.[20 bytes, SHA-256 ae858931f67887e8150d6f96c9fe03062c1df36b4464c4ddc8e002c084d5d198]", client)

	var server []string
	v := sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: func() time.Time { return webhookTime },
		Observe: func(_ context.Context, e sign.Event) { server = append(server, e.SigningString()) },
	}))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
	r.Header.Set("webhook-timestamp", "1614265000")
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeExpired)
	r.Header.Set("webhook-timestamp", "x")
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeMalformed)
	require.Equal(t, []string{client, webhookMessageID + ".1614265000.[the body was not read]", ""}, server)
}

// A payment provider sends webhooks, and the shop takes each of them once.
func ExampleNewStandardWebhooks() {
	key, err := sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks"}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	webhooks, err := sign.NewStandardWebhooks(sign.StandardWebhooksOptions{})
	if err != nil {
		panic(err)
	}

	// The provider.
	r, _ := http.NewRequest("POST", "https://shop.example/hooks", strings.NewReader(`{"type":"invoice.paid"}`))
	r.Header.Set("webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W") // the same when the delivery is tried again
	if err := sign.Request(r, key, sign.RequestOptions{Scheme: webhooks}); err != nil {
		panic(err)
	}

	// The shop; an adapter makes the message of the request.
	verifier := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: webhooks, Window: 5 * time.Minute}))
	verified, err := verifier.Verify(context.Background(), fixture.Message(r))
	fmt.Println(verified.KeyID, verified.Algorithm, err)
	_, err = verifier.Verify(context.Background(), fixture.Message(r))
	fmt.Println(err)
	// Output:
	// webhooks hmac-sha256 <nil>
	// sign: replayed
}

// The secrets of webhooks may be shorter than others. They are good for webhooks only.
func TestKeysForWebhooksSignNothingElse(t *testing.T) {
	key := sign.Must(sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks"}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLw3h"))
	_, err := key.Sign([]byte("message"))
	require.ErrorContains(t, err, "signs nothing else")

	// Of the same secret, and so of the same code.
	same := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "other"}, []byte("0123456789abcdef0123456789abcdef")))
	key = sign.Must(sign.NewStandardWebhooksKey(sign.KeyOptions{ID: "webhooks"}, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))
	signature, err := same.Sign([]byte("message"))
	require.NoError(t, err)
	require.True(t, same.Verify([]byte("message"), signature))
	require.False(t, key.Verify([]byte("message"), signature))
}
