package adapter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/adapter"
)

func TestAppendJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"b": 1.50, "a": [1e2, "\u00fc"]}`:        `{"a":[100,"ü"],"b":1.5}`,
		`{"n":9007199254740993}`:                   `{"n":9007199254740993}`,
		`{"key":"k-1", "in":{"key":2},"to":"bob"}`: `{"in":{"key":2},"to":"bob"}`,
		`{"a":1,"a":2}`:                            "\x00" + `{"a":1,"a":2}`,
		`{"a":`:                                    "\x00" + `{"a":`,
		`[1]`:                                      `[1]`,
	} {
		require.Equal(t, "before "+want, string(adapter.AppendJSON([]byte("before "), []byte(text), "key")), text)
	}
	require.Equal(t, `{"key":1}`, string(adapter.AppendJSON(nil, []byte(`{"key":1}`))))
}
