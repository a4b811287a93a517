package sortedparams

import (
	"context"
	"crypto/ed25519"
	"crypto/fips140"
	"crypto/md5"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// The example of WeChat Pay's documentation of its version 2 (chapter 4.3, "the algorithm of
// signatures").
const (
	wechatSecret = "192006250b4c09247ec02edce69f6a2d"
	wechatMD5    = "9A0A8659F005D6984697E2CA0A9CF3B7"
	wechatHMAC   = "6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6"
)

// wechatOptions make of the example, which has no time, a message that can be verified: device_info, 1000,
// is taken for it.
func wechatOptions() Options {
	return Options{InParams: true, KeyID: "mch_id", Nonce: "nonce_str", Timestamp: "device_info"}
}

func newScheme(tb testing.TB, o Options) sign.Scheme {
	tb.Helper()
	s, err := New(o)
	require.NoError(tb, err)
	return s
}

func newKey(id string) *sign.Key {
	return sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: id}, []byte(designSecret)))
}

func newVerifier(tb testing.TB, o Options, at time.Time, keys ...*sign.Key) *sign.Verifier {
	tb.Helper()
	return sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(keys...)), Scheme: newScheme(tb, o), Clock: func() time.Time { return at }}))
}

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

func newRequest(tb testing.TB, method, target, contentType, body string) *http.Request {
	tb.Helper()
	r, err := http.NewRequest(method, "http://pay.test"+target, strings.NewReader(body))
	require.NoError(tb, err)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

// signBy signs at the tests' time.
func signBy(tb testing.TB, r *http.Request, o Options, key *sign.Key) {
	tb.Helper()
	require.NoError(tb, sign.Request(r, key, sign.RequestOptions{Scheme: newScheme(tb, o), Clock: fixedClock}))
}

func TestVectors(t *testing.T) {
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "10000100"}, []byte(wechatSecret)))
	for _, digest := range []struct {
		name, sum string
		md5       bool
	}{
		{"MD5", wechatMD5, true},
		{"HMAC-SHA256", wechatHMAC, false},
	} {
		for place, request := range map[string][3]string{
			"query": {"/?appid=wxd930ea5d5a258f4f&mch_id=10000100&device_info=1000&body=test&nonce_str=ibuaiVcKdpRxkhJA&sign=" + digest.sum},
			"form":  {"/", formType, "sign=" + digest.sum + "&body=test&appid=wxd930ea5d5a258f4f&attach=&nonce_str=ibuaiVcKdpRxkhJA&device_info=1000&mch_id=10000100"},
			"JSON": {"/", jsonType + "; charset=utf-8", `{"appid":"wxd930ea5d5a258f4f","mch_id":10000100,"device_info":"1000","body":"test","attach":null,
				"nonce_str":"ibuaiVcKdpRxkhJA","sign":"` + digest.sum + `"}`},
			"query and form": {"/?appid=wxd930ea5d5a258f4f&mch_id=10000100", formType, "device_info=1000&body=test&nonce_str=ibuaiVcKdpRxkhJA&sign=" + digest.sum},
		} {
			t.Run(digest.name+" in "+place, func(t *testing.T) {
				o := wechatOptions()
				o.InsecureMD5 = digest.md5
				v := newVerifier(t, o, time.Unix(1000, 0), key)
				r := newRequest(t, "POST", request[0], request[1], request[2])
				verified, err := v.Verify(t.Context(), fixture.Message(r))
				require.NoError(t, err)
				require.Equal(t, sign.Verified{
					KeyID: "10000100", Owner: "10000100", Scheme: map[bool]string{true: "sorted-params-md5", false: "sorted-params"}[digest.md5],
					Algorithm: sign.HMACSHA256, Time: time.Unix(1000, 0), Nonce: "ibuaiVcKdpRxkhJA",
					Consumed: []string{"sign", "mch_id", "device_info", "nonce_str"},
				}, verified)
				_, err = v.Verify(t.Context(), fixture.Message(r))
				require.ErrorIs(t, err, sign.CodeReplayed)
			})
		}
	}
}

// What is signed and what is added to the message, in each place. The example's parameters that are not
// the signature's are there already.
func TestSignsInEachPlace(t *testing.T) {
	key := sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "10000100"}, []byte(wechatSecret)))
	for _, c := range []struct {
		name, target, contentType, body string
		places                          Place
		query, signedBody               string
	}{
		{"query", "/?appid=wxd930ea5d5a258f4f&body=test", "", "", 0,
			"device_info=1000&nonce_str=ibuaiVcKdpRxkhJA&mch_id=10000100&sign=" + wechatHMAC, ""},
		{"form", "/", formType, "appid=wxd930ea5d5a258f4f&body=test", 0, "",
			"appid=wxd930ea5d5a258f4f&body=test&device_info=1000&nonce_str=ibuaiVcKdpRxkhJA&mch_id=10000100&sign=" + wechatHMAC},
		{"form that has the key id", "/", formType, "mch_id=10000100&appid=wxd930ea5d5a258f4f&body=test&", 0, "",
			"mch_id=10000100&appid=wxd930ea5d5a258f4f&body=test&device_info=1000&nonce_str=ibuaiVcKdpRxkhJA&sign=" + wechatHMAC},
		{"form, with a query", "/?appid=wxd930ea5d5a258f4f", formType, "body=test", 0, "",
			"body=test&device_info=1000&nonce_str=ibuaiVcKdpRxkhJA&mch_id=10000100&sign=" + wechatHMAC},
		{"JSON", "/", jsonType, "{\"appid\":\"wxd930ea5d5a258f4f\",\"body\":\"test\"\n}\n", 0, "",
			`{"appid":"wxd930ea5d5a258f4f","body":"test","device_info":"1000","nonce_str":"ibuaiVcKdpRxkhJA","mch_id":"10000100","sign":"` + wechatHMAC + `"}`},
		{"JSON without a member", "/?appid=wxd930ea5d5a258f4f&body=test", jsonType, "{ }", 0, "",
			`{"device_info":"1000","nonce_str":"ibuaiVcKdpRxkhJA","mch_id":"10000100","sign":"` + wechatHMAC + `"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := wechatOptions()
			o.Places = c.places
			r := newRequest(t, "POST", c.target, c.contentType, c.body)
			added, err := newScheme(t, o).Sign(fixture.Message(r), &sign.Signature{KeyID: "10000100", Created: 1000, Nonce: "ibuaiVcKdpRxkhJA"}, key)
			require.NoError(t, err)
			require.Equal(t, sign.Additions{Query: c.query, Body: bytesOrNil(c.signedBody)}, added)
		})
	}

	// Without a body the places tell where they go.
	for place, want := range map[Place][2]string{
		FromForm: {formType, "device_info=1000&"}, FromJSON: {jsonType, `{"device_info":"1000",`},
	} {
		o := wechatOptions()
		o.Places = place
		r := newRequest(t, "POST", "/", want[0], "")
		require.NoError(t, sign.Request(r, key, sign.RequestOptions{Scheme: newScheme(t, o), Clock: func() time.Time { return time.Unix(1000, 0) }}))
		body := fixture.Message(r).Source.(*fixture.Source).Body
		require.True(t, strings.HasPrefix(string(body), want[1]), "%s", body)
		_, err := newVerifier(t, o, time.Unix(1000, 0), key).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err)
	}
}

func bytesOrNil(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// The four fields stand in the header, and take part in what is signed.
func TestInTheHeader(t *testing.T) {
	key := newKey("demo")
	r := newRequest(t, "POST", "/transfers?to=bob", jsonType, `{"amount":5,"remark":""}`)
	added, err := newScheme(t, Options{}).Sign(fixture.Message(r), &sign.Signature{KeyID: "demo", Created: 1700000000, Nonce: "n-0123456789abcdef"}, key)
	require.NoError(t, err)
	// By: printf '%s' 'amount=5&key_id=demo&nonce=n-0123456789abcdef&timestamp=1700000000&to=bob&key=0123456789abcdef0123456789abcdef' |
	// openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
	require.Equal(t, sign.Additions{Header: http.Header{
		"X-Key-Id":    {"demo"},
		"X-Timestamp": {"1700000000"},
		"X-Nonce":     {"n-0123456789abcdef"},
		"X-Sign":      {"7FA7B05815AAD2D96A207B7447E9040BD0A101D2475CB9B900AC47CE2FB41987"},
	}}, added)
}

// Each form of a timestamp, signed and verified, and refused in any other form.
func TestTimestamps(t *testing.T) {
	china := time.FixedZone("CST", 8*60*60)
	key := newKey("demo")
	for _, c := range []struct {
		name  string
		o     Options
		text  string
		wrong []string
	}{
		{"seconds", Options{}, "1700000000", []string{"1700000000.0", "01700000000", "+1700000000", "1.7e9", " 1700000000", "99999999999999999999", "１７"}},
		{"milliseconds", Options{Milliseconds: true}, "1700000000000", []string{"1700000000000.0", "-1"}},
		{"digits of a date", Options{TimeLayout: "20060102150405", Location: china}, "20231115061320", []string{"1700000000", "20231115061320.5", "20231315061320", "2023111506132", " 20231115061320"}},
		{"a date", Options{TimeLayout: time.DateTime, Location: china}, "2023-11-15 06:13:20", []string{"2023-11-15 06:13:20.000", "2023-11-15 6:13:20", "2023-11-15T06:13:20", "2023-11-15 06:13:20 "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.InParams = true
			r := newRequest(t, "GET", "/?a=1", "", "")
			signBy(t, r, c.o, key)
			require.Equal(t, c.text, r.URL.Query().Get("timestamp"))
			v := newVerifier(t, c.o, now, key)
			verified, err := v.Verify(t.Context(), fixture.Message(r))
			require.NoError(t, err)
			require.True(t, verified.Time.Equal(now))
			for _, wrong := range c.wrong {
				q := r.URL.Query()
				q.Set("timestamp", wrong)
				r.URL.RawQuery = q.Encode()
				_, err := v.Verify(t.Context(), fixture.Message(r))
				require.ErrorIs(t, err, sign.CodeMalformed, wrong)
			}
		})
	}

	milliseconds := Options{Milliseconds: true}
	r := newRequest(t, "GET", "/?a=1", "", "")
	signBy(t, r, Options{}, key)
	_, err := newVerifier(t, milliseconds, now, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeExpired, "seconds taken for milliseconds")
	signBy(t, r, milliseconds, key)
	_, err = newVerifier(t, Options{}, now, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeNotYetValid, "and the other way about")
	dates := Options{TimeLayout: "20060102150405", Location: china}
	signBy(t, r, dates, key)
	dates.Location = time.UTC
	_, err = newVerifier(t, dates, now, key).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeNotYetValid, "another clock")
}

// Several keys of one id are tried; each has its time.
func TestRotation(t *testing.T) {
	old, next := newKey("demo"), sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(wechatSecret)))
	verify := func(by *sign.Key, known ...*sign.Key) error {
		r := newRequest(t, "POST", "/", formType, "a=1")
		signBy(t, r, Options{}, by)
		_, err := newVerifier(t, Options{}, now, known...).Verify(t.Context(), fixture.Message(r))
		return err
	}
	require.NoError(t, verify(old, old, next))
	require.NoError(t, verify(next, old, next))
	require.ErrorIs(t, verify(next, old), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(next), sign.ReasonUnknownKey)
	require.ErrorIs(t, verify(old, sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo", ValidUntil: now}, []byte(designSecret)))), sign.ReasonKeyExpired)
	require.ErrorIs(t, verify(old, sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo", ValidFrom: now.Add(time.Second)}, []byte(designSecret)))), sign.ReasonKeyNotYetValid)

	ring := sign.Must(sign.NewRing(old))
	ring.Revoke("demo")
	r := newRequest(t, "POST", "/", formType, "a=1")
	signBy(t, r, Options{}, old)
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: ring, Scheme: newScheme(t, Options{}), Clock: fixedClock}))
	_, err := v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.ReasonRevokedKey)

	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, verifier := sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, private)), sign.Must(sign.NewKey(sign.KeyOptions{ID: "ed"}, public))
	require.ErrorIs(t, sign.Request(r, signer, sign.RequestOptions{Scheme: newScheme(t, Options{})}), sign.ReasonWrongAlgorithm)
	r.Header.Set("X-Key-Id", verifier.ID())
	_, err = newVerifier(t, Options{}, now, verifier).Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.ReasonWrongAlgorithm)
}

// The body is read once, and its limit holds.
func TestBody(t *testing.T) {
	key := newKey("demo")
	r := newRequest(t, "POST", "/", formType, "a="+strings.Repeat("x", 100))
	signBy(t, r, Options{}, key)
	v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: newScheme(t, Options{}), Clock: fixedClock, BodyLimit: 102}))
	m := fixture.Message(r)
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, 1, m.Source.(*fixture.Source).Reads)

	v = sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: newScheme(t, Options{}), Clock: fixedClock, BodyLimit: 101}))
	_, err = v.Verify(t.Context(), fixture.Message(r))
	require.ErrorIs(t, err, sign.CodeBodyTooLarge)
	m = fixture.Message(r)
	m.Source.(*fixture.Source).Err = io.ErrUnexpectedEOF
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeBodyTooLarge)
	m = fixture.Message(r)
	m.Source.(*fixture.Source).Body = []byte("a=1")
	m.Source.(*fixture.Source).Err = io.ErrUnexpectedEOF
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, sign.CodeMalformed)
}

// Method, path, host and Idempotency-Key are signed for those who say so.
func TestBinding(t *testing.T) {
	key := newKey("demo")
	o := Options{Bind: Binding{Method: "_method", Path: "_path", Host: "_host", IdempotencyKey: "idempotency_key"}}
	request := func() *http.Request {
		r := newRequest(t, "POST", "/transfers/a%2Fb", formType, "amount=5")
		r.Header.Set("Idempotency-Key", `"k-1"`)
		signBy(t, r, o, key)
		return r
	}
	verify := func(change func(*http.Request)) error {
		r := request()
		change(r)
		_, err := newVerifier(t, o, now, key).Verify(t.Context(), fixture.Message(r))
		return err
	}
	require.NoError(t, verify(func(*http.Request) {}))
	require.NoError(t, verify(func(r *http.Request) { r.Host = "PAY.test" }), "hosts have no case")
	require.NoError(t, verify(addQuery("empty")))
	require.ErrorIs(t, verify(func(r *http.Request) { r.Method = "PUT" }), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(func(r *http.Request) { r.URL.RawPath, r.URL.Path = "", "/transfers/a/b" }), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(func(r *http.Request) { r.Host = "other.test" }), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(setHeader("Idempotency-Key", `"k-2"`)), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(func(r *http.Request) { r.Header.Del("Idempotency-Key") }), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(setHeader("Idempotency-Key", "")), sign.ReasonUncovered, "an empty one takes no part")
	require.ErrorIs(t, verify(addHeader("Idempotency-Key", `"k-1"`)), sign.CodeDuplicateHeader)
	require.ErrorIs(t, verify(func(r *http.Request) {
		r.Header.Del("Idempotency-Key")
		r.URL.RawQuery = `idempotency_key="k-1"`
	}), sign.CodeMalformed, "a parameter in the field's stead")
	require.ErrorIs(t, verify(addQuery("_method=")), sign.CodeMalformed)
}

func addQuery(more string) func(*http.Request) {
	return func(r *http.Request) {
		if r.URL.RawQuery != "" {
			more = r.URL.RawQuery + "&" + more
		}
		r.URL.RawQuery = more
	}
}

// Names, case and the secret's name are what a house has.
func TestOptions(t *testing.T) {
	key := newKey("demo")
	for _, o := range []Options{
		{KeyIDHeader: "App-Id", TimestampHeader: "Ts", NonceHeader: "Once", SignHeader: "Sig"},
		{KeyID: "app.id", Timestamp: "ts", Nonce: "once", Sign: "sig", InParams: true},
		{SecretName: "app-secret"},
		{LowerCase: true},
		{InsecureMD5: true},
		{InsecureMD5: true, LowerCase: true, InParams: true},
		{InsecureBareSecret: true},
		{InsecureBareSecret: true, InsecureMD5: true, InParams: true},
		{Places: FromForm | FromQuery},
	} {
		r := newRequest(t, "POST", "/?key2=1", formType, "notify_url="+url.QueryEscape("https://a.test/?x=1"))
		signBy(t, r, o, key)
		_, err := newVerifier(t, o, now, key).Verify(t.Context(), fixture.Message(r))
		require.NoError(t, err, "%+v", o)
		if !o.InParams && o.Places == 0 {
			_, err = newVerifier(t, Options{}, now, key).Verify(t.Context(), fixture.Message(r))
			require.Error(t, err, "%+v", o)
		}
	}

	_, err := New(Options{
		KeyID: "a b", Timestamp: "1", Nonce: "sign", SecretName: "x&", InParams: true,
		KeyIDHeader: "a b", TimestampHeader: "Host", NonceHeader: "X-Sign", Milliseconds: true, TimeLayout: "2006", Places: 0x80,
		Bind: Binding{Method: "sign", IdempotencyKey: "a=b"}, InsecureBareSecret: true,
	})
	require.Equal(t, []string{
		"sortedparams.Options.KeyID", "sortedparams.Options.Timestamp", "sortedparams.Options.Sign", "sortedparams.Options.SecretName", "sortedparams.Options.SecretName", "sortedparams.Options.Bind.Method", "sortedparams.Options.Bind.IdempotencyKey",
		"sortedparams.Options.KeyIDHeader", "sortedparams.Options.KeyIDHeader", "sortedparams.Options.TimestampHeader", "sortedparams.Options.TimestampHeader", "sortedparams.Options.NonceHeader", "sortedparams.Options.SignHeader",
		"sortedparams.Options.Milliseconds", "sortedparams.Options.Location", "sortedparams.Options.Places",
	}, fixture.ConfigErrors(t, err))
	for _, name := range []string{"Connection", "content-length", "Idempotency-Key", "X:Sign", "X-S\u00edgn"} {
		_, err := New(Options{SignHeader: name})
		require.Equal(t, []string{"sortedparams.Options.SignHeader"}, fixture.ConfigErrors(t, err), name)
	}
}

// The two old schemes, computed here by what they say.
func TestOldSchemes(t *testing.T) {
	const common = "app=demo&nonce=n-0123456789abcdef&timestamp=1700000000"
	body := "app=demo&key=k&nonce=n-0123456789abcdef&timestamp=1700000000&sign="
	md5Of := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	old := Options{InParams: true, KeyID: "app", LowerCase: true, InsecureMD5: true, InsecureBareSecret: true}
	verify := func(o Options, body string) error {
		_, err := newVerifier(t, o, now, newKey("demo")).Verify(t.Context(), fixture.Message(newRequest(t, "POST", "/", formType, body)))
		return err
	}
	bare := md5Of("app=demo&key=k&nonce=n-0123456789abcdef&timestamp=1700000000" + designSecret)
	require.NoError(t, verify(old, body+bare))
	require.ErrorIs(t, verify(old, strings.Replace(body, "key=k", "key=j", 1)+bare), sign.ReasonBadSignature)

	named := old
	named.InsecureBareSecret = false
	plain := strings.Replace(body, "key=k&", "", 1)
	require.NoError(t, verify(named, plain+md5Of(common+"&key="+designSecret)))
	require.ErrorIs(t, verify(named, plain+md5Of(common+designSecret)), sign.ReasonBadSignature)
	require.ErrorIs(t, verify(old, plain+md5Of(common+"&key="+designSecret)), sign.ReasonBadSignature)

	var text string
	r := newRequest(t, "POST", "/", formType, "key=k")
	require.NoError(t, sign.Request(r, newKey("demo"), sign.RequestOptions{
		Scheme: newScheme(t, old), Clock: fixedClock, Observe: func(_ *http.Request, s string) { text = s },
	}))
	require.Regexp(t, `^app=demo&key=[^&]*&nonce=[^&]*&timestamp=1700000000\[redacted\]$`, text)
	require.NotContains(t, text, designSecret)
	sent, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, verify(old, string(sent)))
}

// MD5 is refused under FIPS 140, when the scheme is made. The mode is chosen when a process starts, so
// the test starts itself again.
func TestMD5UnderFIPS(t *testing.T) {
	if !fips140.Enabled() {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMD5UnderFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestMD5UnderFIPS")
		return
	}
	_, err := New(Options{InsecureMD5: true})
	require.Equal(t, []string{"sortedparams.Options.InsecureMD5"}, fixture.ConfigErrors(t, err))

	key := newKey("demo")
	r := newRequest(t, "POST", "/", formType, "a=1")
	signBy(t, r, Options{}, key)
	_, err = newVerifier(t, Options{}, now, key).Verify(t.Context(), fixture.Message(r))
	require.NoError(t, err)
}

// Both sides show the same text; the parameter that differs can be found, and no value can be read.
func TestSigningString(t *testing.T) {
	key := newKey("demo")
	scheme := newScheme(t, Options{})
	sent := newRequest(t, "POST", "/?to=bob", jsonType, `{"amount":500,"remark":""}`)
	var client string
	require.NoError(t, sign.Request(sent, key, sign.RequestOptions{
		Scheme: scheme, Clock: fixedClock, Observe: func(_ *http.Request, text string) { client = text },
	}))
	require.Regexp(t, `^amount=\[3 bytes, [0-9a-f]{8}\]&key_id=demo&nonce=[0-9a-f]{32}&timestamp=1700000000&to=\[3 bytes, [0-9a-f]{8}\]&key=\[redacted\]$`, client)

	var server string
	v := sign.Must(sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock,
		Observe: func(_ context.Context, e sign.Event) { server = e.SigningString() },
	}))
	_, err := v.Verify(t.Context(), fixture.Message(sent))
	require.NoError(t, err)
	require.Equal(t, client, server)

	tampered := fixture.Message(sent)
	tampered.Target = "/?to=eve"
	_, err = v.Verify(t.Context(), tampered)
	require.ErrorIs(t, err, sign.ReasonBadSignature)
	require.Regexp(t, `&to=\[3 bytes, [0-9a-f]{8}\]&`, server, "above all then is it asked for")
	require.NotEqual(t, client, server)

	shown := func(body string, key *sign.Key) string {
		r := sent.Clone(t.Context())
		replaceBody(body)(r)
		m, s := fixture.Message(r), new(sign.Signature)
		require.NoError(t, scheme.Parse(m, s))
		return scheme.SigningString(m, s, key)
	}
	other := shown(`{"amount":501}`, key)
	require.NotEqual(t, client, other)
	require.Equal(t, strings.Split(client, "&")[1:], strings.Split(other, "&")[1:], "it is the amount that differs")
	require.NotContains(t, client+other, "bob")
	require.NotContains(t, client+other, "amount=50") // the nonce may have these digits, too
	require.NotEqual(t, client, shown(`{"amount":500}`, sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(wechatSecret)))), "who has not the secret cannot try values on")
	require.Regexp(t, `^amount=\[3 bytes\]&key_id=demo&.*&to=\[3 bytes\]&key=\[redacted\]$`, shown(`{"amount":500}`, nil))
	require.Empty(t, scheme.SigningString(fixture.Message(sent), new(sign.Signature), key))
}

// Signing refuses what verifying would.
func TestSignRefuses(t *testing.T) {
	key := newKey("demo")
	in := Options{InParams: true}
	for _, c := range []struct {
		name, target, contentType, body string
		o                               Options
		want                            error
	}{
		{"a signature is there already", "/?sign=", "", "", in, sign.CodeMalformed},
		{"a nonce is there already", "/?nonce=0123456789abcdef", "", "", in, sign.CodeMalformed},
		{"another key's id", "/?key_id=other", "", "", in, sign.CodeMalformed},
		{"a parameter with the field's name", "/?nonce=0123456789abcdef", "", "", Options{}, sign.CodeMalformed},
		{"another type", "/", "text/plain", "a=1", in, sign.ReasonUncovered},
		{"no place", "/", "text/plain", "", Options{InParams: true, Places: FromJSON}, sign.ReasonUncovered},
		{"an ambiguous value", "/?a=1%26b=2", "", "", in, sign.CodeMalformed},
	} {
		r := newRequest(t, "POST", c.target, c.contentType, c.body)
		err := sign.Request(r, key, sign.RequestOptions{Scheme: newScheme(t, c.o)})
		require.ErrorIs(t, err, c.want, c.name)
	}
}
