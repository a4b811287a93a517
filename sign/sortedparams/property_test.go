package sortedparams

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// paramSet writes parameters into a request, in one of the places.
type paramSet map[string]string

func (s paramSet) request(tb require.TestingT, place Place) *http.Request {
	target, contentType, body := "/", "", ""
	values := make(url.Values)
	for name, value := range s {
		values.Set(name, value)
	}
	switch place {
	case FromQuery:
		target += "?" + values.Encode()
	case FromForm:
		contentType, body = formType, values.Encode()
	case FromJSON:
		text, err := json.Marshal(s)
		require.NoError(tb, err)
		contentType, body = jsonType, string(text)
	}
	r, err := http.NewRequest("POST", "http://pay.test"+target, strings.NewReader(body))
	require.NoError(tb, err)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
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

// What is signed in any way arrives, and cannot be sent again; what differs in a parameter does not.
func TestRoundTrip(t *testing.T) {
	key := newKey("demo")
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{
			InParams: rapid.Bool().Draw(rt, "in parameters"), InsecureMD5: rapid.Bool().Draw(rt, "MD5"),
			LowerCase: rapid.Bool().Draw(rt, "lower case"), Milliseconds: rapid.Bool().Draw(rt, "milliseconds"),
		}
		place := rapid.SampledFrom(places).Draw(rt, "place")
		set := paramSet(tables.Draw(rt, "parameters"))
		scheme, err := New(o)
		require.NoError(rt, err)
		r := set.request(rt, place)
		require.NoError(rt, sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: fixedClock}))
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock}))
		good := fixture.Message(r)
		_, err = v.Verify(t.Context(), fixture.Message(r))
		require.NoError(rt, err)
		_, err = v.Verify(t.Context(), good)
		require.ErrorIs(rt, err, sign.CodeReplayed)
	})
}

// A message whose parameters are others than the signed ones is refused, wherever it has them.
func TestNoParameterCanBeChanged(t *testing.T) {
	key := newKey("demo")
	scheme := newScheme(t, Options{})
	rapid.Check(t, func(rt *rapid.T) {
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
		r := set.request(rt, rapid.SampledFrom(places).Draw(rt, "signed in"))
		require.NoError(rt, sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: fixedClock}))
		sent := changed.request(rt, rapid.SampledFrom(places).Draw(rt, "sent in"))
		for _, name := range []string{"X-Key-Id", "X-Timestamp", "X-Nonce", "X-Sign"} {
			sent.Header.Set(name, r.Header.Get(name))
		}
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: sign.Must(sign.NewRing(key)), Scheme: scheme, Clock: fixedClock}))
		_, err := v.Verify(t.Context(), fixture.Message(sent))
		if maps.Equal(set.withValue(), changed.withValue()) {
			require.NoError(rt, err)
		} else {
			require.ErrorIs(rt, err, sign.ReasonBadSignature)
		}
	})
}

// No two different sets that are accepted are signed by one string.
func TestStringsAreUnlike(t *testing.T) {
	key := newKey("demo")
	scheme := newScheme(t, Options{})
	// All that could be confused, and little else, so that strings do meet. The names sort in front of
	// those of the header fields, without which they would be kept apart.
	confusing := rapid.MapOfN(rapid.StringMatching(`a|b|c|[ab&=]{1,3}|key`), rapid.StringMatching(`[ab=]{0,2}(&[abc]=[ab]|&[ab]|&key=a){0,2}`), 1, 2)
	rapid.Check(t, func(rt *rapid.T) {
		first := paramSet(confusing.Draw(rt, "first"))
		sets := [2]paramSet{first, reread(rt, first)}
		var sums [2]string
		for i, s := range sets {
			m := fixture.Message(s.request(rt, FromForm))
			added, err := scheme.Sign(m, &sign.Signature{KeyID: "demo", Created: now.Unix(), Nonce: "n-0123456789abcdef"}, key)
			if err != nil {
				require.ErrorIs(rt, err, sign.CodeMalformed)
				return
			}
			sums[i] = added.Header.Get("X-Sign")
		}
		same := maps.Equal(sets[0].withValue(), sets[1].withValue())
		require.Equal(rt, same, sums[0] == sums[1], "%q and %q", sets[0], sets[1])
	})
}

// The same for all of the small sets there are.
func TestStringsOfSmallSetsAreUnlike(t *testing.T) {
	key := newKey("demo")
	scheme := newScheme(t, Options{})
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
		added, err := scheme.Sign(fixture.Message(s.request(t, FromForm)), &sign.Signature{KeyID: "demo", Created: now.Unix(), Nonce: "n-0123456789abcdef"}, key)
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

// reread makes a set that has the same string as s, by taking the string apart at other places.
func reread(rt *rapid.T, s paramSet) paramSet {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(s.withValue())) {
		pairs = append(pairs, name+"="+s[name])
	}
	other := make(paramSet)
	name, value := "", ""
	for i, piece := range strings.Split(strings.Join(pairs, "&"), "&") {
		n, v, ok := strings.Cut(piece, "=")
		if i == 0 || ok && n != "" && rapid.Bool().Draw(rt, "a parameter begins") {
			name, value = n, v
		} else {
			value += "&" + piece
		}
		if name != "" {
			other[name] = value
		}
	}
	return other
}
