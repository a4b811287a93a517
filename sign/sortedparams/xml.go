package sortedparams

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"github.com/idem-go/idem/sign"
)

// addXML adds the elements of <xml><name>value</name>…</xml>. It refuses everything else in XML, because parsers differ in what
// they do with it. add refuses bytes that are not UTF-8.
func (l *params) addXML(body []byte) error {
	r := reader{string(body)}
	if !r.takeDeclaration() {
		return errXML
	}
	r.skipSpace()
	root, empty, ok := r.takeStartTag()
	if !ok || root != "xml" {
		return errXML
	}
	for !empty {
		r.skipSpace()
		if strings.HasPrefix(r.rest, "</") {
			break
		}
		name, value, ok := r.takeElement()
		if !ok {
			return errXML
		}
		if err := l.add(name, value); err != nil {
			return err
		}
	}
	if !empty && !r.takeEndTag(root) {
		return errXML
	}
	if r.skipSpace(); r.rest != "" {
		return errXML
	}
	return nil
}

var errXML = sign.Errorf(sign.CodeMalformed, "the body is not <xml> with elements that hold text, and nothing else")

// takeDeclaration takes <?xml version="1.0" encoding="UTF-8" standalone="yes"?>. All of it may be missing, and so may encoding and
// standalone.
func (r *reader) takeDeclaration() bool {
	if !r.take("<?xml") {
		return true
	}
	if !r.takeDeclared("version", "1.0") {
		return false
	}
	r.takeDeclared("encoding", "UTF-8", "utf-8")
	r.takeDeclared("standalone", "yes", "no")
	r.skipSpace()
	return r.take("?>")
}

// takeDeclared takes white space and name="value", if that comes next.
func (r *reader) takeDeclared(name string, values ...string) bool {
	next := *r
	next.skipSpace()
	if next == *r || !next.take(name) || !next.take("=") {
		return false
	}
	for _, value := range values {
		if next.take(`"`+value+`"`) || next.take("'"+value+"'") {
			*r = next
			return true
		}
	}
	return false
}

// takeElement takes <name>value</name> or <name/>.
func (r *reader) takeElement() (name, value string, ok bool) {
	name, empty, ok := r.takeStartTag()
	if !ok || empty {
		return name, "", ok
	}
	value, ok = r.takeText()
	return name, value, ok && r.takeEndTag(name)
}

// takeStartTag takes <name> or, if it is empty, <name/>.
func (r *reader) takeStartTag() (name string, empty, ok bool) {
	if !r.take("<") {
		return "", false, false
	}
	end := strings.IndexAny(r.rest, "/> \t\r\n")
	if end < 0 {
		return "", false, false
	}
	name, r.rest = r.rest[:end], r.rest[end:]
	r.skipSpace()
	empty = r.take("/")
	return name, empty, r.take(">") && isParamName(name)
}

func (r *reader) takeEndTag(name string) bool {
	if !r.take("</") || !r.take(name) {
		return false
	}
	r.skipSpace()
	return r.take(">")
}

// takeText takes text and CDATA sections up to the next tag, and returns their value. A single piece without references shares
// memory with the body.
func (r *reader) takeText() (text string, ok bool) {
	pieces := make([]string, 0, 8)
	for !strings.HasPrefix(r.rest, "</") {
		var piece string
		if r.take("<![CDATA[") {
			if piece, ok = r.takeUntil("]]>"); !ok {
				return "", false
			}
			pieces = append(pieces, newlines(piece))
			continue
		}
		end := strings.IndexByte(r.rest, '<')
		if end <= 0 {
			return "", false // the end is missing, or another tag begins
		}
		piece, r.rest = r.rest[:end], r.rest[end:]
		if strings.Contains(piece, "]]>") {
			return "", false // it may only end a CDATA section
		}
		if piece, ok = resolveXML(newlines(piece)); !ok {
			return "", false
		}
		pieces = append(pieces, piece)
	}
	text = strings.Join(pieces, "")
	return text, isXMLText(text)
}

// newlines replaces every line end by a line feed (XML 1.0, section 2.11).
func newlines(text string) string {
	if !strings.Contains(text, "\r") {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// resolveXML replaces references (&amp; and &#38;) by their characters.
func resolveXML(text string) (resolved string, ok bool) {
	text, more, found := strings.Cut(text, "&")
	if !found {
		return text, true
	}
	var b strings.Builder
	for found {
		b.WriteString(text)
		reference, rest, ended := strings.Cut(more, ";")
		c, ok := referredTo(reference)
		if !ended || !ok {
			return "", false
		}
		b.WriteRune(c) // U+FFFD for half of a surrogate pair
		text, more, found = strings.Cut(rest, "&")
	}
	b.WriteString(text)
	return b.String(), true
}

// referredTo returns the character of a reference, which comes without & and ;.
func referredTo(reference string) (c rune, ok bool) {
	switch reference {
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "amp":
		return '&', true
	case "apos":
		return '\'', true
	case "quot":
		return '"', true
	}
	digits, ok := strings.CutPrefix(reference, "#")
	base := 10
	if hexadecimal, ok := strings.CutPrefix(digits, "x"); ok {
		digits, base = hexadecimal, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return rune(n), ok && err == nil && n <= unicode.MaxRune
}

// isXMLText reports whether s has only characters of XML 1.0, section 2.2.
func isXMLText(s string) bool {
	for _, c := range s {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0xfffe || c == 0xffff {
			return false
		}
	}
	return true
}

var escapeXML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#13;") // a parser would turn a raw \r into \n

// appendXML returns a copy of a document with more elements.
func appendXML(document []byte, added []param) ([]byte, error) {
	// In a valid document, the last </ begins the root's end tag. <xml/> has none.
	end := bytes.LastIndex(document, []byte("</"))
	var b bytes.Buffer
	if end < 0 {
		document, end = []byte("<xml></xml>"), len("<xml>")
	}
	b.Write(document[:end])
	for _, p := range added {
		b.WriteString("<" + p.name + ">")
		_, _ = escapeXML.WriteString(&b, p.value) // to a buffer: cannot fail
		b.WriteString("</" + p.name + ">")
	}
	b.Write(document[end:])
	return b.Bytes(), nil
}
