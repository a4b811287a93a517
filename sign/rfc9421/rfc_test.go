package rfc9421

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
)

// The keys of RFC 9421, appendix B.1. They are secrets that everybody knows.
const (
	rfcRSAPSS = `-----BEGIN PRIVATE KEY-----
MIIEvgIBADALBgkqhkiG9w0BAQoEggSqMIIEpgIBAAKCAQEAr4tmm3r20Wd/Pbqv
P1s2+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry5
3mm+oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7Oyr
FAHqgDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUA
AN5WUtzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw
9lq4aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oy
c6XI2wIDAQABAoIBAQCUB8ip+kJiiZVKF8AqfB/aUP0jTAqOQewK1kKJ/iQCXBCq
pbo360gvdt05H5VZ/RDVkEgO2k73VSsbulqezKs8RFs2tEmU+JgTI9MeQJPWcP6X
aKy6LIYs0E2cWgp8GADgoBs8llBq0UhX0KffglIeek3n7Z6Gt4YFge2TAcW2WbN4
XfK7lupFyo6HHyWRiYHMMARQXLJeOSdTn5aMBP0PO4bQyk5ORxTUSeOciPJUFktQ
HkvGbym7KryEfwH8Tks0L7WhzyP60PL3xS9FNOJi9m+zztwYIXGDQuKM2GDsITeD
2mI2oHoPMyAD0wdI7BwSVW18p1h+jgfc4dlexKYRAoGBAOVfuiEiOchGghV5vn5N
RDNscAFnpHj1QgMr6/UG05RTgmcLfVsI1I4bSkbrIuVKviGGf7atlkROALOG/xRx
DLadgBEeNyHL5lz6ihQaFJLVQ0u3U4SB67J0YtVO3R6lXcIjBDHuY8SjYJ7Ci6Z6
vuDcoaEujnlrtUhaMxvSfcUJAoGBAMPsCHXte1uWNAqYad2WdLjPDlKtQJK1diCm
rqmB2g8QE99hDOHItjDBEdpyFBKOIP+NpVtM2KLhRajjcL9Ph8jrID6XUqikQuVi
4J9FV2m42jXMuioTT13idAILanYg8D3idvy/3isDVkON0X3UAVKrgMEne0hJpkPL
FYqgetvDAoGBAKLQ6JZMbSe0pPIJkSamQhsehgL5Rs51iX4m1z7+sYFAJfhvN3Q/
OGIHDRp6HjMUcxHpHw7U+S1TETxePwKLnLKj6hw8jnX2/nZRgWHzgVcY+sPsReRx
NJVf+Cfh6yOtznfX00p+JWOXdSY8glSSHJwRAMog+hFGW1AYdt7w80XBAoGBAImR
NUugqapgaEA8TrFxkJmngXYaAqpA0iYRA7kv3S4QavPBUGtFJHBNULzitydkNtVZ
3w6hgce0h9YThTo/nKc+OZDZbgfN9s7cQ75x0PQCAO4fx2P91Q+mDzDUVTeG30mE
t2m3S0dGe47JiJxifV9P3wNBNrZGSIF3mrORBVNDAoGBAI0QKn2Iv7Sgo4T/XjND
dl2kZTXqGAk8dOhpUiw/HdM3OGWbhHj2NdCzBliOmPyQtAr770GITWvbAI+IRYyF
S7Fnk6ZVVVHsxjtaHy1uJGFlaZzKR4AGNaUTOJMs6NadzCmGPAxNQQOCqoUjn4XR
rOjr9w349JooGXhOxbu8nOxX
-----END PRIVATE KEY-----`

	rfcP256 = `-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIFKbhfNZfpDsW43+0+JjUr9K+bTeuxopu653+hBaXGA7oAoGCCqGSM49
AwEHoUQDQgAEqIVYZVLCrPZHGHjP17CTW0/+D9Lfw0EkjqF7xB4FivAxzic30tMM
4GF+hR6Dxh71Z50VGGdldkkDXZCnTNnoXQ==
-----END EC PRIVATE KEY-----`

	rfcEd25519 = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF
-----END PRIVATE KEY-----`

	rfcSecret = "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
)

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
	der := func(text string) []byte {
		block, _ := pem.Decode([]byte(text))
		require.NotNil(t, block)
		return block.Bytes
	}
	// Package x509 does not know keys that are for RSASSA-PSS only; inside, it is a key like others.
	var outer struct {
		Version    int
		Algorithm  pkix.AlgorithmIdentifier
		PrivateKey []byte
	}
	_, err := asn1.Unmarshal(der(rfcRSAPSS), &outer)
	require.NoError(t, err)
	rsaKey, err := x509.ParsePKCS1PrivateKey(outer.PrivateKey)
	require.NoError(t, err)
	p256Key, err := x509.ParseECPrivateKey(der(rfcP256))
	require.NoError(t, err)
	ed25519Key, err := x509.ParsePKCS8PrivateKey(der(rfcEd25519))
	require.NoError(t, err)
	secret, err := base64.StdEncoding.DecodeString(rfcSecret)
	require.NoError(t, err)
	return map[string]*sign.Key{
		"test-key-rsa-pss":   sign.Must(sign.NewKey(sign.KeyConfig{ID: "test-key-rsa-pss"}, rsaKey)),
		"test-key-ecc-p256":  sign.Must(sign.NewKey(sign.KeyConfig{ID: "test-key-ecc-p256"}, p256Key)),
		"test-key-ed25519":   sign.Must(sign.NewKey(sign.KeyConfig{ID: "test-key-ed25519"}, ed25519Key)),
		"test-shared-secret": sign.Must(sign.NewHMACKey(sign.KeyConfig{ID: "test-shared-secret"}, secret)),
	}
}

// The vectors of RFC 9421, appendix B.2. None of them is one that the profile takes: they have no nonce,
// for a start. So they are put together here of the parts that the scheme is made of.
func TestRFCVectors(t *testing.T) {
	keys := rfcKeys(t)
	s := newScheme(t, Config{})
	for _, c := range []struct {
		name, label, key string
		message          *sign.Message
		// before are lines of components that the profile does not know, and that come first;
		// after, such that come behind the others.
		before, after string
		components    []string
		params        string
		base          string
		signature     string
		// refused is what the reader says of Signature-Input. Empty: it can be read.
		refused string
		// fixed says that the algorithm makes the same signature each time.
		fixed bool
	}{
		{
			name: "B.2.1, minimal", label: "sig-b21", key: "test-key-rsa-pss", message: rfcRequest(),
			components: []string{},
			params:     `();created=1618884473;keyid="test-key-rsa-pss";nonce="b3k2pp5k7z-50gnwp.yemd"`,
			base:       `"@signature-params": ();created=1618884473;keyid="test-key-rsa-pss";nonce="b3k2pp5k7z-50gnwp.yemd"`,
			signature: "d2pmTvmbncD3xQm8E9ZV2828BjQWGgiwAaw5bAkgibUopemLJcWDy/lkbbHAve4cRAtx31Iq786U7it++wgGxbtRxf8Udx7z" +
				"FZsckzXaJMkA7ChG52eSkFxykJeNqsrWH5S+oxNFlD4dzVuwe8DhTSja8xxbR/Z2cOGdCbzR72rgFWhzx2VjBqJzsPLMIQKh" +
				"O4DGezXehhWwE56YCE+O6c0mKZsfxVrogUvA4HELjVKWmAvtl6UnCh8jYzuVG5WSb/QEVPnP5TmcAnLH1g+s++v6d4s8m0gC" +
				"w1fV5/SITLq9mhho8K3+7EPYTU8IU1bLhdxO5Nyt8C8ssinQ98Xw9Q==",
		},
		{
			name: "B.2.2, selective", label: "sig-b22", key: "test-key-rsa-pss", message: rfcRequest(),
			after:      `"@query-param";name="Pet": dog` + "\n",
			components: []string{"@authority", "content-digest"},
			params:     `("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss";tag="header-example"`,
			base: `"@authority": example.com
"content-digest": ` + rfcDigest + `
"@query-param";name="Pet": dog
"@signature-params": ("@authority" "content-digest" "@query-param";name="Pet");created=1618884473;keyid="test-key-rsa-pss";tag="header-example"`,
			signature: "LjbtqUbfmvjj5C5kr1Ugj4PmLYvx9wVjZvD9GsTT4F7GrcQEdJzgI9qHxICagShLRiLMlAJjtq6N4CDfKtjvuJyE5qH7KT8U" +
				"CMkSowOB4+ECxCmT8rtAmj/0PIXxi0A0nxKyB09RNrCQibbUjsLS/2YyFYXEu4TRJQzRw1rLEuEfY17SARYhpTlaqwZVtR8N" +
				"V7+4UKkjqpcAoFqWFQh62s7Cl+H2fjBSpqfZUJcsIk4N6wiKYd4je2U/lankenQ99PZfB4jY3I5rSV2DSBVkSFsURIjYErOs" +
				"0tFTQosMTAoxk//0RoKUqiYY8Bh0aaUEb0rQl3/XaVe4bXTugEjHSw==",
			refused: `parameters of components`,
		},
		{
			name: "B.2.3, full coverage", label: "sig-b23", key: "test-key-rsa-pss", message: rfcRequest(),
			components: []string{"date", "@method", "@path", "@query", "@authority", "content-type", "content-digest", "content-length"},
			params:     `("date" "@method" "@path" "@query" "@authority" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-rsa-pss"`,
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
			name: "B.2.4, a response", label: "sig-b24", key: "test-key-ecc-p256", message: rfcResponse(),
			before:     `"@status": 200` + "\n",
			components: []string{"content-type", "content-digest", "content-length"},
			params:     `("@status" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-ecc-p256"`,
			base: `"@status": 200
"content-type": application/json
"content-digest": sha-512=:mEWXIS7MaLRuGgxOBdODa3xqM1XdEvxoYhvlCFJ41QJgJc4GTsPp29l5oGX69wWdXymyU0rjJuahq4l5aGgfLQ==:
"content-length": 23
"@signature-params": ("@status" "content-type" "content-digest" "content-length");created=1618884473;keyid="test-key-ecc-p256"`,
			signature: "wNmSUAhwb5LxtOtOpNa6W5xj067m5hFrj0XQ4fvpaCLx0NKocgPquLgyahnzDnDAUy5eCdlYUEkLIj+32oiasw==",
			refused:   `"@status" cannot be covered`,
		},
		{
			name: "B.2.5, hmac-sha256", label: "sig-b25", key: "test-shared-secret", message: rfcRequest(),
			components: []string{"date", "@authority", "content-type"},
			params:     `("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`,
			base: `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@authority": example.com
"content-type": application/json
"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"`,
			signature: "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
			fixed:     true,
		},
		{
			name: "B.2.6, ed25519", label: "sig-b26", key: "test-key-ed25519", message: rfcRequest(),
			components: []string{"date", "@method", "@path", "@authority", "content-type", "content-length"},
			params:     `("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
			base: `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": ("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
			signature: "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
			fixed:     true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p parameters
			label, err := s.parseInput(c.label+"="+c.params, &p)
			if c.refused != "" {
				require.ErrorIs(t, err, sign.CodeMalformed)
				require.ErrorContains(t, err, c.refused)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.label, label)
				require.Equal(t, strings.Join(c.components, " "), strings.Join(p.components, " "))
				require.EqualValues(t, 1618884473, p.created)
				require.Equal(t, c.key, p.keyID)
				// The same parameters are written as they were read.
				text := p.text
				require.NoError(t, p.serialise())
				require.Equal(t, text, p.text)
			}

			base, err := s.appendBase([]byte(c.before), c.message, c.components, "")
			require.NoError(t, err)
			base = appendParams(append(base, c.after...), c.params)
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
			require.NoError(t, d.parse(c.message))
			require.NoError(t, d.check(body))
			require.ErrorIs(t, d.check(append(body, ' ')), sign.ReasonDigestMismatch)
		})
	}
}
