package sortedparams

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
)

// The readers of JSON and XML are held against those of the standard library: they accept the same, but for
// what strictXML names, and find the same parameters in the same order.

// decodeJSON reads what addJSON does, by encoding/json alone.
func decodeJSON(l *params, body []byte) error {
	if !json.Valid(body) {
		return errJSON
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errJSON
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errJSON
		}
		value, err := d.Token()
		if err != nil {
			return errJSON
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		case bool:
			text = strconv.FormatBool(v)
		case nil:
		default:
			return errJSON
		}
		if err := l.add(name.(string), text); err != nil {
			return err
		}
	}
	return nil
}

// decodeXML reads what addXML does, by encoding/xml, and more: what strictXML refuses.
func decodeXML(l *params, body []byte) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	var depth, roots int
	var name string
	var value strings.Builder
	for first := true; ; first = false {
		token, err := d.Token()
		if err == io.EOF && roots > 0 {
			return nil
		}
		if err != nil {
			return errXML
		}
		switch t := token.(type) {
		case xml.StartElement:
			if len(t.Attr) > 0 || t.Name.Space != "" || strings.Contains(t.Name.Local, ":") {
				return errXML
			}
			switch depth++; {
			case depth == 1 && roots == 0 && t.Name.Local == "xml":
				roots++
			case depth == 2:
				name = t.Name.Local
				value.Reset()
			default:
				return errXML
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
				return errXML
			}
		case xml.ProcInst:
			if !first || t.Target != "xml" {
				return errXML
			}
		default:
			return errXML
		}
	}
}

var declaration = regexp.MustCompile(`^<\?xml[ \t\r\n]+version=("1\.0"|'1\.0')([ \t\r\n]+encoding=("(utf-8|UTF-8)"|'(utf-8|UTF-8)'))?([ \t\r\n]+standalone=("(yes|no)"|'(yes|no)'))?[ \t\r\n]*\?>$`)

// strictXML refuses what addXML does not take, of what decodeXML has accepted: names that could not stand in the
// other places, white space between elements that is written as a reference or as CDATA, and declarations
// that are none by XML 1.0.
func strictXML(body []byte) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	depth := 0
	for {
		begin := d.InputOffset()
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		raw := body[begin:d.InputOffset()]
		ok := err == nil
		switch t := token.(type) {
		case xml.StartElement:
			depth++
			ok = isParamName(t.Name.Local)
		case xml.EndElement:
			depth--
		case xml.CharData:
			ok = depth == 2 || len(bytes.Trim(raw, " \t\r\n")) == 0
		case xml.ProcInst:
			ok = declaration.Match(raw)
		}
		if !ok {
			return errXML
		}
	}
}

// sameAs reports whether a body was accepted, by either of the two ways to read it.
func sameAs(t require.TestingT, body string, read, decode func(*params, []byte) error) bool {
	got, want := new(params), new(params)
	err, wantErr := read(got, []byte(body)), decode(want, []byte(body))
	if wantErr != nil {
		require.ErrorIs(t, err, sign.CodeMalformed, "%q", body)
		return false
	}
	require.NoError(t, err, "%q", body)
	if !slices.Equal(got.list, want.list) {
		require.Equal(t, want.list, got.list, "%q", body)
	}
	return true
}

func sameJSON(t require.TestingT, body string) bool {
	return sameAs(t, body, (*params).addJSON, decodeJSON)
}

func sameXML(t require.TestingT, body string) bool {
	return sameAs(t, body, (*params).addXML, func(l *params, body []byte) error {
		if err := decodeXML(l, body); err != nil {
			return err
		}
		return strictXML(body)
	})
}

func FuzzJSONReader(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":"\u00e9\n","c":null,"d":true}`, ` { "a" : -0.1e+5 , "b" : "\"\\\/" } `, `{"a":"\ud83d\ude00","b":"\ud83d"}`, `{"a":[]}`, `{"":1}`, `{"a":01}`,
		`{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a":"\x"}`, "{\"a\":\"\t\"}", "{\"a\":\"\xff\"}", `{"a":tru}`, `{"a":1]`, `{"a":"`, `{"a":"\`, `{}x`, "\ufeff{}", `{"a":1 1}`, `{"a":"x""b":1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { sameJSON(t, text) })
}

func FuzzXMLReader(f *testing.F) {
	for _, seed := range []string{
		"<xml><a>1</a><b><![CDATA[<&]]></b><c/></xml>", "<?xml version='1.0' encoding=\"UTF-8\" standalone='no' ?>\r\n<xml >\t<a />\n</xml >\n", "<xml><a>&#13;\r\n\r&#x0a;]]&gt;</a></xml>",
		"<xml><a>]]></a></xml>", "<xml><a>]<![CDATA[]]]]>></a></xml>", "<xml></xml<a>1</a></xml>", "<xml><a>1</b></xml>", "<xml><a/b></xml>", "<xml>&#32;<a/></xml>", "<xml><![CDATA[ ]]></xml>",
		"<?xml version=\"1.0\"\u00a0encoding=\"UTF-8\"?><xml/>", "<?xml?><xml/>", "<?xmlversion=\"1.0\"?><xml/>", "<xml><a>&#xD800;</a></xml>", "<xml><a>&#0;</a></xml>", "<xml><a>&#1114112;</a></xml>", "<xml><a>&#x;</a></xml>", "<xml><a>&#;</a></xml>", "<xml><a>&amp</a></xml>", "<xml><a>&38;</a></xml>", "<xml><\u00e9/></xml>", "<xml><a>\x01</a></xml>", "<xml><a>\uffff</a></xml>", "<xml><a>\xff</a></xml>",
		"\ufeff<xml/>", "<xml><a><![CDATA[1</a></xml>", "<xml/>x", "<xml></xml><xml></xml>", "<xml><a b='c'/></xml>", "<xml><a><!-- --></a></xml>", "< xml/>", "<xml><a></ a></xml>", "<xml><a>&#+49;</a></xml>", "<xml><a>&#4_9;</a></xml>", "<xml><a>&#0x31;</a></xml>", "<xml><a>&#X31;</a></xml>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { sameXML(t, text) })
}

// everySequence calls f with all texts that up to n of the pieces make.
func everySequence(pieces []string, n int, f func(text string)) {
	f("")
	if n == 0 {
		return
	}
	for _, piece := range pieces {
		everySequence(pieces, n-1, func(more string) { f(piece + more) })
	}
}

// All the short documents there are of what documents are made of.
func TestJSONDocuments(t *testing.T) {
	pieces := []string{"{", "}", `"a"`, ":", ",", "1", " ", "[", "]"}
	for _, begin := range []string{"", `{"a":"b"`, `{"a":1,`} {
		accepted := 0
		everySequence(pieces, 5, func(text string) {
			if sameJSON(t, begin+text) {
				accepted++
			}
		})
		require.Positive(t, accepted, begin)
	}
}

// All the short values there are of what numbers and words are made of.
func TestJSONValues(t *testing.T) {
	accepted := 0
	everySequence([]string{"-", "+", ".", "0", "1", "e", "E", "true", "null", `"`, `\`}, 4, func(value string) {
		if sameJSON(t, `{"a":`+value+`}`) {
			accepted++
		}
	})
	require.Greater(t, accepted, 100)
}

// All the short strings there are of what escapes are made of.
func TestJSONStrings(t *testing.T) {
	accepted := 0
	everySequence([]string{`\`, `\u`, "d83d", "de00", "00", "4", "n", "/", "é", `"`}, 4, func(text string) {
		if sameJSON(t, `{"a":"`+text+`"}`) {
			accepted++
		}
	})
	require.Greater(t, accepted, 100)
}

// All the short documents there are of what documents are made of.
func TestXMLDocuments(t *testing.T) {
	pieces := []string{"<xml>", "</xml>", "<xml/>", "<a>", "</a>", "<b/>", " ", "1", "&lt;", "&#13;", "\r", "<![CDATA[", "]]", ">"}
	for _, around := range [][2]string{{"", ""}, {"<xml>", "</xml>"}, {"<xml><a>", "</a></xml>"}} {
		accepted := 0
		everySequence(pieces, 3, func(text string) {
			if sameXML(t, around[0]+text+around[1]) {
				accepted++
			}
		})
		require.Positive(t, accepted, around)
	}
}

// document draws a text of what a grammar allows, with up to two of its pieces changed.
func document(rt *rapid.T, pieces []string, wrong *rapid.Generator[string]) string {
	for range rapid.IntRange(0, 2).Draw(rt, "changes") {
		i := rapid.IntRange(0, len(pieces)-1).Draw(rt, "at")
		switch rapid.SampledFrom([]string{"replace", "insert", "remove", "double"}).Draw(rt, "change") {
		case "replace":
			pieces[i] = wrong.Draw(rt, "piece")
		case "insert":
			pieces = slices.Insert(pieces, i, wrong.Draw(rt, "piece"))
		case "remove":
			pieces[i] = ""
		case "double":
			pieces = slices.Insert(pieces, i, pieces[i])
		}
	}
	return strings.Join(pieces, "")
}

func TestJSONReader(t *testing.T) {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\r\n\t"})
	name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0063"`, `"d\/e"`, `"中"`})
	value := rapid.SampledFrom([]string{`1`, `-0`, `1.50`, `2e-7`, `9223372036854775808`, `true`, `false`, `null`, `""`, `"x"`, `"\"\\\/\b\f\n\r\t"`, `"\ud83d\ude00"`, `"{[,:]}"`, `"😀"`})
	wrong := rapid.SampledFrom([]string{`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, "\n", "\x00", "\xff", `01`, `1.`, `nul`, `"\ud800"`, `{"z":1}`, `[]`, `'a'`, `//`, "\u00a0"})
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		pieces := []string{space.Draw(rt, "space"), "{"}
		for i := range rapid.IntRange(0, 4).Draw(rt, "members") {
			if i > 0 {
				pieces = append(pieces, ",")
			}
			pieces = append(pieces, space.Draw(rt, "space"), name.Draw(rt, "name"), space.Draw(rt, "space"), ":", space.Draw(rt, "space"), value.Draw(rt, "value"), space.Draw(rt, "space"))
		}
		whole := strings.Join(append(pieces, "}"), "")
		require.True(rt, sameJSON(rt, whole), "%s", whole)
		if sameJSON(rt, document(rt, append(pieces, "}"), wrong)) {
			accepted++
		}
	})
	require.Positive(t, accepted)
}

func TestXMLReader(t *testing.T) {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\r\n\t"})
	first := rapid.SampledFrom([]string{"", `<?xml version="1.0"?>`, `<?xml version='1.0' encoding='utf-8'?>`, "<?xml\tversion=\"1.0\"\r\n encoding=\"UTF-8\" standalone='yes' ?>"})
	name := rapid.SampledFrom([]string{"a", "b", "mch_id", "_x", "c.d-e9", "xml"})
	text := rapid.SampledFrom([]string{"1", " ", "é中😀", "\r", "\n", "\r\n", ">", "&lt;", "&gt;", "&amp;", "&apos;", "&quot;", "&#38;", "&#x26;", "&#xA;", "&#013;", "<![CDATA[]]>", "<![CDATA[<a>&amp;\r]]>", "<![CDATA[]]]]>"})
	wrong := rapid.SampledFrom([]string{"<", "</", "/>", ">", "]]", "&", ";", "&e;", "&#xD800;", "&#0;", "&#x110000;", "<![CDATA[", "]]>", "<!-- -->", "<?php ?>", `<?xml version="1.0"?>`, "<a>", "</a>", "<b/>", "</xml>", "<xml/>", "\x01", "\xff", "\ufffe", "<é/>", "<a:b/>", "<1/>", "<!DOCTYPE xml>", ` c="d"`, "\u00a0"})
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		pieces := []string{first.Draw(rt, "declaration"), space.Draw(rt, "space"), "<xml", space.Draw(rt, "space"), ">"}
		for range rapid.IntRange(0, 4).Draw(rt, "elements") {
			name := name.Draw(rt, "name")
			pieces = append(pieces, space.Draw(rt, "space"), "<"+name, space.Draw(rt, "space"))
			if rapid.Bool().Draw(rt, "empty") {
				pieces = append(pieces, "/>")
				continue
			}
			pieces = append(append(append(pieces, ">"), rapid.SliceOfN(text, 0, 4).Draw(rt, "text")...), "</"+name, space.Draw(rt, "space"), ">")
		}
		pieces = append(pieces, space.Draw(rt, "space"), "</xml", space.Draw(rt, "space"), ">", space.Draw(rt, "space"))
		whole := strings.Join(pieces, "")
		require.True(rt, sameXML(rt, whole), "%s", whole)
		if sameXML(rt, document(rt, pieces, wrong)) {
			accepted++
		}
	})
	require.Positive(t, accepted)
}
