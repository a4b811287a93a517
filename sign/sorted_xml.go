package sign

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
)

// addXML adds the elements of <xml><name>value</name>…</xml>. Everything that XML has beyond that is refused:
// what parsers do with it differs.
func (l *params) addXML(body []byte) error {
	d := xml.NewDecoder(bytes.NewReader(body)) // strict; knows the five entities only, and UTF-8
	var depth, roots int
	var name string
	var value strings.Builder
	for first := true; ; first = false {
		token, err := d.Token()
		if err == io.EOF && roots > 0 {
			return nil
		}
		if err != nil {
			return errSortedXML
		}
		switch t := token.(type) {
		case xml.StartElement:
			if len(t.Attr) > 0 || t.Name.Space != "" || strings.Contains(t.Name.Local, ":") {
				return errSortedXML
			}
			switch depth++; {
			case depth == 1 && roots == 0 && t.Name.Local == "xml":
				roots++
			case depth == 2:
				name = t.Name.Local
				value.Reset()
			default:
				return errSortedXML
			}
		case xml.EndElement:
			if depth--; depth == 1 {
				if err := l.add(name, value.String()); err != nil {
					return err
				}
			}
		case xml.CharData:
			if depth == 2 {
				value.Write(t)
			} else if len(bytes.Trim(t, " \t\r\n")) > 0 {
				return errSortedXML
			}
		case xml.ProcInst:
			if !first || t.Target != "xml" {
				return errSortedXML
			}
		default: // a comment, a DOCTYPE
			return errSortedXML
		}
	}
}

var errSortedXML = Errorf(ErrMalformed, "the body is not <xml> with elements that hold text, and nothing else")

// appendXML returns a document with more elements.
func appendXML(document []byte, added []param) ([]byte, error) {
	// A document that is one has nothing after the root's end, and nothing else that ends like it. It has
	// no end if it is <xml/>.
	end := bytes.LastIndex(document, []byte("</"))
	var b bytes.Buffer
	if end < 0 {
		document, end = []byte("<xml></xml>"), len("<xml>")
	}
	b.Write(document[:end])
	for _, p := range added {
		b.WriteString("<" + p.name + ">")
		if err := xml.EscapeText(&b, []byte(p.value)); err != nil {
			return nil, err
		}
		b.WriteString("</" + p.name + ">")
	}
	b.Write(document[end:])
	return b.Bytes(), nil
}
