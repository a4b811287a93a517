package sortedparams

import (
	"cmp"
	"crypto/fips140"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/internal/keys"
	"github.com/idem-go/idem/sign/internal/redact"
)

// Place is a part of a message that may hold parameters. Combine several with |.
type Place uint8

// The places.
const (
	FromQuery Place = 1 << iota // the query
	FromForm                    // a body of the type application/x-www-form-urlencoded
	FromJSON                    // a body of the type application/json: one flat object
)

const fromAnywhere = FromQuery | FromForm | FromJSON

// Config configures [New]. The zero Config is the scheme that the package comment describes. XunhuPay needs
//
//	sortedparams.Config{
//		InParams: true, KeyID: "appid", Timestamp: "time", Nonce: "nonce_str", Sign: "hash",
//		Places: sortedparams.FromForm, LowerCase: true, InsecureMD5: true, InsecureBareSecret: true,
//	}
type Config struct {
	// KeyID, Timestamp, Nonce and Sign are the parameter names of key id, timestamp, nonce and signature. They may contain letters,
	// digits, _, - and full stops. Empty: key_id, timestamp, nonce, sign.
	KeyID, Timestamp, Nonce, Sign string

	// InParams means that these four are among the parameters of the message. False: they are in header fields, and the first three
	// are signed as parameters with the names above.
	InParams bool

	// KeyIDHeader, TimestampHeader, NonceHeader and SignHeader are the names of the header fields.
	// Empty: X-Key-Id, X-Timestamp, X-Nonce, X-Sign.
	KeyIDHeader, TimestampHeader, NonceHeader, SignHeader string

	// SecretName is the name of the secret at the end of the signing string. Empty: key.
	SecretName string

	// LowerCase means that the signature is in lower-case hexadecimal. False: upper case. The other case is refused.
	LowerCase bool

	// Milliseconds means that the timestamp is in milliseconds since 1970. It is cut to whole seconds.
	Milliseconds bool

	// TimeLayout is the layout of the timestamp (see [time.Layout]), for gateways that send a date: "20060102150405". It
	// needs a Location. Empty: seconds since 1970, digits only.
	TimeLayout string

	// Location is the time zone of TimeLayout. Most gateways use time.FixedZone("CST", 8*60*60). In a zone with daylight saving time,
	// messages of one hour in autumn count as an hour older.
	Location *time.Location

	// Places are where parameters may be. A message with a query or a body that is not among them is refused
	// ([sign.ReasonUncovered]). Name the place that your handlers read, because the place of a parameter is not signed.
	// Zero: anywhere.
	Places Place

	// Bind adds parts of the message that are not parameters to the signing string. Clients must do the same.
	Bind Binding

	// InsecureMD5 signs with MD5 instead of HMAC-SHA256, for gateways that support nothing else: Jeepay, XunhuPay. Insecure: anyone can
	// make two messages with the same MD5, and because the secret comes last, a signature of one is valid for the other. Do not use the
	// same key with MD5 and with HMAC-SHA256. InsecureMD5 is an error under FIPS 140.
	InsecureMD5 bool

	// InsecureBareSecret puts the secret right after the last value, without "&key=", for gateways that support nothing
	// else: XunhuPay. Insecure: the end of the last value cannot be determined. With InsecureMD5, anyone who knows a secret that is the
	// end of another secret can sign with the other one, if the last value of the message ends with the rest of it.
	// SecretName must be empty, and no parameter name is reserved for the secret.
	InsecureBareSecret bool
}

// Binding has parameter names for parts of the message that are not parameters. These parts are signed like parameters, and no
// parameter of the message may have such a name. An empty name means that the part is not signed.
type Binding struct {
	// Method, Path and Host name the method as sent, the path as sent, and the host in lower case, with the port if
	// one was sent. If [sign.Config].Host is set, it replaces the host.
	Method, Path, Host string
	// IdempotencyKey names the value of the Idempotency-Key field. A message without this field has no such parameter.
	IdempotencyKey string
}

// scheme is the [sign.Scheme] of this package.
type scheme struct {
	o          Config
	secretName []byte // as it is signed: "&key=", or nothing
}

// New returns the scheme. It reports all errors of o at once, each as a [*sign.ConfigError].
//
// To sign with [Config].InParams, it adds its four parameters to the body, or to the query if there is no body. The message must
// not have them yet, except the key's id. Its signing string for people has, in place of each value, the number of bytes and, if
// the key is known, eight digits that only holders of the secret can compute. The fields of the signature and those of
// [Config].Bind are shown in clear.
func New(o Config) (sign.Scheme, error) {
	var errs []error
	errorIf := func(bad bool, field, format string, args ...any) {
		if bad {
			errs = append(errs, &sign.ConfigError{Field: "sortedparams.Config." + field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	var names []string
	param := func(field string, name *string, standard string) {
		*name = cmp.Or(*name, standard)
		if *name == "" {
			return
		}
		errorIf(!isParamName(*name), field, "%q cannot be a parameter's name", *name)
		errorIf(slices.Contains(names, *name), field, "%q is the name of something else", *name)
		names = append(names, *name)
	}
	param("KeyID", &o.KeyID, "key_id")
	param("Timestamp", &o.Timestamp, "timestamp")
	param("Nonce", &o.Nonce, "nonce")
	param("Sign", &o.Sign, "sign")
	errorIf(o.InsecureBareSecret && o.SecretName != "", "SecretName", "is set, but the secret is signed without a name")
	if !o.InsecureBareSecret {
		o.SecretName = cmp.Or(o.SecretName, "key")
	}
	param("SecretName", &o.SecretName, "")
	param("Bind.Method", &o.Bind.Method, "")
	param("Bind.Path", &o.Bind.Path, "")
	param("Bind.Host", &o.Bind.Host, "")
	param("Bind.IdempotencyKey", &o.Bind.IdempotencyKey, "")

	var headers []string
	header := func(field string, name *string, standard string) {
		errorIf(o.InParams && *name != "", field, "is set, but nothing is in the header")
		*name = http.CanonicalHeaderKey(cmp.Or(*name, standard))
		errorIf(!isFieldName(*name), field, "%q cannot be the field's name", *name)
		errorIf(slices.Contains(headers, *name), field, "%q is the name of something else", *name)
		headers = append(headers, *name)
	}
	header("KeyIDHeader", &o.KeyIDHeader, "X-Key-Id")
	header("TimestampHeader", &o.TimestampHeader, "X-Timestamp")
	header("NonceHeader", &o.NonceHeader, "X-Nonce")
	header("SignHeader", &o.SignHeader, "X-Sign")

	errorIf(o.TimeLayout != "" && o.Milliseconds, "Milliseconds", "is set, but TimeLayout is set as well")
	errorIf(o.TimeLayout != "" && o.Location == nil, "Location", "is not set, but TimeLayout is")
	errorIf(o.Places&^fromAnywhere != 0, "Places", "has unknown places")
	errorIf(o.InsecureMD5 && fips140.Enabled(), "InsecureMD5", "MD5 is not allowed under FIPS 140")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o.Places = cmp.Or(o.Places, fromAnywhere)
	s := &scheme{o: o}
	if !o.InsecureBareSecret {
		s.secretName = []byte("&" + o.SecretName + "=")
	}
	return s, nil
}

// isParamName reports whether a name needs no escapes in any place.
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

// isFieldName reports whether name, in canonical form, can be that of a header field of the scheme.
func isFieldName(name string) bool {
	return form.IsToken(name) && !form.IsHopByHop(strings.ToLower(name)) && name != "Content-Length" && name != form.IdempotencyKey
}

// Name implements [sign.Scheme]. It is "sorted-params", or "sorted-params-md5".
func (s *scheme) Name() string {
	if s.o.InsecureMD5 {
		return "sorted-params-md5"
	}
	return "sorted-params"
}

// fields are key id, timestamp, nonce and signature as text.
type fields struct{ keyID, timestamp, nonce, sign string }

// Parse implements [sign.Scheme]. It reads the body, which holds parameters.
func (s *scheme) Parse(m *sign.Message, sig *sign.Signature) error {
	var f fields
	l := new(params)
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
	if err := l.finish(&s.o); err != nil {
		return err
	}
	sig.State = l
	return nil
}

func (s *scheme) fromHeader(m *sign.Message, f *fields) (err error) {
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

// fromParams finds the fields among the parameters. If one of them occurs twice, finish refuses the message.
func (s *scheme) fromParams(list *params, sig *sign.Signature, f *fields) error {
	for _, want := range []struct {
		name  string
		value *string
	}{{s.o.Sign, &f.sign}, {s.o.KeyID, &f.keyID}, {s.o.Timestamp, &f.timestamp}, {s.o.Nonce, &f.nonce}} {
		if *want.value = list.value(want.name); *want.value == "" {
			return sign.Errorf(sign.CodeMissing, "the parameter %s", want.name)
		}
		sig.Consumed = append(sig.Consumed, want.name)
	}
	return nil
}

// addFields adds the fields of the header as parameters.
func (s *scheme) addFields(list *params, f *fields) error {
	for _, own := range []param{{s.o.KeyID, f.keyID}, {s.o.Timestamp, f.timestamp}, {s.o.Nonce, f.nonce}, {s.o.Sign, ""}} {
		if err := list.reserve(own.name, own.value); err != nil {
			return err
		}
	}
	return nil
}

// fill checks the form of the fields and copies them to sig.
func (s *scheme) fill(sig *sign.Signature, f *fields) (err error) {
	if err := form.CheckKeyID(f.keyID); err != nil {
		return sign.Errorf(sign.CodeMalformed, "%v", err)
	}
	sig.KeyID = f.keyID
	if sig.Created, err = s.parseTime(f.timestamp); err != nil {
		return err
	}
	if err := form.CheckNonce(f.nonce); err != nil {
		return sign.Errorf(sign.CodeMalformed, "%v", err)
	}
	sig.Nonce = f.nonce
	return s.parseSign(sig, f.sign)
}

func (s *scheme) parseTime(text string) (int64, error) {
	if s.o.TimeLayout == "" {
		n, err := sign.ParseTimestamp(text)
		if s.o.Milliseconds {
			n /= 1000
		}
		return n, err
	}
	t, err := time.ParseInLocation(s.o.TimeLayout, text, s.o.Location)
	// Package time accepts fractions of seconds that are not in the layout.
	if err != nil || t.Format(s.o.TimeLayout) != text {
		return 0, sign.Errorf(sign.CodeMalformed, "the timestamp does not have the layout %q", s.o.TimeLayout)
	}
	return t.Unix(), nil
}

func (s *scheme) formatTime(seconds int64) string {
	switch {
	case s.o.TimeLayout != "":
		return time.Unix(seconds, 0).In(s.o.Location).Format(s.o.TimeLayout)
	case s.o.Milliseconds:
		seconds *= 1000
	}
	return strconv.FormatInt(seconds, 10)
}

// parseSign decodes a signature. It accepts one text for each.
func (s *scheme) parseSign(sig *sign.Signature, text string) error {
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
		return sign.Errorf(sign.CodeMalformed, "the signature is %d %s hexadecimal digits", 2*size, are)
	}
	value, err := hex.DecodeString(text)
	sig.Values = append(sig.Values, value)
	return err
}

// collect adds the parameters of the message and those of Config.Bind to an empty list.
func (s *scheme) collect(m *sign.Message, l *params) error {
	keys := m.Source.Values(form.IdempotencyKey)
	switch {
	case len(keys) > 1:
		return sign.Errorf(sign.CodeDuplicateHeader, "%s", form.IdempotencyKey)
	case len(keys) > 0 && (s.o.Bind.IdempotencyKey == "" || keys[0] == ""): // an empty value is not signed
		return sign.Errorf(sign.ReasonUncovered, "%s is present, but not signed", form.IdempotencyKey)
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

// Check implements [sign.Scheme].
func (s *scheme) Check(_ *sign.Message, sig *sign.Signature, key *sign.Key) error {
	l, ok := sig.State.(*params)
	if !ok || len(sig.Values) != 1 {
		return sign.Errorf(sign.ReasonBadSignature, "the message was not parsed")
	}
	signed, err := s.withSecret(l, key)
	if err != nil {
		return err
	}
	if s.o.InsecureMD5 {
		sum := md5.Sum(signed)
		if subtle.ConstantTimeCompare(sum[:], sig.Values[0]) == 1 {
			return nil
		}
	} else if key.Verify(signed, sig.Values[0]) {
		return nil
	}
	return sign.ReasonBadSignature
}

// secretOf returns the secret of a key of sign.NewHMACKey, and nil for other keys and for none.
func secretOf(key *sign.Key) []byte {
	if key == nil {
		return nil
	}
	return keys.Of(key).Secret()
}

// withSecret returns the signing string, which ends with the secret.
func (s *scheme) withSecret(l *params, key *sign.Key) ([]byte, error) {
	own := secretOf(key)
	if own == nil {
		return nil, sign.Errorf(sign.ReasonWrongAlgorithm, "only a key of NewHMACKey signs parameters")
	}
	return slices.Concat(l.base, s.secretName, own), nil
}

// Sign implements [sign.Scheme].
func (s *scheme) Sign(m *sign.Message, sig *sign.Signature, key *sign.Key) (sign.Additions, error) {
	f := fields{keyID: sig.KeyID, timestamp: s.formatTime(sig.Created), nonce: sig.Nonce}
	l := new(params)
	err := s.collect(m, l)
	if err != nil {
		return sign.Additions{}, err
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
		return sign.Additions{}, err
	}
	sig.State = l
	if s.o.InParams {
		return addTo(m, s.o.Places, append(added, param{s.o.Sign, f.sign}))
	}
	return sign.Additions{Header: http.Header{
		s.o.KeyIDHeader: {f.keyID}, s.o.TimestampHeader: {f.timestamp}, s.o.NonceHeader: {f.nonce}, s.o.SignHeader: {f.sign},
	}}, nil
}

// addParams adds those of key id, timestamp and nonce to the list that the message lacks, and returns them.
func (s *scheme) addParams(list *params, f *fields) ([]param, error) {
	added := []param{{s.o.Timestamp, f.timestamp}, {s.o.Nonce, f.nonce}}
	switch id := list.value(s.o.KeyID); {
	case id == "":
		added = append(added, param{s.o.KeyID, f.keyID})
	case id != f.keyID:
		return nil, sign.Errorf(sign.CodeMalformed, "the parameter %s is not the id of the key", s.o.KeyID)
	}
	if list.has(s.o.Sign) {
		return nil, sign.Errorf(sign.CodeMalformed, "the message already has a parameter %s", s.o.Sign)
	}
	for _, p := range added {
		if err := list.add(p.name, p.value); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// sum returns the signature as it is sent.
func (s *scheme) sum(l *params, key *sign.Key) (text string, err error) {
	signed, err := s.withSecret(l, key)
	if err != nil {
		return "", err
	}
	var sum []byte
	if s.o.InsecureMD5 {
		digest := md5.Sum(signed)
		sum = digest[:]
	} else if sum, err = key.Sign(signed); err != nil {
		return "", err
	}
	text = hex.EncodeToString(sum)
	if !s.o.LowerCase {
		text = strings.ToUpper(text)
	}
	return text, nil
}

// SigningString implements [sign.Scheme]. Both sides can find the parameter that differs, and the logs do not reveal its value.
func (s *scheme) SigningString(_ *sign.Message, sig *sign.Signature, key *sign.Key) string {
	l, ok := sig.State.(*params)
	if !ok {
		return "" // m was not parsed
	}
	shown := []string{s.o.KeyID, s.o.Timestamp, s.o.Nonce, s.o.Bind.Method, s.o.Bind.Path, s.o.Bind.Host, s.o.Bind.IdempotencyKey}
	signature, own := slices.Concat(sig.Values...), secretOf(key)
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
	return b.String() + string(s.secretName) + redact.Mark
}

// fingerprint returns digits that replace a value in a log. They depend on the signature, which is not in the log, so a reader
// of logs cannot find a value by sending guesses. No signing string begins like the input of this HMAC, because names have no
// line feed.
func fingerprint(own, signature []byte, name, value string) string {
	mac := hmac.New(sha256.New, own)
	mac.Write([]byte("debug\n"))
	mac.Write(signature)
	mac.Write([]byte(name + "=" + value))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}
