package sortedparams

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

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
	for names, alike := range map[string]bool{
		"a A": true, "k \u212a": true, "s \u017f": true, "a a[]": true, "a a[b]": true, "a.b a[b]": true, "a[b] A[B]": true, "a] a": true, "A[b] a": true,
		"a b": false, "a[b] a[c]": false, "a[0] a[1] a[2]": false, "a.b a[c]": false, "Key key": false, "a a": false, "b a[b]": false,
	} {
		l := new(params)
		for _, name := range strings.Fields(names) {
			require.NoError(t, l.add(name, ""))
		}
		if err := l.checkLikeness(&Options{SecretName: "key"}); alike {
			require.ErrorIs(t, err, sign.CodeMalformed, names)
		} else {
			require.NoError(t, err, names)
		}
	}
}
