// Package shop is what the example programs serve: an order book, payments and a few
// things more, and the guards that protect them. It knows no web framework.
//
// Handlers are lenient on purpose. Whatever the body is, an order comes of it, so that a
// client can be tried out without studying the shop first. The checkout is for people: it looks
// at what they have typed, and answers with pages.
package shop

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// The routes, as they are counted in [Shop.Stats] and spelt in every framework.
const (
	RouteOrders    = "POST /orders"
	RoutePay       = "POST /orders/:id/pay"
	RoutePayments  = "POST /payments"
	RouteTransfers = "POST /transfers"
	RouteCharges   = "POST /charges"
	RouteLikes     = "POST /likes"
	RouteCoupons   = "POST /coupons"
	RouteAvatars   = "POST /avatars"
	RouteWebhooks  = "POST /webhooks"

	RouteRegistrations = "POST /registrations"
	RouteCheckout      = "POST " + pathCheckout

	pathCheckout = "/checkout"
)

var routes = []string{RouteOrders, RoutePay, RoutePayments, RouteTransfers, RouteCharges, RouteLikes,
	RouteCoupons, RouteAvatars, RouteWebhooks,
	RouteRegistrations, RouteCheckout}

// Shop holds everything that the shop knows. It is safe for concurrent use, and forgets
// everything when the process ends.
type Shop struct {
	mu         sync.Mutex
	executions map[string]int
	orders     map[string]*order
	revenue    int            // in cents, of payments
	charged    map[string]int // in cents, by user
	balances   map[string]int // in cents, by account
	likes      map[string]int // by post
	coupons    int            // how many are left
	avatars    map[string]avatar
	webhooks   map[string]string // who has signed it, by id

	registrations map[string]string // who is registered, by id
	receipts      map[string]receipt
	submits       *submits
}

type order struct {
	user, sku string
	qty       int
	paid      bool
}

type avatar struct {
	digest string
	size   int
}

// New opens a shop with 1000 coupons to give away, all of it guarded.
func New(g *Guards) *Shop {
	s := &Shop{
		executions: make(map[string]int, len(routes)),
		orders:     make(map[string]*order),
		charged:    make(map[string]int),
		balances:   make(map[string]int),
		likes:      make(map[string]int),
		coupons:    1000,
		avatars:    make(map[string]avatar),
		webhooks:   make(map[string]string),

		registrations: make(map[string]string),
		receipts:      make(map[string]receipt),
		submits:       g.submits,
	}
	for _, r := range routes {
		s.executions[r] = 0
	}
	return s
}

// Request is what a handler needs of an HTTP request. The shop keeps the strings, so they
// must not change once the handler has returned; it keeps nothing of Body.
type Request struct {
	// User is what [User] says.
	User string
	// ID is the route's path parameter, if it has one.
	ID string
	// ContentType is the header field of that name.
	ContentType string
	// Body is the whole body.
	Body []byte
	// Header looks up a header field. The demo fields are read through it.
	Header func(name string) string
}

// Unescape decodes a path parameter of a framework that hands it on as it was sent. What is no
// valid escape stays as it is.
func Unescape(param string) string {
	if decoded, err := url.PathUnescape(param); err == nil {
		return decoded
	}
	return param
}

// Reply is what a handler answers.
type Reply struct {
	Status      int
	Location    string // empty: none
	ContentType string
	Header      []core.Field // further fields; of two with one name, the second counts
	Body        []byte
}

// Handler is one operation of the shop. Its error is a *[Problem], to be turned into
// the framework's own error value; without a reply and an error it has given up (X-Demo-Give-Up),
// and nothing is to be written. ctx is the request's context.
type Handler func(ctx context.Context, r *Request) (*Reply, error)

// Problem is an error with the HTTP status that belongs to it.
type Problem struct {
	Status  int
	Message string
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// ErrNotFound answers what is sent to an address at which there is nothing.
var ErrNotFound = &Problem{http.StatusNotFound, "There is nothing at this address."}

// ErrCrossOrigin answers what net/http's CrossOriginProtection has kept out.
var ErrCrossOrigin = &Problem{http.StatusForbidden, "A page that is not the shop's has sent this. Nothing was done."}

// CreateOrder writes an order, {"sku": "tea", "qty": 1}, into the order book.
func (s *Shop) CreateOrder(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteOrders, r, func() (*Reply, error) {
		in := struct {
			SKU string `json:"sku"`
			Qty int    `json:"qty"`
		}{SKU: "tea", Qty: 1}
		decode(r, &in)
		id := newID("ord")
		s.orders[id] = &order{user: r.User, sku: in.SKU, qty: in.Qty}
		return created("/orders/"+id, object{"order_id": id, "sku": in.SKU, "qty": in.Qty})
	})
}

// PayOrder pays the order that the path names. An order that is not in the book may come
// from an earlier process, and is paid all the same.
func (s *Shop) PayOrder(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RoutePay, r, func() (*Reply, error) {
		if o := s.orders[r.ID]; o != nil {
			o.paid = true
		}
		return ok(object{"payment_id": newID("pay"), "order_id": r.ID})
	})
}

// CreatePayment takes a payment, {"amount": 500}.
func (s *Shop) CreatePayment(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RoutePayments, r, func() (*Reply, error) {
		in := struct {
			Amount int `json:"amount"`
		}{Amount: 100}
		decode(r, &in)
		s.revenue += in.Amount
		return created("", object{"payment_id": newID("pay"), "amount": in.Amount})
	})
}

// CreateTransfer moves money from the user's account to another, {"to": "bob", "amount": 5}.
func (s *Shop) CreateTransfer(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteTransfers, r, func() (*Reply, error) {
		in := struct {
			To     string `json:"to"`
			Amount int    `json:"amount"`
		}{To: "bob", Amount: 100}
		decode(r, &in)
		s.balances[r.User] -= in.Amount
		s.balances[in.To] += in.Amount
		return created("", object{"transfer_id": newID("trf"), "to": in.To, "amount": in.Amount})
	})
}

// Charge charges the user's card, {"amount": 500}, at a bank that may fail to answer: whether it
// has done so is then not known.
func (s *Shop) Charge(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteCharges, r, func() (*Reply, error) {
		in := struct {
			Amount int `json:"amount"`
		}{Amount: 100}
		decode(r, &in)
		s.charged[r.User] += in.Amount
		return created("", object{"charge_id": newID("chg"), "amount": in.Amount})
	})
}

// Like likes a post, {"post": "42"}.
func (s *Shop) Like(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteLikes, r, func() (*Reply, error) {
		in := struct {
			Post string `json:"post"`
		}{Post: "1"}
		decode(r, &in)
		s.likes[in.Post]++
		return ok(object{"like_id": newID("like"), "post": in.Post, "likes": s.likes[in.Post]})
	})
}

// TakeCoupon hands out a coupon while there are any.
func (s *Shop) TakeCoupon(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteCoupons, r, func() (*Reply, error) {
		if s.coupons > 0 {
			s.coupons--
		}
		return ok(object{"coupon_id": newID("cpn"), "left": s.coupons})
	})
}

// SetAvatar stores a picture: the first file of a multipart form, or else the body.
func (s *Shop) SetAvatar(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteAvatars, r, func() (*Reply, error) {
		p := picture(r)
		sum := sha256.Sum256(p)
		a := avatar{digest: hex.EncodeToString(sum[:]), size: len(p)}
		s.avatars[r.User] = a
		return created("", object{"avatar_id": newID("ava"), "sha256": a.digest, "bytes": a.size})
	})
}

// ReceiveWebhook takes in an event, to be worked on later, and says who has signed it.
func (s *Shop) ReceiveWebhook(ctx context.Context, r *Request) (*Reply, error) {
	return s.execute(ctx, RouteWebhooks, r, func() (*Reply, error) {
		signed, _ := sign.From(ctx)
		id := newID("whk")
		s.webhooks[id] = signed.KeyID
		return reply(http.StatusAccepted, "", object{"webhook_id": id, "key_id": signed.KeyID})
	})
}

// Stats answers {"executions": {"POST /orders": 3, ...}}: how often the handler of each
// route has been started. Replays and refusals do not count.
func (s *Shop) Stats(context.Context, *Request) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok(object{"executions": s.executions})
}

// execute runs do, the work of a route, under the shop's lock, and obeys the demo header
// fields around it.
func (s *Shop) execute(ctx context.Context, route string, r *Request, do func() (*Reply, error)) (*Reply, error) {
	s.mu.Lock()
	s.executions[route]++
	s.mu.Unlock()
	d, err := parseDemo(r.Header)
	if err != nil {
		return nil, err
	}
	switch err := d.before(ctx); {
	case errors.Is(err, errGaveUp):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.mu.Lock()
	reply, err := do()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	d.after(reply)
	return reply, nil
}

type object map[string]any

func ok(body object) (*Reply, error) { return reply(http.StatusOK, "", body) }

func created(location string, body object) (*Reply, error) {
	return reply(http.StatusCreated, location, body)
}

func reply(status int, location string, body object) (*Reply, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &Reply{Status: status, Location: location, ContentType: "application/json", Body: b}, nil
}

// decode fills in what it understands of a JSON body. The rest stays as it is: see the
// package comment.
func decode(r *Request, into any) { _ = json.Unmarshal(r.Body, into) }

// newID is random, so that it is unique also among several processes behind one store.
func newID(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }
