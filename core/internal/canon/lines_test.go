package canon_test

import (
	"fmt"
	"mime"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestHeaderLines(t *testing.T) {
	header := func(lines ...string) []pair {
		var header []pair
		for i := 0; i < len(lines); i += 2 {
			header = append(header, pair{Name: lines[i], Value: lines[i+1]})
		}
		return header
	}
	tests := []struct {
		name string
		in   canon.Input
		want string
	}{
		{"one", canon.Input{Header: header("if-match", `"v1"`)}, `if-match:"v1"`},
		{"sorted by name", canon.Input{Header: header("range", "bytes=0-9", "if-range", "x", "if-match", "*")},
			"if-match:*\nif-range:x\nrange:bytes=0-9"},
		{"lines of one name in their order", canon.Input{Header: header("if-match", `"b"`, "range", "r", "if-match", `"a"`, "a", "1",
			"if-match", `"c"`)}, "a:1\nif-match:\"b\"\nif-match:\"a\"\nif-match:\"c\"\nrange:r"},
		{"trimmed at both ends", canon.Input{Header: header("range", " \tbytes=0 - 9\t ")}, "range:bytes=0 - 9"},
		{"an empty one is not an absent one", canon.Input{Header: header("range", " ")}, "range:"},
		{"case of a value", canon.Input{Header: header("if-match", "ABC")}, "if-match:ABC"},
		{"behind JSON as it was sent", canon.Input{ContentType: typeJSON, Body: []byte(`{"a":1}`), Header: header("if-match", "*")},
			"{\"a\":1}\nif-match:*"},
		{"behind JSON out of order", canon.Input{ContentType: typeJSON, Body: []byte(`{"b":1,"a":2}`), Header: header("if-match", "*")},
			"{\"a\":2,\"b\":1}\nif-match:*"},
		{"behind pairs and JSON", canon.Input{RawQuery: "q", ContentType: typeJSON, Body: []byte(`{"a":1}`),
			Header: header("if-match", "*", "a", "b")}, "q=\n{\"a\":1}\na:b\nif-match:*"},
		{"before raw bytes", canon.Input{Body: []byte("x\nif-match:*"), Header: header("range", "r")}, "range:r\n\x00x\nif-match:*"},
		{"before malformed JSON", canon.Input{RawQuery: "q", ContentType: typeJSON, Body: []byte(`{"b":1,"a":2,}`),
			Header: header("range", "r")}, "q=\nrange:r\n\x00{\"b\":1,\"a\":2,}"},
		{"before a malformed multipart form", canon.Input{ContentType: "multipart/form-data; boundary=b", Body: []byte("--b\r\n\r\nx"),
			Header: header("range", "r")}, "range:r\n\x00--b\r\n\r\nx"},
		{"before the type", canon.Input{ContentType: "image/png", Body: []byte("x"), Header: header("x-amz-target", "T")},
			"x-amz-target:T\ntype:image/png\n\x00x"},
		{"no header fields, but the type behind JSON as it was sent",
			canon.Input{ContentType: "application/x+json", Body: []byte(`{"a":1}`)}, "{\"a\":1}\ntype:application/x+json"},
		{"like a form", canon.Input{Header: header("body", "a=1")}, "body: a=1"},
		{"like the type", canon.Input{ContentType: "b/c", Header: header("type", "b/c")}, "type: b/c\ntype:b/c"},
		{"a line feed", canon.Input{Header: header("a", "1\nb:2\n\n c\n")}, "a:1\n b:2\n \n  c\n "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _ := text(canon.Rules{}, test.in)
			assert.Equal(t, test.want, got)
			rules := canon.Rules{DefaultNames: true, Exclude: paths(t, "if-match", "range", "x-amz-target")}
			got, _ = text(rules, test.in)
			assert.Equal(t, test.want, got, "no rule leaves a line out")
		})
	}

	var many []pair
	want := [2]string{}
	for i := range 50 {
		many = append(many, pair{Name: string("ba"[i%2]), Value: fmt.Sprint(i)})
		want[1-i%2] += fmt.Sprintf("\n%c:%d", "ba"[i%2], i)
	}
	got, _ := text(canon.Rules{}, canon.Input{Header: many})
	assert.Equal(t, (want[0] + want[1])[1:], got)

	got, info := text(canon.Rules{Select: paths(t, "a")},
		canon.Input{ContentType: "application/x+json", Body: []byte(`{"b":1}`), Header: header("range", "r")})
	assert.Equal(t, "range:r\ntype:application/x+json", got, "nothing of the body is selected")
	assert.Zero(t, info)
}

func TestTypeLine(t *testing.T) {
	types := map[string]string{
		"application/vnd.api+json":                 "type:application/vnd.api+json",
		" Application/Vnd.API+JSON ;charset=utf-8": "type:application/vnd.api+json",
		"application/jsonp":                        "type:application/jsonp",
		"application/json-patch+json":              "type:application/json-patch+json",
		"text/plain":                               "type:text/plain", "\tTEXT/plain\t; Charset=X": "type:text/plain",
		"multipart": "type:multipart", "multipart/": "type:multipart/", "multiparty/x": "type:multiparty/x",
		"tſ/K": "type:tſ/k", "a\nB": "type:a\n b",
	}
	for _, usual := range []string{
		"", " ; charset=utf-8", typeJSON, "Application/JSON", " application/json ; v=1", typeForm,
		"APPLICATION/x-www-form-urlencoded;charset=UTF-8", "multipart/form-data; boundary=b",
		"multipart/form-data", "Multipart/Mixed; boundary=b",
	} {
		types[usual] = ""
	}
	for contentType, want := range types {
		got, _ := text(canon.Rules{}, canon.Input{ContentType: contentType})
		assert.Equal(t, want, got, "%q without a body", contentType)
		got, _ = text(canon.Rules{}, canon.Input{ContentType: contentType, ContentEncoding: "gzip", Body: []byte("x")})
		if want != "" {
			want += "\n"
		}
		assert.Equal(t, want+"\x00x", got, "%q with a compressed body", contentType)
	}

	// What got 415 under one type must not get it again under another.
	seen := map[string]string{}
	for _, contentType := range []string{typeJSON, "application/vnd.api+json", "application/merge-patch+json",
		"text/json", "text/plain", typeForm} {
		got := digest(canon.Rules{}, canon.Input{ContentType: contentType, Body: []byte(`{"a":1}`)})
		assert.NotContains(t, seen, got, "%s, %s", contentType, seen[got])
		seen[got] = contentType
	}
}

func TestQueryIsNoForm(t *testing.T) {
	form := func(query, body string) canon.Input {
		return canon.Input{RawQuery: query, ContentType: typeForm, Body: []byte(body)}
	}
	// Rules ask for the name without it.
	for name, rules := range map[string]canon.Rules{
		"default names": {DefaultNames: true},
		"Exclude":       {Exclude: paths(t, "ts")},
		"Select":        {Select: paths(t, "a")},
	} {
		got, _ := text(rules, form("a=1&ts=2", "a=3&ts=4"))
		assert.Equal(t, "a=1&body:a=3", got, name)
		rules = canon.Rules{Exclude: paths(t, "body:ts"), Select: paths(t, "ts", "a")}
		got, _ = text(rules, form("a=1&body:ts=2", "a=3&ts=4"))
		assert.Equal(t, "a=1&body:a=3&body:ts=4", got)
	}
}

func TestConsumed(t *testing.T) {
	consumed := []string{"sign", "X-Nonce", "a\nb", "é", "a.b", ""}
	tests := []struct {
		name  string
		rules canon.Rules
		in    canon.Input
		want  string
	}{
		{"query", canon.Rules{}, canon.Input{RawQuery: "sign=1&a=2&X-Nonce=3&sign=4&%73ign=5&a%0Ab=6&=7"}, "a=2"},
		{"exactly", canon.Rules{}, canon.Input{RawQuery: "Sign=1&x-nonce=2&signs=3&sig=4"}, "Sign=1&sig=4&signs=3&x-nonce=2"},
		{"form", canon.Rules{}, canon.Input{ContentType: typeForm, Body: []byte("sign=1&a=2&%c3%a9=3")}, "body:a=2"},
		{"JSON", canon.Rules{}, jsonInput(`{"sign":{"x":[1]},"a":{"sign":1},"a\u000ab":2,"\u00e9":3,"X-Nonce":4,"x-nonce":5,"":6,"a.b":7}`),
			`{"a":{"sign":1},"x-nonce":5}`},
		{"JSON, at the top level only", canon.Rules{DefaultNames: true, Exclude: paths(t, "**.x")},
			jsonInput(`{"ts":1,"a":{"sign":2,"ts":3,"x":4},"sign":5}`), `{"a":{"sign":2,"ts":3}}`},
		{"JSON, not the default names", canon.Rules{}, jsonInput(`{"ts":1,"sign":2,"nonce":3}`), `{"nonce":3,"ts":1}`},
		{"query, not the default names", canon.Rules{}, canon.Input{RawQuery: "ts=1&sign=2&nonce=3"}, "nonce=3&ts=1"},
		{"JSON, not in an array", canon.Rules{}, jsonInput(`[{"sign":1}]`), `[{"sign":1}]`},
		{"JSON, names alike in the beginning", canon.Rules{}, jsonInput(`{"si":1,"signed":2,"a\nbc":3,"a\n":4}`),
			`{"a\n":4,"a\nbc":3,"si":1,"signed":2}`},
		{"never a path parameter", canon.Rules{},
			canon.Input{PathParams: []pair{{Name: "sign", Value: "1"}}, RawQuery: "sign=2"}, "sign=1"},
		{"never a file", canon.Rules{}, multipartInput(t, "b", part{name: "sign", content: "1"},
			part{name: "sign", filename: "s", content: "2"}), "body:sign=@" + md5Hex("2") + ";s"},
		{"never a header field", canon.Rules{}, canon.Input{Header: []pair{{Name: "sign", Value: "1"}}}, "sign:1"},
		{"not raw bytes", canon.Rules{}, canon.Input{Body: []byte("sign=1")}, "\x00sign=1"},
		{"with other rules", canon.Rules{DefaultNames: true, Exclude: paths(t, "x")}, canon.Input{RawQuery: "ts=1&x=2&X-Nonce=3&a=4",
			ContentType: typeJSON, Body: []byte(`{"ts":1,"x":2,"X-Nonce":3,"a":4}`)}, "a=4\n{\"a\":4}"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.in.Consumed = consumed
			got, info := text(test.rules, test.in)
			assert.Equal(t, test.want, got)
			assert.Zero(t, info.Selected)
		})
	}

	// What is selected does not count all the same, and is not among what was selected.
	in := canon.Input{RawQuery: "sign=1&a=2", ContentType: typeJSON, Body: []byte(`{"sign":1,"a":2}`), Consumed: consumed}
	got, info := text(canon.Rules{Select: paths(t, "sign")}, in)
	assert.Empty(t, got)
	assert.Zero(t, info.Selected)
	got, info = text(canon.Rules{Select: paths(t, "sign", "a")}, in)
	assert.Equal(t, "a=2\n{\"a\":2}", got)
	assert.Equal(t, 2, info.Selected)

	// It must be well-formed all the same.
	in = jsonInput(`{"sign":1,"a":2,"sign":3}`)
	in.Consumed = consumed
	assert.True(t, raw(in))
}

// sent is what counts of a request: different ones are different requests. The values of
// pairs are in order within one name, those of files behind the others.
type sent struct {
	Pairs     map[string][]string
	JSON      string
	Header    []pair
	MediaType string
	Raw       string // with a mark in front
}

// read reads a canonical text back, from the front, by the package comment.
func read(t interface{ Fatalf(string, ...any) }, text string) sent {
	s := sent{Pairs: map[string][]string{}}
	switch at := strings.Index(text, "\n\x00"); {
	case strings.HasPrefix(text, "\x00"):
		text, s.Raw = "", text
	case at >= 0:
		text, s.Raw = text[:at], text[at+1:]
	}
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if more, ok := strings.CutPrefix(line, " "); ok {
			lines[len(lines)-1] += "\n" + more
			continue
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		colon := strings.IndexByte(line, ':')
		equals := strings.IndexByte(line, '=')
		inForm := strings.HasPrefix(line, "body:") && !strings.HasPrefix(line, "body: ")
		switch {
		case line == "":
		case strings.ContainsRune(`{["`, rune(line[0])), colon < 0 && equals < 0:
			s.JSON = line
		case inForm, equals >= 0 && (colon < 0 || equals < colon):
			for _, segment := range strings.Split(line, "&") {
				name, value, _ := strings.Cut(segment, "=")
				if inForm := strings.HasPrefix(name, "body:"); !inForm && strings.ContainsRune(name, ':') {
					t.Fatalf("a pair called %q", name)
				}
				s.Pairs[name] = append(s.Pairs[name], value)
			}
		case strings.HasPrefix(line, "type:") && !strings.HasPrefix(line, "type: "):
			s.MediaType = line[len("type:"):]
		default:
			name, value := line[:colon], line[colon+1:]
			if name == "body" || name == "type" {
				value = value[1:]
			}
			s.Header = append(s.Header, pair{Name: name, Value: value})
		}
	}
	return s
}

// asSent is what counts of in under the zero Rules, part by part.
func asSent(in canon.Input) sent {
	s := sent{Pairs: map[string][]string{}}
	spans := segments("", in.RawQuery)
	for _, p := range in.PathParams {
		spans = append([]span{{name: p.Name, text: url.QueryEscape(p.Name) + "=" + url.QueryEscape(p.Value)}}, spans...)
	}
	mediaType, _, _ := strings.Cut(in.ContentType, ";")
	mediaType = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, strings.Trim(mediaType, " \t"))
	switch {
	case len(in.Body) == 0:
	case mediaType == typeForm:
		spans = append(spans, segments("body:", string(in.Body))...)
	case mediaType == "multipart/form-data":
		if parts, ok := readParts(in.ContentType, in.Body); ok {
			spans = append(spans, parts...)
			break
		}
		s.Raw = "\x00" + string(in.Body)
	case canon.IsJSON(in.ContentType) && !raw(jsonInput(string(in.Body))):
		s.JSON, _ = text(canon.Rules{}, jsonInput(string(in.Body)))
	default:
		s.Raw = "\x00" + string(in.Body)
	}
	sort.SliceStable(spans, func(a, b int) bool { return !spans[a].isFile && spans[b].isFile })
	for _, span := range spans {
		name, value, _ := strings.Cut(span.text, "=")
		s.Pairs[name] = append(s.Pairs[name], value)
	}
	for _, h := range in.Header {
		s.Header = append(s.Header, pair{Name: h.Name, Value: strings.Trim(h.Value, " \t")})
	}
	slices.SortStableFunc(s.Header, func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	if mediaType != typeJSON && mediaType != typeForm && (!strings.HasPrefix(mediaType, "multipart/") || mediaType == "multipart/") {
		s.MediaType = mediaType
	}
	return s
}

// inputGen draws requests. Wherever there may be any text, it draws now and then one that reads
// like a line of another request, or like the whole of one.
func inputGen(imitations ...string) *rapid.Generator[canon.Input] {
	return rapid.Custom(func(t *rapid.T) canon.Input {
		anything := rapid.OneOf(
			rapid.SampledFrom(append(imitations, "", "1", "a=1", "body:a=1", "body:a", `{"a":1}`, "[1]", `"a"`, "true", "if-match:1",
				"type:a/b", "\x00", "\x00a=1", "\n\x00", "a/b", " ", "a=1\nif-match:1", "@", ";a")),
			rapid.StringN(0, 8, -1))
		name := rapid.SampledFrom([]string{"a", "b", "body:a", "body", "type", "body:body:a", "if-match", "%zz", "é", ""})
		segments := rapid.Custom(func(t *rapid.T) string {
			var list []string
			for range rapid.IntRange(0, 3).Draw(t, "pairs") {
				n, v := name.Draw(t, "name"), anything.Draw(t, "value")
				if rapid.Bool().Draw(t, "escaped") {
					n, v = url.QueryEscape(n), url.QueryEscape(v)
				}
				list = append(list, n+"="+v)
			}
			return strings.Join(list, "&")
		})
		in := canon.Input{RawQuery: segments.Draw(t, "query")}
		if rapid.Bool().Draw(t, "with a path parameter") {
			in.PathParams = []pair{{Name: name.Draw(t, "path parameter"), Value: anything.Draw(t, "its value")}}
		}
		for range rapid.IntRange(0, 3).Draw(t, "header fields") {
			in.Header = append(in.Header, pair{
				Name:  rapid.SampledFrom([]string{"a", "body", "type", "if-match", "range", "true", "1"}).Draw(t, "field"),
				Value: anything.Draw(t, "its value"),
			})
		}
		in.ContentType = rapid.OneOf(
			rapid.SampledFrom([]string{"", typeJSON, typeForm, "application/vnd.api+json", "Text/Plain; x=y", "a/b", "multipart/mixed",
				"multipart/form-data; boundary=b", " a/b"}),
			anything).Draw(t, "type")
		switch mediaType, _, _ := mime.ParseMediaType(in.ContentType); {
		case mediaType == typeForm:
			in.Body = []byte(segments.Draw(t, "form"))
		case mediaType == "multipart/form-data" && rapid.Bool().Draw(t, "well-formed"):
			var body strings.Builder
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				fmt.Fprintf(&body, "--b\r\nContent-Disposition: form-data; name=%q", name.Draw(t, "name"))
				if rapid.Bool().Draw(t, "is a file") {
					fmt.Fprintf(&body, "; filename=%q", rapid.SampledFrom([]string{"", "a", "b", "a;b", "d/a", "@"}).Draw(t, "file"))
				}
				fmt.Fprintf(&body, "\r\n\r\n%s\r\n", anything.Draw(t, "content"))
			}
			in.Body = []byte(body.String() + "--b--\r\n")
		case canon.IsJSON(in.ContentType) && rapid.Bool().Draw(t, "well-formed"):
			in.Body = []byte(rapid.SampledFrom([]string{"{ }", "[1 ]", "true", "-1.0", `{"b":1,"a":"x\n\u0000"}`,
				`"if-match:1"`, "null"}).Draw(t, "JSON"))
		default:
			in.Body = []byte(anything.Draw(t, "body"))
		}
		return in
	})
}

// Different requests have different texts: what was sent can be read back from the text.
func TestTextPropertySaysWhatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The other one has of the first whatever it can take.
		var said [2]sent
		var texts [2]string
		var imitations []string
		for i := range said {
			in := inputGen(imitations...).Draw(t, "request")
			said[i] = asSent(in)
			texts[i], _ = text(canon.Rules{}, in)
			if got := read(t, texts[i]); !assert.ObjectsAreEqual(said[i], got) {
				t.Fatalf("%q says %+v, not %+v", texts[i], got, said[i])
			}
			imitations = append(strings.Split(texts[i], "\n"), texts[i], "\n"+texts[i], "x\n"+texts[i])
		}
		if same := assert.ObjectsAreEqual(said[0], said[1]); same != (texts[0] == texts[1]) {
			t.Fatalf("%+v are the same: %t, but have the texts %q", said, same, texts)
		}
	})
}
