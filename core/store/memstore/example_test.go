package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store/memstore"
)

// A store is driven by an engine; this is what the engine does with it.
func Example() {
	store, err := memstore.New(memstore.Options{MaxEntries: 100_000, MaxBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	claim := core.Claim{Owner: core.NewOwner(), Lease: 30 * time.Second, Retention: time.Hour}

	first, _ := store.Acquire(ctx, "order 17", claim)
	fmt.Println(first.State, first.Attempt)

	duplicate, _ := store.Acquire(ctx, "order 17", core.Claim{Owner: core.NewOwner(), Lease: 30 * time.Second})
	fmt.Println(duplicate.State)

	_ = store.Complete(ctx, "order 17", claim.Owner, []byte("201 Created"), 24*time.Hour)

	retry, _ := store.Acquire(ctx, "order 17", core.Claim{Owner: core.NewOwner(), Lease: 30 * time.Second})
	fmt.Printf("%v: %s\n", retry.State, retry.Result)
	fmt.Println(store.Len(), "record")
	// Output:
	// acquired 1
	// running
	// done: 201 Created
	// 1 record
}
