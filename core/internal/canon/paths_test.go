package canon_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestCompilePathsFaults(t *testing.T) {
	for reason, list := range map[string][]string{
		"the path is empty":                                               {""},
		"a segment is empty":                                              {".", ".a", "a.", "a..b", "items.*.."},
		"a backslash at the end escapes nothing":                          {`a\`, `a.\`, `a\\.b\\\`},
		"** at the end selects nothing in particular":                     {"**", "a.**", "a.**.**"},
		`a backslash may only come before '.', '*' and another backslash`: {`a\b`, `\é`},
	} {
		for _, path := range list {
			p, err := canon.CompilePaths([]string{path})
			assert.Nil(t, p)
			var fault *canon.PathError
			require.ErrorAs(t, err, &fault, "%q", path)
			assert.Equal(t, canon.PathError{Path: path, Reason: reason}, *fault)
		}
	}
}

func TestCompilePathsReportsAll(t *testing.T) {
	_, err := canon.CompilePaths([]string{"a..b", "fine.*", "", `x\`})
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 3)
	assert.ErrorContains(t, err, `path "a..b": a segment is empty`)
	p, err := canon.CompilePaths(nil)
	require.NoError(t, err)
	assert.NotNil(t, p)
}

func TestPathSegments(t *testing.T) {
	tests := []struct{ path, body, left string }{
		{`a\.b`, `{"a":{"b":1},"a.b":2}`, `{"a":{"b":1}}`},
		{`a\\.b`, `{"a\\":{"b":1},"a\\.b":2}`, `{"a\\":{},"a\\.b":2}`},
		{`a\\\.b`, `{"a\\":{"b":1},"a\\.b":2}`, `{"a\\":{"b":1}}`},
		{`\*`, `{"*":1,"a":2}`, `{"a":2}`},
		{`\**.a`, `{"**":{"a":1},"a":2}`, `{"**":{},"a":2}`},
		{`**\*.a`, `{"***":{"a":1},"a":2}`, `{"***":{},"a":2}`},
		{`a*`, `{"a*":1,"ab":2}`, `{"ab":2}`},
		{`é.😀`, `{"\u00e9":{"\ud83d\ude00":1}}`, `{"é":{}}`},
		{`-1`, `{"a":[1,2],"-1":2}`, `{"a":[1,2]}`},
		{`a.-1`, `{"a":[1,2]}`, `{"a":[1,2]}`},
		{`a.99999999999999999999`, `{"a":{"99999999999999999999":1}}`, `{"a":{}}`},
		{`a.0.0`, `{"a":[[1,2],[1,2]]}`, `{"a":[[2],[1,2]]}`},
	}
	for _, test := range tests {
		got, info := text(canon.Rules{Exclude: paths(t, test.path)}, jsonInput(test.body))
		assert.Equal(t, test.left, got, test.path)
		assert.False(t, info.Raw)
	}
}

// matches says whether a path, whose wildcards are * and **, matches the segments: the
// definition, without an automaton.
func matches(path, segments []string) bool {
	switch {
	case len(path) == 0:
		return len(segments) == 0
	case path[0] == "**":
		return matches(path[1:], segments) || len(segments) > 0 && matches(path, segments[1:])
	case len(segments) == 0:
		return false
	}
	return (path[0] == "*" || path[0] == segments[0]) && matches(path[1:], segments[1:])
}

func TestPathsPropertyMatch(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "*", "**", "a"})
	path := rapid.Custom(func(t *rapid.T) []string {
		p := rapid.SliceOfN(segment, 0, 5).Draw(t, "path")
		return append(p, rapid.SampledFrom([]string{"a", "b", "*"}).Draw(t, "last"))
	})
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfN(path, 1, 3).Draw(t, "patterns")
		at := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 6).Draw(t, "at")
		var list []string
		want := false
		for _, p := range patterns {
			list = append(list, strings.Join(p, "."))
			for n := range at {
				want = want || matches(p, at[:n+1])
			}
		}
		compiled, err := canon.CompilePaths(list)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"` + strings.Join(at, `":{"`) + `":1` + strings.Repeat("}", len(at))
		got, info := text(canon.Rules{Select: compiled}, jsonInput(body))
		if (info.Selected == 1) != want || (got == body) != want {
			t.Fatalf("%q on %q: got %q, want a match: %v", list, at, got, want)
		}
		if got, _ := text(canon.Rules{Exclude: compiled}, jsonInput(body)); (got != body) != want {
			t.Fatalf("%q on %q: %q is left", list, at, got)
		}
		if len(at) == 1 {
			if got, _ := text(canon.Rules{Exclude: compiled}, canon.Input{RawQuery: at[0]}); (got == "") != want {
				t.Fatalf("%q on the pair %q: %q is left", list, at, got)
			}
		}
	})
}

// TestNoStateIsFollowedTwice counts the states that are followed: each at most once, however many ways
// lead to it. With five ** there are as many ways as there are choices of five levels.
func TestNoStateIsFollowedTwice(t *testing.T) {
	names := slices.Repeat([]string{"a"}, 24)
	for _, list := range [][]string{
		{"**.a.**.a.**.a.**.a.**.a.b"},
		{"**.*.**.*.**.*.**.*.**.*.b"},
		{"**.a.**.b", "**.*.**.b", "**.a.**.a.**.b", "**.*.**.a.**.b", "**.**.*.**.*.**.c"},
	} {
		live, all := canon.LiveStates(paths(t, list...), names...)
		assert.LessOrEqual(t, slices.Max(live), all, "%q: %d", list, live)
	}
}

func FuzzPaths(f *testing.F) {
	for _, seed := range []string{"device.gps", "items.*.ts", "**.traceId", `a\.b\\`, "a..b", "", "**", `\**`,
		"0.10.01", "**.**.*", "\xff.é", `\x`} {
		f.Add(seed, body200)
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		p, err := canon.CompilePaths([]string{path})
		if err != nil {
			var fault *canon.PathError
			if p != nil || !errors.As(err, &fault) || fault.Path != path || fault.Reason == "" {
				t.Fatalf("%q: %v", path, err)
			}
			return
		}
		all, info := text(canon.Rules{}, jsonInput(body))
		left, leftInfo := text(canon.Rules{Exclude: p}, jsonInput(body))
		if info != leftInfo || len(left) > len(all) {
			t.Fatalf("%q is left of %q", left, all)
		}
		_, sel := text(canon.Rules{Select: p}, jsonInput(body))
		if !info.Raw && (left != all) != (sel.Selected > 0) {
			t.Fatalf("%q: %d selected in %q, %q is left", path, sel.Selected, all, left)
		}
	})
}
