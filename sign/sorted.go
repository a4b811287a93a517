package sign

import (
	"crypto/fips140"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/sign/internal/secret"
)

// HeaderSign is the standard name of the field that holds the signature of [SortedParams]; the
// others are [HeaderKeyID], [HeaderTimestamp] and [HeaderNonce].
const HeaderSign = "X-Sign"

// Place is where parameters may stand in a message; places are joined by |.
type Place uint8

// The places.
const (
	FromQuery Place = 1 << iota // the query
	FromForm                    // a body of the type application/x-www-form-urlencoded
	FromJSON                    // a body of the type application/json: one flat object
	FromXML                     // a body of the type text/xml or application/xml: one flat <xml>
)

const fromAnywhere = FromQuery | FromForm | FromJSON | FromXML

// SortedOptions are the choices of [NewSortedParams]. The zero value is what [SortedParams]
// describes. For WeChat Pay v2 they are
//
//	sign.SortedOptions{
//		InParams: true, KeyID: "mch_id", Nonce: "nonce_str", Timestamp: "timestamp",
//		Places: sign.FromXML,
//	}
type SortedOptions struct {
	// KeyID, Timestamp, Nonce and Sign are the names under which key id, timestamp, nonce and
	// signature are parameters: letters, digits, _, - and full stops. Empty: key_id, timestamp,
	// nonce, sign.
	KeyID, Timestamp, Nonce, Sign string

	// InParams says that the four stand among the parameters of the message. False: they stand in header
	// fields, and the first three take part in what is signed under the names above.
	InParams bool

	// KeyIDHeader, TimestampHeader, NonceHeader and SignHeader are the names of the header fields.
	// Empty: X-Key-Id, X-Timestamp, X-Nonce, X-Sign.
	KeyIDHeader, TimestampHeader, NonceHeader, SignHeader string

	// SecretName is the name that the secret has at the end of what is signed. Empty: key.
	SecretName string

	// LowerCase says that the signature is in lower-case hexadecimal digits. False: in upper-case
	// ones. It is exact either way.
	LowerCase bool

	// Milliseconds says that the timestamp is in milliseconds since 1970. They are cut off to
	// seconds.
	Milliseconds bool

	// TimeLayout is the timestamp's layout (package time), for gateways that send a date:
	// "20060102150405". It needs a Location. Empty: seconds since 1970, digits only.
	TimeLayout string

	// Location is where TimeLayout's clock hangs; for most of these gateways it is
	// time.FixedZone("CST", 8*60*60). Where clocks are put back in autumn, the messages of one hour
	// are taken for an hour older.
	Location *time.Location

	// Places are where parameters may stand. A message with a query or a body that is none of
	// these is refused ([ReasonUncovered]). Name the one that your handlers read: in which place a
	// parameter stands is not signed. Zero: anywhere.
	Places Place

	// Bind makes parameters of what else is to be signed, for houses whose clients do the same.
	Bind SortedBinding

	// InsecureAmpersands are the names of parameters whose values may hold "&name=", such as a
	// notify_url with a query of its own. Insecure: of these, it cannot be told where a value ends.
	// Whoever has a signed message with notify_url=https://a/?x=1&order=2 can send it with
	// notify_url=https://a/?x=1 and a parameter order=2, and can hide the parameters that sort right
	// behind notify_url in its value. Percent-encode such values instead if you can. What is named
	// above, or bound, must not be among them.
	InsecureAmpersands []string

	// InsecureMD5 signs with MD5 instead of HMAC-SHA256, for gateways that know nothing else.
	// Insecure: two messages with the same MD5 can be made at will, and as the secret comes last,
	// who has one signed has the other one signed, too. Use a key for one of
	// the two only. Refused under FIPS 140.
	InsecureMD5 bool

	// InsecureBareSecret signs the secret right behind the last value, without "&key=", for gateways that know
	// nothing else. Insecure: nothing tells where the last value ends and the secret begins, so that, with
	// InsecureMD5, whoever knows a secret that another one ends with has the other's signature of a message
	// whose last value ends with the rest. SecretName must be empty then, and no name is kept from the message.
	InsecureBareSecret bool

	// InsecureUnsigned is the name of a parameter that is not signed: sign_type, for gateways that leave it out.
	// Insecure: whoever relays a message can change, add or remove it. Handlers must not look at it; the
	// algorithm is the configuration's all the same.
	InsecureUnsigned string
}

// SortedBinding holds the names of the parameters that stand for what is no parameter. They take part in
// what is signed, and no parameter of the message may have such a name. Empty: it is not
// signed.
type SortedBinding struct {
	// Method, Path and Host are the method as sent, the path as sent, and the host in lower
	// case, with the port if one was sent (or [Config].Host).
	Method, Path, Host string
	// IdempotencyKey is the value of the Idempotency-Key field. A message without one
	// has no such parameter.
	IdempotencyKey string
}

// SortedParams is the scheme of WeChat Pay v2 and of the many gateways that do likewise. Signed are the
// parameters of the message, those with an empty value and the signature itself left out, sorted
// by the bytes of their names, not encoded, and after them the secret:
//
//	amount=5&key_id=demo&nonce=n-0123456789abcdef&timestamp=1700000000&to=bob&key=<secret>
//
// The signature is the HMAC-SHA256 of this under the same secret, in upper-case hexadecimal digits. By
// default X-Key-Id, X-Timestamp, X-Nonce and X-Sign are header fields; see [SortedOptions].InParams. The
// key is one of [NewHMACKey]. The algorithm is the configuration's: a parameter sign_type is one like any other.
//
// # What it does not sign
//
// THE METHOD, THE PATH, THE HOST AND THE HEADER ARE NOT SIGNED. Who relays a signed message can send
// it to another route of the service: give each API a key of its own, have a parameter that
// says what is asked for, or sign method and path by [SortedOptions].Bind. Prefer [V1] where you
// may choose.
//
// Nor is it signed:
//   - in which place a parameter stands: who relays a message can move one from the body to the query,
//     where a handler may not look. Name the place by [SortedOptions].Places;
//   - whether a JSON value is a string, a number or a boolean: "5" and 5 are the same;
//   - parameters without a value: "", null and <a></a> can be added and taken away. Handlers must not
//     tell them from absent ones;
//   - the order of parameters, and how the values are escaped.
//
// A body of any other type is refused with [ReasonUncovered], multipart forms with their files among them:
// nothing of it would be signed. So is an Idempotency-Key, unless [SortedBinding] names it.
// A Content-Type has to name its type in lower case; a Content-Encoding is refused.
//
// # Parameters
//
// The query and forms are pairs with & in between, percent-encoded; a bad escape or a raw ";" is refused, which
// frameworks drop silently. Names that some decoder takes for one (amount and Amount, a and a[]) are
// refused, too. A JSON body is one object of strings, numbers (by their exact text: 1.0
// and 1 are two values), booleans and null; objects and arrays within it are refused, as their
// texts differ between the two sides; send them as strings. An XML body is
// <xml><name>value</name>…</xml>, also with CDATA, and with a declaration in front; names are letters, digits, _,
// - and full stops. DOCTYPE, comments, attributes, nested elements and
// entities other than &lt; &gt; &amp; &apos; &quot; and &#…; are refused. Everything is
// UTF-8. A message has at most 256 parameters. A name that is there twice, in one place or in two, is
// refused. Faults of form are [CodeMalformed].
//
// As values are not encoded, {a: "1&b=2"} and {a: "1", b: "2"} would be signed by one string. Therefore names
// have no & and no =, and values have no = after an &; that leaves one way to take the string
// apart: what has a = between two & is a parameter. "a=b", "AT&T" and a URL with one pair in its query
// are fine. For those with more there is [SortedOptions].InsecureAmpersands. No parameter may be named
// as the secret is, "key".
//
// # Time and nonce
//
// A message needs a timestamp, of which [SortedOptions] knows several forms, and a nonce, of 16 to 128
// characters as [CheckNonce] has them. The body is read before either is looked at, up to the
// verifier's limit, since parameters stand there. The calls of WeChat Pay v2 have a nonce_str, and some of them
// no time: such a message could be sent again for ever, and is refused ([CodeMissing]); clients of
// one's own add a timestamp, which is then a parameter as any other. time_end, in payment
// notifications, is when the payment was made, not when the message was signed: if it is made the timestamp,
// a notification that the gateway repeats later than [Config].Window is refused. There, ask
// the gateway instead (orderquery).
//
// # With a guard behind it
//
// A client that tries again signs anew. With [SortedOptions].InParams, what belongs to the signature (the four
// parameters under their names) therefore does not count for the guard, in a query, a form or a JSON body: not for keys that are
// made of parameters, and not in the fingerprint of a client's key. [Verified].Consumed says so.
//
// An XML body counts with all its bytes, nonce included, so that each try would be another operation, or
// key_reused: take the key from what names the operation, out_trade_no, by core.Func, and let it alone
// decide (core.Policy.AnyParameters).
type SortedParams struct {
	o          SortedOptions
	secretName []byte // as it is signed: "&key=", or nothing
}

// NewSortedParams makes a [SortedParams]. It reports every fault at once, each as a
// *[ConfigError].
func NewSortedParams(o SortedOptions) (*SortedParams, error) {
	var f faults
	var names []string
	param := func(field string, name *string, standard string) {
		setDefault(name, standard)
		if *name == "" {
			return
		}
		f.addIf(!isParamName(*name), "SortedOptions."+field, "%q cannot be a parameter's name", *name)
		f.addIf(slices.Contains(names, *name), "SortedOptions."+field, "%q is the name of something else", *name)
		names = append(names, *name)
	}
	param("KeyID", &o.KeyID, "key_id")
	param("Timestamp", &o.Timestamp, "timestamp")
	param("Nonce", &o.Nonce, "nonce")
	param("Sign", &o.Sign, "sign")
	f.addIf(o.InsecureBareSecret && o.SecretName != "", "SortedOptions.SecretName", "is set, but the secret is signed without a name")
	if !o.InsecureBareSecret {
		setDefault(&o.SecretName, "key")
	}
	param("SecretName", &o.SecretName, "")
	param("InsecureUnsigned", &o.InsecureUnsigned, "")
	param("Bind.Method", &o.Bind.Method, "")
	param("Bind.Path", &o.Bind.Path, "")
	param("Bind.Host", &o.Bind.Host, "")
	param("Bind.IdempotencyKey", &o.Bind.IdempotencyKey, "")

	var fields []string
	header := func(field string, name *string, standard string) {
		f.addIf(o.InParams && *name != "", "SortedOptions."+field, "is set, but nothing stands in the header")
		setDefault(name, standard)
		*name = http.CanonicalHeaderKey(*name)
		f.addIf(!isToken(*name) || unsignable[strings.ToLower(*name)] || *name == IdempotencyKey, "SortedOptions."+field, "%q cannot be the field's name", *name)
		f.addIf(slices.Contains(fields, *name), "SortedOptions."+field, "%q is the name of something else", *name)
		fields = append(fields, *name)
	}
	header("KeyIDHeader", &o.KeyIDHeader, HeaderKeyID)
	header("TimestampHeader", &o.TimestampHeader, HeaderTimestamp)
	header("NonceHeader", &o.NonceHeader, HeaderNonce)
	header("SignHeader", &o.SignHeader, HeaderSign)

	f.addIf(o.TimeLayout != "" && o.Milliseconds, "SortedOptions.Milliseconds", "is set beside TimeLayout")
	f.addIf(o.TimeLayout != "" && o.Location == nil, "SortedOptions.Location", "is not set, but TimeLayout is")
	f.addIf(o.Places&^fromAnywhere != 0, "SortedOptions.Places", "has unknown places")
	for _, name := range o.InsecureAmpersands {
		f.addIf(!isParamName(name), "SortedOptions.InsecureAmpersands", "%q cannot be a parameter's name", name)
		f.addIf(slices.Contains(names, name), "SortedOptions.InsecureAmpersands", "%q is the name of something else", name)
	}
	f.addIf(o.InsecureMD5 && fips140.Enabled(), "SortedOptions.InsecureMD5", "MD5 is not allowed under FIPS 140")
	if err := f.err(); err != nil {
		return nil, err
	}
	setDefault(&o.Places, fromAnywhere)
	o.InsecureAmpersands = slices.Clone(o.InsecureAmpersands)
	s := &SortedParams{o: o}
	if !o.InsecureBareSecret {
		s.secretName = []byte("&" + o.SecretName + "=")
	}
	return s, nil
}

// isParamName reports whether a name can stand in all places as it is.
func isParamName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_'
		if !letter && (i == 0 || (c < '0' || '9' < c) && c != '-' && c != '.') {
			return false
		}
	}
	return name != ""
}

// Name implements [Scheme]. It is "sorted-params", or "sorted-params-md5".
func (s *SortedParams) Name() string {
	if s.o.InsecureMD5 {
		return "sorted-params-md5"
	}
	return "sorted-params"
}

// sortedFields are what identifies a message and its signature, as text.
type sortedFields struct{ keyID, timestamp, nonce, sign string }

// Parse implements [Scheme]. It reads the body, which holds parameters.
func (s *SortedParams) Parse(m *Message, sig *Signature) error {
	l := lists.Get().(*params)
	if err := s.parse(m, sig, l); err != nil {
		l.Free()
		return err
	}
	sig.State = l
	return nil
}

func (s *SortedParams) parse(m *Message, sig *Signature, l *params) error {
	var f sortedFields
	if !s.o.InParams {
		if err := s.fromHeader(m, &f); err != nil {
			return err
		}
		if err := s.fill(sig, &f); err != nil {
			return err
		}
	}
	if err := s.collect(m, l); err != nil {
		return err
	}
	if s.o.InParams {
		if err := s.fromParams(l, sig, &f); err != nil {
			return err
		}
		if err := s.fill(sig, &f); err != nil {
			return err
		}
	} else if err := s.addFields(l, &f); err != nil {
		return err
	}
	return l.finish(&s.o)
}

func (s *SortedParams) fromHeader(m *Message, f *sortedFields) (err error) {
	if f.sign, err = m.Required(s.o.SignHeader); err != nil {
		return err
	}
	if f.keyID, err = m.Required(s.o.KeyIDHeader); err != nil {
		return err
	}
	if f.timestamp, err = m.Required(s.o.TimestampHeader); err != nil {
		return err
	}
	f.nonce, err = m.Required(s.o.NonceHeader)
	return err
}

// fromParams finds the four among the parameters. If one of them is there twice, finish
// refuses the message, whichever was found here.
func (s *SortedParams) fromParams(list *params, sig *Signature, f *sortedFields) error {
	for _, want := range []struct {
		name  string
		value *string
	}{{s.o.Sign, &f.sign}, {s.o.KeyID, &f.keyID}, {s.o.Timestamp, &f.timestamp}, {s.o.Nonce, &f.nonce}} {
		if *want.value = list.value(want.name); *want.value == "" {
			return Errorf(CodeMissing, "the parameter %s", want.name)
		}
		sig.Consumed = append(sig.Consumed, want.name)
	}
	return nil
}

// addFields makes parameters of the header fields.
func (s *SortedParams) addFields(list *params, f *sortedFields) error {
	for _, own := range []param{{s.o.KeyID, f.keyID}, {s.o.Timestamp, f.timestamp}, {s.o.Nonce, f.nonce}, {s.o.Sign, ""}} {
		if err := list.reserve(own.name, own.value); err != nil {
			return err
		}
	}
	return nil
}

// fill checks the form of the four.
func (s *SortedParams) fill(sig *Signature, f *sortedFields) (err error) {
	if err := CheckKeyID(f.keyID); err != nil {
		return err
	}
	sig.KeyID = f.keyID
	if sig.Created, err = s.parseTime(f.timestamp); err != nil {
		return err
	}
	if err := CheckNonce(f.nonce); err != nil {
		return err
	}
	sig.Nonce = f.nonce
	return s.parseSign(sig, f.sign)
}

func (s *SortedParams) parseTime(text string) (int64, error) {
	if s.o.TimeLayout == "" {
		n, err := ParseTimestamp(text)
		if s.o.Milliseconds {
			n /= 1000
		}
		return n, err
	}
	t, err := time.ParseInLocation(s.o.TimeLayout, text, s.o.Location)
	// Package time takes fractions of seconds that are not in the layout.
	if err != nil || t.Format(s.o.TimeLayout) != text {
		return 0, Errorf(CodeMalformed, "the timestamp has not the layout %q", s.o.TimeLayout)
	}
	return t.Unix(), nil
}

func (s *SortedParams) formatTime(seconds int64) string {
	switch {
	case s.o.TimeLayout != "":
		return time.Unix(seconds, 0).In(s.o.Location).Format(s.o.TimeLayout)
	case s.o.Milliseconds:
		seconds *= 1000
	}
	return strconv.FormatInt(seconds, 10)
}

// parseSign decodes a signature, of which there is one text only.
func (s *SortedParams) parseSign(sig *Signature, text string) error {
	size, first, last, are := sha256.Size, byte('A'), byte('F'), "upper-case"
	if s.o.InsecureMD5 {
		size = md5.Size
	}
	if s.o.LowerCase {
		first, last, are = 'a', 'f', "lower-case"
	}
	ok := len(text) == 2*size
	for i := 0; ok && i < len(text); i++ {
		ok = '0' <= text[i] && text[i] <= '9' || first <= text[i] && text[i] <= last
	}
	if !ok {
		return Errorf(CodeMalformed, "the signature is %d %s hexadecimal digits", 2*size, are)
	}
	value, err := hex.AppendDecode(sig.Room(size), []byte(text))
	sig.Values = append(sig.Values, value)
	return err
}

// collect adds the parameters of the message, and what is bound to them, to an empty list.
func (s *SortedParams) collect(m *Message, l *params) error {
	keys := m.Source.Values(IdempotencyKey)
	switch {
	case len(keys) > 1:
		return Errorf(CodeDuplicateHeader, "%s", IdempotencyKey)
	case len(keys) > 0 && (s.o.Bind.IdempotencyKey == "" || keys[0] == ""): // nor is an empty one
		return Errorf(ReasonUncovered, "%s is there, but it is not signed", IdempotencyKey)
	}
	bound := []param{
		{s.o.Bind.Method, m.Method}, {s.o.Bind.Path, m.Path()}, {s.o.Bind.Host, strings.ToLower(m.Authority())},
		{s.o.Bind.IdempotencyKey, strings.Join(keys, "")}, {s.o.SecretName, ""},
	}
	for _, p := range bound {
		if p.name == "" {
			continue
		}
		if err := l.reserve(p.name, p.value); err != nil {
			return err
		}
	}
	return l.collect(m, s.o.Places)
}

// Check implements [Scheme].
func (s *SortedParams) Check(_ *Message, sig *Signature, key *Key) error {
	l, ok := sig.State.(*params)
	if !ok || len(sig.Values) != 1 {
		return Errorf(ReasonBadSignature, "the message was not parsed")
	}
	return s.withSecret(l, key, func(signed []byte) error {
		good := false
		if s.o.InsecureMD5 {
			sum := md5.Sum(signed)
			good = subtle.ConstantTimeCompare(sum[:], sig.Values[0]) == 1
		} else {
			good = key.Verify(signed, sig.Values[0])
		}
		if !good {
			return ReasonBadSignature
		}
		return nil
	})
}

// withSecret calls f with what is signed. It ends with the secret, which is wiped when f returns: the memory is used for
// other messages.
func (s *SortedParams) withSecret(l *params, key *Key, f func(signed []byte) error) error {
	own := secret.Of(key)
	if own == nil {
		return Errorf(ReasonWrongAlgorithm, "only a key of NewHMACKey signs parameters; this one is for %s", key.Algorithm())
	}
	n := len(l.base)
	l.base = append(append(l.base, s.secretName...), own...)
	err := f(l.base)
	clear(l.base[n:])
	l.base = l.base[:n]
	return err
}

// Sign implements [Scheme]. With [SortedOptions].InParams it adds the four parameters to the body, or to the
// query if there is no body; the message must not have them yet, but for the key's own id.
func (s *SortedParams) Sign(m *Message, sig *Signature, key *Key) (Additions, error) {
	f := sortedFields{keyID: sig.KeyID, timestamp: s.formatTime(sig.Created), nonce: sig.Nonce}
	l := new(params)
	err := s.collect(m, l)
	if err != nil {
		return Additions{}, err
	}
	var added []param
	if s.o.InParams {
		added, err = s.addParams(l, &f)
	} else {
		err = s.addFields(l, &f)
	}
	if err == nil {
		err = l.finish(&s.o)
	}
	if err == nil {
		f.sign, err = s.sum(l, key)
	}
	if err == nil {
		err = s.parseSign(sig, f.sign)
	}
	if err != nil {
		return Additions{}, err
	}
	sig.State = l
	if s.o.InParams {
		return addTo(m, s.o.Places, append(added, param{s.o.Sign, f.sign}))
	}
	return Additions{Header: []Field{
		{s.o.KeyIDHeader, f.keyID},
		{s.o.TimestampHeader, f.timestamp},
		{s.o.NonceHeader, f.nonce},
		{s.o.SignHeader, f.sign},
	}}, nil
}

// addParams adds key id, timestamp and nonce to the list, and returns what the message lacks of
// them.
func (s *SortedParams) addParams(list *params, f *sortedFields) ([]param, error) {
	added := []param{{s.o.Timestamp, f.timestamp}, {s.o.Nonce, f.nonce}}
	switch id := list.value(s.o.KeyID); {
	case id == "":
		added = append(added, param{s.o.KeyID, f.keyID})
	case id != f.keyID:
		return nil, Errorf(CodeMalformed, "the parameter %s is not the id of the key", s.o.KeyID)
	}
	if list.has(s.o.Sign) {
		return nil, Errorf(CodeMalformed, "there is a parameter %s already", s.o.Sign)
	}
	for _, p := range added {
		if err := list.add(p.name, p.value); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// sum is the signature as it is sent.
func (s *SortedParams) sum(l *params, key *Key) (text string, err error) {
	err = s.withSecret(l, key, func(signed []byte) error {
		if s.o.InsecureMD5 {
			sum := md5.Sum(signed)
			text = hex.EncodeToString(sum[:])
			return nil
		}
		sum, err := key.Sign(signed)
		text = hex.EncodeToString(sum)
		return err
	})
	if !s.o.LowerCase {
		text = strings.ToUpper(text)
	}
	return text, err
}

// SigningString implements [Scheme]. Of each value it has the number of bytes and, if the key is known, eight
// digits of the value and the signature that only holders of the secret can compute: so both sides can find the parameter that
// differs, and nobody who reads their logs learns it. What belongs to the signature, and what
// is bound, stands there as it is.
func (s *SortedParams) SigningString(_ *Message, sig *Signature, key *Key) string {
	l, ok := sig.State.(*params)
	if !ok {
		return "" // it was not understood so far
	}
	shown := []string{s.o.KeyID, s.o.Timestamp, s.o.Nonce, s.o.Bind.Method, s.o.Bind.Path, s.o.Bind.Host, s.o.Bind.IdempotencyKey}
	signature, own := slices.Concat(sig.Values...), secret.Of(key)
	var b strings.Builder
	for _, p := range l.list {
		if !s.o.signs(p) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=")
		switch {
		case slices.Contains(shown, p.name):
			b.WriteString(p.value)
		case own != nil:
			b.WriteString("[" + strconv.Itoa(len(p.value)) + " bytes, " + fingerprint(own, signature, p.name, p.value) + "]")
		default:
			b.WriteString("[" + strconv.Itoa(len(p.value)) + " bytes]")
		}
	}
	return b.String() + string(s.secretName) + Redacted
}

// fingerprint is what may be shown of a value in a log: the same for the same value under the same
// signature, which is not in the log. So nobody who reads logs can try values on by sending messages of
// their own. Nothing that is signed begins like this: the names of parameters have no line
// feed.
func fingerprint(own, signature []byte, name, value string) string {
	mac := hmac.New(sha256.New, own)
	mac.Write([]byte("debug\n"))
	mac.Write(signature)
	mac.Write([]byte(name + "=" + value))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}
