package adaptertest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/adapter"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/webhook"
)

var (
	stripe         = webhook.Stripe("stripe")
	stripeKey      = sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "stripe"}, "whsec_a secret of the suite's"))
	stripeVerifier = sign.Must(sign.NewVerifier(sign.Config{
		Scheme: stripe, Keys: sign.Must(sign.NewRing(stripeKey)), GuardedByKey: true, Clock: func() time.Time { return noon },
	}))
)

// delivered is the delivery of an event, whose body says what the handler does.
func delivered(target, id, does string, pending int) request {
	r := request{target: target, body: fmt.Sprintf(`{"id":%q,"type":%q,"pending_webhooks":%d}`, id, does, pending)}
	signed, err := http.NewRequest("POST", "http://shop.test"+target, strings.NewReader(r.body))
	if err == nil {
		err = sign.Request(signed, stripeKey, sign.RequestOptions{Scheme: stripe, Clock: func() time.Time { return noon }})
	}
	if err != nil {
		panic(err) // the suite's own
	}
	r.fields = []adapter.Field{field("Stripe-Signature", signed.Header.Get("Stripe-Signature"))}
	return r
}

// receiver is the handler of a webhook.
func receiver(h *probe, c Call, n int) error {
	body, err := c.Body()
	switch does := string(body); {
	case err != nil:
		return err
	case strings.Contains(does, "slow"):
		h.hold()
	case strings.Contains(does, "large"):
		return c.Blob(201, "text/plain", []byte(strings.Repeat("x", 101)))
	case strings.Contains(does, "lost"):
		c.Run().Abandon()
		return c.NoContent(500)
	case strings.Contains(does, "first declined") && n == 1:
		return c.NoContent(422)
	}
	return receipt(h, c, n)
}

// webhookRoute is the route of a receiver of webhooks.
func webhookRoute(pattern, name string, options ...core.EventOption) route {
	p := core.SignedEvent(options...)
	p.Name, p.ResponseLimit, p.Abandoned = name, 100, core.Uncertain(nil)
	return route{pattern: pattern, policy: &p, verifier: stripeVerifier}
}

// acknowledged is for an event that has been dealt with, and has no answer to be replayed.
var acknowledged = want{status: 200, kind: answered,
	fields: []adapter.Field{field(core.ReplayedHeader, "true"), field("Content-Length", "0")}}

// comeAgain is a refusal that a sender of webhooks understands.
func comeAgain(code codes.Code, after string) want {
	return want{status: 503, kind: refusal, code: code, fields: []adapter.Field{field("Retry-After", after)}}
}

// webhookCases: what senders of webhooks get, behind a verifier.
var webhookCases = []testCase{
	{
		name: "webhooks",
		why: "each event runs once, whatever its sender changes and by whatever route it comes; a sender takes each status but " +
			"2xx for a failure, and sends for days what gets a 409: 503 with Retry-After while it makes sense to come again, else a 2xx",
		routes: []route{webhookRoute("/hooks", "stripe"), webhookRoute("/v2/hooks/:tenant", "stripe"), webhookRoute("/other", "other"),
			webhookRoute("/strict", "strict", core.CompareContent())},
		handler: receiver,
		steps: []step{
			ask{delivered("/hooks", "evt_0", "first declined", 2), want{status: 422}, ""},
			ask{delivered("/hooks", "evt_0", "first declined", 2), created, ""},
			ask{delivered("/hooks", "evt_1", "fast", 2), created, ""},
			ask{delivered("/hooks", "evt_1", "fast", 2), replayed, ""},
			ask{delivered("/hooks?again=1", "evt_1", "fast", 1), replayed, ""},
			ask{delivered("/v2/hooks/acme", "evt_1", "fast", 1), replayed, ""},
			ask{delivered("/other", "evt_1", "fast", 1), created, ""},

			begin{"first", delivered("/hooks", "evt_2", "slow", 2)},
			ask{delivered("/v2/hooks/acme", "evt_2", "slow", 2), comeAgain(codes.InProgress, "1"), ""},
			resume(1),
			await{"first", created},
			ask{delivered("/hooks", "evt_2", "slow", 2), replayed, ""},

			ask{delivered("/hooks", "evt_3", "large", 2), created, ""},
			ask{delivered("/hooks", "evt_3", "large", 2), acknowledged, ""},
			ask{delivered("/hooks", "evt_4", "lost", 2), want{status: 500}, ""},
			ask{delivered("/hooks", "evt_4", "lost", 2), comeAgain(codes.Uncertain, "60"), ""},

			ask{delivered("/strict", "evt_1", "fast", 2), created, ""},
			ask{delivered("/strict", "evt_1", "fast", 1), refused(codes.KeyReused), ""},
			ask{delivered("/strict", "evt_1", "fast", 2), replayed, ""},
		},
	},
}
