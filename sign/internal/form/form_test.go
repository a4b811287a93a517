package form_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign/internal/form"
)

func TestForms(t *testing.T) {
	long := func(n int) string { return strings.Repeat("k", n) }
	for name, c := range map[string]struct {
		is        func(string) bool
		good, bad []string
	}{
		"CheckKeyID": {
			func(s string) bool { return form.CheckKeyID(s) == nil },
			[]string{"k", "!~", `a"\b`, long(128)}, []string{"", " ", "a b", "a\tb", "a\nb", "\x7f", "é", long(129)},
		},
		"CheckNonce": {
			func(s string) bool { return form.CheckNonce(s) == nil },
			[]string{"abcXYZ0189._~-ab", long(16), long(128)},
			[]string{
				"", long(15), long(129), "0123456789abcde+", "0123456789abcde/", "0123456789abcde=", "0123456789abcde ",
				"0123456789abcde\n", "0123456789abcde:", "0123456789abcde,", "{123456789abcdef", "0123456789abc%61", "0123456789abcdé",
				"0123456789abcde\x00", "0123456789abcde\x7f",
			},
		},
		"IsBase64Nonce": {
			form.IsBase64Nonce,
			[]string{"0123456789ab+/==", "0123456789ab+/cdef", "0123456789ab._~-", long(16), long(128)},
			[]string{"", long(15), long(129), "0123456789abcde ", "0123456789abcde:", "0123456789abcde\n"},
		},
		"IsToken": {
			form.IsToken, []string{"GET", "content-type", "!#$%&'*+-.^_`|~09azAZ"},
			[]string{"", "a b", "a:b", "a/b", "a,b", "(a)", `"a"`, "a\x7f", "a\n", "é"},
		},
		"IsLowerToken": {form.IsLowerToken, []string{"content-type", "!#$%&'*+-.^_`|~09az"},
			[]string{"", "Content-type", "A", "Z", "a b", "a:b", "a\n"}},
		"IsLine": {form.IsLine, []string{"", " ", "a\tb", "a b~", "é", "\x80\xff"},
			[]string{"\n", "a\nb", "a\r", "\x00", "\x1f", "\x7f", "a\x7fb"}},
		"IsAuthority": {
			form.IsAuthority, []string{"example.com", "example.com:8080", "[::1]:80", "EXAMPLE"},
			[]string{"", `a\b`, "user@host", "a/b", "a?b", "a#b", "a b", "a\n", "\x7f", "é"},
		},
		"IsWebhookID": {form.IsWebhookID, []string{"msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "a:b/c=", "!#$%&'*+-.^_`|~"},
			[]string{"", "a b", "a,b", "a@b", `a"b`, "a\n", "\x7f", "é"}},
		"IsHopByHop": {
			form.IsHopByHop,
			[]string{"connection", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"},
			[]string{"", "content-length", "date", "content-type", "tea", "x-te"},
		},
		"IsUnsignable": {form.IsUnsignable, []string{"content-length", "host", "te"}, []string{"", "date", "content-type"}},
	} {
		for _, s := range c.good {
			require.True(t, c.is(s), "%s: %q", name, s)
		}
		for _, s := range c.bad {
			require.False(t, c.is(s), "%s: %q", name, s)
		}
	}
}

func TestSpelling(t *testing.T) {
	for _, name := range []string{"content-type", "Content-Type", "CONTENT-TYPE"} {
		require.Equal(t, form.FieldName{Canonical: "Content-Type", Lower: "content-type"}, form.NewFieldName(name))
	}
	for value, want := range map[string]string{
		"": "", "v": "v", "a b": "a b", " v": "v", "v\t": "v", " \t a\tb \t": "a\tb", " ": "", "\nv\r": "\nv\r", "\u00a0v": "\u00a0v",
	} {
		require.Equal(t, want, form.Trim(value), "%q", value)
	}
	for s, want := range map[string]string{"": "+", "AZaz09": "+azaz09", "@[`{": "+@[`{", "É": "+É"} {
		require.Equal(t, want, string(form.AppendLower([]byte("+"), s)))
	}
}
