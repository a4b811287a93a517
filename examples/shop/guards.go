package shop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/sign"
)

// Guards protect the shop's routes, one each.
type Guards struct {
	Orders, Pay, Payments, Transfers, Likes, Coupons, Avatars, Webhooks *core.Guard

	// Signed stands in front of Webhooks: what it has not verified does not get that far.
	Signed *sign.Verifier
}

// NewGuards builds the engine on a store and compiles the policies. It reports all faults at
// once.
func NewGuards(o Options, store core.Store) (*Guards, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	engine, err := core.New(core.Config{
		Store: store,

		// A guest has no X-User and is told apart by the connection's address. Behind a
		// proxy or a NAT that would be wrong: all its guests would be one, and one guest
		// would be shown another's order.
		User: core.FirstUser(core.UserFromHeader("X-User"), core.UserFromRemoteAddr()),

		Observe: core.LogEvents(logger),
	})
	if err != nil {
		return nil, err
	}

	var faults []error
	guard := func(name string, p core.Policy) *core.Guard {
		p.Name, p.Lease = name, o.Lease
		if p.Retention == 0 {
			p.Retention = o.Retain
		}
		g, err := engine.Guard(p)
		if err != nil {
			faults = append(faults, err)
		}
		return g
	}

	// The client chooses a key for each payment and each transfer.
	clientKey := core.Policy{Key: core.Header(core.Required)}
	patientKey := clientKey
	patientKey.Duplicate = core.Wait(5 * time.Second)

	g := &Guards{
		// The same parameters are the same order: no client needs to know of it.
		Orders: guard("orders", core.Policy{}),
		// Path parameters count: two orders are paid in two operations.
		Pay:       guard("pay", core.Policy{}),
		Payments:  guard("payments", clientKey),
		Transfers: guard("transfers", patientKey),
		// A second like within two seconds is a slip of the finger; after a refused one it
		// may be tried again at once.
		Likes: guard("likes", core.Policy{
			Duplicate: core.Reject, Message: "You like this already.", Retention: 2 * time.Second,
			Failed: func(r *core.Response) bool { return r.Status >= 400 },
		}),
		// Anybody may take as many coupons as there are, but the same one only once at a time.
		Coupons: guard("coupons", core.Exclusive()),
		// The content of the picture counts, the boundary of the form does not.
		Avatars: guard("avatars", core.Policy{}),
		// The sender may choose a key for each event. Who that is, its signature tells; X-User
		// does not count.
		Webhooks: guard("webhooks", core.Policy{Key: core.Header(core.Optional), User: core.UserFromCaller()}),
	}
	g.Signed, err = newVerifier(o, engine, logger)
	return g, errors.Join(append(faults, err)...)
}

// newVerifier builds what verifies signatures, with the one key that the command line gives.
func newVerifier(o Options, engine *core.Engine, logger *slog.Logger) (*sign.Verifier, error) {
	key, err := sign.NewHMACKey(KeyID, []byte(o.Secret))
	if err != nil {
		return nil, fmt.Errorf("-secret: %w", err) // which does not show it
	}
	return sign.NewVerifier(sign.Config{
		Keys: sign.MustRing(key),

		// Beside the guards' records, so that a request which one process has taken is a
		// replay to all others behind the same store.
		Nonces: engine.Nonces(),

		// The sender is told that the signature is invalid; why, is for the log only.
		Observe: func(ctx context.Context, e sign.Event) {
			if e.Err != nil {
				logger.WarnContext(ctx, "a signature was refused", "key", e.KeyID, "err", e.Err)
			}
		},
	})
}
