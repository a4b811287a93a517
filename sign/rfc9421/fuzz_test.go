package rfc9421

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/internal/form"
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
	f.Add(`sig1=("@authority" "signature-agent";key="a" "signature-agent";key="b");created=1;expires=2;keyid="x";tag="web-bot-auth"`)
	f.Add(`sig1=( "signature-agent" ;key="a";sf "signature-agent";key=a "signature-agent";key="A")`)
	open, labelled, bots := newScheme(f, Config{}), newScheme(f, Config{Label: "sig1"}), newScheme(f, WebBotAuth())
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range []*profile{open, labelled, bots} {
			var p parameters
			label, err := s.parseInput(value, &p)
			if err != nil {
				require.True(t, errors.Is(err, sign.CodeMalformed) || errors.Is(err, sign.CodeMissing), "%v", err)
				continue
			}
			dictionary, err := httpsfv.UnmarshalDictionary([]string{value})
			require.NoError(t, err)
			found, ok := dictionary.Get(label)
			require.True(t, ok)
			text, err := httpsfv.Marshal(found)
			require.NoError(t, err)
			require.Equal(t, text, p.text)

			list, ok := found.(httpsfv.InnerList)
			require.True(t, ok)
			require.Len(t, p.components, len(list.Items))
			for i, item := range list.Items {
				if key := member(p.components[i]); key != "" {
					require.Same(t, bots, s)
					require.Equal(t, agentField.Lower, item.Value)
					require.Equal(t, []string{"key"}, item.Params.Names())
					value, _ := item.Params.Get("key")
					require.Equal(t, key, value)
					continue
				}
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
	for _, seed := range []string{"sig1=:AAAA:", "sig1=:AA==:", "sig1=:AB==:", "sig1=::", "sig1=:AAAA:;x", " sig1=:AAAA: ,\tx=1",
		"sig1=:AA\nAA:", "sig1=:AAAA:, sig1=:BBBB:", "sig1", "=", ":",
		`sig1="AAAA"`, "sig1=abcd", "sig1=:AAAA", "sig1=:AA=:", "sig1=:_-A=:", "sig1=:" + strings.Repeat("AAAA", 342) + ":"} {
		f.Add(seed)
	}
	open, labelled := newScheme(f, Config{}), newScheme(f, Config{Label: "sig1"})
	f.Fuzz(func(t *testing.T, value string) {
		for _, s := range []*profile{open, labelled} {
			sig := new(sign.Signature)
			if err := s.parseSignature(value, "sig1", sig); err != nil {
				require.True(t, errors.Is(err, sign.CodeMalformed) || errors.Is(err, sign.CodeMissing), "%v", err)
				continue
			}
			require.Len(t, sig.Values, 1)
			require.LessOrEqual(t, len(sig.Values[0]), maxSignature)
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
	for _, seed := range []string{digestOf(""), rfcDigest, digestOf("x") + ", " + rfcDigest, "md5=:AAAA:", "sha-256", "sha-256=1",
		"sha-256=(:AA==:)", digestOf("") + ";a", "a=%\"%c3\"", "",
		strings.ToUpper(digestOf("")), "sha-256=:AAAA:", "sha-256=::", digestOf("")[8:], digestOf("") + ",",
		strings.ReplaceAll(digestOf(""), ":", `"`), digestOf("")[:20] + "\n" + digestOf("")[20:]} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var d digests
		m := &sign.Message{Source: &fixture.Source{Header: http.Header{"Content-Digest": {value}}}}
		if err := d.parse(m, false); err != nil {
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
