package sign_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/rfc9421"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/sortedparams"
)

const senderBody = `{"id":"evt_1","event_id":"Ev08MFMKH6","type":"paid","amount":5}`

func TestSchemes(t *testing.T) {
	hmacKey := func(id, text string) *sign.Key {
		sum := sha256.Sum256([]byte(text))
		return sign.Must(sign.NewHMACKey(sign.KeyOptions{ID: id}, sum[:]))
	}
	webhook := func(id, text string) *sign.Key {
		sum := sha256.Sum256([]byte(text))
		return sign.Must(sign.NewStandardWebhooksKey(sign.KeyOptions{ID: id}, "whsec_"+base64.StdEncoding.EncodeToString(sum[:24])))
	}
	sender := func(id, text string) *sign.Key {
		return sign.Must(sign.NewSenderKey(sign.KeyOptions{ID: id}, "whsec_the secret of "+text))
	}
	request := func(target, body string, header ...string) func() *http.Request {
		return func() *http.Request {
			r, err := http.NewRequest("POST", "http://shop.test"+target, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			return r
		}
	}
	messageSignatures, err := rfc9421.New(rfc9421.Options{})
	require.NoError(t, err)
	sorted, err := sortedparams.New(sortedparams.Options{})
	require.NoError(t, err)
	sortedIn, err := sortedparams.New(sortedparams.Options{InParams: true})
	require.NoError(t, err)
	ed25519Signer, ed25519Verifier := newEd25519(t)
	ed25519Stranger, _ := newEd25519(t)

	for name, c := range map[string]struct {
		scheme   sign.Scheme
		key      func(id, text string) *sign.Key
		request  func() *http.Request
		signer   *sign.Key
		verifier *sign.Key
		stranger *sign.Key
	}{
		"v1":                     {key: hmacKey, request: request("/hooks?x=1", senderBody, "Idempotency-Key", `"k-1"`)},
		"v1 with Ed25519":        {signer: ed25519Signer, verifier: ed25519Verifier, stranger: ed25519Stranger, request: request("/hooks?x=1", senderBody)},
		"RFC 9421":               {scheme: messageSignatures, key: hmacKey, request: request("/hooks?x=1", senderBody, "Idempotency-Key", `"k-1"`)},
		"Standard Webhooks":      {scheme: webhookScheme(t, sign.StandardWebhooksOptions{KeyID: "acme"}), key: webhook, request: request("/hooks?x=1", senderBody, "Webhook-Id", "msg.1")},
		"sorted, in the header":  {scheme: sorted, key: hmacKey, request: request("/hooks", senderBody)},
		"sorted, among the rest": {scheme: sortedIn, key: hmacKey, request: request("/hooks", senderBody)},
		"Stripe":                 {scheme: sign.Stripe("acme"), key: sender, request: request("/hooks?x=1", senderBody)},
		"Slack":                  {scheme: sign.Slack("acme"), key: sender, request: request("/hooks?x=1", senderBody)},
		"GitHub":                 {scheme: sign.GitHub("acme"), key: sender, request: request("/hooks?x=1", senderBody, "X-GitHub-Delivery", "72d3162e")},
		"a made-up sender":       {scheme: acme{}, key: hmacKey, request: request("/hooks?x=1", senderBody)},
		"Shopify":                {scheme: sign.Shopify("acme"), key: sender, request: request("/hooks?x=1", senderBody, "X-Shopify-Event-Id", "98880550")},
	} {
		t.Run(name, func(t *testing.T) {
			if c.key != nil {
				c.signer, c.stranger = c.key("acme", "acme"), c.key("acme", "a stranger")
			}
			signtest.RunScheme(t, signtest.SchemeHarness{
				Scheme: c.scheme, Signer: c.signer, Verifier: c.verifier, Stranger: c.stranger, Request: c.request, Parameters: strings.HasPrefix(name, "sorted"),
			})
		})
	}
}

// Scratch memory that a scheme has stays intact when it asks for more.
func TestScratch(t *testing.T) {
	var s sign.Signature
	var buffers [][]byte
	for n := range 100 {
		buffer := s.Scratch(n)
		require.Empty(t, buffer)
		require.Equal(t, n, cap(buffer))
		for range n {
			buffer = append(buffer, byte(n))
		}
		buffers = append(buffers, buffer)
	}
	for n, buffer := range buffers {
		for _, b := range buffer {
			require.EqualValues(t, n, b)
		}
	}
}
