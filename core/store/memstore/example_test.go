package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
)

// A store is driven by an engine; this is what the engine does with it.
func Example() {
	records, err := memstore.New(memstore.Config{MaxEntries: 100_000, MaxBytes: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	claim := store.Claim{Owner: store.NewOwner(), Lease: 30 * time.Second, Retention: time.Hour}

	first, _ := records.Acquire(ctx, "order 17", claim)
	fmt.Println(first.State, first.Attempt)

	duplicate, _ := records.Acquire(ctx, "order 17", store.Claim{Owner: store.NewOwner(), Lease: 30 * time.Second})
	fmt.Println(duplicate.State)

	_ = records.Complete(ctx, "order 17", claim.Owner, []byte("201 Created"), 24*time.Hour)

	retry, _ := records.Acquire(ctx, "order 17", store.Claim{Owner: store.NewOwner(), Lease: 30 * time.Second})
	fmt.Printf("%v: %s\n", retry.State, retry.Result)
	fmt.Println(records.Len(), "record")
	// Output:
	// acquired 1
	// running
	// done: 201 Created
	// 1 record
}
