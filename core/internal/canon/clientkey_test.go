package canon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestParseClientKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	for _, key := range []string{"k", "8e03978e-40d5-43dd-bc93-6894a57f9324", "urn:uuid:1/2==", "!#$%&'*+-.^_`|~09azAZ", long} {
		for _, field := range []string{key, `"` + key + `"`, " \t" + key + "\t ", "\t\"" + key + "\" "} {
			got, err := canon.ParseClientKey(field)
			assert.NoError(t, err, "%q", field)
			assert.Equal(t, key, got)
		}
	}
	for field, want := range map[string]string{
		`"a, b; c"`: "a, b; c", `" k "`: " k ", `"a\"b\\c"`: `a"b\c`, `"\\"`: `\`, `"(){}<>@?[]"`: "(){}<>@?[]",
		`"` + long[:254] + `\""`: long[:254] + `"`, `"` + strings.Repeat(`\\`, 255) + `"`: strings.Repeat(`\`, 255),
	} {
		got, err := canon.ParseClientKey(field)
		assert.NoError(t, err, "%q", field)
		assert.Equal(t, want, got)
	}
	for want, fields := range map[error][]string{
		canon.ErrKeyEmpty:        {"", " \t", `""`},
		canon.ErrKeyList:         {"a,b", "a, b", ",", `"a","b"`, `"a" , "b"`, `"a",`},
		canon.ErrKeyUnterminated: {`"`, `"a`, `"a\"`, `"a\`},
		canon.ErrKeyCharacter: {
			`"a\b"`, "\"a\tb\"", "\"a\x7f\"", `"é"`, `"a"b`, `"a";p=1`, `"a" ;p`, `a"`, "a b", "a;p=1", "é", "a\nb", "a\x00", "{a}", "(a)",
		},
		canon.ErrKeyTooLong: {long + "k", `"` + long + `k"`, `"` + long + `\""`, `"\\` + long + long + `"`},
	} {
		for _, field := range fields {
			got, err := canon.ParseClientKey(field)
			assert.ErrorIs(t, err, want, "%q", field)
			assert.Empty(t, got)
		}
	}
	for field, bad := range map[string]string{"a b": `" "`, `"é"`: `"\xc3"`, `"a\b"`: `"b"`, `"a"c"`: `"c"`} {
		_, err := canon.ParseClientKey(field)
		assert.ErrorContains(t, err, ": "+bad, "it says which")
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
