package canon_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestJSON(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"literals", ` [ true , false,null ] `, `[true,false,null]`},
		{"blanks of all kinds", "\t{\n\"a\"\r:\t[ ]\n,\"b\" :{ \r}}\n", `{"a":[],"b":{}}`},
		{"empty things stay", `{"b":{},"a":[],"c":""}`, `{"a":[],"b":{},"c":""}`},
		{"every level", `{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":0}`, `{"a":0,"b":{"c":[{"e":2,"f":1}],"d":1}}`},
		{"arrays keep their order", `[3,1,2,"b","a"]`, `[3,1,2,"b","a"]`},
		{"scalar", ` "x" `, `"x"`},
		{"string is no number", `["1",1]`, `["1",1]`},
		{"shorter name first", `{"aa":1,"a":2,"":3}`, `{"":3,"a":2,"aa":1}`},
		{"names alike for eight bytes", `{"requestValue":1,"requestKey":2,"request":3,"requestK":4}`,
			`{"request":3,"requestK":4,"requestKey":2,"requestValue":1}`},
		{"seven bytes, and more", `{"1234567!":1,"1234567 ":2,"1234567":3}`, `{"1234567":3,"1234567 ":2,"1234567!":1}`},
		{"NUL in names", `{"a\u0000b":1,"a":2,"a\u0000":3}`, `{"a":2,"a\u0000":3,"a\u0000b":1}`},
		{"escaped and not", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"escapes sort as what they stand for", `{"#":1,"\"":2,"!":3,"\n":4,"\\":5,"]":6,"[":7}`,
			`{"\n":4,"!":3,"\"":2,"#":1,"[":7,"\\":5,"]":6}`},
		{"escapes sort by both digits", `{"\u0010":1,"\u000e":2}`, `{"\u000e":2,"\u0010":1}`},
		{"escapes after a long beginning", `{"12345678\\":1,"12345678]":2,"12345678[":3,"12345678\u001f":4}`,
			`{"12345678\u001f":4,"12345678[":3,"12345678\\":1,"12345678]":2}`},
		{"UTF-16 order", `{"\uFB33":1,"😀":2,"z":3,"é":4,"\uD83D\uDE01":5}`, "{\"z\":3,\"é\":4,\"😀\":2,\"😁\":5,\"\uFB33\":1}"},
		{"UTF-16 order after a long beginning", `{"12345678\uFB33":1,"12345678😀":2,"12345678é":3}`,
			"{\"12345678é\":3,\"12345678😀\":2,\"12345678\uFB33\":1}"},
		{"RFC 8785, section 3.2.3",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",` +
				`"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small " +
				"Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning " +
				"Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{"string escapes", `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/\b\f\n\r\t\u0008\u001F\u007f"`,
			"\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\\b\\f\\n\\r\\t\\b\\u001f\u007f\""},
		{"line separators stand for themselves", `"\u2028\u2029<>&"`, "\"\u2028\u2029<>&\""},
		{"no normalisation", `["é","e\u0301"]`, "[\"é\",\"e\u0301\"]"},
		{"U+FFFD is a character", `"\ufffd�"`, `"��"`},
		{"64 levels", strings.Repeat("[", 64) + strings.Repeat(" ]", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64)},
		{"64 levels of objects", strings.Repeat(`{"b":1,"a":`, 63) + "[]" + strings.Repeat("}", 63),
			strings.Repeat(`{"a":`, 63) + "[]" + strings.Repeat(`,"b":1}`, 63)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, info := text(canon.Rules{}, jsonInput(test.in))
			assert.Equal(t, test.want, got)
			assert.False(t, info.Raw)
		})
	}
}

// Sizes around those at which strings and sorting change their ways.
func TestJSONSizes(t *testing.T) {
	for n := range 40 {
		s := strings.Repeat("x", n)
		for _, body := range []string{`"` + s + `"`, `["` + s + `\n` + s + `"]`, `{"` + s + `":"` + s + `é"}`} {
			got, info := text(canon.Rules{}, jsonInput(body))
			require.Equal(t, body, got)
			require.False(t, info.Raw)
		}
		var sorted, reversed []string
		for i := range n {
			sorted = append(sorted, fmt.Sprintf(`"m%02d":%d`, i, i))
			reversed = append([]string{sorted[i]}, reversed...)
		}
		got, _ := text(canon.Rules{}, jsonInput("{"+strings.Join(reversed, " , ")+"}"))
		require.Equal(t, "{"+strings.Join(sorted, ",")+"}", got)
	}
}

// A model of a JSON value, and of the many ways to write it.
type (
	object []member
	member struct {
		name  string
		value any
	}
	number string
)

var nameGen = rapid.OneOf(
	rapid.SampledFrom([]string{"", "a", "b", "ab", "request", "requestKey", "requestKez", "é", "\"", "\\",
		"\x00", "\n", "/", "\uFB33", "😀", "\uE000x"}),
	rapid.StringN(0, 12, -1),
)

func valueGen(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return nameGen.Draw(t, "string")
		case 3:
			return number(safeNumber.Draw(t, "number"))
		case 4:
			return rapid.SliceOfN(valueGen(depth-1), 0, 4).Draw(t, "array")
		}
		o := object{}
		for _, name := range rapid.SliceOfNDistinct(nameGen, 0, 6, rapid.ID).Draw(t, "names") {
			o = append(o, member{name, valueGen(depth-1).Draw(t, "value")})
		}
		return o
	})
}

// write writes v in one of the many ways in which it can be written.
func write(r *rand.Rand, b *strings.Builder, v any) {
	blank := func() {
		for r.Intn(4) == 0 {
			b.WriteByte(" \t\r\n"[r.Intn(4)])
		}
	}
	blank()
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case number:
		b.WriteString(string(v))
	case string:
		writeString(r, b, v)
	case []any:
		b.WriteByte('[')
		blank()
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(r, b, e)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		blank()
		for i, k := range r.Perm(len(v)) {
			if i > 0 {
				b.WriteByte(',')
				blank()
			}
			writeString(r, b, v[k].name)
			blank()
			b.WriteByte(':')
			write(r, b, v[k].value)
		}
		b.WriteByte('}')
	}
	blank()
}

func writeString(r *rand.Rand, b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, c := range s {
		if c >= ' ' && c != '"' && c != '\\' && r.Intn(3) > 0 {
			b.WriteRune(c)
			continue
		}
		if i := strings.IndexRune("\"\\/\b\f\n\r\t", c); i >= 0 && r.Intn(2) == 0 {
			b.WriteByte('\\')
			b.WriteByte(`"\/bfnrt`[i])
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(b, []string{`\u%04x`, `\u%04X`}[r.Intn(2)], unit)
		}
	}
	b.WriteByte('"')
}

func written(r *rand.Rand, v any) string {
	var b strings.Builder
	write(r, &b, v)
	return b.String()
}

// However a value is written, its text is the same, and the one that RFC 8785 asks for.
func TestJSONPropertyOneText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := valueGen(4).Draw(t, "value")
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		a, b := written(r, v), written(r, v)
		got, info := text(canon.Rules{}, jsonInput(a))
		if info.Raw {
			t.Fatalf("%q is raw", a)
		}
		want := jsontext.Value(b)
		if err := want.Canonicalize(); err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Fatalf("%q:\n got %q\nwant %q", a, got, want)
		}
		if other, _ := text(canon.Rules{}, jsonInput(b)); other != got {
			t.Fatalf("%q and %q differ", a, b)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		body200, `{"b":[1.0,-0,1e2],"a":"\u0041\/"}`, `{"\ud83d\ude00":1,"\ufb33":2}`, ` [ ] `, `"\ud83d"`, `{"a":1,"a":2}`,
		`[[{"x":{"ts":1,"y":[{},{}]}},1E400]]`, "\uFEFF1", `0.000001e-99999999999999999999`,
		`0.1e-999999999999999999`, `{"":{"":{"":""}}}`, "\"\xff\"",
		// Each of these is raw.
		`{"a":1} x`, `{} {}`, `{"b":1,"a":2`, `[1 `, `"a`, `"aaaaaaaaaaaaaaaaaaaa`, `{"a" 1}`, `{"a":}`, `{"a":`, `{1:2}`, `{,}`,
		`{"a":1 ,}`, `[1 ,]`, `[1 ,,2]`, `[1 }`, ` nil`, ` tru`, ` nullx`, ` NaN`, " \"a\nb\"", " \"aaaaaaaaaaaaaaaa\x1f\"",
		" \"\xc0\xaf\"", " \"\xed\xa0\x80\"", ` "\ude00"`, ` "\ud83d\u0041"`, ` "\x41"`, ` "\u004"`, ` "\`, ` "\u00g0"`,
		`{"b":1,"a":2,"b":1}`, `{"m77":1,` + manyMembers(100)[1:], `{"b":1,"\u0062":1}`, `{"123456789":1,"a":1,"123456789":1}`,
		`[{"a":[{"b":1,"b":1}]}]`, `{"":1,"":1}`,
		strings.Repeat("[", 65) + " " + strings.Repeat("]", 65), strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<18),
		strings.Repeat(`[{"a":`, 1<<18), ` 'a'`, ` [] // x`, "[1]\x00", "[1]\v",
	} {
		f.Add([]byte(seed))
	}
	some := canon.Rules{DefaultNames: true, Exclude: paths(f, "**.a", "*.1", "b.*.c")}
	sel := canon.Rules{Select: paths(f, "**.a", "*.1", "b.*.c")}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		got, info := text(canon.Rules{}, jsonInput(string(body)))
		valid := jsontext.Value(body).IsValid()
		if !info.Raw {
			if !valid || depth(body) > 64 {
				t.Fatalf("%.80q is not valid, or too deep", body)
			}
			asText := canon.Input{ContentType: "text/plain", Body: body}
			asCanonicalText := canon.Input{ContentType: "text/plain", Body: []byte(got)}
			if d := digest(canon.Rules{}, jsonInput(string(body))); d == digest(canon.Rules{}, asText) ||
				d == digest(canon.Rules{}, asCanonicalText) {
				t.Fatalf("%q merges with the same bytes as text", body)
			}
			if !jsontext.Value(got).IsValid() {
				t.Fatalf("%q is written as %q", body, got)
			}
			// Unless the exponent has grown beyond 18 digits, the text is a fixed point.
			again, info := text(canon.Rules{}, jsonInput(got))
			if info.Raw && !hugeExponent([]byte(got)) || !info.Raw && again != got {
				t.Fatalf("%q is written as %q and then as %q", body, got, again)
			}
		} else {
			if got != "\x00"+string(body) {
				t.Fatalf("%.80q is raw, but written as %.80q", body, got)
			}
			if valid && depth(body) <= 64 && !hugeExponent(body) {
				t.Fatalf("%.80q is raw", body)
			}
		}
		for _, rules := range []canon.Rules{some, sel} {
			part, partInfo := text(rules, jsonInput(string(body)))
			if partInfo.Raw != info.Raw {
				t.Fatalf("%q: raw depends on the rules", body)
			}
			if !utf8.ValidString(part) && !info.Raw {
				t.Fatalf("%q is written as %q", body, part)
			}
		}
	})
}

// depth returns how deep a valid JSON text nests.
func depth(body []byte) (deepest int) {
	d := jsontext.NewDecoder(strings.NewReader(string(body)))
	for {
		if _, err := d.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, d.StackDepth())
	}
}

// hugeExponent reports whether something in body may be a number with an exponent of
// more than 18 digits.
func hugeExponent(body []byte) bool {
	digits := 0
	for _, c := range body {
		if c < '0' || c > '9' {
			digits = 0
			continue
		}
		if digits++; digits > 18 {
			return true
		}
	}
	return false
}
