package ginidem_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/sign"
	"github.com/idem-go/idem/sign/webhook"
)

// An endpoint for Stripe: an event runs once, and a later delivery of it, with another timestamp and another content, gets the
// first answer.
func ExampleVerify_stripe() {
	engine, r, receive := service()
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "stripe"}, "whsec_a secret for this example"))

	policy := core.SignedEvent()
	policy.Name = "stripe" // guards with this name share their events
	events := engine.MustGuard(policy)
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		// key is webhook.NewSenderKey(sign.KeyConfig{ID: "stripe"}, secret): its ID is the one that webhook.Stripe names
		Scheme: webhook.Stripe("stripe"), Keys: sign.Must(sign.NewRing(key)),
		Window:       5 * time.Minute,                                // as Stripe allows
		GuardedByKey: true,                                           // a repeated message gets the guard's answer
		Observe:      sign.LogEvents(slog.Default(), slog.LevelInfo), // logs why a message was refused; the sender is not told
	}))

	r.POST("/hooks/stripe", ginidem.Verify(verifier), ginidem.New(events), receive) // the same in the other adapters

	now := time.Now()
	first := signed(webhook.Stripe("stripe"), key, now, `{"id":"evt_1","type":"charge.succeeded","pending_webhooks":2}`)
	later := signed(webhook.Stripe("stripe"), key, now.Add(2*time.Second), `{"id":"evt_1","type":"charge.succeeded","pending_webhooks":1}`)
	for _, message := range []delivery{first, first, later} {
		message.to(r, "/hooks/stripe")
	}
	// Output:
	// 200 handled 1
	// 200 handled 1
	// 200 handled 1
}

// An endpoint for GitHub, which signs the body and no time: a redelivery gets the first answer. Under another
// X-GitHub-Delivery, which is not signed, the same body is refused.
func ExampleVerify_gitHub() {
	engine, r, receive := service()
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "github"}, "It's a Secret to Everybody"))
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: webhook.GitHub("github"), Keys: sign.Must(sign.NewRing(key)), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
	}))
	policy := core.SignedEvent(core.CompareContent(core.RequestHeaders("X-GitHub-Delivery", "X-GitHub-Event")))
	policy.Name = "github"
	policy.Retention = 30 * 24 * time.Hour // how long nobody gets it run again
	r.POST("/hooks/github", ginidem.Verify(verifier), ginidem.New(engine.MustGuard(policy)), receive)

	first := signed(webhook.GitHub("github"), key, time.Now(), `{"action":"opened","number":7}`)
	first.header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	first.header.Set("X-GitHub-Event", "pull_request")
	renamed := delivery{first.header.Clone(), first.body}
	renamed.header.Set("X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000")
	changed := delivery{first.header, `{"action":"closed","number":7}`}
	for _, message := range []delivery{first, first, renamed, changed} {
		message.to(r, "/hooks/github")
	}
	// Output:
	// 200 handled 1
	// 200 handled 1
	// 422 key_reused
	// 401 invalid
}

// An endpoint for Slack, which waits three seconds, and then sends the same message again at once: while the first one is handled,
// it is told to come again.
func ExampleVerify_slack() {
	engine, r, receive := service()
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "slack"}, "8f742231b10e8888abcd99yyyzzz85a5"))
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: webhook.Slack("slack"), Keys: sign.Must(sign.NewRing(key)), Window: 5 * time.Minute, GuardedByKey: true,
		Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
	}))
	policy := core.SignedEvent()
	policy.Name = "slack"
	message := signed(webhook.Slack("slack"), key, time.Now(), `{"type":"event_callback","event_id":"Ev1"}`)
	slow := func(c *gin.Context) {
		message.to(r, "/hooks/slack")
		receive(c)
	}
	r.POST("/hooks/slack", ginidem.Verify(verifier), ginidem.New(engine.MustGuard(policy)), slow)

	message.to(r, "/hooks/slack")
	message.to(r, "/hooks/slack")
	// Output:
	// 503 in_progress
	// 200 handled 1
	// 200 handled 1
}

// One message may come as several events, when it concerns several apps of the workspace. Its channel and time identify it, and
// Slack has signed them.
func ExampleVerify_ownIdentity() {
	engine, r, receive := service()
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "slack"}, "8f742231b10e8888abcd99yyyzzz85a5"))
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: webhook.Slack("slack"), Keys: sign.Must(sign.NewRing(key)), Window: 5 * time.Minute, GuardedByKey: true,
		Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
	}))
	policy := core.SignedEvent()
	policy.Name = "slack-messages"
	identify := func(c *gin.Context) {
		var body struct {
			Event struct{ Channel, TS string }
		}
		if err := c.ShouldBindBodyWithJSON(&body); err != nil || body.Event.TS == "" {
			return // the event's own id stands
		}
		ctx := c.Request.Context()
		sender, _ := core.CallerFrom(ctx)
		c.Request = c.Request.WithContext(core.WithCallerEvent(ctx, sender, body.Event.Channel+" "+body.Event.TS))
	}
	r.POST("/hooks/slack", ginidem.Verify(verifier), identify, ginidem.New(engine.MustGuard(policy)), receive)

	for _, id := range []string{"Ev1", "Ev2"} {
		signed(webhook.Slack("slack"), key, time.Now(),
			`{"event_id":"`+id+`","event":{"channel":"C1","ts":"1355517523.000005"}}`).to(r, "/hooks/slack")
	}
	// Output:
	// 200 handled 1
	// 200 handled 1
}

// Endpoints for Shopify, whose topics may have the same body, and are not signed: each has a route, and a guard with a name of its own.
func ExampleVerify_shopify() {
	engine, r, receive := service()
	key := sign.Must(webhook.NewSenderKey(sign.KeyConfig{ID: "shopify"}, "the client secret of the app"))
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: webhook.Shopify("shopify"), Keys: sign.Must(sign.NewRing(key)), Observe: sign.LogEvents(slog.Default(), slog.LevelInfo),
	}))
	for _, topic := range []string{"orders/create", "orders/updated"} {
		policy := core.SignedEvent()
		policy.Name = "shopify " + topic
		policy.Retention = 30 * 24 * time.Hour
		r.POST("/hooks/"+topic, ginidem.Verify(verifier), ginidem.New(engine.MustGuard(policy)), receive)
	}

	message := signed(webhook.Shopify("shopify"), key, time.Now(), `{"id":820982911946154508,"updated_at":"2026-11-26T12:00:00Z"}`)
	for _, topic := range []string{"orders/create", "orders/create", "orders/updated"} {
		message.to(r, "/hooks/"+topic)
	}
	// Output:
	// 200 handled 1
	// 200 handled 1
	// 200 handled 2
}

// service is an application, and a handler that counts.
func service() (*core.Engine, *gin.Engine, gin.HandlerFunc) {
	executed := 0
	return core.MustNew(core.Config{}), gin.New(), func(c *gin.Context) {
		executed++
		c.String(http.StatusOK, "handled %d", executed)
	}
}

// delivery is what a sender sends.
type delivery struct {
	header http.Header
	body   string
}

// signed is a delivery as the sender signs it.
func signed(scheme sign.Scheme, key *sign.Key, at time.Time, body string) delivery {
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if err := sign.Request(r, key, sign.RequestOptions{Scheme: scheme, Clock: func() time.Time { return at }}); err != nil {
		fmt.Println(err)
	}
	return delivery{r.Header, body}
}

// to sends the delivery, and prints the answer, or the code of a refusal.
func (d delivery) to(service http.Handler, target string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", target, strings.NewReader(d.body))
	r.Header = d.header.Clone()
	service.ServeHTTP(w, r)
	if code := w.Header().Get(core.RefusedHeader); code != "" {
		fmt.Println(w.Code, code)
		return
	}
	fmt.Println(w.Code, w.Body)
}
