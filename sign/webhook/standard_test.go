package webhook_test

import (
	"cmp"
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

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/sortedparams"
	"github.com/idem-go/idem/sign/webhook"
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

func webhookKey(secret string) *sign.Key {
	return sign.Must(webhook.NewStandardKey(sign.KeyConfig{ID: "webhooks"}, secret))
}

// webhookVerifier has the time of the reference message.
func webhookVerifier(o webhook.StandardConfig, keys ...*sign.Key) *sign.Verifier {
	return fixture.Verifier(sign.Config{Scheme: sign.Must(webhook.NewStandard(o)), Clock: func() time.Time { return webhookTime }}, keys...)
}

func verifyWebhook(t *testing.T, v *sign.Verifier, r *http.Request) error {
	t.Helper()
	_, err := v.Verify(t.Context(), fixture.Message(r))
	return err
}

// webhookDelivery is the reference message, signed by key at webhookTime.
func webhookDelivery(t *testing.T, o webhook.StandardConfig, key *sign.Key) *http.Request {
	t.Helper()
	return delivery(t, sign.Must(webhook.NewStandard(o)), key, webhookTime.Unix(), webhookPayload,
		cmp.Or(o.ID, "Webhook-Id"), webhookMessageID)
}

var standard webhook.StandardConfig

func TestWebhookVectors(t *testing.T) {
	decoded := func(text string) []byte { return sign.Must(base64.StdEncoding.DecodeString(text[5:])) }
	private := append(decoded(webhookPrivate), decoded(webhookPublic)...)
	for _, c := range []struct{ signer, verifier, signature string }{
		{webhookSecret, strings.TrimPrefix(webhookSecret, "whsec_"), webhookHMAC},
		{webhookPrivate, webhookPrivate, webhookEd25519},
		{"whsk_" + base64.StdEncoding.EncodeToString(private), webhookPublic, webhookEd25519},
	} {
		r := webhookDelivery(t, standard, webhookKey(c.signer))
		require.Equal(t, webhookMessageID, r.Header.Get("webhook-id"))
		require.Equal(t, "1614265330", r.Header.Get("webhook-timestamp"))
		require.Equal(t, c.signature, r.Header.Get("webhook-signature"))

		key := webhookKey(c.verifier)
		verified, err := webhookVerifier(standard, key).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
		require.Equal(t, sign.Verified{
			KeyID: "webhooks", Owner: "webhooks", Scheme: "standard-webhooks", Algorithm: key.Algorithm(), Time: webhookTime,
			Nonce: webhookMessageID + ".1614265330", EventID: webhookMessageID,
		}, verified)
	}
	r := signtest.NewRequest(t, nil, "http://shop.test/hooks", "")
	scheme := sign.Must(webhook.NewStandard(standard))
	require.ErrorContains(t, sign.Request(r, webhookKey(webhookPublic), sign.RequestOptions{Scheme: scheme}), "verify only")

	// Without an id, the nonce is the id.
	fixture.Sign(t, r, webhookKey(webhookSecret), sign.RequestOptions{Scheme: scheme, Clock: func() time.Time { return webhookTime }})
	require.Len(t, r.Header.Get("webhook-id"), 32)
	require.NoError(t, verifyWebhook(t, webhookVerifier(standard, webhookKey(webhookSecret)), r))
}

func TestWebhookKeys(t *testing.T) {
	seed := []byte("TESTSIGNINGKEYDONOTUSETHISFORANY")
	encoded := func(prefix string, secret []byte) string { return prefix + base64.StdEncoding.EncodeToString(secret) }
	for _, c := range []struct{ why, secret, problem string }{
		{"no secret", "", "has 0 bytes; 16 to 64"},
		{"case counts", "WHSEC_" + strings.TrimPrefix(webhookSecret, "whsec_"), "begins with something else"},
		{"nothing behind the prefix", "whsec_", "has 0 bytes; 16 to 64"},
		{"too short", encoded("whsec_", seed[:15]), "has 15 bytes"},
		{"too short, without the prefix", encoded("", seed[:15]), "has 15 bytes"},
		{"too long", encoded("whsec_", slices.Concat(seed, seed, seed[:1])), "has 65 bytes"},
		{"something else than base64", "my secret of the year 2026", "not base64"},
		{"another line", webhookSecret[:20] + "\n" + webhookSecret[20:], "not base64"},
		{"the alphabet of URLs", "whsec_" + strings.Repeat("-_", 16), "not base64"},
		{"one byte repeated", encoded("whsec_", make([]byte, 24)), "repeated"},
		{"the end of a file", webhookSecret + "\r\n", `ends with white space ("\r\n")`},
		{"hexadecimal digits are base64, too, but of another length", "whpk_" + strings.Repeat("0123456789abcdef", 4),
			"has 48 bytes; a public key has 32"},
		{"a private key that is cut", encoded("whsk_", seed[:31]), "has 31 bytes; a private key has 32 or 64"},
		{"seed and public key that do not belong together",
			encoded("whsk_", append(slices.Clone(seed), make([]byte, 32)...)), "does not belong"},
		{"no id", webhookSecret, "KeyConfig.ID"},
	} {
		id := "webhooks"
		if c.why == "no id" {
			id = ""
		}
		_, err := webhook.NewStandardKey(sign.KeyConfig{ID: id}, c.secret)
		require.ErrorContains(t, err, c.problem, c.why)
		if text := strings.TrimPrefix(c.secret, "whsec_"); len(text) > 4 {
			require.NotContains(t, err.Error(), text, "the secret must not be in the error")
		}
	}

	// The secrets may be shorter than others: they sign nothing but webhooks. Longer ones sign webhooks, too.
	require.NotNil(t, webhookKey(encoded("whsec_", append(seed, seed...))))
	short, same := webhookKey(encoded("whsec_", seed)), sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "webhooks"}, seed))
	_, err := short.Sign([]byte("message"))
	require.ErrorContains(t, err, "signs nothing else")
	signature, err := same.Sign([]byte("message"))
	require.NoError(t, err)
	require.False(t, short.Verify([]byte("message"), signature))
	require.NoError(t, verifyWebhook(t, webhookVerifier(standard, same), webhookDelivery(t, standard, short)))
	for _, scheme := range []sign.Scheme{nil, sign.Must(sortedparams.New(sortedparams.Config{}))} {
		r := signtest.NewRequest(t, nil, "http://shop.test/?a=1", "")
		require.ErrorIs(t, sign.Request(r, short, sign.RequestOptions{Scheme: scheme}), sign.ReasonWrongAlgorithm)
		fixture.Sign(t, r, same, sign.RequestOptions{Scheme: scheme})
		require.ErrorIs(t, fixture.Verify(t, sign.Config{Scheme: scheme}, r, short), sign.ReasonWrongAlgorithm)
	}
	_, rsa := fixture.Pair("rsa", fixture.Private().RSA)
	o := webhook.StandardConfig{KeyID: "rsa"}
	require.ErrorIs(t, verifyWebhook(t, webhookVerifier(o, rsa), webhookDelivery(t, standard, short)), sign.ReasonWrongAlgorithm)
}

// Ids may have full stops, unless a part behind one is a timestamp: the signed text could be that of another message.
func TestWebhookIDs(t *testing.T) {
	key, scheme := webhookKey(webhookSecret), sign.Must(webhook.NewStandard(standard))
	for id, want := range map[string]error{
		"msg_1": nil, "order.created.17": nil, "evt.2026-11-22.1700000000000": nil, "evt.0123456789": nil, "1614265330.a.": nil,
		strings.Repeat("m", 128): nil, "msg.1614265330": sign.CodeMalformed, "msg.1.1614265330.x": sign.CodeMalformed,
		strings.Repeat("m", 129): sign.CodeMalformed, `"msg"`: sign.CodeMalformed, "msg 1": sign.CodeMalformed,
	} {
		r := signtest.NewRequest(t, nil, "http://shop.test/hooks", webhookPayload, "Webhook-Id", id)
		err := sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: func() time.Time { return webhookTime }})
		require.ErrorIs(t, err, want, id)
		if want != nil {
			r = webhookDelivery(t, standard, key)
			r.Header.Set("Webhook-Id", id)
		}
		require.ErrorIs(t, verifyWebhook(t, webhookVerifier(standard, key), r), want, id)
	}
	r := signtest.NewRequest(t, nil, "http://shop.test/hooks", webhookPayload, "Webhook-Id", "a")
	r.Header.Add("Webhook-Id", "b")
	require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{Scheme: scheme}), sign.CodeDuplicateHeader)
}

// Each row changes a good delivery, and says why that must be refused, or must not. Changed bytes and times are the suite's.
var webhookAttacks = []struct {
	name, why string
	change    func(r *http.Request)
	want      error // nil: it is accepted
}{
	{"untouched", "the row that shows that the others are refused for what they change", func(*http.Request) {}, nil},
	{"id: missing", "there is no nonce without it", setHeader("webhook-id", ""), sign.CodeMissing},
	{"id: twice", "a guard might take the one that was not signed", addHeader("webhook-id", webhookMessageID), sign.CodeDuplicateHeader},
	{"id and timestamp: shifted", "what stood in the timestamp is the id's: msg.1614265330 at 0, say", func(r *http.Request) {
		r.Header.Set("webhook-id", webhookMessageID+".1614265330")
		replaceBody(strings.TrimPrefix(webhookPayload, "{"))(r)
	}, sign.CodeMalformed},
	{"timestamp: missing", "without one it would be good for ever", setHeader("webhook-timestamp", ""), sign.CodeMissing},
	{"timestamp: twice", "which one?", addHeader("webhook-timestamp", "1614265330"), sign.CodeDuplicateHeader},
	{"timestamp: sign", "digits only", setHeader("webhook-timestamp", "+1614265330"), sign.CodeMalformed},
	{"signature: missing", "nothing to verify", setHeader("webhook-signature", ""), sign.CodeMissing},
	{"signature: twice", "a list is one line", addHeader("webhook-signature", webhookHMAC), sign.CodeDuplicateHeader},
	{"signature: no version", "which algorithm it is must be said",
		setHeader("webhook-signature", strings.TrimPrefix(webhookHMAC, "v1,")), sign.CodeMalformed},
	{"signature: no value", "a version alone is no signature", setHeader("webhook-signature", "v1,"), sign.CodeMalformed},
	{"signature: in capitals", "versions are exact: V1 is another one, which is not known",
		setHeader("webhook-signature", strings.Replace(webhookHMAC, "v1", "V1", 1)), sign.ReasonWrongAlgorithm},
	{"signature: Ed25519 for an HMAC key", "the message cannot choose the algorithm",
		setHeader("webhook-signature", webhookEd25519), sign.ReasonWrongAlgorithm},
	{"signature: of a version to come", "what is not known proves nothing", setHeader("webhook-signature", "v2,"+strings.Repeat("A", 44)),
		sign.ReasonWrongAlgorithm},
	{"list: a good one among others", "a sender that changes its secret signs with both",
		setHeader("webhook-signature", "v2,x v1,"+strings.Repeat("A", 43)+"= "+webhookHMAC+" "+webhookEd25519), nil},
	{"list: eight", "the last of eight is looked at", setHeader("webhook-signature", strings.Repeat("v2,x ", 7)+webhookHMAC), nil},
	{"list: a bad one beside a good one", "what is malformed is not read half",
		setHeader("webhook-signature", webhookHMAC+" v1,AAAA"), sign.CodeMalformed},
	{"list: a version alone", "nor is what has no value", setHeader("webhook-signature", "v2, "+webhookHMAC), sign.CodeMalformed},
	{"list: two blanks", "one separator", setHeader("webhook-signature", webhookHMAC+"  "+webhookHMAC), sign.CodeMalformed},
	{"list: commas", "one separator", setHeader("webhook-signature", webhookHMAC+","+webhookHMAC), sign.CodeMalformed},
	{"Idempotency-Key", "it looks as if it counted, and anybody on the way can change it",
		setHeader("Idempotency-Key", `"k-1"`), sign.ReasonUncovered},
	{"Idempotency-Key twice", "said before it is looked at what is signed", func(r *http.Request) {
		r.Header["Idempotency-Key"] = []string{"a", "b"}
	}, sign.CodeDuplicateHeader},
	{"Content-Encoding", "the handler would get another body than the one that was signed",
		setHeader("Content-Encoding", "gzip"), sign.ReasonUncovered},
	{"path", "NOT signed: a key for each endpoint", func(r *http.Request) { r.URL.Path = "/other" }, nil},
	{"method", "it is not signed, and a guard would take PUT for another operation",
		func(r *http.Request) { r.Method = "PUT" }, sign.ReasonUncovered},
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
	key := webhookKey(webhookSecret)
	for _, c := range webhookAttacks {
		t.Run(c.name, func(t *testing.T) {
			r := webhookDelivery(t, standard, key)
			c.change(r)
			v := webhookVerifier(standard, key)
			require.ErrorIs(t, verifyWebhook(t, v, r), c.want, c.why)
			if c.want != nil {
				require.NoError(t, verifyWebhook(t, v, webhookDelivery(t, standard, key)),
					"the good delivery's nonce must not have been used up")
			}
		})
	}
}

// While a secret is changed, the sender signs with both.
func TestWebhookRotation(t *testing.T) {
	old, next := webhookKey(webhookSecret),
		webhookKey("whsec_"+base64.StdEncoding.EncodeToString([]byte("the secret of the next year, and on")))
	public, private := webhookKey(webhookPublic), webhookKey(webhookPrivate)
	both := webhook.StandardConfig{AlsoSign: []*sign.Key{old}}
	for _, c := range []struct{ signer, known *sign.Key }{{next, old}, {next, next}, {private, old}, {private, public}} {
		require.NoError(t, verifyWebhook(t, webhookVerifier(standard, c.known), webhookDelivery(t, both, c.signer)))
	}
	require.ErrorIs(t, verifyWebhook(t, webhookVerifier(standard, next), webhookDelivery(t, both, old)), sign.ReasonBadSignature)
	require.NoError(t, verifyWebhook(t, webhookVerifier(standard, old, public), webhookDelivery(t, standard, private)),
		"from HMAC to Ed25519")
}

// Of eight keys and eight signatures there are 64 pairs, and whoever sends a message chooses the signatures: 16
// pairs are tried.
func TestWebhookTries(t *testing.T) {
	var secrets []string
	var keys []*sign.Key
	for range 8 {
		secrets = append(secrets, "whsec_"+base64.StdEncoding.EncodeToString([]byte(rand.Text())))
		keys = append(keys, webhookKey(secrets[len(secrets)-1]))
	}
	// The pairs of the sixth key are those from the 16th on, if there are three signatures.
	pair := func(place int) *sign.Message {
		r := webhookDelivery(t, standard, keys[5])
		list := slices.Repeat([]string{"v1," + strings.Repeat("A", 43) + "="}, 3)
		list[place-16] = r.Header.Get("webhook-signature")
		r.Header.Set("webhook-signature", strings.Join(list, " "))
		return fixture.Message(r)
	}
	for place, want := range map[int]error{16: nil, 17: sign.ReasonBadSignature, 18: sign.ReasonBadSignature} {
		_, err := webhookVerifier(standard, keys...).Verify(t.Context(), pair(place))
		require.ErrorIs(t, err, want, "pair %d", place)
	}

	// When the keys are looked up again behind a slow body, and were made anew, the pairs are counted anew.
	at := webhookTime
	v := fixture.Verifier(sign.Config{
		Scheme: sign.Must(webhook.NewStandard(standard)), Clock: func() time.Time { return at },
		Keys: fixture.KeyFunc(func(context.Context, string) (made []*sign.Key, _ error) {
			for _, secret := range secrets {
				made = append(made, webhookKey(secret))
			}
			return made, nil
		}),
	})
	m := pair(16)
	fixture.SourceOf(m).Meanwhile = func() { at = at.Add(time.Second) }
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
}

func TestWebhookOptions(t *testing.T) {
	key := webhookKey(webhookSecret)
	svix := webhook.StandardConfig{ID: "svix-id", Timestamp: "svix-timestamp", Signature: "svix-signature"}
	r := webhookDelivery(t, svix, key)
	require.Equal(t, webhookHMAC, r.Header.Get("svix-signature"))
	require.Empty(t, r.Header.Get("webhook-signature"))
	require.NoError(t, verifyWebhook(t, webhookVerifier(svix, key), r))
	require.ErrorIs(t, verifyWebhook(t, webhookVerifier(standard, key), r), sign.CodeMissing)

	// An Idempotency-Key may be unsigned, or be the id.
	unsigned := webhook.StandardConfig{UnsignedIdempotencyKey: true}
	r = webhookDelivery(t, unsigned, key)
	r.Header.Set("Idempotency-Key", "k-1")
	require.NoError(t, verifyWebhook(t, webhookVerifier(unsigned, key), r))
	require.ErrorIs(t, sign.Request(r, key, sign.RequestOptions{Scheme: sign.Must(webhook.NewStandard(standard))}), sign.ReasonUncovered)
	itself := webhook.StandardConfig{ID: "idempotency-key"}
	r = webhookDelivery(t, itself, key)
	require.Equal(t, webhookMessageID, r.Header.Get("Idempotency-Key"))
	require.NoError(t, verifyWebhook(t, webhookVerifier(itself, key), r))
	r.Header.Set("Idempotency-Key", "k-1")
	require.ErrorIs(t, verifyWebhook(t, webhookVerifier(itself, key), r), sign.ReasonBadSignature)

	rsa, _ := fixture.Pair("rsa", fixture.Private().RSA)
	_, err := webhook.NewStandard(webhook.StandardConfig{
		ID: "a b", Timestamp: "Host", Signature: "host", KeyID: "a b",
		AlsoSign: []*sign.Key{nil, webhookKey(webhookPublic), rsa, key, key, key, key, key},
	})
	require.Equal(t, []string{
		"webhook.StandardConfig.ID", "webhook.StandardConfig.Timestamp", "webhook.StandardConfig.Signature", "webhook.StandardConfig",
		"webhook.StandardConfig.KeyID", "webhook.StandardConfig.AlsoSign", "webhook.StandardConfig.AlsoSign",
		"webhook.StandardConfig.AlsoSign", "webhook.StandardConfig.AlsoSign",
	}, fixture.ConfigErrors(t, err))
}

// Both sides show the same text, without the body.
func TestWebhookSigningString(t *testing.T) {
	key, scheme := webhookKey(webhookSecret), sign.Must(webhook.NewStandard(standard))
	const signed = "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.[20 bytes, SHA-256 " +
		"ae858931f67887e8150d6f96c9fe03062c1df36b4464c4ddc8e002c084d5d198]"
	r := signtest.NewRequest(t, nil, "http://shop.test/", webhookPayload, "Webhook-Id", webhookMessageID)
	at := func() time.Time { return webhookTime }
	fixture.Sign(t, r, key,
		sign.RequestOptions{Scheme: scheme, Clock: at, Observe: func(_ *http.Request, text string) { require.Equal(t, signed, text) }})
	var event fixture.Observer
	for timestamp, want := range map[string]string{"1614265330": signed, "1614265000": webhookMessageID +
		".1614265000.[the body was not read]", "x": ""} {
		r.Header.Set("webhook-timestamp", timestamp)
		err := fixture.Verify(t, sign.Config{Scheme: scheme, Clock: at, Observe: event.Observe}, r, key)
		require.Equal(t, want == signed, err == nil)
		require.Equal(t, want, event.Signed)
	}
}

// A payment provider sends webhooks, and the shop takes each of them once.
func ExampleNewStandard() {
	key, err := webhook.NewStandardKey(sign.KeyConfig{ID: "webhooks"}, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	webhooks, err := webhook.NewStandard(webhook.StandardConfig{})
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

// FuzzWebhookSignatures takes any list of signatures apart: nothing panics, and what comes out is what
// the list says, by another way to read it.
func FuzzWebhookSignatures(f *testing.F) {
	f.Add(webhookHMAC)
	f.Add(webhookEd25519 + " " + webhookHMAC)
	f.Add("v2,x v1,\n" + webhookHMAC)
	f.Add(strings.Repeat("v1, ", 9))
	for _, seed := range []string{
		"v1,====", "v1,", webhookHMAC[:24], webhookHMAC + "AAAA", strings.TrimRight(webhookHMAC, "="),
		strings.Replace(webhookHMAC, "OE=", "OF=", 1), webhookHMAC[:10] + "\n" + webhookHMAC[10:],
		strings.NewReplacer("+", "-", "/", "_").Replace(webhookHMAC), "v1,83484cf52b04f8e4cf2531adfed9882ad4b2665137b852442d594d20e2c9d4e1",
		strings.Replace(webhookHMAC, "v1", "v1a", 1), strings.Repeat("v2,x ", 8) + webhookHMAC, webhookHMAC + " v1,AAAA",
	} {
		f.Add(seed)
	}
	f.Add("        0,0") // what stands around a field's value is not part of it
	scheme := sign.Must(webhook.NewStandard(standard))
	f.Fuzz(func(t *testing.T, list string) {
		m := &sign.Message{Method: "POST", Target: "/", Host: "h", Source: &fixture.Source{Header: http.Header{
			"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {list},
		}}}
		var s sign.Signature
		if scheme.Parse(m, &s) != nil {
			return
		}
		var want [][]byte
		items := strings.Split(strings.Trim(list, " \t"), " ")
		require.LessOrEqual(t, len(items), 8)
		for _, item := range items {
			version, text, _ := strings.Cut(item, ",")
			size := map[string]int{"v1": 32, "v1a": 64}[version]
			if size == 0 {
				continue
			}
			value, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			require.Len(t, value, size)
			require.Equal(t, text, base64.StdEncoding.EncodeToString(value), "there is one text for a signature")
			want = append(want, value)
		}
		require.Equal(t, want, s.Values)
	})
}
