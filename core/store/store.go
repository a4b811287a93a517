// Package store is the contract between an engine and what keeps its records: [Store], the values that
// pass between them, and the errors. Packages memstore, redisstore and sqlstore below it are stores;
// package core/storetest is the suite that a store of your own must pass.
package store

import (
	"context"
	"time"
)

// Store keeps the records of operations. It is dumb on purpose: it holds no
// policy, derives no keys and interprets no results; it only makes each of the
// five calls one atomic step.
//
// The rules every store keeps (package core/storetest checks them):
//
//   - Each call is atomic with respect to every other call on the same key, from
//     any process that shares the store.
//   - Expiry is decided by the store's own clock. Durations come from the caller,
//     points in time never do.
//   - Keys are exact: two keys are one only if their bytes are equal.
//   - Bytes are copied at the boundary. The store keeps nothing that it was handed
//     and hands out nothing that it keeps. (Strings are immutable and need no copy.)
//   - A store that is full returns [ErrFull]; it never drops a record that is
//     still standing. Records whose time has passed make room first.
//   - A claim that Claim.Validate refuses is an error and changes nothing.
//   - A context that has ended is its error, and changes nothing.
//   - Any other failure (unreachable, deadline) is returned as an error; the caller
//     then does not know whether the call took effect.
//
// All methods are safe for concurrent use and honour the context's end.
type Store interface {
	// Acquire claims key for claim.Owner, or reports what stands in the way.
	//
	//   - No record, or one whose retention has passed: a running record is
	//     created with attempt 1; Grant.State is [Acquired].
	//   - A running record whose lease stands: [Running], nothing is changed, also
	//     when it belongs to claim.Owner.
	//   - A running record whose lease has passed (abandoned): if claim.Takeover is
	//     set, claim.Fingerprint equals the record's, and claim.Attempt is zero or
	//     equals the record's, the record becomes claim.Owner's, with the claim's
	//     lease and retention and its attempt one higher: [Acquired]. Otherwise
	//     [Abandoned], nothing is changed.
	//   - A finished record whose retention stands: [Done], with the result.
	//
	// An abandoned record is remembered for the retention of the claim that made it,
	// counted from the end of its lease (or from the Abandon or Release that made it
	// one), and is then gone.
	Acquire(ctx context.Context, key string, claim Claim) (Grant, error)

	// Renew makes the lease end lease from now, which must be more than zero; the
	// retention after it stays the claim's. It returns [ErrLost] and changes
	// nothing unless the record is running and owner's; a lease that has passed
	// may be renewed as long as the record is remembered and nobody has taken it
	// over.
	Renew(ctx context.Context, key string, owner Owner, lease time.Duration) error

	// Complete turns owner's running record into a finished one that stands for
	// retention from now and keeps result. It returns [ErrLost] and changes nothing
	// unless the record is running and owner's (a lease that has passed is no
	// obstacle as long as the record is remembered and nobody has taken it over).
	//
	// With a retention of zero or less there is nothing to keep: Complete then does
	// what Release does.
	Complete(ctx context.Context, key string, owner Owner, result []byte, retention time.Duration) error

	// Release ends owner's running record. It returns [ErrLost] and changes nothing
	// unless the record is running and owner's (a lease that has passed is no
	// obstacle here either).
	//
	//   - A record of the first attempt is removed, so that the next Acquire starts
	//     afresh with attempt 1.
	//   - One that was taken over (its attempt is higher than 1) stays as an abandoned
	//     record, its lease passed at once and remembered for the retention of its
	//     claim, counted from now. So the next run still has a higher number than
	//     every earlier one (fencing tokens never go back), and that an earlier run
	//     never finished is not forgotten. The record is then nobody's: owner, and
	//     the zero Owner too, get [ErrLost] for everything.
	Release(ctx context.Context, key string, owner Owner) error

	// Abandon ends owner's running record as one whose run may have taken effect: what
	// a crash leaves, at once, without waiting for the lease. It returns [ErrLost] and
	// changes nothing unless the record is running and owner's (a lease that has passed
	// is no obstacle here either).
	//
	// Whatever its attempt, the record stays as an abandoned one, as Release leaves one
	// that was taken over: its lease has passed at once, and it is remembered for the
	// retention of its claim, counted from now (not at all if that is zero). The record
	// is then nobody's: owner, and the zero Owner too, get [ErrLost] for everything.
	Abandon(ctx context.Context, key string, owner Owner) error
}

// Watcher is implemented by stores that can tell a waiter that a record has
// changed, so that a waiting duplicate does not have to poll. Stores without it
// are polled with a growing, jittered pause.
type Watcher interface {
	// Watch returns a channel that is closed when the record under key may have
	// been completed, released, abandoned by [Store.Abandon] or taken over since Watch
	// was called, or at any time for no reason. The record's lease or retention passing closes nothing:
	// the waiter keeps its own timer for that. If no running record stands under
	// key, the channel is closed already.
	//
	// stop gives up the watch and frees what it holds; it may be called more than
	// once and after the channel is closed. It is never nil unless err is set.
	Watch(ctx context.Context, key string) (changed <-chan struct{}, stop func(), err error)
}

// Local is implemented by stores whose calls never block on anything outside the
// process. The engine then spares itself a deadline around each call.
type Local interface {
	// Local does nothing; it marks the store.
	Local()
}
