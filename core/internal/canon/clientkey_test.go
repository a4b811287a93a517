package canon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestParseClientKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for field, want := range map[string]string{
		"k":                                      "k",
		`"k"`:                                    "k",
		" \tk\t ":                                "k",
		"\t\"k\" ":                               "k",
		"8e03978e-40d5-43dd-bc93-6894a57f9324":   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"urn:uuid:1/2==":                         "urn:uuid:1/2==",
		"!#$%&'*+-.^_`|~09azAZ":                  "!#$%&'*+-.^_`|~09azAZ",
		`"a, b; c"`:                              "a, b; c",
		`" k "`:                                  " k ",
		`"a\"b\\c"`:                              `a"b\c`,
		`"\\"`:                                   `\`,
		`"(){}<>@?[]"`:                           "(){}<>@?[]",
		long:                                     long,
		`"` + long + `"`:                         long,
		`"` + long[:254] + `\""`:                 long[:254] + `"`,
		`"` + strings.Repeat(`\\`, 255) + `"`:    strings.Repeat(`\`, 255),
	} {
		got, err := canon.ParseClientKey(field)
		assert.NoError(t, err, "%q", field)
		assert.Equal(t, want, got)
	}
	for field, want := range map[string]error{
		"":                        canon.ErrKeyEmpty,
		" \t":                     canon.ErrKeyEmpty,
		`""`:                      canon.ErrKeyEmpty,
		"a,b":                     canon.ErrKeyList,
		"a, b":                    canon.ErrKeyList,
		",":                       canon.ErrKeyList,
		`"a","b"`:                 canon.ErrKeyList,
		`"a" , "b"`:               canon.ErrKeyList,
		`"a",`:                    canon.ErrKeyList,
		`"`:                       canon.ErrKeyUnterminated,
		`"a`:                      canon.ErrKeyUnterminated,
		`"a\"`:                    canon.ErrKeyUnterminated,
		`"a\`:                     canon.ErrKeyUnterminated,
		`"a\b"`:                   canon.ErrKeyCharacter,
		"\"a\tb\"":                canon.ErrKeyCharacter,
		"\"a\x7f\"":               canon.ErrKeyCharacter,
		`"é"`:                     canon.ErrKeyCharacter,
		`"a"b`:                    canon.ErrKeyCharacter,
		`"a";p=1`:                 canon.ErrKeyCharacter,
		`"a" ;p`:                  canon.ErrKeyCharacter,
		`a"`:                      canon.ErrKeyCharacter,
		"a b":                     canon.ErrKeyCharacter,
		"a;p=1":                   canon.ErrKeyCharacter,
		"é":                       canon.ErrKeyCharacter,
		"a\nb":                    canon.ErrKeyCharacter,
		"a\x00":                   canon.ErrKeyCharacter,
		"{a}":                     canon.ErrKeyCharacter,
		"(a)":                     canon.ErrKeyCharacter,
		long + "k":                canon.ErrKeyTooLong,
		`"` + long + `k"`:         canon.ErrKeyTooLong,
		`"` + long + `\""`:        canon.ErrKeyTooLong,
		`"\\` + long + long + `"`: canon.ErrKeyTooLong,
	} {
		got, err := canon.ParseClientKey(field)
		assert.ErrorIs(t, err, want, "%q", field)
		assert.Empty(t, got)
	}
}

func TestParseClientKeyAllocations(t *testing.T) {
	for _, field := range []string{" key-0123456789 ", `"a key, with; everything"`, "a,b", `"`} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { canon.ParseClientKey(field) }), field)
	}
}

func FuzzClientKey(f *testing.F) {
	for _, seed := range []string{"k", `"k"`, `"a\"b"`, "a,b", `"a" , "b"`, `"`, " ", `"a";p`, "\xff", `"\`, strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		key, err := canon.ParseClientKey(field)
		if err != nil {
			if key != "" {
				t.Fatalf("%q: %q and %v", field, key, err)
			}
			return
		}
		if key == "" || len(key) > canon.MaxClientKey {
			t.Fatalf("%q: %q", field, key)
		}
		for i := range len(key) {
			if key[i] < ' ' || key[i] > '~' {
				t.Fatalf("%q: %q", field, key)
			}
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := canon.ParseClientKey(quoted); err != nil || again != key {
			t.Fatalf("%q: %q is %q, %v", field, quoted, again, err)
		}
	})
}
