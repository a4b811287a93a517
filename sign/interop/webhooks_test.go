package interop_test

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-github/v81/github"
	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v84/webhook"
	svix "github.com/svix/svix-webhooks/go"

	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/webhook"
)

// sender is what is known of another implementation for webhooks.
type sender struct {
	scheme sign.Scheme
	key    *sign.Key
	// sign is nil for libraries that verify only.
	sign   func(r *http.Request) error
	verify func(r *http.Request, body []byte) error
	// replayed is the code for the same message sent again. "": it is for the guard.
	replayed string
}

// What the senders' own libraries sign we verify, and they verify what we sign.
func TestWebhooks(t *testing.T) {
	const senderSecret = "whsec_0123456789abcdef0123456789abcdef"
	senderKey := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "acme"}, senderSecret))
	webhookSecret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(secret))
	webhookKey := sign.Must(webhook.NewStandardKey(sign.KeyConfig{ID: "acme"}, webhookSecret))
	scheme := func(o webhook.StandardConfig) sign.Scheme {
		o.KeyID = "acme"
		s, err := webhook.NewStandard(o)
		require.NoError(t, err)
		return s
	}
	reference, err := standardwebhooks.NewWebhook(webhookSecret)
	require.NoError(t, err)
	hosted, err := svix.NewWebhook(webhookSecret)
	require.NoError(t, err)
	// byID signs as the libraries for Standard Webhooks do.
	byID := func(prefix string, sign func(id string, at time.Time, body []byte) (string, error)) func(*http.Request) error {
		return func(r *http.Request) error {
			at := time.Now()
			signature, err := sign("msg_1", at, []byte(body))
			r.Header.Set(prefix+"Id", "msg_1")
			r.Header.Set(prefix+"Timestamp", strconv.FormatInt(at.Unix(), 10))
			r.Header.Set(prefix+"Signature", signature)
			return err
		}
	}

	for name, s := range map[string]sender{
		"standard-webhooks": {
			scheme: scheme(webhook.StandardConfig{}), key: webhookKey, replayed: "replayed",
			sign:   byID("Webhook-", reference.Sign),
			verify: func(r *http.Request, body []byte) error { return reference.Verify(body, r.Header) },
		},
		"svix": {
			scheme: scheme(webhook.StandardConfig{ID: "Svix-Id", Timestamp: "Svix-Timestamp", Signature: "Svix-Signature"}),
			key:    webhookKey, replayed: "replayed",
			sign:   byID("Svix-", hosted.Sign),
			verify: func(r *http.Request, body []byte) error { return hosted.Verify(body, r.Header) },
		},
		"stripe-go": {
			scheme: webhook.Stripe("acme"), key: senderKey, replayed: "replayed",
			sign: func(r *http.Request) error {
				r.Header.Set("Stripe-Signature",
					stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: []byte(body), Secret: senderSecret}).Header)
				return nil
			},
			verify: func(r *http.Request, body []byte) error {
				_, err := stripe.ConstructEventWithOptions(body, r.Header.Get("Stripe-Signature"), senderSecret,
					stripe.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
				return err
			},
		},
		"slack-go": {
			scheme: webhook.Slack("acme"), key: senderKey,
			verify: func(r *http.Request, body []byte) error {
				v, err := slack.NewSecretsVerifier(r.Header, senderSecret)
				if err != nil {
					return err
				}
				if _, err := v.Write(body); err != nil {
					return err
				}
				return v.Ensure()
			},
		},
		"go-github": {
			scheme: webhook.GitHub("acme"), key: senderKey,
			verify: func(r *http.Request, body []byte) error {
				return github.ValidateSignature(r.Header.Get(github.SHA256SignatureHeader), body, []byte(senderSecret))
			},
		},
	} {
		t.Run(name+"/we sign", func(t *testing.T) {
			r := newRequest(t, theirs(t, s.verify)+"/hooks")
			require.NoError(t, sign.Request(r, s.key, sign.RequestOptions{Scheme: s.scheme}))
			isUnderstood(t, r)
		})
		if s.sign == nil {
			continue
		}
		t.Run(name+"/they sign", func(t *testing.T) {
			r := newRequest(t, ours(t, sign.Must(
				sign.NewVerifier(sign.Config{Scheme: s.scheme, Keys: sign.Must(sign.NewRing(s.key)), Window: tolerance})))+"/hooks")
			require.NoError(t, s.sign(r))
			arrives(t, r, s.replayed)
		})
	}
}
