package sortedparams

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
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

// Each row changes a good message, and says why that must be refused, or must not. Signed are the four
// fields of the header and a form, by the standard options.
var attacks = []struct {
	name, why string
	change    func(r *http.Request)
	want      error // nil: it is accepted
}{
	{"untouched", "the row that shows that the others are refused for what they change", func(*http.Request) {}, nil},

	{"value", "what it is all about", body("amount=5", "amount=50000"), sign.ReasonBadSignature},
	{"value: case", "values are bytes", body("bob", "Bob"), sign.ReasonBadSignature},
	{"value: a blank more", "nothing is trimmed", body("bob", "bob+"), sign.ReasonBadSignature},
	{"value: another number of the same size", "numbers are text: 5 is not 5.0", as(jsonType, strings.Replace(jsonBody, "5", "5.0", 1)), sign.ReasonBadSignature},
	{"value: exponent", "nor 5e0", as(jsonType, strings.Replace(jsonBody, "5", "5e0", 1)), sign.ReasonBadSignature},
	{"name: case", "names are bytes, too; some frameworks bind Amount to amount", body("amount", "Amount"), sign.ReasonBadSignature},
	{"parameter added", "a handler might read it", addQuery("admin=1"), sign.ReasonBadSignature},
	{"parameter removed", "a default would stand in for it", body("&to=bob", ""), sign.ReasonBadSignature},
	{"values swapped", "a value belongs to its name", replaceBody("amount=bob&to=5&memo=for+rent+%26+food&notify_url=https%3A%2F%2Fa.test%2F%3Fid%3D7"), sign.ReasonBadSignature},
	{"nothing left", "a signature of something is not that of nothing", replaceBody(""), sign.ReasonBadSignature},

	{"doubled: same value", "which one counts differs from framework to framework; refused before it is asked", body("amount=5", "amount=5&amount=5"), sign.CodeMalformed},
	{"doubled: another value behind", "the first was signed, the last is read", body("amount=5", "amount=5&amount=500"), sign.CodeMalformed},
	{"doubled: another value in front", "or the other way about", body("amount=5", "amount=500&amount=5"), sign.CodeMalformed},
	{"doubled: empty", "an empty one takes no part in what is signed, but is the first", body("amount=5", "amount=&amount=5"), sign.CodeMalformed},
	{"alike: another case, empty", "encoding/json and Fiber's binder take To for to, and the last one wins", body("amount=5", "amount=5&To="), sign.CodeMalformed},
	{"alike: null in JSON", "the same", as(jsonType, strings.Replace(jsonBody, "{", `{"AMOUNT":null,`, 1)), sign.CodeMalformed},
	{"alike: more of it", "binders take to[] for more of to", body("amount=5", "amount=5&to%5B%5D="), sign.CodeMalformed},
	{"alike: a member of it", "or for a member", body("amount=5", "amount=5&to%5Ba%5D="), sign.CodeMalformed},
	{"alike: the long s", "which encoding/json folds to s", addQuery("\u017fign="), sign.CodeMalformed},
	{"alike: in brackets", "Fiber takes user[limit] for user.limit", replaceBody("user.limit=10&user%5Blimit%5D="), sign.CodeMalformed},
	{"not alike: parts of one", "PHP and Rails name the parts of a list and of a map so; nothing is wrong but that they were not signed", addQuery("items%5B0%5D=a&items%5B1%5D=b&filter%5Bfrom%5D=1&filter%5Bto%5D=2"), sign.ReasonBadSignature},
	{"not alike: the secret's name in another case", "no handler sees the secret", addQuery("Key=1"), sign.ReasonBadSignature},
	{"a fragment in the target", "fasthttp cuts the query off there; what is behind it would be signed, and not seen", func(r *http.Request) { r.URL.RawQuery = "x=1#&y=2" }, sign.CodeMalformed},
	{"type: in capitals", "mime takes it for a form, and frameworks for nothing", func(r *http.Request) { r.Header.Set("Content-Type", "Application/x-www-form-urlencoded") }, sign.CodeMalformed},
	{"type: a tab behind it", "Gin does not know where it ends", func(r *http.Request) { r.Header.Set("Content-Type", formType+"\t;charset=utf-8") }, sign.CodeMalformed},
	{"type: with a charset", "an ordinary parameter", func(r *http.Request) { r.Header.Set("Content-Type", formType+"; charset=UTF-8") }, nil},
	{"doubled: query and body", "r.Form has both", addQuery("amount=500"), sign.CodeMalformed},
	{"doubled: escaped name", "%61mount is amount", body("amount=5", "amount=5&%61mount=500"), sign.CodeMalformed},
	{"doubled: in JSON", "decoders take the last one, some the first", as(jsonType, strings.Replace(jsonBody, `"amount":5`, `"amount":500,"amount":5`, 1)), sign.CodeMalformed},
	{"doubled: in JSON, escaped", "the escape stands for the letter", as(jsonType, strings.Replace(jsonBody, `"amount":5`, `"\u0061mount":500,"amount":5`, 1)), sign.CodeMalformed},

	{"a=1&b=2 in one value", "values are not encoded: {memo: x&to=bob} would be signed as {memo: x, to: bob}", replaceBody("amount=5&memo=for+rent+%26+food&notify_url=https%3A%2F%2Fa.test%2F%3Fid%3D7%26to%3Dbob"), sign.CodeMalformed},
	{"= in a name", "{amount=5: x} would be signed as {amount: 5=x}", body("amount=5", "amount%3D5=x"), sign.CodeMalformed},
	{"& in a name", "{amount=5&to: bob} would be signed as two", body("amount=5", "amount%26x=5"), sign.CodeMalformed},
	{"no name", "=5 is signed as nobody's value", body("amount=5", "amount=5&=5"), sign.CodeMalformed},
	{"name: line feed", "no name needs control characters; logs do without", body("amount=5", "a%0Amount=5"), sign.CodeMalformed},
	{"parameter named key", "its text would look like the secret's", addQuery("key=0123456789abcdef0123456789abcdef"), sign.CodeMalformed},
	{"parameter named key, without a value", "the name is taken all the same", addQuery("key="), sign.CodeMalformed},
	{"&key= in a value", "the secret must not seem to begin elsewhere", body("bob", "bob%26key%3Dx"), sign.CodeMalformed},
	{"parameter named secret", "is one like any other", addQuery("secret=x"), sign.ReasonBadSignature},
	{"parameter named sign", "stands in the header here; a sign that is not signed would be nobody's", addQuery("sign=x"), sign.CodeMalformed},
	{"parameter named sign, in the body", "nor there", body("amount=5", "amount=5&sign="), sign.CodeMalformed},
	{"parameter named timestamp", "a handler would take it for the signed one", addQuery("timestamp=1700000000"), sign.CodeMalformed},
	{"parameter named nonce", "likewise", body("amount=5", "amount=5&nonce="), sign.CodeMalformed},
	{"parameter named key_id", "likewise", addQuery("key_id=demo"), sign.CodeMalformed},
	{"timestamp moved into the query", "the field is required where it belongs", func(r *http.Request) {
		addQuery("timestamp=" + r.Header.Get("X-Timestamp"))(r)
		r.Header.Del("X-Timestamp")
	}, sign.CodeMissing},

	{"query: ;", "net/http drops such a pair silently", addQuery("a;amount=500"), sign.CodeMalformed},
	{"query: bad escape", "likewise", addQuery("a=%zz"), sign.CodeMalformed},
	{"query: bad escape in a name", "likewise", addQuery("%zz=1"), sign.CodeMalformed},
	{"query: half an escape", "likewise", addQuery("a=%"), sign.CodeMalformed},
	{"form: ;", "likewise", body("amount=5", "amount=5;x=1"), sign.CodeMalformed},
	{"form: not UTF-8", "decoders put U+FFFD in its place: many texts become one", body("bob", "%ff"), sign.CodeMalformed},
	{"form: U+FFFD", "so that itself is refused", body("bob", "%EF%BF%BD"), sign.CodeMalformed},
	{"too many parameters", "each costs a comparison", replaceBody(strings.Repeat("&a", 257)), sign.CodeMalformed},
	{"name too long", "it is in errors and logs", body("amount=5", strings.Repeat("a", 129)+"=5"), sign.CodeMalformed},
	{"query too long", "bodies have a limit, and so has this", addQuery(strings.Repeat("&", 32<<10+1)), sign.CodeMalformed},

	{"other body: JSON with the same parameters", "NOT signed: a message is its parameters, however they are written; see Places", as(jsonType, jsonBody), nil},
	{"other body: JSON, strings for numbers", "NOT signed: there is no type in what is signed", as(jsonType, strings.Replace(jsonBody, ":5", `:"5"`, 1)), nil},
	{"parameter moved to the query", "NOT signed: see Places", func(r *http.Request) { body("&to=bob", "")(r); addQuery("to=bob")(r) }, nil},
	{"order", "NOT signed: they are sorted", replaceBody("to=bob&notify_url=https%3A%2F%2Fa.test%2F%3Fid%3D7&memo=for+rent+%26+food&amount=5"), nil},
	{"empty parameter added", "NOT signed: handlers must not tell it from none", addQuery("coupon="), nil},
	{"empty pairs", "they are nothing", addQuery("&&"), nil},
	{"path", "NOT signed: see Bind", func(r *http.Request) { r.URL.Path = "/refunds" }, nil},
	{"method", "NOT signed: see Bind", func(r *http.Request) { r.Method = "DELETE" }, nil},
	{"header field", "NOT signed", setHeader("X-User", "eve"), nil},

	{"type: none", "whatever reads the body would read what nobody signed", func(r *http.Request) { r.Header.Del("Content-Type") }, sign.ReasonUncovered},
	{"type: text", "likewise", setHeader("Content-Type", "text/plain"), sign.ReasonUncovered},
	{"type: multipart", "its files would not be signed", setHeader("Content-Type", "multipart/form-data; boundary=x"), sign.ReasonUncovered},
	{"type: malformed", "frameworks would guess", setHeader("Content-Type", "application/json; a=b; a=c"), sign.CodeMalformed},
	{"type: twice", "which one?", addHeader("Content-Type", jsonType), sign.CodeDuplicateHeader},
	{"type: the form said to be JSON", "it is none", setHeader("Content-Type", jsonType), sign.CodeMalformed},
	{"type: XML", "its text could be read in several ways", as("text/xml", "<xml><amount>5</amount><to>bob</to></xml>"), sign.ReasonUncovered},
	{"charset", "other characters for the same bytes", setHeader("Content-Type", formType+"; charset=gbk"), sign.CodeMalformed},
	{"charset: UTF-8", "the one that there is", setHeader("Content-Type", formType+"; charset=UTF-8"), nil},
	{"Content-Encoding", "the handler would see another body", setHeader("Content-Encoding", "gzip"), sign.CodeMalformed},

	{"JSON: nested object", "its text is not the same on both sides", as(jsonType, `{"amount":{"v":5}}`), sign.CodeMalformed},
	{"JSON: array", "likewise", as(jsonType, `{"amount":[5]}`), sign.CodeMalformed},
	{"JSON: no object", "there are no names", as(jsonType, `[{"amount":5}]`), sign.CodeMalformed},
	{"JSON: a string", "likewise", as(jsonType, `"amount"`), sign.CodeMalformed},
	{"JSON: two", "decoders stop behind the first", as(jsonType, jsonBody+`{"amount":500}`), sign.CodeMalformed},
	{"JSON: cut off", "an unfinished message", as(jsonType, jsonBody[:20]), sign.CodeMalformed},
	{"JSON: comma at the end", "some decoders take it", as(jsonType, strings.Replace(jsonBody, "null}", "null,}", 1)), sign.CodeMalformed},
	{"JSON: comment", "some decoders take it", as(jsonType, "/**/"+jsonBody), sign.CodeMalformed},
	{"JSON: not UTF-8", "decoders put U+FFFD in its place", as(jsonType, strings.Replace(jsonBody, "bob", "\xff", 1)), sign.CodeMalformed},
	{"JSON: half of a surrogate pair", "likewise", as(jsonType, strings.Replace(jsonBody, "bob", `\ud800`, 1)), sign.CodeMalformed},
	{"JSON: deep", "nested a thousand times", as(jsonType, strings.Repeat(`{"a":`, 1000)+"1"+strings.Repeat("}", 1000)), sign.CodeMalformed},
	{"JSON: too deep", "nested a hundred thousand times", as(jsonType, strings.Repeat(`[`, 100000)), sign.CodeMalformed},

	{"key id: another", "nobody's key", setHeader("X-Key-Id", "other"), sign.ReasonUnknownKey},
	{"key id: missing", "whose key?", setHeader("X-Key-Id", ""), sign.CodeMissing},
	{"key id: twice", "which one?", addHeader("X-Key-Id", "demo"), sign.CodeDuplicateHeader},
	{"key id: blank", "visible ASCII", setHeader("X-Key-Id", "a b"), sign.CodeMalformed},
	{"timestamp: another", "it is signed", setHeader("X-Timestamp", "1700000001"), sign.ReasonBadSignature},
	{"timestamp: too old", "time comes first", setHeader("X-Timestamp", "1699999939"), sign.CodeExpired},
	{"timestamp: too new", "in either direction", setHeader("X-Timestamp", "1700000061"), sign.CodeNotYetValid},
	{"timestamp: milliseconds", "digits, of another time", setHeader("X-Timestamp", "1700000000000"), sign.CodeNotYetValid},
	{"timestamp: missing", "it would be good for ever", setHeader("X-Timestamp", ""), sign.CodeMissing},
	{"timestamp: twice", "which one?", addHeader("X-Timestamp", "1700000000"), sign.CodeDuplicateHeader},
	{"timestamp: not digits", "one text for one time", setHeader("X-Timestamp", "1.7e9"), sign.CodeMalformed},
	{"nonce: another", "it is signed: a new one would make the message a new one", setHeader("X-Nonce", "0123456789abcdef"), sign.ReasonBadSignature},
	{"nonce: missing", "it could be sent again", setHeader("X-Nonce", ""), sign.CodeMissing},
	{"nonce: short", "it could be guessed, or used again by accident", setHeader("X-Nonce", "0123456789abcde"), sign.CodeMalformed},
	{"nonce: separators", "it stands in what is signed as it is", setHeader("X-Nonce", "0123456789abcdef&to=eve"), sign.CodeMalformed},
	{"nonce: twice", "which one?", addHeader("X-Nonce", "0123456789abcdef"), sign.CodeDuplicateHeader},
	{"sign: missing", "nothing to verify", setHeader("X-Sign", ""), sign.CodeMissing},
	{"sign: twice", "which one?", addHeader("X-Sign", strings.Repeat("0", 64)), sign.CodeDuplicateHeader},
	{"sign: all zero", "no value is special", setHeader("X-Sign", strings.Repeat("0", 64)), sign.ReasonBadSignature},
	{"sign: one digit", "all of it counts", func(r *http.Request) {
		s := []byte(r.Header.Get("X-Sign"))
		s[63] = map[bool]byte{true: '1', false: '0'}[s[63] == '0']
		r.Header.Set("X-Sign", string(s))
	}, sign.ReasonBadSignature},
	{"sign: lower case", "one text for one signature: upper case, unless the house says otherwise", func(r *http.Request) {
		r.Header.Set("X-Sign", strings.ToLower(r.Header.Get("X-Sign")[:63])+"f")
	}, sign.CodeMalformed},
	{"sign: truncated", "a prefix is not enough", setHeader("X-Sign", strings.Repeat("0", 62)), sign.CodeMalformed},
	{"sign: the length of MD5", "the message cannot choose the algorithm", setHeader("X-Sign", wechatMD5), sign.CodeMalformed},
	{"sign: not hexadecimal", "another encoding", setHeader("X-Sign", strings.Repeat("G", 64)), sign.CodeMalformed},
	{"sign_type", "nor so: it is a parameter like any other", addQuery("sign_type=MD5"), sign.ReasonBadSignature},
	{"Idempotency-Key", "it looks as if it counted, and anybody on the way can change it; see Bind", setHeader("Idempotency-Key", `"k-1"`), sign.ReasonUncovered},
	{"Idempotency-Key twice", "said before it is looked at what is signed", func(r *http.Request) {
		r.Header["Idempotency-Key"] = []string{"a", "b"}
	}, sign.CodeDuplicateHeader},
}

func TestAttacks(t *testing.T) {
	key := newKey("demo")
	for _, c := range attacks {
		t.Run(c.name, func(t *testing.T) {
			r := newRequest(t, "POST", "/transfers", formType, formBody)
			signBy(t, r, Options{}, key)
			good := fixture.Message(r)
			c.change(r)
			v := newVerifier(t, Options{}, now, key)
			_, err := v.Verify(t.Context(), fixture.Message(r))
			if c.want == nil {
				require.NoError(t, err, c.why)
				return
			}
			require.ErrorIs(t, err, c.want, c.why)
			require.NotContains(t, err.Error(), designSecret)
			_, err = v.Verify(t.Context(), good)
			require.NoError(t, err, "the good message's nonce must not have been used up")
		})
	}
}

// The same where the four stand among the parameters.
var paramAttacks = []struct {
	name, why string
	change    func(pairs map[string]string)
	more      string // appended to the query
	want      error
}{
	{"untouched", "the row that shows that the others are refused for what they change", func(map[string]string) {}, "", nil},
	{"value", "it is signed", func(p map[string]string) { p["amount"] = "6" }, "", sign.ReasonBadSignature},
	{"sign: missing", "nothing to verify", func(p map[string]string) { delete(p, "sign") }, "", sign.CodeMissing},
	{"sign: empty", "no more than none", func(p map[string]string) { p["sign"] = "" }, "", sign.CodeMissing},
	{"sign: twice", "one of them is not what was signed", func(map[string]string) {}, "sign=x", sign.CodeMalformed},
	{"sign: all zero", "no value is special", func(p map[string]string) { p["sign"] = strings.Repeat("0", 64) }, "", sign.ReasonBadSignature},
	{"timestamp: missing", "it would be good for ever", func(p map[string]string) { delete(p, "timestamp") }, "", sign.CodeMissing},
	{"timestamp: another", "it is signed", func(p map[string]string) { p["timestamp"] = "1700000001" }, "", sign.ReasonBadSignature},
	{"timestamp: twice", "which one?", func(map[string]string) {}, "timestamp=1700000001", sign.CodeMalformed},
	{"nonce: missing", "it could be sent again", func(p map[string]string) { delete(p, "nonce_str") }, "", sign.CodeMissing},
	{"nonce: another", "it is signed", func(p map[string]string) { p["nonce_str"] = "0123456789abcdef" }, "", sign.ReasonBadSignature},
	{"nonce: too long", "it is kept", func(p map[string]string) { p["nonce_str"] = strings.Repeat("n", 129) }, "", sign.CodeMalformed},
	{"key id: missing", "whose key?", func(p map[string]string) { delete(p, "mch_id") }, "", sign.CodeMissing},
	{"key id: another", "nobody's key", func(p map[string]string) { p["mch_id"] = "2" }, "", sign.ReasonUnknownKey},
	{"key id: not ASCII", "it is in logs", func(p map[string]string) { p["mch_id"] = "müller" }, "", sign.CodeMalformed},
	{"header fields beside", "nothing stands in the header: they are not looked at", func(map[string]string) {}, "", nil},
}

func TestAttacksAmongParameters(t *testing.T) {
	key := newKey("demo")
	o := Options{InParams: true, KeyID: "mch_id", Nonce: "nonce_str"}
	for _, c := range paramAttacks {
		t.Run(c.name, func(t *testing.T) {
			r := newRequest(t, "GET", "/?amount=5&to=bob", "", "")
			signBy(t, r, o, key)
			r.Header.Set("X-Timestamp", "1")
			pairs := make(map[string]string)
			q := r.URL.Query()
			for name := range q {
				pairs[name] = q.Get(name)
			}
			c.change(pairs)
			for name := range q {
				q.Del(name)
			}
			for name, value := range pairs {
				q.Set(name, value)
			}
			r.URL.RawQuery = q.Encode()
			if c.more != "" {
				addQuery(c.more)(r)
			}
			v := newVerifier(t, o, now, key)
			_, err := v.Verify(t.Context(), fixture.Message(r))
			if c.want == nil {
				require.NoError(t, err, c.why)
				_, err = v.Verify(t.Context(), fixture.Message(r))
				require.ErrorIs(t, err, sign.CodeReplayed)
				return
			}
			require.ErrorIs(t, err, c.want, c.why)
		})
	}
}

// Places keep parameters where the handler reads them.
func TestPlaces(t *testing.T) {
	key := newKey("demo")
	verify := func(places Place, change func(*http.Request)) error {
		r := newRequest(t, "POST", "/transfers", jsonType, `{"amount":5,"to":"bob"}`)
		signBy(t, r, Options{}, key)
		change(r)
		_, err := newVerifier(t, Options{Places: places}, now, key).Verify(t.Context(), fixture.Message(r))
		return err
	}
	require.NoError(t, verify(FromJSON, func(*http.Request) {}))
	require.ErrorIs(t, verify(FromJSON, func(r *http.Request) { replaceBody(`{"to":"bob"}`)(r); addQuery("amount=5")(r) }), sign.ReasonUncovered)
	require.ErrorIs(t, verify(FromJSON, func(r *http.Request) { replaceBody("")(r); addQuery("amount=5&to=bob")(r) }), sign.ReasonUncovered)
	require.ErrorIs(t, verify(FromJSON, as(formType, "amount=5&to=bob")), sign.ReasonUncovered)
	require.ErrorIs(t, verify(FromForm, func(*http.Request) {}), sign.ReasonUncovered)
	require.ErrorIs(t, verify(FromForm|FromQuery, func(*http.Request) {}), sign.ReasonUncovered)
	require.NoError(t, verify(FromQuery, func(r *http.Request) { replaceBody("")(r); addQuery("amount=5&to=bob")(r) }))
}
