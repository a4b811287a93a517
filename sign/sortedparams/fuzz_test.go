package sortedparams

import (
	"encoding/json"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
)

// Each of the parsers is held against another one, which is lenient: what is accepted, both read alike.

// fuzzedPairs are the parameters that a parser has found, if it has accepted the text and each name
// is there once.
func fuzzedPairs(t *testing.T, l *params, err error) map[string]string {
	t.Helper()
	if err == nil {
		err = l.finish(new(Config))
	}
	if err != nil {
		require.ErrorIs(t, err, sign.CodeMalformed)
		return nil
	}
	require.LessOrEqual(t, len(l.list), maxParams)
	pairs := make(map[string]string)
	for _, p := range l.list {
		pairs[p.name] = p.value
	}
	require.Len(t, pairs, len(l.list))

	// What is signed can be taken apart again: what has a = begins a parameter.
	signed := maps.Clone(pairs)
	maps.DeleteFunc(signed, func(_, value string) bool { return value == "" })
	read := make(map[string]string)
	var last string
	for piece := range strings.SplitSeq(string(l.base), "&") {
		name, value, ok := strings.Cut(piece, "=")
		switch {
		case ok:
			read[name], last = value, name
		case len(l.base) > 0:
			read[last] += "&" + piece
		}
	}
	require.Equal(t, signed, read)
	return pairs
}

func FuzzPairs(f *testing.F) {
	for _, seed := range []string{"a=1&b=%26&c", "a=1&a=2", "a;b=1", "%zz", "=", "a=b=c&&+=+", "é=%ff", "a=1%26b",
		"a=1%26b=2", "a=1&%61=2", "a=%z", "a=%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := new(params)
		pairs := fuzzedPairs(t, l, l.addPairs(text))
		if pairs == nil {
			return
		}
		values, err := url.ParseQuery(text)
		require.NoError(t, err)
		require.Len(t, values, len(pairs))
		for name, value := range pairs {
			require.Equal(t, []string{value}, values[name])
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":"\u00e9\n","c":null,"d":true}`, `{"a":1e400,"b":-0}`, `{"a":1,"a":1}`, `{"a":{}}`, `{"a":"\ud800"}`, `[]`, `{}{}`,
		` {"" :1} `, `{"a":"1&b=2"}`, `{"a":1,"\u0061":1}`, `{"a":1}{"b":2}`, `{"a":1,}`, `/**/{"a":1}`, `"a"`, `[{"a":1}]`, `{"a":[5]}`,
		`{"a":`, `{"a":1`, strings.Repeat(`{"a":`, 100),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := new(params)
		pairs := fuzzedPairs(t, l, l.addJSON([]byte(text)))
		if pairs == nil {
			return
		}
		var values map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(text), &values))
		require.Len(t, values, len(pairs))
		for name, value := range pairs {
			var s string
			switch raw := string(values[name]); {
			case raw == "null":
			case raw[0] == '"':
				require.NoError(t, json.Unmarshal(values[name], &s))
			default:
				s = raw
			}
			require.Equal(t, s, value, name)
		}

		more := appendJSON([]byte(text), []param{{"\x00added", `"&<`}})
		var again map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(more, &again))
		require.Len(t, again, len(pairs)+1)
	})
}
