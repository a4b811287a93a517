package sign_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

func TestMessageTargets(t *testing.T) {
	for _, c := range []struct{ target, host, authority, path, query string }{
		{"/a?b", "h", "h", "/a", "b"},
		{"/a?b?c", "h", "h", "/a", "b?c"},
		{"/a?", "h", "h", "/a", ""},
		{"/", "h:1", "h:1", "/", ""},
		{"", "h", "h", "/", ""},
		{"*", "h", "h", "*", ""},
		{"/a://b/c", "h", "h", "/a://b/c", ""},
		{"/?u=http://b/c", "h", "h", "/", "u=http://b/c"},
		{"http://g", "h", "g", "/", ""},
		{"http://g?q", "h", "g", "/", "q"},
		{"HTTP://g:80/a%2Fb?q", "h", "g:80", "/a%2Fb", "q"},
		{"http:///a", "h", "", "/a", ""},
		{"http://u@g/a", "h", "u@g", "/a", ""},
	} {
		m := &sign.Message{Target: c.target, Host: c.host}
		query, present := m.Query()
		require.Equal(t, []string{c.authority, c.path, c.query}, []string{m.Authority(), m.Path(), query}, c.target)
		require.Equal(t, strings.Contains(c.target, "?"), present)
	}
}

func TestParseTimestamp(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "1700000000": 1700000000, "9223372036854775807": 1<<63 - 1} {
		got, err := sign.ParseTimestamp(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{
		"", "+1", "-1", "-0", "01", "00", " 1", "1 ", "1 1", "1e3", "1.0", "1_0", "1,0", "0x1", `"1"`, "１", "١", "NaN", "Inf", "1\x00",
		"9223372036854775808", "18446744075409551616", "1" + strings.Repeat("0", 1000),
	} {
		_, err := sign.ParseTimestamp(text)
		require.ErrorIs(t, err, sign.CodeMalformed, text)
	}
}
