package rfc9421

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idem/sign"
)

const (
	// maxComponents is how many components a signature may cover.
	maxComponents = 64
	// maxParts is how many parts a field may have if httpsfv must parse it: those of four signatures of 64 components.
	maxParts = 300
	// maxSignature is the length of the longest signature, in bytes: RSA with 8192 bits.
	maxSignature = 1024
	// maxDigits is how many digits an integer may have (RFC 8941, section 3.3.1).
	maxDigits = 15
)

// parameters are what Signature-Input says of a signature (RFC 9421, section 2.3).
type parameters struct {
	components []string
	covers     coverage
	agent      bool // a component may be a member of Signature-Agent

	has                    parameter
	created, expires       int64
	keyID, nonce, alg, tag string

	// text is all of it in the serialised form (RFC 8941, section 4.1), which is signed.
	text string
}

type parameter uint8

const (
	created parameter = 1 << iota
	expires
	keyID
	nonce
	alg
	tag
)

// parameterOf returns zero for an unknown name.
func parameterOf(name string) parameter {
	switch name {
	case "created":
		return created
	case "expires":
		return expires
	case "keyid":
		return keyID
	case "nonce":
		return nonce
	case "alg":
		return alg
	case "tag":
		return tag
	}
	return 0
}

// parseInput parses Signature-Input, and returns the signature's label.
//
// The serialised form of the parsed value is signed (RFC 9421, section 2.5). The only reader accepts that form alone, so what it
// accepts and what is signed cannot differ. If the value has another form (with more white space, or several signatures), httpsfv
// first parses and serialises it. Clients usually send the serialised form, which costs nothing extra.
func (s *profile) parseInput(value string, p *parameters) (label string, err error) {
	p.agent = s.rules.agent
	label, text := cutMember(value)
	if s.label == "" || s.label == label {
		if p.read(text) == nil {
			return label, nil
		}
	}
	label, text, err = serialised(headerInput, value, s.label)
	if err != nil {
		return "", err
	}
	return label, p.read(text)
}

// parseSignature parses Signature, whose label must be that of Signature-Input.
func (s *profile) parseSignature(value, label string, sig *sign.Signature) error {
	found, text := cutMember(value)
	b, ok := decode(sig.Scratch(scratchSignature), text)
	if !ok || found != label {
		var err error
		if found, text, err = serialised(headerSignature, value, s.label); err != nil {
			return err
		}
		if found != label {
			return sign.Errorf(sign.CodeMalformed, "Signature-Input has the label %s, but Signature has %s", label, found)
		}
		// Base64 must have its only form, without white space.
		if b, ok = decode(nil, text); !ok || !strings.Contains(value, text) {
			return sign.Errorf(sign.CodeMalformed, "Signature must be a byte sequence, without parameters")
		}
	}
	if len(b) == 0 || len(b) > maxSignature {
		return sign.Errorf(sign.CodeMalformed, "the signature has %d bytes", len(b))
	}
	sig.Values = append(sig.Values, b)
	return nil
}

// cutMember splits a dictionary's first member into its name and the rest of the dictionary.
func cutMember(value string) (label, text string) {
	label, text, _ = strings.Cut(value, "=")
	if !isKey(label) {
		return "", ""
	}
	return label, text
}

// serialised parses a dictionary and returns one member in its serialised form: the one of that label or, if label is empty,
// the only one. A label that occurs twice is refused, because RFC 8941 uses the last one, and some parsers the first.
func serialised(field, value, label string) (found, text string, err error) {
	dictionary, err := parseDictionary(field, value)
	if err != nil {
		return "", "", err
	}
	if names := dictionary.Names(); label == "" {
		if len(names) != 1 {
			return "", "", sign.Errorf(sign.CodeMalformed, "%s has %d signatures; one is allowed", field, len(names))
		}
		label = names[0]
	}
	member, ok := dictionary.Get(label)
	if !ok {
		return "", "",
			sign.Errorf(&sign.Error{Code: sign.CodeMissing, Reason: sign.ReasonBadHeader}, "%s has no signature %s", field, label)
	}
	text, err = httpsfv.Marshal(member)
	if err != nil {
		return "", "", sign.Errorf(sign.CodeMalformed, "%s: %w", field, err)
	}
	return label, text, nil
}

// parseDictionary parses a dictionary of at most maxParts parts. Each part costs memory, and anybody may have sent it.
func parseDictionary(field, value string) (*httpsfv.Dictionary, error) {
	parts := 0
	for i := range len(value) {
		if strings.IndexByte(" \t,;()", value[i]) >= 0 {
			parts++
		}
	}
	if parts > maxParts {
		return nil, sign.Errorf(sign.CodeMalformed, "%s has more than %d parts", field, maxParts)
	}
	dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
	if err != nil {
		return nil, sign.Errorf(sign.CodeMalformed, "%s: %w", field, err)
	}
	all, err := httpsfv.Marshal(dictionary)
	if err != nil {
		return nil, sign.Errorf(sign.CodeMalformed, "%s: %w", field, err)
	}
	if separators(all) != separators(value) {
		return nil, sign.Errorf(sign.CodeMalformed, "%s: a name or a parameter occurs twice", field)
	}
	return dictionary, nil
}

// separators counts commas and semicolons outside strings. Parsing and serialising change their number only if a name occurs
// twice.
func separators(value string) (n int) {
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == ';'):
			n++
		}
	}
	return n
}

// read reads an inner list in its serialised form. It refuses components and parameters that the profile does not have.
func (p *parameters) read(text string) error {
	*p = parameters{components: p.components[:0], agent: p.agent, text: text}
	r := reader(text)
	if !r.skip('(') {
		return errList
	}
	for !r.skip(')') {
		if len(p.components) > 0 && !r.skip(' ') {
			return errList
		}
		name, ok := r.text()
		if !ok {
			return errList
		}
		covers, ok := coverageOf(name)
		if p.agent && name == agentField.Lower && strings.HasPrefix(string(r), `;key="`) {
			r.cut(len(`;key=`))
			key, isText := r.text()
			if !isText || !isKey(key) {
				return errList
			}
			name = memberPrefix + key
		}
		if r.peek(';') {
			return sign.Errorf(sign.CodeMalformed, "parameters of components (here of %q) are not known", name)
		}
		switch {
		case !ok:
			return sign.Errorf(sign.CodeMalformed, "%q cannot be covered", name)
		case slices.Contains(p.components, name):
			return sign.Errorf(sign.CodeMalformed, "%s is covered twice", name)
		case len(p.components) == maxComponents:
			return sign.Errorf(sign.CodeMalformed, "there are more than %d components", maxComponents)
		}
		p.components = append(p.components, name)
		p.covers |= covers
	}
	for r != "" {
		if err := p.readParameter(&r); err != nil {
			return err
		}
	}
	return nil
}

var errList = sign.Errorf(sign.CodeMalformed, "Signature-Input must be a list of strings, and its parameters")

func (p *parameters) readParameter(r *reader) error {
	if !r.skip(';') {
		return errList
	}
	name := r.key()
	which := parameterOf(name)
	switch {
	case which == 0:
		return sign.Errorf(sign.CodeMalformed, "the parameter %q is not known", name)
	case p.has&which != 0:
		return sign.Errorf(sign.CodeMalformed, "the parameter %s occurs twice", name)
	}
	p.has |= which
	ok := r.skip('=')
	switch {
	case !ok:
	case which == created:
		p.created, ok = r.integer()
	case which == expires:
		p.expires, ok = r.integer()
	case which == keyID:
		p.keyID, ok = r.text()
	case which == nonce:
		p.nonce, ok = r.text()
	case which == alg:
		p.alg, ok = r.text()
	case which == tag:
		p.tag, ok = r.text()
	}
	if !ok {
		return sign.Errorf(sign.CodeMalformed, "the parameter %s has the wrong type or form", name)
	}
	return nil
}

// reader reads serialised structured fields (RFC 8941, section 4.1). Its value is what is left to read.
type reader string

func (r *reader) peek(c byte) bool { return *r != "" && (*r)[0] == c }

func (r *reader) skip(c byte) bool {
	if !r.peek(c) {
		return false
	}
	*r = (*r)[1:]
	return true
}

// cut takes the first n bytes.
func (r *reader) cut(n int) string {
	s := string(*r)
	*r = reader(s[n:])
	return s[:n]
}

// key reads a key, which may be empty.
func (r *reader) key() string {
	n := 0
	for n < len(*r) && isKeyByte((*r)[n]) {
		n++
	}
	return r.cut(n)
}

// text reads a string.
func (r *reader) text() (string, bool) {
	if !r.skip('"') {
		return "", false
	}
	escaped := false
	for i := 0; i < len(*r); i++ {
		switch c := (*r)[i]; {
		case c == '"':
			s := r.cut(i)
			r.skip('"')
			if escaped {
				s = unescape(s)
			}
			return s, true
		case c == '\\':
			escaped = true
			i++
			if i == len(*r) || (*r)[i] != '"' && (*r)[i] != '\\' {
				return "", false
			}
		case c < ' ' || c > '~':
			return "", false
		}
	}
	return "", false
}

// unescape removes the backslashes before quotes and backslashes.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// integer reads an integer that is a timestamp: digits only. It refuses a decimal.
func (r *reader) integer() (int64, bool) {
	n := 0
	for n < len(*r) && '0' <= (*r)[n] && (*r)[n] <= '9' {
		n++
	}
	if n == 0 || n > maxDigits {
		return 0, false
	}
	v, err := sign.ParseTimestamp(r.cut(n))
	return v, err == nil && (*r == "" || r.peek(';'))
}

// decode decodes a serialised byte sequence (RFC 8941, section 4.1.8), and appends it to b.
func decode(b []byte, text string) ([]byte, bool) {
	if len(text) < 2 || text[0] != ':' || text[len(text)-1] != ':' {
		return b, false
	}
	text = text[1 : len(text)-1]
	if strings.IndexByte(text, '\r') >= 0 || strings.IndexByte(text, '\n') >= 0 { // package base64 would skip them
		return b, false
	}
	b, err := strictBase64.AppendDecode(b, []byte(text))
	return b, err == nil
}

var strictBase64 = base64.StdEncoding.Strict()

// serialise sets text. It leaves out parameters that are zero, except created.
func (p *parameters) serialise() (err error) {
	list := httpsfv.InnerList{Params: httpsfv.NewParams()}
	for _, name := range p.components {
		item := httpsfv.NewItem(name)
		if key := member(name); key != "" {
			item = httpsfv.NewItem(agentField.Lower)
			item.Params.Add("key", key)
		}
		list.Items = append(list.Items, item)
	}
	list.Params.Add("created", p.created)
	if p.expires != 0 {
		list.Params.Add("expires", p.expires)
	}
	for _, s := range [...]struct{ name, value string }{
		{"keyid", p.keyID}, {"alg", p.alg}, {"nonce", p.nonce}, {"tag", p.tag},
	} {
		if s.value != "" {
			list.Params.Add(s.name, s.value)
		}
	}
	p.text, err = httpsfv.Marshal(list)
	return err
}

// serialiseBytes returns a dictionary whose only member is a byte sequence.
func serialiseBytes(name string, value []byte) (string, error) {
	dictionary := httpsfv.NewDictionary()
	dictionary.Add(name, httpsfv.NewItem(value))
	return httpsfv.Marshal(dictionary)
}

// isKey reports whether s is a key of a dictionary (RFC 8941, section 3.1.2).
func isKey(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isKeyByte(s[i]) {
			return false
		}
	}
	return s != "" && ('a' <= s[0] && s[0] <= 'z' || s[0] == '*')
}

func isKeyByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' || c == '*'
}

func isPrintable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
