package rfc9421

import (
	"errors"
	"maps"
	"net/http"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/internal/form"
	"github.com/idem-go/idem/sign/signtest"
)

// What the reader takes is what httpsfv parses and serialises to the very same text: what is signed
// is what was understood.
func FuzzSignatureInput(f *testing.F) {
	for _, row := range inputRows(f) {
		f.Add(row.value)
	}
	f.Add(`sig1=(""`)
	f.Add(`sig1=("a");nonce="\`)
	f.Add(`sig1=("@method");created=-`)
	f.Add(`sig1=(%"a%ff");keyid=%"%22"`)
	open, labelled := newScheme(f, Options{}), newScheme(f, Options{Label: "sig1"})
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range []*profile{open, labelled} {
			var p parameters
			label, err := s.parseInput(value, &p)
			if err != nil {
				var known *sign.Error
				require.ErrorAs(t, err, &known)
				require.Contains(t, []sign.Code{sign.CodeMalformed, sign.CodeMissing}, known.Code)
				continue
			}
			dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
			require.NoError(t, err)
			member, ok := dictionary.Get(label)
			require.True(t, ok)
			text, err := httpsfv.Marshal(member)
			require.NoError(t, err)
			require.Equal(t, text, p.text)

			list, ok := member.(httpsfv.InnerList)
			require.True(t, ok)
			require.Len(t, p.components, len(list.Items))
			for i, item := range list.Items {
				require.Equal(t, item.Value, p.components[i])
				require.Empty(t, item.Params.Names())
			}
			for _, name := range []string{"created", "expires", "keyid", "nonce", "alg", "tag"} {
				has := parameterOf(name)
				value, there := list.Params.Get(name)
				require.Equal(t, there, p.has&has != 0)
				if !there {
					continue
				}
				require.Equal(t, map[parameter]any{
					created: p.created, expires: p.expires, keyID: p.keyID, nonce: p.nonce, alg: p.alg, tag: p.tag,
				}[has], value)
			}
		}
	})
}

func FuzzSignature(f *testing.F) {
	for _, seed := range []string{"sig1=:AAAA:", "sig1=:AA==:", "sig1=:AB==:", "sig1=::", "sig1=:AAAA:;x", " sig1=:AAAA: ,\tx=1", "sig1=:AA\nAA:", "sig1=:AAAA:, sig1=:BBBB:", "sig1", "=", ":"} {
		f.Add(seed)
	}
	open, labelled := newScheme(f, Options{}), newScheme(f, Options{Label: "sig1"})
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range []*profile{open, labelled} {
			sig := new(sign.Signature)
			if err := s.parseSignature(value, "sig1", sig); err != nil {
				var known *sign.Error
				require.ErrorAs(t, err, &known)
				require.Contains(t, []sign.Code{sign.CodeMalformed, sign.CodeMissing}, known.Code)
				continue
			}
			require.Len(t, sig.Values, 1)
			dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
			require.NoError(t, err)
			member, _ := dictionary.Get("sig1")
			require.Equal(t, sig.Values[0], member.(httpsfv.Item).Value)
			// One signature has one text.
			text, err := serialiseBytes("sig1", sig.Values[0])
			require.NoError(t, err)
			require.Contains(t, value, text)
		}
	})
}

func FuzzContentDigest(f *testing.F) {
	for _, seed := range []string{digestOf(""), rfcDigest, digestOf("x") + ", " + rfcDigest, "md5=:AAAA:", "sha-256", "sha-256=1", "sha-256=(:AA==:)", digestOf("") + ";a", "a=%\"%c3\"", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var d digests
		m := &sign.Message{Source: &fixture.Source{Header: http.Header{"Content-Digest": {value}}}}
		if err := d.parse(m); err != nil {
			require.True(t, errors.Is(err, sign.CodeMalformed) || errors.Is(err, sign.ReasonUncovered), "%v", err)
			return
		}
		require.NotZero(t, d.has)
		dictionary, err := httpsfv.UnmarshalDictionary([]string{form.Trim(value)})
		require.NoError(t, err)
		for name, has := range map[string]digestSet{algorithmSHA256: hasSHA256, algorithmSHA512: hasSHA512} {
			member, there := dictionary.Get(name)
			require.Equal(t, there, d.has&has != 0)
			if there {
				b := d.sha256[:32]
				if has == hasSHA512 {
					b = d.sha512[:64]
				}
				require.Equal(t, b, member.(httpsfv.Item).Value)
			}
		}
	})
}

// Whatever can be signed can be verified, and not after a change.
func FuzzRoundTrip(f *testing.F) {
	f.Add("POST", "/transfers/a%2Fb?x=2&x=1", "api.example.com", true, "application/json", `"k-1"`, body200)
	f.Add("GET", "*", "example.com:443", false, "", "", "")
	f.Add("GET", "http://example.com?", "x:", true, "\"\\", ",", "\x00")
	f.Add("M\n", "/\n\"@query\": ?", "a", true, "a\nb", "\xff", "\n")
	s := newScheme(f, Options{Require: []string{"@target-uri", "@request-target"}})
	key := signtest.Demo
	f.Fuzz(func(t *testing.T, method, target, host string, tls bool, contentType, idempotencyKey, body string) {
		m := &sign.Message{Method: method, Target: target, Host: host, TLS: tls, Source: &fixture.Source{Header: http.Header{
			"Content-Type": {contentType}, "Idempotency-Key": {idempotencyKey},
		}, Body: []byte(body)}}
		sig := &sign.Signature{KeyID: "demo", Created: testTime, Nonce: testNonce, Covered: []string{"Content-Type"}}
		added, err := s.Sign(m, sig, key)
		if err != nil {
			require.ErrorIs(t, err, sign.CodeMalformed)
			return
		}
		signingString := s.SigningString(m, sig, key)
		maps.Copy(headerOf(m), added.Header)
		m = unread(m)
		_, err = m.Body()
		require.NoError(t, err)
		parsed := new(sign.Signature)
		require.NoError(t, s.Parse(m, parsed))
		require.NoError(t, s.Check(m, parsed, key))
		require.Equal(t, signingString, s.SigningString(m, parsed, key))

		for _, change := range []func(*sign.Message){
			func(m *sign.Message) { m.Method += "x" },
			func(m *sign.Message) { m.Target += "x" },
			func(m *sign.Message) { m.TLS = !m.TLS },
			func(m *sign.Message) { headerOf(m)["Content-Type"] = []string{contentType + "x"} },
			func(m *sign.Message) { headerOf(m)["Idempotency-Key"] = []string{idempotencyKey + "x"} },
			func(m *sign.Message) { m.Source.(*fixture.Source).Body = []byte(body + "x") },
		} {
			changed := unread(m)
			changed.Source = &fixture.Source{Header: headerOf(m).Clone(), Body: []byte(body)}
			change(changed)
			_, err := changed.Body()
			require.NoError(t, err)
			parsed := new(sign.Signature)
			require.NoError(t, s.Parse(changed, parsed))
			require.ErrorIs(t, s.Check(changed, parsed, key), sign.CodeInvalid)
		}
	})
}
