package sortedparams

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// formBody is the good message's body.
const formBody = "amount=5&to=bob&memo=for+rent+%26+food&notify_url=https%3A%2F%2Fa.test%2F%3Fid%3D7&remark="

// jsonBody has the same parameters.
const jsonBody = `{"amount":5,"to":"bob","memo":"for rent & food","notify_url":"https:\/\/a.test\/?id=7","remark":null}`

// as sends another body, of another type.
func as(contentType, body string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", contentType)
		replaceBody(body)(r)
	}
}

// body replaces text in the form.
func body(old, with string) func(*http.Request) {
	return replaceBody(strings.Replace(formBody, old, with, 1))
}

// Each row changes a good message, and says why that must be refused, or must not. Signed are the four fields of the header
// and a form, by the standard options. That another set of parameters is refused, and the same one elsewhere is not, is a
// property of its own; other bytes in the four fields are the suite's.
var attacks = []struct {
	name, why string
	change    func(r *http.Request)
	want      error // nil: it is accepted
}{
	{"untouched", "the row that shows that the others are refused for what they change", func(*http.Request) {}, nil},

	{"value: another number of the same size", "numbers are text: 5 is not 5.0",
		as(jsonType, strings.Replace(jsonBody, "5", "5.0", 1)), sign.ReasonBadSignature},
	{"name: case", "names are bytes, too; some frameworks bind Amount to amount", body("amount", "Amount"), sign.ReasonBadSignature},

	{"doubled: same value", "which one counts differs from framework to framework; refused before it is asked",
		body("amount=5", "amount=5&amount=5"), sign.CodeMalformed},
	{"doubled: another value behind", "the first was signed, the last is read",
		body("amount=5", "amount=5&amount=500"), sign.CodeMalformed},
	{"doubled: empty", "an empty one takes no part in what is signed, but is the first",
		body("amount=5", "amount=&amount=5"), sign.CodeMalformed},
	{"alike: another case, empty", "encoding/json and Fiber's binder take To for to, and the last one wins",
		body("amount=5", "amount=5&To="), sign.CodeMalformed},
	{"alike: null in JSON", "the same", as(jsonType, strings.Replace(jsonBody, "{", `{"AMOUNT":null,`, 1)), sign.CodeMalformed},
	{"a fragment in the target", "fasthttp cuts the query off there; what is behind it would be signed, and not seen",
		func(r *http.Request) { r.URL.RawQuery = "x=1#&y=2" }, sign.CodeMalformed},
	{"type: in capitals", "mime takes it for a form, and frameworks for nothing",
		func(r *http.Request) { r.Header.Set("Content-Type", "Application/x-www-form-urlencoded") }, sign.CodeMalformed},
	{"type: a tab behind it", "Gin does not know where it ends",
		func(r *http.Request) { r.Header.Set("Content-Type", formType+"\t;charset=utf-8") }, sign.CodeMalformed},
	{"doubled: query and body", "r.Form has both", addQuery("amount=500"), sign.CodeMalformed},
	{"doubled: in JSON", "decoders take the last one, some the first",
		as(jsonType, strings.Replace(jsonBody, `"amount":5`, `"amount":500,"amount":5`, 1)), sign.CodeMalformed},

	{"a=1&b=2 in one value", "values are not encoded: {memo: x&to=bob} would be signed as {memo: x, to: bob}",
		replaceBody("amount=5&memo=for+rent+%26+food&notify_url=https%3A%2F%2Fa.test%2F%3Fid%3D7%26to%3Dbob"), sign.CodeMalformed},
	{"= in a name", "{amount=5: x} would be signed as {amount: 5=x}", body("amount=5", "amount%3D5=x"), sign.CodeMalformed},
	{"& in a name", "{amount=5&to: bob} would be signed as two", body("amount=5", "amount%26x=5"), sign.CodeMalformed},
	{"no name", "=5 is signed as nobody's value", body("amount=5", "amount=5&=5"), sign.CodeMalformed},
	{"name: line feed", "no name needs control characters; logs do without", body("amount=5", "a%0Amount=5"), sign.CodeMalformed},
	{"parameter named key", "its text would look like the secret's", addQuery("key=0123456789abcdef0123456789abcdef"), sign.CodeMalformed},
	{"&key= in a value", "the secret must not seem to begin elsewhere", body("bob", "bob%26key%3Dx"), sign.CodeMalformed},
	{"parameter named sign", "stands in the header here; a sign that is not signed would be nobody's",
		addQuery("sign=x"), sign.CodeMalformed},
	{"parameter named timestamp", "a handler would take it for the signed one", addQuery("timestamp=1700000000"), sign.CodeMalformed},
	{"parameter named nonce", "likewise", body("amount=5", "amount=5&nonce="), sign.CodeMalformed},
	{"parameter named key_id", "likewise", addQuery("key_id=demo"), sign.CodeMalformed},
	{"timestamp moved into the query", "the field is required where it belongs", func(r *http.Request) {
		addQuery("timestamp=" + r.Header.Get("X-Timestamp"))(r)
		r.Header.Del("X-Timestamp")
	}, sign.CodeMissing},

	{"form: not UTF-8", "decoders put U+FFFD in its place: many texts become one", body("bob", "%ff"), sign.CodeMalformed},
	{"form: U+FFFD", "so that itself is refused", body("bob", "%EF%BF%BD"), sign.CodeMalformed},
	{"too many parameters", "each costs a comparison", replaceBody(strings.Repeat("&a", 257)), sign.CodeMalformed},
	{"name too long", "it is in errors and logs", body("amount=5", strings.Repeat("a", 129)+"=5"), sign.CodeMalformed},

	{"path", "NOT signed: see Bind", func(r *http.Request) { r.URL.Path = "/refunds" }, nil},
	{"method", "NOT signed: see Bind", func(r *http.Request) { r.Method = "DELETE" }, nil},
	{"header field", "NOT signed", setHeader("X-User", "eve"), nil},

	{"type: none", "whatever reads the body would read what nobody signed",
		func(r *http.Request) { r.Header.Del("Content-Type") }, sign.ReasonUncovered},
	{"type: text", "likewise", setHeader("Content-Type", "text/plain"), sign.ReasonUncovered},
	{"type: multipart", "its files would not be signed",
		setHeader("Content-Type", "multipart/form-data; boundary=x"), sign.ReasonUncovered},
	{"type: malformed", "frameworks would guess", setHeader("Content-Type", "application/json; a=b; a=c"), sign.CodeMalformed},
	{"type: twice", "which one?", addHeader("Content-Type", jsonType), sign.CodeDuplicateHeader},
	{"type: the form said to be JSON", "it is none", setHeader("Content-Type", jsonType), sign.CodeMalformed},
	{"type: XML", "its text could be read in several ways",
		as("text/xml", "<xml><amount>5</amount><to>bob</to></xml>"), sign.ReasonUncovered},
	{"charset", "other characters for the same bytes", setHeader("Content-Type", formType+"; charset=gbk"), sign.CodeMalformed},
	{"Content-Encoding", "the handler would see another body", setHeader("Content-Encoding", "gzip"), sign.CodeMalformed},

	{"JSON: nested object", "its text is not the same on both sides", as(jsonType, `{"amount":{"v":5}}`), sign.CodeMalformed},
	{"JSON: not UTF-8", "decoders put U+FFFD in its place", as(jsonType, strings.Replace(jsonBody, "bob", "\xff", 1)), sign.CodeMalformed},
	{"JSON: too deep", "nested a hundred thousand times", as(jsonType, strings.Repeat(`[`, 100000)), sign.CodeMalformed},

	{"nonce: separators", "it stands in what is signed as it is", setHeader("X-Nonce", "0123456789abcdef&to=eve"), sign.CodeMalformed},
	{"sign: lower case", "one text for one signature: upper case, unless the house says otherwise", func(r *http.Request) {
		r.Header.Set("X-Sign", strings.ToLower(r.Header.Get("X-Sign")[:63])+"f")
	}, sign.CodeMalformed},
	{"sign: truncated", "a prefix is not enough", setHeader("X-Sign", strings.Repeat("0", 62)), sign.CodeMalformed},
	{"sign: the length of MD5", "the message cannot choose the algorithm", setHeader("X-Sign", wechatMD5), sign.CodeMalformed},
	{"sign: not hexadecimal", "another encoding", setHeader("X-Sign", strings.Repeat("G", 64)), sign.CodeMalformed},
	{"sign_type", "nor so: it is a parameter like any other", addQuery("sign_type=MD5"), sign.ReasonBadSignature},
	{"Idempotency-Key", "it looks as if it counted, and anybody on the way can change it; see Bind",
		setHeader("Idempotency-Key", `"k-1"`), sign.ReasonUncovered},
	{"Idempotency-Key twice", "said before it is looked at what is signed", func(r *http.Request) {
		r.Header["Idempotency-Key"] = []string{"a", "b"}
	}, sign.CodeDuplicateHeader},
}

func TestAttacks(t *testing.T) {
	v := func() *sign.Verifier { return verifierAt(Config{}, fixture.Now, signtest.Demo) }
	attack := func(name, why string, change func(*http.Request), want error) {
		t.Run(name, func(t *testing.T) {
			r := newSigned(t, Config{}, "/transfers", formType, formBody)
			good := fixture.Message(r)
			change(r)
			v := v()
			_, err := v.Verify(t.Context(), fixture.Message(r))
			require.ErrorIs(t, err, want, why)
			if want != nil {
				require.NotContains(t, err.Error(), designSecret)
				_, err = v.Verify(t.Context(), good)
				require.NoError(t, err, "the good message's nonce must not have been used up")
			}
		})
	}
	for _, c := range attacks {
		attack(c.name, c.why, c.change, c.want)
	}
	for _, name := range []string{"X-Key-Id", "X-Timestamp", "X-Nonce", "X-Sign"} {
		attack(name+" missing", "each is needed", setHeader(name, ""), sign.CodeMissing)
		attack(name+" twice", "which one?", func(r *http.Request) { r.Header.Add(name, r.Header.Get(name)) }, sign.CodeDuplicateHeader)
	}
}

// The same where the four stand among the parameters.
func TestAttacksAmongParameters(t *testing.T) {
	o := Config{InParams: true, KeyID: "mch_id", Nonce: "nonce_str"}
	for _, c := range []struct {
		why         string
		name, value string // another value; "": none
		more        string // appended to the query
		want        error
	}{
		{"the row that shows that the others are refused for what they change", "", "", "", nil},
		{"nothing to verify", "sign", "", "", sign.CodeMissing},
		{"an empty one is no more than none", "sign", "", "sign=", sign.CodeMissing},
		{"one of two is not what was signed", "", "", "sign=x", sign.CodeMalformed},
		{"which one of two?", "", "", "timestamp=1700000001", sign.CodeMalformed},
		{"it could be sent again", "nonce_str", "", "", sign.CodeMissing},
		{"a nonce is kept", "nonce_str", strings.Repeat("n", 129), "", sign.CodeMalformed},
		{"whose key?", "mch_id", "", "", sign.CodeMissing},
		{"a key id is in logs", "mch_id", "müller", "", sign.CodeMalformed},
	} {
		r := newSigned(t, o, "/?amount=5&to=bob", "", "")
		r.Header.Set("X-Timestamp", "1") // nothing of the header is read
		q := r.URL.Query()
		q.Set(c.name, c.value)
		if c.value == "" {
			q.Del(c.name)
		}
		r.URL.RawQuery = q.Encode()
		addQuery(c.more)(r)
		require.ErrorIs(t, verify(t, o, r), c.want, c.why)
	}
}

// Places keep parameters where the handler reads them.
func TestPlaces(t *testing.T) {
	inQuery := func(r *http.Request) { replaceBody("")(r); addQuery("amount=5&to=bob")(r) }
	for _, c := range []struct {
		places Place
		change func(*http.Request)
		want   error
	}{
		{FromJSON, func(*http.Request) {}, nil},
		{FromJSON, func(r *http.Request) { replaceBody(`{"to":"bob"}`)(r); addQuery("amount=5")(r) }, sign.ReasonUncovered},
		{FromJSON, inQuery, sign.ReasonUncovered},
		{FromJSON, as(formType, "amount=5&to=bob"), sign.ReasonUncovered},
		{FromForm, func(*http.Request) {}, sign.ReasonUncovered},
		{FromForm | FromQuery, func(*http.Request) {}, sign.ReasonUncovered},
		{FromQuery, inQuery, nil},
	} {
		r := newSigned(t, Config{}, "/transfers", jsonType, `{"amount":5,"to":"bob"}`)
		c.change(r)
		require.ErrorIs(t, verify(t, Config{Places: c.places}, r), c.want)
	}
}
