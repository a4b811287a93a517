package form_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign/internal/form"
)

// accepts checks what a function accepts and what it refuses.
func accepts(t *testing.T, is func(string) bool, good, bad []string) {
	t.Helper()
	for _, s := range good {
		require.True(t, is(s), "%q", s)
	}
	for _, s := range bad {
		require.False(t, is(s), "%q", s)
	}
}

func TestNewFieldName(t *testing.T) {
	for _, name := range []string{"content-type", "Content-Type", "CONTENT-TYPE"} {
		require.Equal(t, form.FieldName{Canonical: "Content-Type", Lower: "content-type"}, form.NewFieldName(name))
	}
}

func TestCheckKeyID(t *testing.T) {
	accepts(t, func(s string) bool { return form.CheckKeyID(s) == nil },
		[]string{"k", "!~", `a"\b`, strings.Repeat("k", 128)},
		[]string{"", " ", "a b", "a\tb", "a\nb", "\x7f", "é", strings.Repeat("k", 129)})
}

func TestCheckNonce(t *testing.T) {
	accepts(t, func(s string) bool { return form.CheckNonce(s) == nil },
		[]string{"abcXYZ0189._~-ab", strings.Repeat("n", 128)},
		[]string{"", strings.Repeat("n", 15), strings.Repeat("n", 129), "0123456789abcde+", "0123456789abcde/", "0123456789abcde=", "0123456789abcde ", "0123456789abcde\n"})
}

func TestIsBase64Nonce(t *testing.T) {
	accepts(t, form.IsBase64Nonce,
		[]string{"0123456789ab+/==", "0123456789ab+/cdef", "0123456789ab._~-", strings.Repeat("n", 16), strings.Repeat("n", 128)},
		[]string{"", strings.Repeat("n", 15), strings.Repeat("n", 129), "0123456789abcde ", "0123456789abcde:", "0123456789abcde\n"})
}

func TestIsToken(t *testing.T) {
	accepts(t, form.IsToken,
		[]string{"GET", "content-type", "!#$%&'*+-.^_`|~09azAZ"},
		[]string{"", "a b", "a:b", "a/b", "a,b", "(a)", `"a"`, "a\x7f", "a\n", "é"})
}

func TestIsLowerToken(t *testing.T) {
	accepts(t, form.IsLowerToken,
		[]string{"content-type", "!#$%&'*+-.^_`|~09az"},
		[]string{"", "Content-type", "A", "Z", "a b", "a:b", "a\n"})
}

func TestIsLine(t *testing.T) {
	accepts(t, form.IsLine,
		[]string{"", " ", "a\tb", "a b~", "é", "\x80\xff"},
		[]string{"\n", "a\nb", "a\r", "\x00", "\x1f", "\x7f", "a\x7fb"})
}

func TestIsAuthority(t *testing.T) {
	accepts(t, form.IsAuthority,
		[]string{"example.com", "example.com:8080", "[::1]:80", "EXAMPLE"},
		[]string{"", `a\b`, "user@host", "a/b", "a?b", "a#b", "a b", "a\n", "\x7f", "é"})
}

func TestIsWebhookID(t *testing.T) {
	accepts(t, form.IsWebhookID,
		[]string{"msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "a:b/c=", "!#$%&'*+-.^_`|~"},
		[]string{"", "a b", "a,b", "a@b", `a"b`, "a\n", "\x7f", "é"})
}

func TestIsHopByHop(t *testing.T) {
	accepts(t, form.IsHopByHop,
		[]string{"connection", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"},
		[]string{"", "content-length", "date", "content-type", "tea", "x-te"})
}

func TestTrim(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "v": "v", "a b": "a b", " v": "v", "v\t": "v", " \t a\tb \t": "a\tb", " ": "", "\nv\r": "\nv\r", "\u00a0v": "\u00a0v",
	} {
		require.Equal(t, want, form.Trim(value), "%q", value)
	}
}

func TestAppendLower(t *testing.T) {
	for s, want := range map[string]string{"": "+", "AZaz09": "+azaz09", "@[`{": "+@[`{", "É": "+É"} {
		require.Equal(t, want, string(form.AppendLower([]byte("+"), s)))
	}
}
