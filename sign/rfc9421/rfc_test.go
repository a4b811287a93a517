package rfc9421

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// rfcSecret is test-shared-secret of RFC 9421, appendix B.1.5. Its other keys are in testdata. Everybody knows them all.
const rfcSecret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="

const rfcDigest = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:"

// rfcRequest is the request of RFC 9421, appendix B.2.
func rfcRequest() *sign.Message {
	return &sign.Message{
		Method: "POST", Target: "/foo?param=Value&Pet=dog", Host: "example.com",
		Source: &fixture.Source{Header: http.Header{
			"Date":           {"Tue, 20 Apr 2021 02:07:55 GMT"},
			"Content-Type":   {"application/json"},
			"Content-Digest": {rfcDigest},
			"Content-Length": {"18"},
		}, Body: []byte(`{"hello": "world"}`)},
	}
}

// rfcResponse is its response; what a response has in common with a request.
func rfcResponse() *sign.Message {
	return &sign.Message{Source: &fixture.Source{Header: http.Header{
		"Date":           {"Tue, 20 Apr 2021 02:07:56 GMT"},
		"Content-Type":   {"application/json"},
		"Content-Digest": {"sha-512=:mEWXIS7MaLRuGgxOBdODa3xqM1XdEvxoYhvlCFJ41QJgJc4GTsPp29l5oGX69wWdXymyU0rjJuahq4l5aGgfLQ==:"},
		"Content-Length": {"23"},
	}, Body: []byte(`{"message": "good dog"}`)}}
}

func rfcKeys(t *testing.T) map[string]*sign.Key {
	t.Helper()
	text, err := os.ReadFile("testdata/rfc9421-b1.pem")
	require.NoError(t, err)
	var der [3][]byte
	for i := range der {
		var block *pem.Block
		block, text = pem.Decode(text)
		require.NotNil(t, block)
		der[i] = block.Bytes
	}
	// Package x509 does not know keys that are for RSASSA-PSS only; inside, it is a key like others.
	var outer struct {
		Version    int
		Algorithm  pkix.AlgorithmIdentifier
		PrivateKey []byte
	}
	_, err = asn1.Unmarshal(der[0], &outer)
	require.NoError(t, err)
	keys := make(map[string]*sign.Key)
	add := func(id string, material any, err error) {
		require.NoError(t, err)
		keys[id] = sign.Must(sign.NewKey(sign.KeyConfig{ID: id}, material))
	}
	rsaKey, err := x509.ParsePKCS1PrivateKey(outer.PrivateKey)
	add("test-key-rsa-pss", rsaKey, err)
	p256Key, err := x509.ParseECPrivateKey(der[1])
	add("test-key-ecc-p256", p256Key, err)
	ed25519Key, err := x509.ParsePKCS8PrivateKey(der[2])
	add("test-key-ed25519", ed25519Key, err)
	secret := sign.Must(base64.StdEncoding.DecodeString(rfcSecret))
	keys["test-shared-secret"] = sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "test-shared-secret"}, secret))
	return keys
}

// A vector of RFC 9421, appendix B.2, for each algorithm. None of them is one that the profile takes: they have no nonce,
// for a start. So they are put together here of the parts that the scheme is made of.
func TestRFCVectors(t *testing.T) {
	keys := rfcKeys(t)
	s := newScheme(t, Config{})
	for _, c := range []struct {
		name, label, key string
		message          *sign.Message
		unknown          string // the line of a component that the profile does not know, and that comes first
		base, signature  string
		refused          string // what the reader says of Signature-Input. Empty: it can be read
		fixed            bool   // the algorithm makes the same signature each time
	}{
		{
			name: "B.2.3, full coverage", label: "sig-b23", key: "test-key-rsa-pss", message: rfcRequest(),
			base: `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@query": ?param=Value&Pet=dog
"@authority": example.com
"content-type": application/json
"content-digest": ` + rfcDigest + `
"content-length": 18
"@signature-params": ("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss"`,
			signature: "bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2vo" +
				"Tp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzN" +
				"BXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBro" +
				"hr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==",
		},
		{
			name: "B.2.4, a response", label: "sig-b24", key: "test-key-ecc-p256", message: rfcResponse(), unknown: `"@status": 200` + "\n",
			base: `"@status": 200
"content-type": application/json
"content-digest": sha-512=:mEWXIS7MaLRuGgxOBdODa3xqM1XdEvxoYhvlCFJ41QJgJc4GTsPp29l5oGX69wWdXymyU0rjJuahq4l5aGgfLQ==:
"content-length": 23
"@signature-params": ("@status" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-ecc-p256"`,
			signature: "wNmSUAhwb5LxtOtOpNa6W5xj067m5hFrj0XQ4fvpaCLx0NKocgPquLgyahnzDnDAUy5eCdlYUEkLIj+32oiasw==",
			refused:   `"@status" cannot be covered`,
		},
		{
			name: "B.2.5, hmac-sha256", label: "sig-b25", key: "test-shared-secret", message: rfcRequest(), fixed: true,
			base: `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@authority": example.com
"content-type": application/json
"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`,
			signature: "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
		},
		{
			name: "B.2.6, ed25519", label: "sig-b26", key: "test-key-ed25519", message: rfcRequest(), fixed: true,
			base: `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": ("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
			signature: "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, params, _ := strings.Cut(c.base, `"@signature-params": `)
			var components []string
			for line := range strings.Lines(strings.TrimPrefix(lines, c.unknown)) {
				name, _, _ := strings.Cut(line[1:], `"`)
				components = append(components, name)
			}
			var p parameters
			label, err := s.parseInput(c.label+"="+params, &p)
			if c.refused != "" {
				require.ErrorIs(t, err, sign.CodeMalformed)
				require.ErrorContains(t, err, c.refused)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.label, label)
				require.Equal(t, components, p.components)
				require.EqualValues(t, 1618884473, p.created)
				require.Equal(t, c.key, p.keyID)
				// The same parameters are written as they were read.
				text := p.text
				require.NoError(t, p.serialise())
				require.Equal(t, text, p.text)
			}

			base, err := s.appendBase([]byte(c.unknown), c.message, components, "")
			require.NoError(t, err)
			base = appendParams(base, params)
			require.Equal(t, c.base, string(base))

			sig := new(sign.Signature)
			require.NoError(t, s.parseSignature(c.label+"=:"+c.signature+":", c.label, sig))
			key := keys[c.key]
			require.True(t, key.Verify(base, sig.Values[0]))
			require.False(t, key.Verify(base[1:], sig.Values[0]))
			made, err := key.Sign(base)
			require.NoError(t, err)
			require.True(t, key.Verify(base, made))
			require.Equal(t, c.fixed, string(made) == string(sig.Values[0]))

			body, err := c.message.Body()
			require.NoError(t, err)
			var d digests
			require.NoError(t, d.parse(c.message, false))
			require.NoError(t, d.check(body))
			require.ErrorIs(t, d.check(append(body, ' ')), sign.ReasonDigestMismatch)
		})
	}
}
