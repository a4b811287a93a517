// Command ucp is a business of the Universal Commerce Protocol (version 2026-01-11): it sells flowers by checkout sessions over REST.
// Every request that changes something is guarded by [profile.UCP], so that an agent may send it again until it has an answer.
//
//	go run ./examples/ucp
//
// Platforms are told apart by the profile that UCP-Agent names. Nothing proves it here: a real business verifies their signatures with
// rfc9421.UCP, and takes the verified caller as the user.
package main

import (
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/examples/shop"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/profile"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	engine := core.MustNew(core.Config{User: core.UserFromHeader("Ucp-Agent")})
	if err := serve(*addr, newHandler(engine), engine); err != nil {
		log.Fatal(err)
	}
}

func newHandler(engine *core.Engine) http.Handler {
	guard := httpidem.New(engine.MustGuard(profile.UCP()))
	b := &business{sessions: map[string]*checkout{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/ucp", discover)
	mux.HandleFunc("GET /checkout-sessions/{id}", b.get)
	mux.Handle("POST /checkout-sessions", guard(http.HandlerFunc(b.create)))
	mux.Handle("PUT /checkout-sessions/{id}", guard(b.change(update)))
	mux.Handle("POST /checkout-sessions/{id}/complete", guard(b.change(complete)))
	mux.Handle("POST /checkout-sessions/{id}/cancel", guard(b.change(cancel)))
	return mux
}

const version = "2026-01-11"

type object = map[string]any

var capabilities = []object{{"name": "dev.ucp.shopping.checkout", "version": version},
	{"name": "dev.ucp.shopping.fulfillment", "version": version, "extends": "dev.ucp.shopping.checkout"}}

// discover is the business profile, which says where the REST binding is.
func discover(w http.ResponseWriter, r *http.Request) {
	respond(w, http.StatusOK, object{
		"ucp": object{"version": version, "capabilities": capabilities, "services": object{"dev.ucp.shopping": object{
			"version": version, "spec": "https://ucp.dev/specification/reference",
			"rest": object{"schema": "https://ucp.dev/services/shopping/rest.openapi.json", "endpoint": "http://" + r.Host + "/"},
		}}},
		"payment": object{"handlers": []object{}},
	})
}

// business is the shop. It forgets its sessions when it ends, as its engine forgets the answers.
type business struct {
	mu       sync.Mutex
	sessions map[string]*checkout
}

// catalog has prices in cents.
var catalog = map[string]struct {
	title string
	price int
}{"bouquet_roses": {"Bouquet of Red Roses", 3500}, "pot_ceramic": {"Ceramic Pot", 1500}, "orchid_white": {"White Orchid", 4500}}

type checkout struct {
	UCP         object       `json:"ucp"`
	ID          string       `json:"id"`
	Status      string       `json:"status"`
	Currency    string       `json:"currency"`
	Items       []lineItem   `json:"line_items"`
	Totals      []total      `json:"totals"`
	Links       []object     `json:"links"`
	Payment     payment      `json:"payment"`
	Fulfillment *fulfillment `json:"fulfillment,omitempty"`
	Order       object       `json:"order,omitempty"`
}

type lineItem struct {
	ID       string  `json:"id"`
	Item     item    `json:"item"`
	Quantity int     `json:"quantity"`
	Totals   []total `json:"totals"`
}

type item struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Price int    `json:"price"`
}

type total struct {
	Type   string `json:"type"`
	Amount int    `json:"amount"`
}

type payment struct {
	Handlers    []json.RawMessage `json:"handlers"`
	Selected    string            `json:"selected_instrument_id,omitempty"`
	Instruments []json.RawMessage `json:"instruments"`
}

type fulfillment struct {
	Methods []method `json:"methods"`
}

type method struct {
	ID           string            `json:"id"`
	Type         string            `json:"type"`
	Items        []string          `json:"line_item_ids"`
	Destinations []json.RawMessage `json:"destinations,omitempty"`
	Destination  string            `json:"selected_destination_id,omitempty"`
	Groups       []group           `json:"groups"`
}

type group struct {
	ID      string   `json:"id"`
	Items   []string `json:"line_item_ids"`
	Options []option `json:"options"`
	Option  string   `json:"selected_option_id,omitempty"`
}

type option struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Totals []total `json:"totals"`
}

func (b *business) create(w http.ResponseWriter, r *http.Request) {
	c := checkout{UCP: object{"version": version, "capabilities": capabilities}, ID: rand.Text(),
		Status: "ready_for_complete", Links: []object{}}
	if !update(&c, w, r) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[c.ID] = &c
	respond(w, http.StatusCreated, c)
}

func (b *business) get(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.sessions[r.PathValue("id")]; c != nil {
		respond(w, http.StatusOK, c)
	} else {
		fail(w, http.StatusNotFound, "not_found", "There is no such checkout session.")
	}
}

// change makes a handler of what changes an open session. It answers itself where it returns false.
func (b *business) change(do func(*checkout, http.ResponseWriter, *http.Request) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		c := b.sessions[r.PathValue("id")]
		switch {
		case c == nil:
			fail(w, http.StatusNotFound, "not_found", "There is no such checkout session.")
		case c.Status == "completed" || c.Status == "canceled":
			fail(w, http.StatusConflict, "not_modifiable", "The checkout session is "+c.Status+".")
		default:
			changed := *c
			if do(&changed, w, r) {
				*c = changed
				respond(w, http.StatusOK, c)
			}
		}
	}
}

// update takes over the request, and calculates.
func update(c *checkout, w http.ResponseWriter, r *http.Request) bool {
	var in checkout
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Currency == "" || len(in.Items) == 0 {
		fail(w, http.StatusBadRequest, "invalid_request", "The request is no checkout with a currency and line items.")
		return false
	}
	c.Currency, c.Items, c.Payment, c.Fulfillment = in.Currency, in.Items, in.Payment, in.Fulfillment
	c.Payment.Handlers, c.Payment.Instruments = list(c.Payment.Handlers), list(c.Payment.Instruments)
	var ids []string
	sum := 0
	for i := range c.Items {
		li := &c.Items[i]
		product, found := catalog[li.Item.ID]
		if !found || li.Quantity < 1 {
			fail(w, http.StatusBadRequest, "item_unavailable", "There is no such item, or none of it is asked for.")
			return false
		}
		li.ID = fmt.Sprintf("li_%d", i+1)
		li.Item.Title, li.Item.Price = product.title, product.price
		li.Totals = totals(product.price * li.Quantity)
		ids, sum = append(ids, li.ID), sum+product.price*li.Quantity
	}
	c.Totals = totals(sum)
	if c.Fulfillment != nil {
		for i := range c.Fulfillment.Methods {
			m := &c.Fulfillment.Methods[i]
			own := group{ID: "group_1", Items: ids, Options: []option{{"std-ship", "Standard Shipping", totals(0)}}}
			if len(m.Groups) > 0 {
				own.Option = m.Groups[0].Option
			}
			m.ID, m.Items, m.Groups = fmt.Sprintf("method_%d", i+1), ids, []group{own}
		}
	}
	return true
}

func complete(c *checkout, w http.ResponseWriter, r *http.Request) bool {
	var in struct {
		Payment *struct {
			Credential struct{ Token string }
		} `json:"payment_data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Payment == nil {
		fail(w, http.StatusBadRequest, "invalid_request", "The request has no payment_data.")
		return false
	}
	if in.Payment.Credential.Token == "fail_token" {
		fail(w, http.StatusPaymentRequired, "payment_failed", "The payment was declined.")
		return false
	}
	id := rand.Text() // the charge, and the order, happen here
	c.Status, c.Order = "completed", object{"id": id, "permalink_url": "http://" + r.Host + "/orders/" + id}
	return true
}

func cancel(c *checkout, _ http.ResponseWriter, _ *http.Request) bool {
	c.Status = "canceled"
	return true
}

func totals(amount int) []total { return []total{{"subtotal", amount}, {"total", amount}} }

// list is never null in JSON.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// fail answers with a protocol error.
func fail(w http.ResponseWriter, status int, code, content string) {
	respond(w, status, object{"code": code, "content": content})
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// serve listens, says so, and serves.
func serve(addr string, h http.Handler, engine *core.Engine) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf(`listening on http://%[1]s
# a checkout session
curl -i %[1]s/checkout-sessions -H 'UCP-Agent: profile="https://agent.example/profile"' -H 'Idempotency-Key: a8ef6b00-b947-4eab-aa27-2e43bc93177b' --json '{"currency":"USD","line_items":[{"item":{"id":"bouquet_roses"},"quantity":1}]}'
# the same again: the first answer, with Idempotent-Replayed: true. With another quantity: 409
`, l.Addr())
	return shop.ServeOn(l, shop.HTTPServer(h), engine.Drain)
}
