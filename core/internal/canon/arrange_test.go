package canon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/internal/canon"
	"github.com/idem-go/idem/internal/race"
)

// large writes a random value with objects whose members are in no order, some of them small
// and some larger than what is put in order on the spot.
func large(r *rand.Rand, b *strings.Builder, depth int) {
	switch kind := r.IntN(10); {
	case depth == 0 || kind < 2:
		fmt.Fprintf(b, "%d", r.IntN(1000))
	case kind < 4:
		fmt.Fprintf(b, "%q", strings.Repeat("x", r.IntN(6000)))
	case kind < 6:
		b.WriteByte('[')
		for i := range r.IntN(4) {
			if i > 0 {
				b.WriteString(", ")
			}
			large(r, b, depth-1)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		n := 1 + r.IntN(5)
		if r.IntN(8) == 0 {
			n = 20 + r.IntN(600)
		}
		beginning := strings.Repeat("same", r.IntN(6))
		for i, number := range r.Perm(n) {
			if i > 0 {
				b.WriteByte(',')
			}
			name, below := beginning+strconv.Itoa(number), 0
			if n < 20 {
				below = depth - 1
			}
			if r.IntN(9) == 0 {
				name = fmt.Sprint("ts", number%3, strings.Repeat("t", i))
			}
			fmt.Fprintf(b, "%q: ", name)
			large(r, b, below)
		}
		b.WriteByte('}')
	}
}

// sorted is the canonical form by way of encoding/json, of a text of ASCII and small numbers,
// without the members that are excluded.
func sorted(t *testing.T, text string, excluded func(name string) bool) string {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	var drop func(v any)
	drop = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				drop(e)
			}
		case map[string]any:
			for name, e := range v {
				if excluded(name) {
					delete(v, name)
				} else {
					drop(e)
				}
			}
		}
	}
	drop(v)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(v))
	return strings.TrimSuffix(b.String(), "\n")
}

// TestLargeObjectsAreArranged sets texts with large objects in each other, with and without
// excluded members, beside what encoding/json makes of them.
func TestLargeObjectsAreArranged(t *testing.T) {
	exclude := paths(t, "**.ts0", "**.ts1tt", "**.same1", "**.same2")
	excluded := func(name string) bool {
		return name == "ts0" || name == "ts1tt" || name == "same1" || name == "same2"
	}
	texts := []string{
		deep(64, `"`+strings.Repeat("x", 50_000)+`"`),
		`{"b":[` + deep(60, `"`+strings.Repeat("x", 5000)+`"`) + `,` + deep(60, `"`+strings.Repeat("y", 5000)+`"`) + `],"a":` + deep(62, `"`+strings.Repeat("z", 5000)+`"`) + `}`,
	}
	r := rand.New(rand.NewPCG(1, 2))
	rounds := 600
	if race.Enabled {
		rounds = 100
	}
	for len(texts) < rounds {
		var b strings.Builder
		large(r, &b, 9)
		texts = append(texts, b.String())
	}
	arranged := 0
	for _, body := range texts {
		got, info := text(canon.Rules{}, jsonInput(body))
		if info.Raw { // a name that occurs twice
			continue
		}
		require.Equal(t, sorted(t, body, func(string) bool { return false }), got)
		got, _ = text(canon.Rules{Exclude: exclude}, jsonInput(body))
		require.Equal(t, sorted(t, body, excluded), got)
		withQuery := jsonInput(body)
		withQuery.RawQuery = "b=1&a=2"
		got, _ = text(canon.Rules{Exclude: exclude}, withQuery)
		require.Equal(t, "a=2&b=1\n"+sorted(t, body, excluded), got)
		if len(got) > 20_000 {
			arranged++
		}
	}
	require.Greater(t, arranged, rounds/20)
}

// TestLargeObjectsThatDoNotCount leaves large objects out whose members are in no order. What stands
// in their place afterwards is not put in the order of theirs.
func TestLargeObjectsThatDoNotCount(t *testing.T) {
	x, y := `"`+strings.Repeat("x", 6000)+`"`, `"`+strings.Repeat("y", 5000)+`"`
	out := `{"c":` + x + `,"b":{"z":` + x + `,"y":1},"a":2}`
	body, inOrder := `{"n":`+y+`,"m":3}`, `{"m":3,"n":`+y+`}`
	for _, test := range []struct {
		name  string
		rules canon.Rules
		body  string
		want  string
	}{
		{"the first element", canon.Rules{Exclude: paths(t, "0")}, `[` + out + `,` + y + `,` + body + `]`, `[` + y + `,` + inOrder + `]`},
		{"an element between others", canon.Rules{Exclude: paths(t, "1")}, `[` + body + `,` + out + `,` + body + `,` + y + `]`, `[` + inOrder + `,` + inOrder + `,` + y + `]`},
		{"the last element", canon.Rules{Exclude: paths(t, "a.1")}, `{"b":` + y + `,"a":[` + body + `,` + out + `]}`, `{"a":[` + inOrder + `],"b":` + y + `}`},
		{"all but one", canon.Rules{Exclude: paths(t, "0", "1", "3")}, `[` + out + `,` + out + `,` + body + `,` + out + `]`, `[` + inOrder + `]`},
		{"elements that are not selected", canon.Rules{Select: paths(t, "*.n")}, `[` + out + `,` + out + `,` + body + `,` + y + `]`, `[,,{"n":` + y + `}]`},
		{"members", canon.Rules{Exclude: paths(t, "b", "d")}, `{"d":` + out + `,"c":` + body + `,"b":` + out + `,"a":` + y + `}`, `{"a":` + y + `,"c":` + inOrder + `}`},
		{"members that are not selected", canon.Rules{Select: paths(t, "*.n")}, `{"d":` + out + `,"c":` + body + `,"b":` + out + `,"a":` + y + `}`, `{"c":{"n":` + y + `}}`},
	} {
		got, info := text(test.rules, jsonInput(test.body))
		require.False(t, info.Raw, test.name)
		require.Equal(t, test.want, got, test.name)
	}
}

// TestOneNameAThousandTimes: however long a name is, and whatever stands before it, it must
// not occur twice; and the same beginnings are not the same names.
func TestOneNameAThousandTimes(t *testing.T) {
	for _, name := range []string{"", "a", "1234567", "12345678", "123456789", strings.Repeat("long", 100), "é", "éééé", `\n`, `\u0000`, `12345678\u0000`, `1234567\n`} {
		for _, n := range []int{2, 17, 1000} {
			body := `{"zzzzzzzzzzzz":1,"y":1` + strings.Repeat(`,"`+name+`":1`, n) + "}"
			_, info := text(canon.Rules{}, jsonInput(body))
			require.True(t, info.Raw, "%d times %s", n, name)
		}
		// Out of order, and each a beginning of the next.
		var b strings.Builder
		for i := 300; i >= 0; i-- {
			fmt.Fprintf(&b, `,"%s%s":1`, name, strings.Repeat("a", i))
		}
		body := "{" + b.String()[1:] + "}"
		got, info := text(canon.Rules{}, jsonInput(body))
		require.False(t, info.Raw)
		members := strings.Split(strings.Trim(got, "{}"), ",")
		require.Len(t, members, 301)
		for i := 1; i < len(members); i++ {
			require.Less(t, len(members[i-1]), len(members[i]), name)
		}
	}
}
