package sortedparams

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/signtest"
)

// paramSet writes parameters into a request, in one of the places.
type paramSet map[string]string

func (s paramSet) request(tb testing.TB, place Place) *http.Request {
	values := make(url.Values)
	for name, value := range s {
		values.Set(name, value)
	}
	switch place {
	case FromQuery:
		return newRequest(tb, "/?"+values.Encode(), "", "")
	case FromForm:
		return newRequest(tb, "/", formType, values.Encode())
	}
	text, err := json.Marshal(s)
	require.NoError(tb, err)
	return newRequest(tb, "/", jsonType, string(text))
}

// withValue is the set as it is signed.
func (s paramSet) withValue() paramSet {
	c := maps.Clone(s)
	maps.DeleteFunc(c, func(_, value string) bool { return value == "" })
	return c
}

var (
	places = []Place{FromQuery, FromForm, FromJSON}

	texts = rapid.StringOfN(rapid.RuneFrom([]rune("ab 5.=+%/?<>'\"\\{}[]\n\t;:#é中😀")), 0, 12, -1)
	// In one case: names that differ in their case only are refused.
	names  = rapid.StringMatching(`p[a-z0-9_.-]{0,3}`)
	tables = rapid.MapOfN(names, texts, 0, 8)
)

// What is signed is verified, however its parameters are written. A message with other parameters is refused.
func TestNoParameterCanBeChanged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Config{InsecureMD5: rapid.Bool().Draw(rt, "MD5"), LowerCase: rapid.Bool().Draw(rt, "lower case"),
			Milliseconds: rapid.Bool().Draw(rt, "milliseconds")}
		set := paramSet(tables.Draw(rt, "parameters"))
		changed := maps.Clone(set)
		switch sorted := slices.Sorted(maps.Keys(set)); {
		case len(sorted) == 0 || rapid.Bool().Draw(rt, "add"):
			changed[names.Draw(rt, "name")] = texts.Draw(rt, "value")
		case rapid.Bool().Draw(rt, "remove"):
			delete(changed, rapid.SampledFrom(sorted).Draw(rt, "name"))
		default:
			changed[rapid.SampledFrom(sorted).Draw(rt, "name")] = texts.Draw(rt, "value")
		}
		signed := func(o Config) *http.Request {
			return fixture.Sign(t, set.request(t, rapid.SampledFrom(places).Draw(rt, "signed in")), signtest.Demo,
				sign.RequestOptions{Scheme: sign.Must(New(o))})
		}
		r := signed(o)
		require.NoError(rt, verify(t, o, r))
		sent := changed.request(t, rapid.SampledFrom(places).Draw(rt, "sent in"))
		for _, name := range []string{"X-Key-Id", "X-Timestamp", "X-Nonce", "X-Sign"} {
			sent.Header.Set(name, r.Header.Get(name))
		}
		if maps.Equal(set.withValue(), changed.withValue()) {
			require.NoError(rt, verify(t, o, sent))
		} else {
			require.ErrorIs(rt, verify(t, o, sent), sign.ReasonBadSignature)
		}
		o.InParams = true
		require.NoError(rt, verify(t, o, signed(o)))
	})
}

// No two of all the small sets have one signing string. The names sort in front of those of the header fields, without which
// they would be kept apart.
func TestStringsOfSmallSetsAreUnlike(t *testing.T) {
	scheme := sign.Must(New(Config{}))
	names, values := []string{"a", "b", "c", "a=", "a&b", "key"}, []string{"", "a"}
	pieces := []string{"a", "b", "&", "=", "&a", "&b=a"}
	for _, first := range pieces {
		values = append(values, first)
		for _, second := range pieces {
			values = append(values, first+second)
		}
	}
	signed := make(map[string]paramSet)
	accepted := 0
	try := func(s paramSet) {
		added, err := scheme.Sign(fixture.Message(s.request(t, FromForm)),
			&sign.Signature{KeyID: "demo", Created: 1700000000, Nonce: "n-0123456789abcdef"}, signtest.Demo)
		if err != nil {
			return
		}
		accepted++
		sum := added.Header.Get("X-Sign")
		if other, ok := signed[sum]; ok {
			require.Equal(t, other, s.withValue())
		}
		signed[sum] = s.withValue()
	}
	for i, first := range names {
		for _, a := range values {
			try(paramSet{first: a})
			for _, second := range names[:i] {
				for _, b := range values {
					try(paramSet{first: a, second: b})
				}
			}
		}
	}
	require.Greater(t, accepted, 1000)
}
