package sortedparams

import (
	"context"
	"crypto/fips140"
	"crypto/md5"
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
	"github.com/idem-go/idem/sign/signtest"
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
func wechatOptions() Config {
	return Config{InParams: true, KeyID: "mch_id", Nonce: "nonce_str", Timestamp: "device_info"}
}

func TestVectors(t *testing.T) {
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "10000100"}, []byte(wechatSecret)))
	for _, digest := range []struct {
		name, sum string
		md5       bool
	}{
		{"sorted-params-md5", wechatMD5, true},
		{"sorted-params", wechatHMAC, false},
	} {
		for place, request := range map[string][3]string{
			"query": {"/?appid=wxd930ea5d5a258f4f&mch_id=10000100&device_info=1000&body=test&nonce_str=ibuaiVcKdpRxkhJA&sign=" +
				digest.sum},
			"form": {"/", formType, "sign=" + digest.sum +
				"&body=test&appid=wxd930ea5d5a258f4f&attach=&nonce_str=ibuaiVcKdpRxkhJA&device_info=1000&mch_id=10000100"},
			"JSON": {"/", jsonType + "; charset=utf-8",
				`{"appid":"wxd930ea5d5a258f4f","mch_id":10000100,"device_info":"1000","body":"test","attach":null,
				"nonce_str":"ibuaiVcKdpRxkhJA","sign":"` + digest.sum + `"}`},
			"query and form": {"/?appid=wxd930ea5d5a258f4f&mch_id=10000100", formType,
				"device_info=1000&body=test&nonce_str=ibuaiVcKdpRxkhJA&sign=" + digest.sum},
		} {
			t.Run(digest.name+" in "+place, func(t *testing.T) {
				o := wechatOptions()
				o.InsecureMD5 = digest.md5
				v := verifierAt(o, time.Unix(1000, 0), key)
				r := newRequest(t, request[0], request[1], request[2])
				verified, err := v.Verify(t.Context(), fixture.Message(r))
				require.NoError(t, err)
				require.Equal(t, sign.Verified{
					KeyID: "10000100", Owner: "10000100", Scheme: digest.name, Algorithm: sign.HMACSHA256, Time: time.Unix(1000, 0),
					Nonce: "ibuaiVcKdpRxkhJA", Consumed: []string{"sign", "mch_id", "device_info", "nonce_str"},
				}, verified)
				_, err = v.Verify(t.Context(), fixture.Message(r))
				require.ErrorIs(t, err, sign.CodeReplayed)
			})
		}
	}
}

// What is added to the message, in each place. The example's parameters that are not the signature's are there already.
func TestSignsInEachPlace(t *testing.T) {
	key := sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "10000100"}, []byte(wechatSecret)))
	const pairs, added = "appid=wxd930ea5d5a258f4f&body=test",
		"device_info=1000&nonce_str=ibuaiVcKdpRxkhJA&mch_id=10000100&sign=" + wechatHMAC
	for name, c := range map[string]struct {
		target, contentType, body string
		query, signedBody         string
	}{
		"query": {"/?" + pairs, "", "", added, ""},
		"form":  {"/", formType, pairs, "", pairs + "&" + added},
		"form with the key id": {"/", formType, "mch_id=10000100&" + pairs + "&", "", "mch_id=10000100&" + pairs + "&" +
			strings.Replace(added, "mch_id=10000100&", "", 1)},
		"form with a query": {"/?appid=wxd930ea5d5a258f4f", formType, "body=test", "", "body=test&" + added},
		"JSON": {"/", jsonType, "{\"appid\":\"wxd930ea5d5a258f4f\",\"body\":\"test\"\n}\n", "",
			`{"appid":"wxd930ea5d5a258f4f","body":"test","device_info":"1000","nonce_str":"ibuaiVcKdpRxkhJA","mch_id":"10000100","sign":"` +
				wechatHMAC + `"}`},
		"JSON without a member": {"/?" + pairs, jsonType, "{ }", "",
			`{"device_info":"1000","nonce_str":"ibuaiVcKdpRxkhJA","mch_id":"10000100","sign":"` + wechatHMAC + `"}`},
	} {
		m := fixture.Message(newRequest(t, c.target, c.contentType, c.body))
		got, err := sign.Must(New(wechatOptions())).Sign(m,
			&sign.Signature{KeyID: "10000100", Created: 1000, Nonce: "ibuaiVcKdpRxkhJA"}, key)
		require.NoError(t, err, name)
		require.Equal(t, c.query, got.Query, name)
		require.Equal(t, c.signedBody, string(got.Body), name)
		require.Equal(t, c.signedBody == "", got.Body == nil, name)
		require.Nil(t, got.Header, name)
	}

	// Without a body, the places say where they go.
	for place, want := range map[Place][2]string{FromForm: {formType, "timestamp=1700000000&"},
		FromJSON: {jsonType, `{"timestamp":"1700000000",`}} {
		o := Config{InParams: true, Places: place}
		r := newSigned(t, o, "/", want[0], "")
		body := fixture.Message(r).Source.(*fixture.Source).Body
		require.True(t, strings.HasPrefix(string(body), want[1]), "%s", body)
		require.NoError(t, verify(t, o, r))
	}
}

// The four fields stand in the header, and take part in what is signed.
func TestInTheHeader(t *testing.T) {
	r := newRequest(t, "/transfers?to=bob", jsonType, `{"amount":5,"remark":""}`)
	added, err := sign.Must(New(Config{})).Sign(fixture.Message(r),
		&sign.Signature{KeyID: "demo", Created: 1700000000, Nonce: "n-0123456789abcdef"}, signtest.Demo)
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
	for _, c := range []struct {
		name  string
		o     Config
		text  string
		wrong []string
	}{
		{"seconds", Config{}, "1700000000",
			[]string{"1700000000.0", "01700000000", "+1700000000", "1.7e9", " 1700000000", "99999999999999999999", "１７"}},
		{"milliseconds", Config{Milliseconds: true}, "1700000000000", []string{"1700000000000.0", "-1"}},
		{"digits of a date", Config{TimeLayout: "20060102150405", Location: china}, "20231115061320",
			[]string{"1700000000", "20231115061320.5", "20231315061320", "2023111506132", " 20231115061320"}},
		{"a date", Config{TimeLayout: time.DateTime, Location: china}, "2023-11-15 06:13:20",
			[]string{"2023-11-15 06:13:20.000", "2023-11-15 6:13:20", "2023-11-15T06:13:20", "2023-11-15 06:13:20 "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.InParams = true
			r := newSigned(t, c.o, "/?a=1", "", "")
			require.Equal(t, c.text, r.URL.Query().Get("timestamp"))
			require.NoError(t, verify(t, c.o, r))
			for _, wrong := range c.wrong {
				q := r.URL.Query()
				q.Set("timestamp", wrong)
				r.URL.RawQuery = q.Encode()
				require.ErrorIs(t, verify(t, c.o, r), sign.CodeMalformed, wrong)
			}
		})
	}

	milliseconds, dates, otherDates := Config{Milliseconds: true}, Config{TimeLayout: "20060102150405", Location: china},
		Config{TimeLayout: "20060102150405", Location: time.UTC}
	require.ErrorIs(t, verify(t, milliseconds, newSigned(t, Config{}, "/?a=1", "", "")), sign.CodeExpired, "seconds taken for milliseconds")
	require.ErrorIs(t, verify(t, Config{}, newSigned(t, milliseconds, "/?a=1", "", "")), sign.CodeNotYetValid, "and the other way about")
	require.ErrorIs(t, verify(t, otherDates, newSigned(t, dates, "/?a=1", "", "")), sign.CodeNotYetValid, "another time zone")
}

// Keys of other kinds have no secret that could be signed.
func TestKeysOfOtherKinds(t *testing.T) {
	signer, verifier := fixture.Pair("demo", fixture.Private().Ed25519)
	r := newSigned(t, Config{}, "/?a=1", "", "")
	require.ErrorIs(t, fixture.Verify(t, sign.Config{Scheme: sign.Must(New(Config{}))}, r, verifier), sign.ReasonWrongAlgorithm)
	require.ErrorIs(t, sign.Request(r, signer, sign.RequestOptions{Scheme: sign.Must(New(Config{}))}), sign.ReasonWrongAlgorithm)
}

// The body is read once, in Parse.
func TestBody(t *testing.T) {
	v, m := verifierAt(Config{}, fixture.Now, signtest.Demo), fixture.Message(newSigned(t, Config{}, "/", formType, "a=1"))
	_, err := v.Verify(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, 1, m.Source.(*fixture.Source).Reads)
	m = fixture.Message(newSigned(t, Config{}, "/", formType, "a=1"))
	m.Source.(*fixture.Source).Err = io.ErrUnexpectedEOF
	_, err = v.Verify(t.Context(), m)
	require.ErrorIs(t, err, sign.CodeMalformed, "not missing")
}

// Method, path, host and Idempotency-Key are signed if the options name them.
func TestBinding(t *testing.T) {
	o := Config{Bind: Binding{Method: "_method", Path: "_path", Host: "_host", IdempotencyKey: "idempotency_key"}}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   error
	}{
		"nothing":                  {func(*http.Request) {}, nil},
		"the host's case":          {func(r *http.Request) { r.Host = "PAY.test" }, nil},
		"an empty parameter":       {addQuery("empty"), nil},
		"the method":               {func(r *http.Request) { r.Method = "PUT" }, sign.ReasonBadSignature},
		"the path":                 {func(r *http.Request) { r.URL.RawPath, r.URL.Path = "", "/transfers/a/b" }, sign.ReasonBadSignature},
		"the host":                 {func(r *http.Request) { r.Host = "other.test" }, sign.ReasonBadSignature},
		"the key":                  {setHeader("Idempotency-Key", `"k-2"`), sign.ReasonBadSignature},
		"no key":                   {func(r *http.Request) { r.Header.Del("Idempotency-Key") }, sign.ReasonBadSignature},
		"an empty key, not signed": {setHeader("Idempotency-Key", ""), sign.ReasonUncovered},
		"two keys":                 {addHeader("Idempotency-Key", `"k-1"`), sign.CodeDuplicateHeader},
		"a key that is not UTF-8":  {setHeader("Idempotency-Key", "\xff"), sign.CodeMalformed},
		"a parameter for the key": {func(r *http.Request) { r.Header.Del("Idempotency-Key"); r.URL.RawQuery = `idempotency_key="k-1"` },
			sign.CodeMalformed},
		"a parameter for the method": {addQuery("_method="), sign.CodeMalformed},
	} {
		r := newRequest(t, "/transfers/a%2Fb", formType, "amount=5")
		r.Header.Set("Idempotency-Key", `"k-1"`)
		fixture.Sign(t, r, signtest.Demo, sign.RequestOptions{Scheme: sign.Must(New(o))})
		c.change(r)
		require.ErrorIs(t, verify(t, o, r), c.want, name)
	}
}

// Names, case and the secret's name differ from gateway to gateway.
func TestOptions(t *testing.T) {
	for _, o := range []Config{
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
		r := newSigned(t, o, "/?key2=1", formType, "notify_url="+url.QueryEscape("https://a.test/?x=1"))
		require.NoError(t, verify(t, o, r), "%+v", o)
		if !o.InParams && o.Places == 0 {
			require.Error(t, verify(t, Config{}, r), "%+v", o)
		}
	}

	_, err := New(Config{
		KeyID: "a b", Timestamp: "1", Nonce: "sign", SecretName: "x&", InParams: true,
		KeyIDHeader: "a b", TimestampHeader: "Host", NonceHeader: "X-Sign", Milliseconds: true, TimeLayout: "2006", Places: 0x80,
		Bind: Binding{Method: "sign", IdempotencyKey: "a=b"}, InsecureBareSecret: true,
	})
	require.Equal(t, []string{
		"sortedparams.Config.KeyID", "sortedparams.Config.Timestamp", "sortedparams.Config.Sign", "sortedparams.Config.SecretName",
		"sortedparams.Config.SecretName", "sortedparams.Config.Bind.Method", "sortedparams.Config.Bind.IdempotencyKey",
		"sortedparams.Config.KeyIDHeader", "sortedparams.Config.KeyIDHeader", "sortedparams.Config.TimestampHeader",
		"sortedparams.Config.TimestampHeader", "sortedparams.Config.NonceHeader", "sortedparams.Config.SignHeader",
		"sortedparams.Config.Milliseconds", "sortedparams.Config.Location", "sortedparams.Config.Places",
	}, fixture.ConfigErrors(t, err))
	for _, name := range []string{"Connection", "content-length", "Idempotency-Key", "X:Sign", "X-S\u00edgn"} {
		_, err := New(Config{SignHeader: name})
		require.Equal(t, []string{"sortedparams.Config.SignHeader"}, fixture.ConfigErrors(t, err), name)
	}
}

// The two old schemes, computed here by what they say.
func TestOldSchemes(t *testing.T) {
	const common = "app=demo&nonce=n-0123456789abcdef&timestamp=1700000000"
	body := "app=demo&key=k&nonce=n-0123456789abcdef&timestamp=1700000000&sign="
	md5Of := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	old := Config{InParams: true, KeyID: "app", LowerCase: true, InsecureMD5: true, InsecureBareSecret: true}
	verify := func(o Config, body string) error { return verify(t, o, newRequest(t, "/", formType, body)) }
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
	r := fixture.Sign(t, newRequest(t, "/", formType, "key=k"), signtest.Demo, sign.RequestOptions{
		Scheme: sign.Must(New(old)), Observe: func(_ *http.Request, s string) { text = s },
	})
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
	_, err := New(Config{InsecureMD5: true})
	require.Equal(t, []string{"sortedparams.Config.InsecureMD5"}, fixture.ConfigErrors(t, err))

	require.NoError(t, verify(t, Config{}, newSigned(t, Config{}, "/", formType, "a=1")))
}

// Both sides show the same text. The parameter that differs can be found, and no value can be read.
func TestSigningString(t *testing.T) {
	scheme := sign.Must(New(Config{}))
	var client, server string
	sent := fixture.Sign(t, newRequest(t, "/?to=bob", jsonType, `{"amount":500,"remark":""}`), signtest.Demo, sign.RequestOptions{
		Scheme: scheme, Observe: func(_ *http.Request, text string) { client = text },
	})
	require.Regexp(t, `^amount=\[3 bytes, [0-9a-f]{8}\]&key_id=demo&nonce=[0-9a-f]{32}&`+
		`timestamp=1700000000&to=\[3 bytes, [0-9a-f]{8}\]&key=\[redacted\]$`, client)
	config := sign.Config{Scheme: scheme, Observe: func(_ context.Context, e sign.Event) { server = e.SigningString() }}
	require.NoError(t, fixture.Verify(t, config, sent, signtest.Demo))
	require.Equal(t, client, server)

	shown := func(body string, key *sign.Key) string {
		r := sent.Clone(t.Context())
		replaceBody(body)(r)
		m, s := fixture.Message(r), new(sign.Signature)
		require.NoError(t, scheme.Parse(m, s))
		return scheme.SigningString(m, s, key)
	}
	other := shown(`{"amount":501}`, signtest.Demo)
	require.NotEqual(t, client, other)
	require.Equal(t, strings.Split(client, "&")[1:], strings.Split(other, "&")[1:], "the amount differs")
	require.NotContains(t, client+other, "bob")
	require.NotContains(t, client+other, "amount=50") // the nonce may have these digits, too
	require.NotEqual(t, client, shown(`{"amount":500}`, signtest.Forger), "without the secret, nobody can compute the digits of a guess")
	require.Regexp(t, `^amount=\[3 bytes\]&key_id=demo&.*&to=\[3 bytes\]&key=\[redacted\]$`, shown(`{"amount":500}`, nil))
	require.Empty(t, scheme.SigningString(fixture.Message(sent), new(sign.Signature), signtest.Demo))
}

// Sign refuses what Parse would.
func TestSignRefuses(t *testing.T) {
	in := Config{InParams: true}
	for _, c := range []struct {
		name, target, contentType, body string
		o                               Config
		want                            error
	}{
		{"a signature is there already", "/?sign=", "", "", in, sign.CodeMalformed},
		{"a nonce is there already", "/?nonce=0123456789abcdef", "", "", in, sign.CodeMalformed},
		{"another key's id", "/?key_id=other", "", "", in, sign.CodeMalformed},
		{"a parameter with the field's name", "/?nonce=0123456789abcdef", "", "", Config{}, sign.CodeMalformed},
		{"another type", "/", "text/plain", "a=1", in, sign.ReasonUncovered},
		{"no place", "/", "text/plain", "", Config{InParams: true, Places: FromJSON}, sign.ReasonUncovered},
		{"an ambiguous value", "/?a=1%26b=2", "", "", in, sign.CodeMalformed},
		{"a long query", "/?" + strings.Repeat("&", 32<<10+1), "", "", in, sign.CodeMalformed},
		{"the longest query", "/?" + strings.Repeat("&", 32<<10), "", "", in, nil},
	} {
		r := newRequest(t, c.target, c.contentType, c.body)
		require.ErrorIs(t, sign.Request(r, signtest.Demo, sign.RequestOptions{Scheme: sign.Must(New(c.o))}), c.want, c.name)
	}
}
