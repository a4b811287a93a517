package shop

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/idem-go/idem/core"
)

// Guards protect the shop's routes, one each.
type Guards struct {
	Orders, Pay, Payments, Transfers, Likes, Coupons, Avatars *core.Guard
}

// NewGuards builds the engine on a store and compiles the policies. It reports all faults at
// once.
func NewGuards(o Options, store core.Store) (*Guards, error) {
	engine, err := core.New(core.Config{
		Store: store,

		// A guest has no X-User and is told apart by the connection's address. Behind a
		// proxy or a NAT that would be wrong: all its guests would be one, and one guest
		// would be shown another's order.
		User: core.FirstUser(core.UserFromHeader("X-User"), core.UserFromRemoteAddr()),

		Observe: core.LogEvents(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
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
	}
	return g, errors.Join(faults...)
}
