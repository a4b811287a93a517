package canon_test

import (
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
		{"bytes as they are", "a=é/?:@!$'()*,[]\"<>\\^`{|}\x7f\x00", "a=%C3%A9%2F%3F%3A%40%21%24%27%28%29%2A%2C%5B%5D%22%3C%3E%5C%5E%60%7B%7C%7D%7F%00"},
		{"invalid UTF-8", "a=%ff\xfe", "a=%FF%FE"},
		{"an escaped separator", "a=%26b%3D1", "a=%26b%3D1"},
		{"sorted decoded", "%7A=1&b=2&%2D=3&.=4", "-=3&.=4&b=2&z=1"},
		{"a byte above the others", "%C3=1&z=2&~=3", "z=2&~=3&%C3=1"},
		{"names alike for eight bytes", "aaaaaaaab=1&aaaaaaaa=2&aaaaaaaaa=3&aaaaaaaa%00=4", "aaaaaaaa=2&aaaaaaaa%00=4&aaaaaaaaa=3&aaaaaaaab=1"},
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
		PathParams: []canon.Pair{{Name: "ts", Value: "%zz +&="}, {Name: "*", Value: "a/b"}, {Name: "é", Value: ""}, {Name: "ts", Value: "2"}},
	})
	assert.Equal(t, "%2A=a%2Fb&ts=%25zz+%2B%26%3D&ts=2&%C3%A9=", got)
}

// For what net/url reads without dropping anything, the text is that of url.Values.
func TestPairsPropertyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		query := rapid.StringMatching(`([a-c+é]|%[0-9A-Fa-f]{2}|[=&&]){0,24}`).Draw(t, "query")
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := text(canon.Rules{}, canon.Input{RawQuery: query}); got != values.Encode() {
			t.Fatalf("%q: got %q, want %q", query, got, values.Encode())
		}
	})
}

// Names of all kinds, few and many, are in the order that sort gives them.
func TestPairsInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := func(list ...string) func() string {
		return func() string {
			var b strings.Builder
			for range r.IntN(12) {
				b.WriteString(list[r.IntN(len(list))])
			}
			return b.String()
		}
	}
	chain := 0
	kinds := map[string]func() string{
		"letters":            pieces("a", "b", "c"),
		"bytes":              func() string { return url.QueryEscape(string([]byte{byte(r.Uint32()), byte(r.Uint32())})) },
		"numbers":            func() string { return fmt.Sprint("item", r.IntN(5000)) },
		"numbers in halves":  func() string { return fmt.Sprintf("%d.sameinthemiddle.%d", r.IntN(30), r.IntN(30)) },
		"ends and zero":      pieces("a", "%00"),
		"escapes":            pieces("a", "%61", "+", "%20", "%2B", "%c3%A9", "é", "~"),
		"bad escapes":        pieces("a", "%", "%6", "%zz", "%21", "!", "%25"),
		"seven and more":     func() string { return "sixsix" + strings.Repeat("%37", r.IntN(4)) + strings.Repeat("7", r.IntN(3)) },
		"a long beginning":   func() string { return strings.Repeat("beginning+", 20) + fmt.Sprint(r.IntN(300)) },
		"each longer by one": func() string { chain++; return strings.Repeat("x", chain%150) },
		"one":                func() string { return "one" },
	}
	for kind, name := range kinds {
		for _, n := range []int{1, 2, 3, 20, 300} {
			for _, order := range []string{"in no order", "in order", "the other way round", "nearly in order"} {
				names := make([]string, n)
				for i := range names {
					names[i] = name()
				}
				if order != "in no order" {
					sort.Strings(names)
				}
				switch order {
				case "the other way round":
					slices.Reverse(names)
				case "nearly in order":
					a, b := r.IntN(n), r.IntN(n)
					names[a], names[b] = names[b], names[a]
				}
				var query strings.Builder
				for i, name := range names {
					fmt.Fprintf(&query, "&%s=%d", name, i)
				}
				got, _ := text(canon.Rules{}, canon.Input{RawQuery: query.String()})
				want := joined(segments("", query.String()))
				require.True(t, got == want, "%s, %d of them %s", kind, n, order)
				form := canon.Input{ContentType: typeForm, Body: []byte(query.String())}
				got, _ = text(canon.Rules{}, form)
				require.True(t, got == inBody(want), "%s, %d of them %s, in a form", kind, n, order)

				// Query and form, whose names go through each other.
				form.RawQuery = strings.ReplaceAll(query.String(), "&", "&body:") + query.String() + "&%zz&z"
				got, _ = text(canon.Rules{}, form)
				want = joined(append(segments("", form.RawQuery), segments("body:", query.String())...))
				require.True(t, got == want, "%s, %d of them %s, in query and form", kind, n, order)
			}
		}
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

// TestManyFilesAfterFields: of the parts of one name the fields come first, however many parts and names there are.
func TestManyFilesAfterFields(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 200} {
		var parts []part
		var want []span
		for i := range n {
			name := []string{"a", "a+b", "b", "a longer name", "a longer name, too"}[r.IntN(5)]
			p, value := part{name: name, content: fmt.Sprint(i)}, fmt.Sprint(i)
			if r.IntN(2) == 0 {
				p.filename = "f"
				value = fmt.Sprintf("@%x;f", md5.Sum([]byte(p.content)))
			}
			parts = append(parts, p)
			want = append(want, span{name, "body:" + url.QueryEscape(name) + "=" + value, p.filename != ""})
		}
		got, info := text(canon.Rules{}, multipartInput(t, "boundary", parts...))
		require.False(t, info.Raw)
		require.True(t, got == joined(want), "%d parts", n)
	}
}

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"", "a=1&b=2", "b&a&&=", "a=%zz&%=1", "%!=1&a=%21", "ts=1&_t=2&T-s=3", "a;b=1", "%2561=%25%32", "a+b=c+d&a%20b=e", "\xff=%00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, info := text(canon.Rules{}, canon.Input{RawQuery: query})
		if info != (canon.Info{}) {
			t.Fatal(info)
		}
		if want := joined(segments("", query)); got != want {
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
