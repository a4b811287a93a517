package sortedparams

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// Each of the parsers is held against another one, which is lenient: what is accepted, both read alike.

// fuzzedPairs are the parameters that a parser has found, if it has accepted the text and each name
// is there once.
func fuzzedPairs(t *testing.T, l *params, err error) map[string]string {
	t.Helper()
	if err == nil {
		err = l.finish(new(Options))
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
	for _, seed := range []string{"a=1&b=%26&c", "a=1&a=2", "a;b=1", "%zz", "=", "a=b=c&&+=+", "é=%ff", "a=1%26b", "a=1%26b=2"} {
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
		`{"a":1,"b":"\u00e9\n","c":null,"d":true}`, `{"a":1e400,"b":-0}`, `{"a":1,"a":1}`, `{"a":{}}`, `{"a":"\ud800"}`, `[]`, `{}{}`, ` {"" :1} `, `{"a":"1&b=2"}`,
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

// FuzzMessages sends anything: nothing panics, nothing is accepted whose parameters are not the signed
// ones, and what is accepted cannot be sent again.
func FuzzMessages(f *testing.F) {
	const secret, wechat = "0123456789abcdef0123456789abcdef", "192006250b4c09247ec02edce69f6a2d"
	const nonce, sum = "n-0123456789abcdef", "7FA7B05815AAD2D96A207B7447E9040BD0A101D2475CB9B900AC47CE2FB41987"
	form := "application/x-www-form-urlencoded"
	f.Add(false, "/?to=bob", form, "amount=5", "demo", "1700000000", nonce, sum, "")
	f.Add(false, "/?to=bob", "application/json", `{"amount":5}`, "demo", "1700000000", nonce, sum, `"k-1"`)
	f.Add(true, "/?appid=wxd930ea5d5a258f4f&mch_id=10000100&device_info=1000&body=test&nonce_str=ibuaiVcKdpRxkhJA&sign=6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6", "", "", "", "", "", "", "")
	f.Add(true, "http://h?sign=;", form+"; charset=\xff", "\x00", "demo", "-1", "n", "", "x")
	keys := sign.Must(sign.NewRing(sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "demo"}, []byte(secret))), sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: "10000100"}, []byte(wechat)))))
	f.Fuzz(func(t *testing.T, in bool, target, contentType, body, keyID, timestamp, once, signature, idempotencyKey string) {
		o, at := Options{}, time.Unix(1700000000, 0)
		if in {
			o, at = Options{InParams: true, KeyID: "mch_id", Nonce: "nonce_str", Timestamp: "device_info"}, time.Unix(1000, 0)
		}
		scheme, err := New(o)
		require.NoError(t, err)
		v := sign.Must(sign.NewVerifier(sign.Config{Keys: keys, Scheme: scheme, Clock: func() time.Time { return at }}))
		header := make(http.Header)
		for name, value := range map[string]string{
			"X-Key-Id": keyID, "X-Timestamp": timestamp, "X-Nonce": once, "X-Sign": signature, "Content-Type": contentType, "Idempotency-Key": idempotencyKey,
		} {
			if value != "" {
				header.Set(name, value)
			}
		}
		m := sign.Message{Method: "POST", Target: target, Host: "h", Source: &fixture.Source{Header: header, Body: []byte(body)}}
		first, again, read := m, m, m
		_, err = v.Verify(t.Context(), &first)
		require.NotNil(t, v.Answer(t.Context(), err))
		var s sign.Signature
		if scheme.Parse(&read, &s) == nil {
			require.NotContains(t, scheme.SigningString(&read, &s, nil), secret)
		}
		if err != nil {
			return
		}
		require.Contains(t, []string{
			"amount=5&key_id=demo&nonce=" + nonce + "&timestamp=1700000000&to=bob",
			"appid=wxd930ea5d5a258f4f&body=test&device_info=1000&mch_id=10000100&nonce_str=ibuaiVcKdpRxkhJA",
		}, string(s.State.(*params).base))
		_, err = v.Verify(t.Context(), &again)
		require.ErrorIs(t, err, sign.CodeReplayed)
	})
}
