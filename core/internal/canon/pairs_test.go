package canon_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestPairs(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"sorted", "b=2&a=1&c=3", "a=1&b=2&c=3"},
		{"repeats in order", "a=2&b=&a=1&a=2", "a=2&a=1&a=2&b="},
		{"no value is an empty one", "a&b=", "a=&b="},
		{"empty segments", "&&a=1&&", "a=1"},
		{"only separators", "&&&", ""},
		{"no name", "=1&=", "=1&="},
		{"more than one equals sign", "a=b=c", "a=b%3Dc"},
		{"semicolon is no separator", "a=1;b=2", "a=1%3Bb%3D2"},
		{"blanks", "a+b=%20+", "a+b=++"},
		{"escapes that need not be", "%61=%62%7E~", "a=b~~"},
		{"escapes in lower case", "a=%c3%a9%2f", "a=%C3%A9%2F"},
		{"bytes as they are", "a=é/?:@!$'()*,[]\"<>\\^`{|}\x7f\x00",
			"a=%C3%A9%2F%3F%3A%40%21%24%27%28%29%2A%2C%5B%5D%22%3C%3E%5C%5E%60%7B%7C%7D%7F%00"},
		{"invalid UTF-8", "a=%ff\xfe", "a=%FF%FE"},
		{"an escaped separator", "a=%26b%3D1", "a=%26b%3D1"},
		{"sorted decoded", "%7A=1&b=2&%2D=3&.=4", "-=3&.=4&b=2&z=1"},
		{"a byte above the others", "%C3=1&z=2&~=3", "z=2&~=3&%C3=1"},
		{"names alike for eight bytes", "aaaaaaaab=1&aaaaaaaa=2&aaaaaaaaa=3&aaaaaaaa%00=4",
			"aaaaaaaa=2&aaaaaaaa%00=4&aaaaaaaaa=3&aaaaaaaab=1"},
		{"NUL", "a%00=1&a=2", "a=2&a%00=1"},
		{"bad escape in a value", "a=%zz&b=1%", "a=%!%25zz&b=%!1%25"},
		{"bad escape in a name", "b=1&%4=2+3&+%=x", "%!%254=2+3&%!%2B%25=x&b=1"},
		{"as text, not a bad escape", "a=%25zz", "a=%25zz"},
		{"cut escape", "a=%4", "a=%!%254"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, _ := text(canon.Rules{}, canon.Input{RawQuery: test.in})
			assert.Equal(t, test.want, got)
			got, info := text(canon.Rules{}, canon.Input{ContentType: typeForm, Body: []byte(test.in)})
			assert.Equal(t, inBody(test.want), got, "as a form")
			assert.Zero(t, info)
		})
	}
}

func TestPathParameters(t *testing.T) {
	got, _ := text(canon.Rules{DefaultNames: true, Exclude: paths(t, "*"), Select: paths(t)}, canon.Input{
		PathParams: []canon.Pair{{Name: "ts", Value: "%zz +&="}, {Name: "*", Value: "a/b"},
			{Name: "é", Value: ""}, {Name: "ts", Value: "2"}},
	})
	assert.Equal(t, "%2A=a%2Fb&ts=%25zz+%2B%26%3D&ts=2&%C3%A9=", got)
}

// Names of all kinds are in the order that sort gives them.
func TestPairsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, pieces := range [][]string{
		{"a", "b", "c"},
		{"a", "%00", "%41", "%61", "+", "%20", "%7e", "~", "%c3", "%FF"},
		{"a", "%", "%z", "%!", "!", "%21", "%25", "b"},
		{"body:", "body%3A", "body", "a", "%zz", ""},
		{"the+same+beginning", "the+same+beginnin", "h"},
	} {
		for _, n := range []int{2, 20, 300} {
			var query strings.Builder
			for i := range n {
				query.WriteString("&")
				for range r.IntN(6) {
					query.WriteString(pieces[r.IntN(len(pieces))])
				}
				fmt.Fprintf(&query, "=%d", i)
			}
			checkPairs(t, query.String())
		}
	}
}

// checkPairs holds a query, a form, and one behind the other against what segments reads.
func checkPairs(t *testing.T, query string) {
	t.Helper()
	got, info := text(canon.Rules{}, canon.Input{RawQuery: query})
	if want := joined(segments("", query)); got != want || info != (canon.Info{}) {
		t.Fatalf("%q: got %q, want %q", query, got, want)
	}
	if values, err := url.ParseQuery(query); err == nil && got != values.Encode() {
		t.Fatalf("%q: got %q, want %q", query, got, values.Encode())
	}
	if form, _ := text(canon.Rules{}, canon.Input{ContentType: typeForm, Body: []byte(query)}); form != inBody(got) {
		t.Fatalf("%q as a form: %q", query, form)
	}
	half := len(query) / 2
	got, _ = text(canon.Rules{}, canon.Input{RawQuery: query[:half], ContentType: typeForm, Body: []byte(query[half:])})
	if want := joined(append(segments("", query[:half]), segments("body:", query[half:])...)); got != want {
		t.Fatalf("%q, half of it as a form: got %q, want %q", query, got, want)
	}
}

// inBody is the text of pairs if they are the fields of a form.
func inBody(text string) string {
	if text == "" {
		return ""
	}
	return "body:" + strings.ReplaceAll(text, "&", "&body:")
}

type pair = canon.Pair

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"", "a=1&b=2", "b&a&&=", "a=%zz&%=1", "%!=1&a=%21", "ts=1&_t=2&T-s=3", "a;b=1",
		"%2561=%25%32", "a+b=c+d&a%20b=e", "\xff=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		checkPairs(t, query)
		text(canon.Rules{DefaultNames: true, Exclude: paths(t, "a", "**.b"), Select: paths(t, "*")}, canon.Input{RawQuery: query})
	})
}

// span is a pair, and how it is written.
type span struct {
	name, text string
	isFile     bool
}

// segments reads the segments of a query or form, each for itself: nothing is dropped or made
// up. Its names have prefix in front.
func segments(prefix, query string) []span {
	var spans []span
	for _, segment := range strings.Split(query, "&") {
		if segment == "" {
			continue
		}
		name, value, _ := strings.Cut(segment, "=")
		decoded, nameText := component(name)
		_, valueText := component(value)
		spans = append(spans, span{name: prefix + decoded, text: prefix + nameText + "=" + valueText})
	}
	return spans
}

// joined puts spans in order and joins them.
func joined(spans []span) string {
	sort.SliceStable(spans, func(a, b int) bool {
		if spans[a].name != spans[b].name {
			return spans[a].name < spans[b].name
		}
		return !spans[a].isFile && spans[b].isFile
	})
	var texts []string
	for _, s := range spans {
		texts = append(texts, s.text)
	}
	return strings.Join(texts, "&")
}

func component(raw string) (decoded, text string) {
	decoded, err := url.QueryUnescape(raw)
	if err != nil {
		return raw, "%!" + url.QueryEscape(raw)
	}
	return decoded, url.QueryEscape(decoded)
}

func ExampleRules_AppendCanonical() {
	rules := canon.Rules{DefaultNames: true}
	text, _ := rules.AppendCanonical(nil, &canon.Input{
		PathParams:  []canon.Pair{{Name: "id", Value: "42"}},
		RawQuery:    "ts=1700000000&dry+run=",
		ContentType: "application/json",
		Body:        []byte(`{ "to": "bob", "amount": 5.00 }`),
	})
	fmt.Printf("%s\n", text)
	// Output:
	// dry+run=&id=42
	// {"amount":5,"to":"bob"}
}
