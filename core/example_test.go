package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
)

func ExampleDo() {
	engine := core.MustNew(core.Config{})
	receipts := engine.MustTask(core.TaskPolicy{Name: "send receipt"})

	type sent struct{ MessageID string }
	for range 2 { // the broker delivers twice
		r, err := core.Do(context.Background(), receipts, core.Call{Key: "message-1"}, func(context.Context) (sent, error) {
			fmt.Println("sending")
			return sent{"m-17"}, nil
		})
		fmt.Println(r.Value.MessageID, r.Replayed, err)
	}
	// Output:
	// sending
	// m-17 false <nil>
	// m-17 true <nil>
}

// A fingerprint tells a repetition from a reuse.
func ExampleDo_fingerprint() {
	engine := core.MustNew(core.Config{})
	payouts := engine.MustTask(core.TaskPolicy{Name: "payout"})
	pay := func(id, body string) error {
		_, err := core.Do(context.Background(), payouts, core.Call{Key: id, User: "alice", Fingerprint: body},
			func(context.Context) (string, error) { return "paid", nil })
		return err
	}
	fmt.Println(pay("p-1", "5 to bob"))
	fmt.Println(pay("p-1", "5 to bob"))
	fmt.Println(errors.Is(pay("p-1", "700 to eve"), codes.KeyReused))
	// Output:
	// <nil>
	// <nil>
	// true
}

// A policy says all its faults at once.
func ExampleConfigError() {
	engine := core.MustNew(core.Config{User: core.UserFromHeader("X-User")})
	_, err := engine.Guard(core.Policy{
		Duplicate: core.Reject(""),
		Record:    core.Record{Retention: -time.Second},
		Authorize: func(context.Context, *core.Request) error { return nil },
	})
	fmt.Println(err)
	// Output:
	// idem: Policy.Retention: is negative: -1s
	// idem: Policy.Authorize: has no effect: no response is stored under Reject, or if nothing is kept; leave it out
}
