package canon_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/core/internal/canon"
)

func TestAppendPart(t *testing.T) {
	for in, want := range map[string]string{
		"":                     "",
		"alice":                "alice",
		"POST /orders/:id/pay": "POST%20/orders/:id/pay",
		"-._~/:@,+*!$&'();":    "-._~/:@,+*!$&'();",
		"a=b":                  "a%3Db",
		"100%":                 "100%25",
		"{tag}#":               "%7Btag%7D%23",
		"é\xff":                "%C3%A9%FF",
		"\x00\r\n\t\x7f":       "%00%0D%0A%09%7F",
		"[]<>\"\\^`|?":         "%5B%5D%3C%3E%22%5C%5E%60%7C%3F",
	} {
		assert.Equal(t, "U="+want, string(canon.AppendPart([]byte("U="), in)))
	}
	dst := make([]byte, 0, 64)
	assert.Zero(t, testing.AllocsPerRun(100, func() { canon.AppendPart(dst, "POST /orders/{id}") }))
}

func FuzzPart(f *testing.F) {
	for _, seed := range []string{"", "alice", "a=b", "%3D", "=", "U=x", "é", "\xff\x00", "a+b c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		part := string(canon.AppendPart(nil, value))
		if strings.ContainsAny(part, "=#{} \t\r\n") {
			t.Fatalf("%q is escaped as %q", value, part)
		}
		// It can be read back, so different values have different parts.
		if back, err := url.PathUnescape(part); err != nil || back != value {
			t.Fatalf("%q is escaped as %q, which is %q (%v)", value, part, back, err)
		}
		for i := range len(part) {
			if c := part[i]; c <= ' ' || c > '~' {
				t.Fatalf("%q is escaped as %q", value, part)
			}
		}
	})
}
