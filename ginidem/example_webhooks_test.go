package ginidem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/sign"
)

// An endpoint for Stripe: a message that is sent again is refused, and an event that is delivered again, with another
// timestamp, gets the first answer.
func ExampleVerify_stripe() {
	key, err := sign.NewSenderKey(sign.KeyConfig{ID: "stripe"}, "whsec_a secret for this example") // as Stripe shows it
	if err != nil {
		fmt.Println(err)
		return
	}
	engine := core.MustNew(core.Config{})
	verifier := sign.Must(sign.NewVerifier(sign.Config{
		Scheme: sign.Stripe("stripe"), Keys: sign.Must(sign.NewRing(key)), Nonces: engine.Nonces(), Window: 5 * time.Minute,
	}))
	events := engine.MustGuard(core.Policy{
		Key: core.CallerEvent(core.IgnoreFingerprint()), User: core.UserFromCaller(), // a later delivery differs in pending_webhooks
		Record: core.Record{Retention: 96 * time.Hour}, // Stripe delivers for three days
	})

	executed := 0
	r := gin.New()
	r.POST("/hooks/stripe", ginidem.Verify(verifier), ginidem.New(events), func(c *gin.Context) {
		executed++
		c.String(http.StatusOK, "handled %d", executed)
	})

	now := time.Now()
	first := signed(sign.Stripe("stripe"), key, now, `{"id":"evt_1","type":"charge.succeeded","pending_webhooks":2}`)
	again := signed(sign.Stripe("stripe"), key, now.Add(2*time.Second), `{"id":"evt_1","type":"charge.succeeded","pending_webhooks":1}`)
	for _, message := range []delivery{first, first, again} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, message.request("/hooks/stripe"))
		printAnswer(w.Code, w.Header(), w.Body)
	}
	// Output:
	// 200 handled 1
	// 401 replayed
	// 200 handled 1
}

// An endpoint for GitHub, which signs the body and no time: a redelivery gets the first answer. Under another
// X-GitHub-Delivery, which is not signed, the same body is refused.
func ExampleVerify_gitHub() {
	key, err := sign.NewSenderKey(sign.KeyConfig{ID: "github"}, "It's a Secret to Everybody")
	if err != nil {
		fmt.Println(err)
		return
	}
	engine := core.MustNew(core.Config{})
	verifier := sign.Must(sign.NewVerifier(sign.Config{Scheme: sign.GitHub("github"), Keys: sign.Must(sign.NewRing(key))}))
	events := engine.MustGuard(core.Policy{
		Key: core.CallerEvent(core.RequestHeaders("X-GitHub-Delivery", "X-GitHub-Event")), User: core.UserFromCaller(),
		Record: core.Record{Retention: 30 * 24 * time.Hour}, // how long nobody gets it run again
	})

	executed := 0
	r := gin.New()
	r.POST("/hooks/github", ginidem.Verify(verifier), ginidem.New(events), func(c *gin.Context) {
		executed++
		c.String(http.StatusOK, "handled %d", executed)
	})

	first := signed(sign.GitHub("github"), key, time.Now(), `{"action":"opened","number":7}`)
	first.header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	first.header.Set("X-GitHub-Event", "pull_request")
	renamed := delivery{first.header.Clone(), first.body}
	renamed.header.Set("X-GitHub-Delivery", "00000000-0000-0000-0000-000000000000")
	changed := delivery{first.header, `{"action":"closed","number":7}`}
	for _, message := range []delivery{first, first, renamed, changed} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, message.request("/hooks/github"))
		printAnswer(w.Code, w.Header(), w.Body)
	}
	// Output:
	// 200 handled 1
	// 200 handled 1
	// 422 key_reused
	// 401 invalid
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

func (d delivery) request(target string) *http.Request {
	r := httptest.NewRequest("POST", target, strings.NewReader(d.body))
	r.Header = d.header.Clone()
	return r
}

// printAnswer prints the answer, or the code of a refusal.
func printAnswer(status int, header http.Header, body fmt.Stringer) {
	if code := header.Get(core.RefusedHeader); code != "" {
		fmt.Println(status, code)
		return
	}
	fmt.Println(status, body)
}
