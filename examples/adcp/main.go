// Command adcp is a seller of the Ad Context Protocol (3.x): it sells one display product to agents, over plain HTTP.
// Tasks that change something are guarded by [profile.AdCP], so that an agent may send them again until it has an answer.
//
//	go run ./examples/adcp
//
// Each task is POST /adcp/{task}, its parameters are the body. All tasks have one route, so that a key that was used for one task is
// refused for another. The store is in memory, so that it runs anywhere: a seller whose process can end within replay_ttl_seconds has to
// give the engine a store that outlives it, and one that is encrypted at rest.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/profile"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	burst := flag.Int("burst", 300, "how `many` requests with new keys an agent may send at once; it may send 60 a second (rule 8)")
	flag.Parse()
	engine := newEngine()
	if err := serve(*addr, newHandler(engine, *burst), engine); err != nil {
		log.Fatal(err)
	}
}

// agents are known by their bearer tokens.
var agents = map[string]string{"demo-token-of-a-buyer-agent": "buyer", "demo-token-of-another-agent": "other"}

type agentKey struct{}

func newEngine() *core.Engine {
	return core.MustNew(core.Config{User: core.UserFunc(func(r *core.Request) (core.User, error) {
		agent, _ := r.Native.(*http.Request).Context().Value(agentKey{}).(string)
		return core.User{ID: agent}, nil
	})})
}

// seller is the one behind the tasks. It forgets what it has sold when it ends, as its engine forgets the answers.
type seller struct {
	ttl    time.Duration // of replays
	limits map[string]*rate.Limiter

	mu   sync.Mutex
	buys map[string]*mediaBuy
}

type object = map[string]any

// params are the parameters of all tasks.
type params struct {
	Context  json.RawMessage `json:"context"` // comes back in each answer, as it is
	Start    string          `json:"start_time"`
	End      string          `json:"end_time"`
	Packages []pack          `json:"packages"`
	ID       string          `json:"media_buy_id"`
	IDs      []string        `json:"media_buy_ids"`
	Canceled bool            `json:"canceled"`
}

type pack struct {
	ID      string  `json:"package_id"`
	Product string  `json:"product_id"`
	Pricing string  `json:"pricing_option_id"`
	Budget  float64 `json:"budget"`
}

type mediaBuy struct {
	ID        string    `json:"media_buy_id"`
	Status    string    `json:"media_buy_status"`
	Confirmed time.Time `json:"confirmed_at"`
	Revision  int       `json:"revision"`
	Packages  []pack    `json:"packages"`

	agent string
}

// failure is an error in AdCP's words.
type failure struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Recovery   string `json:"recovery"`
	RetryAfter int    `json:"retry_after,omitempty"`

	status int // of HTTP
}

// A task answers for an agent.
type task func(s *seller, agent string, p *params) (answer object, err *failure)

var reads = map[string]task{"get_adcp_capabilities": capabilities, "get_products": products, "get_media_buys": (*seller).list}

var writes = map[string]task{"create_media_buy": (*seller).create, "update_media_buy": (*seller).update}

func newHandler(engine *core.Engine, burst int) http.Handler {
	secret := make([]byte, 32) // of this process, as the store is; otherwise all processes have the same one
	rand.Read(secret)
	policy, err := profile.AdCP(secret)
	readPolicy, err2 := profile.AdCPRead(secret)
	if err := cmp.Or(err, err2); err != nil {
		panic(err)
	}
	s := &seller{ttl: policy.Retention, limits: map[string]*rate.Limiter{}, buys: map[string]*mediaBuy{}}
	for _, agent := range agents {
		s.limits[agent] = rate.NewLimiter(60, burst)
	}
	// Authentication is outside the guard, and so is the look at the parameters: what is malformed does not reach the store (rule 1). What
	// limits new keys is inside, where replays do not get.
	guarded := map[string]http.Handler{}
	reading, writing := httpidem.New(engine.MustGuard(readPolicy)), httpidem.New(engine.MustGuard(policy))
	for name, do := range reads {
		guarded[name] = reading(s.limited(do))
	}
	for name, do := range writes {
		guarded[name] = writing(s.limited(do))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /adcp/{task}", func(w http.ResponseWriter, r *http.Request) {
		h := guarded[r.PathValue("task")]
		p, body := read(w, r)
		agent, known := agents[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		switch {
		case !known:
			fail(w, p, &failure{"AUTH_MISSING", "A bearer token is required.", "correctable", 0, http.StatusUnauthorized})
		case h == nil:
			fail(w, p, &failure{"UNSUPPORTED_FEATURE", "There is no such task.", "correctable", 0, http.StatusNotFound})
		case body == nil:
			fail(w, p,
				&failure{"INVALID_REQUEST", "The parameters are no JSON object of at most 1 MiB.", "correctable", 0, http.StatusBadRequest})
		case r.PathValue("task") == "create_media_buy" && (p.Start == "" || p.End == "" || len(p.Packages) == 0):
			fail(w, p,
				&failure{"INVALID_REQUEST", "start_time, end_time and packages are required.", "correctable", 0, http.StatusBadRequest})
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), agentKey{}, agent)))
		}
	})
	return mux
}

// read returns the parameters and the body. The second is nil if they are none.
func read(w http.ResponseWriter, r *http.Request) (*params, []byte) {
	var p params
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &p) != nil || body[0] == 'n' { // null
		return &p, nil
	}
	return &p, body
}

// limited does what a task does, for an agent that has not sent too many new keys.
func (s *seller) limited(do task) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		agent, _ := r.Context().Value(agentKey{}).(string)
		p, _ := read(w, r)
		if !s.limits[agent].Allow() {
			fail(w, p, &failure{"RATE_LIMITED", "Too many new requests.", "transient", 1, http.StatusTooManyRequests})
		} else if answer, err := do(s, agent, p); err != nil {
			fail(w, p, err)
		} else {
			answer["status"] = "completed"
			respond(w, http.StatusOK, p, answer)
		}
	}
}

func capabilities(s *seller, _ string, _ *params) (object, *failure) {
	return object{
		"adcp": object{"major_versions": []int{3},
			"idempotency": object{"supported": true, "replay_ttl_seconds": int(s.ttl.Seconds())}},
		"supported_protocols": []string{"media_buy"},
	}, nil
}

func products(*seller, string, *params) (object, *failure) {
	return object{"cache_scope": "public", "products": []object{{
		"product_id": "test-product", "name": "Display", "description": "A banner of 300 by 250.",
		"delivery_type": "non_guaranteed", "channels": []string{"display"},
		"publisher_properties": []object{{"publisher_domain": "seller.example", "selection_type": "all"}},
		"format_options": []object{{"format_option_id": "display_300x250", "format_kind": "image",
			"params": object{"width": 300, "height": 250}}},
		"pricing_options": []object{{"pricing_option_id": "test-pricing", "pricing_model": "cpm", "currency": "USD", "floor_price": 1}},
		"reporting_capabilities": object{"available_reporting_frequencies": []string{"daily"},
			"expected_delay_minutes": 60, "timezone": "UTC",
			"supports_webhooks": false, "available_metrics": []string{"impressions"}, "date_range_support": "date_range"},
	}}}, nil
}

func (s *seller) create(agent string, p *params) (object, *failure) {
	buy := &mediaBuy{ID: "mb_" + rand.Text(), Status: "pending_creatives", Confirmed: time.Now().UTC(),
		Revision: 1, Packages: p.Packages, agent: agent}
	for i := range buy.Packages {
		if p := &buy.Packages[i]; p.Product != "test-product" || p.Pricing != "test-pricing" || p.Budget <= 0 {
			return nil, &failure{"PRODUCT_NOT_FOUND", "A package has no known product and pricing option, or no budget.",
				"correctable", 0, http.StatusNotFound}
		}
		buy.Packages[i].ID = fmt.Sprintf("pkg_%d", i+1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buys[buy.ID] = buy // the last thing that can fail is before it
	return buy.answer(), nil
}

func (s *seller) update(agent string, p *params) (object, *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buy := s.buys[p.ID]
	switch {
	case buy == nil || buy.agent != agent:
		return nil, &failure{"MEDIA_BUY_NOT_FOUND", "There is no such media buy.", "correctable", 0, http.StatusNotFound}
	case buy.Status == "canceled":
		return nil, &failure{"NOT_CANCELLABLE", "The media buy is canceled.", "correctable", 0, http.StatusConflict}
	case p.Canceled:
		buy.Status = "canceled"
	}
	buy.Revision++
	return buy.answer(), nil
}

func (s *seller) list(agent string, p *params) (object, *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []object{}
	for _, id := range p.IDs {
		if buy := s.buys[id]; buy != nil && buy.agent == agent {
			listed := buy.answer()
			budget := 0.0
			for _, p := range buy.Packages {
				budget += p.Budget
			}
			listed["status"], listed["currency"], listed["total_budget"] = buy.Status, "USD", budget
			found = append(found, listed)
		}
	}
	return object{"media_buys": found}, nil
}

// answer is the buy as it is now.
func (b *mediaBuy) answer() object {
	return object{"media_buy_id": b.ID, "media_buy_status": b.Status, "confirmed_at": b.Confirmed,
		"revision": b.Revision, "packages": b.Packages}
}

// fail answers with an error in both of its places.
func fail(w http.ResponseWriter, p *params, f *failure) {
	respond(w, f.status, p, object{"status": "failed", "errors": []*failure{f}, "adcp_error": f})
}

func respond(w http.ResponseWriter, status int, p *params, answer object) {
	if p.Context != nil {
		answer["context"] = p.Context
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// serve listens, says so, and serves.
func serve(addr string, h http.Handler, engine *core.Engine) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf(`listening on http://%[1]s
# a media buy
curl -i %[1]s/adcp/create_media_buy -H 'Authorization: Bearer demo-token-of-a-buyer-agent' --json '{"idempotency_key":"a8ef6b00-b947-4eab-aa27-2e43bc93177b","context":{"trace":1},"start_time":"asap","end_time":"2099-07-31T23:59:59Z","packages":[{"product_id":"test-product","pricing_option_id":"test-pricing","budget":5000}]}'
# the same again, with another context: the first answer, with "replayed":true and that context. With another budget: IDEMPOTENCY_CONFLICT
`, l.Addr())
	return shop.ServeOn(l, shop.HTTPServer(h), engine.Drain)
}
