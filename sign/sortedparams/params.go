package sortedparams

import (
	"mime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idem/sign"
)

const (
	// maxParams is how many parameters a message may have.
	maxParams = 256
	// maxParamName is the length of the longest name, in bytes.
	maxParamName = 128
	// maxParamQuery is the length of the longest query, in bytes.
	maxParamQuery = 32 << 10
)

// param is a parameter, decoded.
type param struct{ name, value string }

// params are the parameters of a message, and what Parse and Sign leave for Check and SigningString.
type params struct {
	list     []param
	reserved []string // names that the message must not use
	base     []byte   // the signing string up to the secret
}

// alike is a name with its likeness, which is the same for all names that some decoder treats as one.
type alike struct{ likeness, name string }

// add adds a parameter of the message.
func (l *params) add(name, value string) error {
	if len(l.list)-len(l.reserved) >= maxParams {
		return sign.Errorf(sign.CodeMalformed, "there are more than %d parameters", maxParams)
	}
	if slices.Contains(l.reserved, name) {
		return sign.Errorf(sign.CodeMalformed, "the name of the parameter %q is reserved", name)
	}
	if !isParamText(value) || !isParamText(name) {
		return sign.Errorf(sign.CodeMalformed, "a parameter is not in UTF-8")
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c < ' ' || c == 0x7f || c == '=' || c == '&' {
			return sign.Errorf(sign.CodeMalformed, "the name of a parameter has = or & or a control character")
		}
	}
	if name == "" || len(name) > maxParamName {
		return sign.Errorf(sign.CodeMalformed, "the name of a parameter must have 1 to %d bytes", maxParamName)
	}
	l.list = append(l.list, param{name, value})
	return nil
}

// isParamText reports whether s is UTF-8 without U+FFFD. Decoders replace invalid bytes by U+FFFD, so several texts would become
// one.
func isParamText(s string) bool {
	return utf8.ValidString(s) && !strings.Contains(s, string(utf8.RuneError))
}

// reserve adds a parameter that is not the message's own, and refuses a message with a parameter of that name. Call it before
// the message's parameters are added, or after all of them.
func (l *params) reserve(name, value string) error {
	if l.has(name) {
		return sign.Errorf(sign.CodeMalformed, "the name of the parameter %q is reserved", name)
	}
	if err := l.add(name, value); err != nil {
		return err
	}
	l.reserved = append(l.reserved, name)
	return nil
}

// value returns the value of the first parameter of that name.
func (l *params) value(name string) string {
	for _, p := range l.list {
		if p.name == name {
			return p.value
		}
	}
	return ""
}

func (l *params) has(name string) bool {
	return slices.ContainsFunc(l.list, func(p param) bool { return p.name == name })
}

// finish sorts the list, makes the signing string, and checks that no other list has the same one.
func (l *params) finish(o *Config) error {
	slices.SortFunc(l.list, func(a, b param) int { return strings.Compare(a.name, b.name) })
	if err := l.checkLikeness(o); err != nil {
		return err
	}
	l.base = make([]byte, 0, 512)
	for i, p := range l.list {
		if i > 0 && p.name == l.list[i-1].name {
			return sign.Errorf(sign.CodeMalformed, "the parameter %q occurs twice", p.name)
		}
		if !o.signs(p) {
			continue
		}
		_, after, _ := strings.Cut(p.value, "&")
		if strings.Contains(after, "=") {
			return sign.Errorf(sign.CodeMalformed,
				"the value of %q has a = after an &, so that it could be read as another parameter", p.name)
		}
		if len(l.base) > 0 {
			l.base = append(l.base, '&')
		}
		l.base = append(l.base, p.name...)
		l.base = append(l.base, '=')
		l.base = append(l.base, p.value...)
	}
	return nil
}

// signs reports whether p is signed.
func (o *Config) signs(p param) bool {
	return p.value != "" && p.name != o.Sign
}

// checkLikeness refuses two names that some decoder treats as one: one of the two may be empty, so not signed, and still win.
// encoding/json and the binders of frameworks ignore case. Forms write a[] for several values of a, and a[b] for a.b.
func (l *params) checkLikeness(o *Config) error {
	names := make([]alike, 0, len(l.list))
	for _, p := range l.list {
		if p.name != o.SecretName { // which no handler sees
			names = append(names, alike{likeness(p.name), p.name})
		}
	}
	slices.SortStableFunc(names, func(a, b alike) int { return strings.Compare(a.likeness, b.likeness) })
	for i, a := range names {
		if i > 0 && a.likeness == names[i-1].likeness && a.name != names[i-1].name {
			return sign.Errorf(sign.CodeMalformed, "some decoders treat the parameters %q and %q as one", names[i-1].name, a.name)
		}
	}
	for _, a := range names {
		base, _, indexed := strings.Cut(a.name, "[")
		if !indexed {
			continue
		}
		i, ok := slices.BinarySearchFunc(names, likeness(base), func(a alike, like string) int { return strings.Compare(a.likeness, like) })
		if ok && names[i].name != a.name {
			return sign.Errorf(sign.CodeMalformed, "some decoders treat the parameter %q as a part of %q", a.name, names[i].name)
		}
	}
	return nil
}

// likeness returns the same text for names that differ only in case and brackets. For most names it is the name.
func likeness(name string) string {
	if strings.Contains(name, "[") || strings.Contains(name, "]") {
		name = brackets.Replace(name)
	}
	return strings.Map(foldCase, name)
}

var brackets = strings.NewReplacer("[]", "", "[", ".", "]", "")

// foldCase returns the same character for all characters that differ only in case: the lower-case ASCII letter, if there is one,
// or else the least of them.
func foldCase(r rune) rune {
	least := r
	if r >= utf8.RuneSelf {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
	}
	if 'A' <= least && least <= 'Z' {
		return least + ('a' - 'A')
	}
	return least
}

// collect adds the parameters of the query and the body.
func (l *params) collect(m *sign.Message, places Place) error {
	if query, _ := m.Query(); query != "" {
		switch {
		case places&FromQuery == 0:
			return sign.Errorf(sign.ReasonUncovered, "the query is not signed")
		case len(query) > maxParamQuery:
			return sign.Errorf(sign.CodeMalformed, "the query has %d bytes; %d are allowed", len(query), maxParamQuery)
		}
		if err := l.addPairs(query); err != nil {
			return err
		}
	}
	body, err := m.Body()
	if err != nil || len(body) == 0 {
		return err
	}
	place, err := bodyPlace(m, places)
	if err != nil {
		return err
	}
	if place == FromForm {
		return l.addPairs(string(body))
	}
	return l.addJSON(body)
}

// bodyPlace returns the place that m's body is, by its Content-Type.
func bodyPlace(m *sign.Message, places Place) (Place, error) {
	for _, encoding := range m.Source.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") {
			return 0, sign.Errorf(sign.CodeMalformed, "an encoded body cannot be read for its parameters")
		}
	}
	contentType, lines := m.Field("Content-Type")
	if lines > 1 {
		return 0, sign.Errorf(sign.CodeDuplicateHeader, "Content-Type")
	}
	kind, attributes, err := mime.ParseMediaType(contentType)
	if err != nil && contentType != "" {
		return 0, sign.Errorf(sign.CodeMalformed, "the Content-Type cannot be read")
	}
	// Frameworks compare the exact type, up to a ; or a space. A body with another spelling would be signed, and its
	// parameters not be read.
	if !strings.HasPrefix(contentType, kind) || strings.Contains(contentType, "\t") {
		return 0, sign.Errorf(sign.CodeMalformed, "the Content-Type %q must be in lower case, and without tabs", contentType)
	}
	place := placeOf(kind)
	if places&place == 0 {
		return 0, sign.Errorf(sign.ReasonUncovered, "a body of the type %q is not signed", kind)
	}
	if charset := attributes["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
		return 0, sign.Errorf(sign.CodeMalformed, "the charset is %q; only utf-8 is allowed", charset)
	}
	return place, nil
}

// placeOf returns the place that a body of the type is, or zero.
func placeOf(kind string) Place {
	switch kind {
	case "application/x-www-form-urlencoded":
		return FromForm
	case "application/json":
		return FromJSON
	}
	return 0
}

// addTo returns the additions that put parameters into a message.
func addTo(m *sign.Message, places Place, added []param) (sign.Additions, error) {
	body, err := m.Body()
	if err != nil {
		return sign.Additions{}, err
	}
	if len(body) == 0 && places&FromQuery != 0 {
		return sign.Additions{Query: pairsOf(added)}, nil
	}
	place, err := bodyPlace(m, places)
	if err != nil {
		return sign.Additions{}, err
	}
	if place == FromForm {
		return sign.Additions{Body: appendPairs(body, added)}, nil
	}
	return sign.Additions{Body: appendJSON(body, added)}, nil
}
