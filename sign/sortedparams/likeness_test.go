package sortedparams

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
)

// plainLikeness says the same as likeness, one character after the other: the least of those that are one
// but for their case.
func plainLikeness(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, "[]", ""), "[", "."), "]", ""))
}

// areAlike is what checkLikeness refuses, name by name.
func areAlike(names []string) bool {
	for _, name := range names {
		base, _, indexed := strings.Cut(name, "[")
		for _, other := range names {
			if other != name && (plainLikeness(other) == plainLikeness(name) || indexed && plainLikeness(other) == plainLikeness(base)) {
				return true
			}
		}
	}
	return false
}

// Of all characters, those are taken for one that are one but for their case, and no others.
func TestLikenessOfCharacters(t *testing.T) {
	read := make(map[string]string)
	for r := range rune(unicode.MaxRune + 1) {
		plain, like := plainLikeness(string(r)), likeness(string(r))
		if first, ok := read[plain]; ok && first != like { // require a million times is slow
			t.Fatalf("%q has the likeness %q, and others %q", r, like, first)
		}
		read[plain] = like
	}
	unlike := make(map[string]bool, len(read))
	for _, like := range read {
		unlike[like] = true
	}
	require.Len(t, unlike, len(read))
}

func TestLikenessOfNames(t *testing.T) {
	name := rapid.StringMatching(`[abAkK\x{212a}s\x{17f}.]{1,2}(\[\]|\[a\]|\[|\]){0,2}`)
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(name, 0, 6).Draw(rt, "names")
		l := new(params)
		for _, name := range names {
			require.NoError(rt, l.add(name, ""))
		}
		err := l.checkLikeness(&Options{SecretName: "key"})
		if areAlike(names) {
			require.ErrorIs(rt, err, sign.CodeMalformed, "%q", names)
		} else {
			require.NoError(rt, err, "%q", names)
		}
	})
}
