package sign_test

import (
	"crypto/ed25519"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/internal/fixture"
	"github.com/idem-go/idem/sign/rfc9421"
	"github.com/idem-go/idem/sign/signtest"
	"github.com/idem-go/idem/sign/sortedparams"
	"github.com/idem-go/idem/sign/webhook"
)

const senderBody = `{"id":"evt_1","event_id":"Ev08MFMKH6","type":"paid","amount":5}`

func TestSchemes(t *testing.T) {
	standard := sign.Must(webhook.NewStandard(webhook.StandardConfig{KeyID: "acme"}))
	ed25519Signer, ed25519Verifier := fixture.Pair("acme", fixture.Private().Ed25519)
	ed25519Stranger, _ := fixture.Pair("acme", ed25519.NewKeyFromSeed([]byte(designSecret)))
	// Keys of the profiles of RFC 9421: their ids are thumbprints. So a stranger to Web Bot Auth must name its own.
	published := func(private ed25519.PrivateKey, id string) *sign.Key {
		return sign.Must(sign.NewKey(sign.KeyConfig{ID: id, Purpose: "request-signing"}, private))
	}
	own := published(fixture.Private().Ed25519, ed25519Signer.Thumbprint())
	stranger := ed25519.NewKeyFromSeed([]byte(designSecret))
	for name, c := range map[string]struct {
		scheme sign.Scheme
		target string
		fields []string
	}{
		"v1":                     {nil, "/hooks?x=1", []string{"Idempotency-Key", `"k-1"`}},
		"v1 with Ed25519":        {nil, "/hooks?x=1", nil},
		"RFC 9421":               {sign.Must(rfc9421.New(rfc9421.Config{})), "/hooks?x=1", []string{"Idempotency-Key", `"k-1"`}},
		"Standard Webhooks":      {standard, "/hooks?x=1", []string{"Webhook-Id", "msg.1"}},
		"sorted, in the header":  {sign.Must(sortedparams.New(sortedparams.Config{})), "/hooks", nil},
		"sorted, among the rest": {sign.Must(sortedparams.New(sortedparams.Config{InParams: true})), "/hooks", nil},
		"Stripe":                 {webhook.Stripe("acme"), "/hooks?x=1", nil},
		"ACP":                    {webhook.ACP("acme"), "/hooks?x=1", nil},
		"Slack":                  {webhook.Slack("acme"), "/hooks?x=1", nil},
		"GitHub":                 {webhook.GitHub("acme"), "/hooks?x=1", []string{"X-GitHub-Delivery", "72d3162e"}},
		"a made-up sender":       {acme{}, "/hooks?x=1", nil},
		"Shopify":                {webhook.Shopify("acme"), "/hooks?x=1", []string{"X-Shopify-Event-Id", "98880550"}},
		"UCP": {sign.Must(rfc9421.New(rfc9421.UCP())), "/hooks?x=1",
			[]string{"Idempotency-Key", `"k-1"`, "UCP-Agent", `profile="https://shop.test/.well-known/ucp"`}},
		"UCP and Web Bot Auth": {sign.Must(rfc9421.New(rfc9421.UCP())), "/hooks?x=1",
			[]string{"Idempotency-Key", "k-1", "Signature-Agent", `sig1="https://shop.test/ucp";type=jwks_uri`}},
		"Web Bot Auth": {sign.Must(rfc9421.New(rfc9421.WebBotAuth())), "/hooks?x=1",
			[]string{"Signature-Agent", `a="https://shop.test", sig1="https://b.test"`}},
		"AdCP":            {sign.Must(rfc9421.New(rfc9421.AdCP())), "/hooks?x=1", nil},
		"AdCP 3.1":        {sign.Must(rfc9421.New(rfc9421.AdCP31())), "/hooks", nil},
		"AdCP's webhooks": {sign.Must(rfc9421.New(rfc9421.AdCPWebhooks())), "/hooks", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := signtest.SchemeHarness{
				Scheme: c.scheme, Signer: fixture.HMAC("acme"), Stranger: fixture.HMAC("acme"),
				Parameters: strings.HasPrefix(name, "sorted"),
				Request: func() *http.Request {
					return signtest.NewRequest(t, nil, "http://shop.test"+c.target, senderBody, c.fields...)
				},
			}
			if name == "v1 with Ed25519" {
				h.Signer, h.Verifier, h.Stranger = ed25519Signer, ed25519Verifier, ed25519Stranger
			}
			if scheme := c.scheme; scheme != nil &&
				slices.Contains([]string{"ucp", "web-bot-auth", "adcp", "adcp-webhooks"}, scheme.Name()) {
				h.Signer, h.Verifier, h.Stranger = own, own, published(stranger, own.ID())
			}
			if strings.HasSuffix(name, "Web Bot Auth") {
				h.Stranger = published(stranger, ed25519Stranger.Thumbprint())
			}
			signtest.RunScheme(t, h)
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
