package shop

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/promidem"
	"github.com/idem-go/idem/sign"
)

// Guards protect the shop's routes, one each.
type Guards struct {
	Orders, Pay, Payments, Transfers, Charges, Likes, Coupons, Avatars, Webhooks, Registrations, Checkout *core.Guard

	// Admin is the operator's page; nil without -admin.
	Admin http.Handler

	// Metrics is what Prometheus asks for.
	Metrics http.Handler

	// Signed wraps Webhooks: what it has not verified does not get that far.
	Signed *sign.Verifier

	engine  *core.Engine
	submits *submits
}

// policyCheckout is a policy's name, which is what its tokens are good for, and how its events are told.
const policyCheckout = "checkout"

// Drain lets what runs end, and begins nothing new; see [core.Engine.Drain].
func (g *Guards) Drain(ctx context.Context) error { return g.engine.Drain(ctx) }

// NewGuards builds the engine on a store and compiles the policies. It reports all faults at
// once.
func NewGuards(o Options, store *Store) (*Guards, error) {
	g := &Guards{submits: &submits{arrived: make(map[core.Key]int)}}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	registry := prometheus.NewRegistry()
	g.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	metrics, err := promidem.New(promidem.Config{Registerer: registry, Records: store.Records})
	if err != nil {
		return nil, err
	}
	g.engine, err = core.New(core.Config{
		Service: service,
		Store:   store.Store,

		// A person who is not logged in has no X-User, but a session; a program has neither, and
		// is told apart by the connection's address. Behind a proxy or a NAT that would be
		// wrong: all its guests would be one, and one guest would be shown another's order.
		User: core.FirstUser(core.UserFromHeader("X-User"), userFromSession(), core.UserFromRemoteAddr()),

		// People get pages, programs what they can read.
		Refuse: g.refuse,

		Observe: core.Observers(core.LogEvents(logger, slog.LevelDebug), g.submits.observe, metrics.Observe),

		ObserveStore: metrics.ObserveStore,
	})
	if err != nil {
		return nil, err
	}
	// A program could ask for tokens without end; a form brings its own.
	rationed, err := newTokens(o, store.Limit)
	if err != nil {
		return nil, err
	}
	tokens, err := newTokens(o, nil)
	if err != nil {
		return nil, err
	}

	var faults []error
	guard := func(name string, p core.Policy) *core.Guard {
		p.Name, p.Lease = name, o.Lease
		if p.Retention == 0 && p.OnSuccess != core.Release { // which keeps nothing
			p.Retention = o.Retain
		}
		compiled, err := g.engine.Guard(p)
		if err != nil {
			faults = append(faults, err)
		}
		return compiled
	}

	// The client chooses a key for each payment and each transfer.
	clientKey := core.Policy{Key: core.Header(core.Required)}
	patientKey := clientKey
	patientKey.Duplicate = core.Wait(5 * time.Second)

	// What fails at the bank may have been done all the same. Nobody runs that again.
	cautiousKey := clientKey
	cautiousKey.OnFailure, cautiousKey.Abandoned = core.Abandon, core.Uncertain(nil)

	// The same parameters are the same order: no client needs to know of it.
	g.Orders = guard("orders", core.Policy{})
	// Path parameters count: two orders are paid in two operations.
	g.Pay = guard("pay", core.Policy{})
	g.Payments = guard("payments", clientKey)
	g.Transfers = guard("transfers", patientKey)
	g.Charges = guard("charges", cautiousKey)
	// A second like within two seconds is a slip of the finger; after a refused one it
	// may be tried again at once.
	g.Likes = guard("likes", core.Policy{
		Duplicate: core.Reject("You like this already."), Record: core.Record{Retention: 2 * time.Second},
	})
	// Anybody may take as many coupons as there are, but the same one only once at a time.
	g.Coupons = guard("coupons", core.Exclusive())
	// The content of the picture counts, the boundary of the form does not.
	g.Avatars = guard("avatars", core.Policy{})
	// The sender may choose a key for each event. Who that is, its signature tells; X-User
	// does not count.
	g.Webhooks = guard("webhooks", core.Policy{Key: core.Header(core.Optional), User: core.UserFromCaller()})

	// A person does not make keys: the page has one hidden in its form, or the program asks for one.
	oneShot := core.OneShotToken(rationed)
	oneShot.Retention = 24 * time.Hour // it has to outlast the token, whatever -retain says
	g.Registrations = guard("registrations", oneShot)
	oneShot.Key = core.Token(tokens)
	g.Checkout = guard(policyCheckout, oneShot)

	g.Signed, err = newVerifier(o, g.engine, logger)
	faults = append(faults, err)
	if o.Admin != "" {
		g.Admin, err = newAdmin(o.Admin, g.engine)
		faults = append(faults, err)
	}
	return g, errors.Join(faults...)
}

// newTokens builds what issues tokens and checks them.
func newTokens(o Options, limit func(context.Context, core.User) (time.Duration, error)) (*core.Tokens, error) {
	// Not the secret itself: one secret, one purpose.
	secret := hmac.New(sha256.New, []byte(o.Secret))
	secret.Write([]byte("the shop's tokens"))
	return core.NewTokens(core.TokenConfig{Secrets: [][]byte{secret.Sum(nil)}, Lifetime: o.TokenLifetime, Limit: limit})
}

// newVerifier builds what verifies signatures, with the one key that the command line gives.
func newVerifier(o Options, engine *core.Engine, logger *slog.Logger) (*sign.Verifier, error) {
	key, err := sign.NewHMACKey(sign.KeyConfig{ID: KeyID}, []byte(o.Secret))
	if err != nil {
		return nil, fmt.Errorf("-secret: %w", err) // which does not show it
	}
	return sign.NewVerifier(sign.Config{
		Keys: sign.Must(sign.NewRing(key)),

		// Beside the guards' records, so that a request which one process has taken is a
		// replay to all others behind the same store.
		Nonces: engine.Nonces(),

		// The sender is told that the signature is invalid; why, is for the log only.
		Observe: sign.LogEvents(logger, slog.LevelWarn),
	})
}
