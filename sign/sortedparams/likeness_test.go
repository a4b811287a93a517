package sortedparams

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// Of all characters, those have one likeness that differ only in case, and no others: it is one of them.
func TestLikenessOfCharacters(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if !utf8.ValidRune(r) || r == '[' || r == ']' {
			continue
		}
		like, own := likeness(string(r)), false
		for f := unicode.SimpleFold(r); ; f = unicode.SimpleFold(f) {
			if likeness(string(f)) != like { // require a million times is slow
				t.Fatalf("%q and %q have not the same likeness", r, f)
			}
			if own = own || string(f) == like; f == r {
				break
			}
		}
		if !own {
			t.Fatalf("%q has the likeness %q", r, like)
		}
	}
}

func TestLikenessOfNames(t *testing.T) {
	for names, alike := range map[string]bool{
		"a A": true, "k \u212a": true, "s \u017f": true, "a a[]": true, "a a[b]": true, "a.b a[b]": true, "a[b] A[B]": true, "a] a": true,
		"A[b] a": true, "a b": false, "a[b] a[c]": false, "a[0] a[1] a[2]": false, "a.b a[c]": false,
		"Key key": false, "a a": false, "b a[b]": false,
	} {
		l := new(params)
		for _, name := range strings.Fields(names) {
			require.NoError(t, l.add(name, ""))
		}
		if err := l.checkLikeness(&Config{SecretName: "key"}); alike {
			require.ErrorIs(t, err, sign.CodeMalformed, names)
		} else {
			require.NoError(t, err, names)
		}
	}
}
