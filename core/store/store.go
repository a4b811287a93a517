// Package store defines what an engine needs from a store: the interface [Store], the values that its
// methods take and return, and their errors. Packages memstore, redisstore and sqlstore implement it.
// To write a store of your own, implement [Store] and run package core/storetest against it.
package store

import (
	"context"
	"time"
)

// Store keeps the records of operations. It holds no policy, derives no keys and
// interprets no results: all decisions are the engine's. It makes each of its five
// calls one atomic step.
//
// Every store keeps these rules (package core/storetest checks them):
//
//   - Each call is atomic with respect to every other call on the same key, from
//     any process that shares the store.
//   - Expiry is decided by the store's own clock. Durations come from the caller,
//     points in time never do.
//   - Keys are exact: two keys are one only if their bytes are equal.
//   - Bytes are copied at the boundary. The store keeps nothing that it was handed
//     and hands out nothing that it keeps. (Strings are immutable and need no copy.)
//   - A store that is full returns [ErrFull]; it never drops a record that has
//     not expired. Expired records make room first.
//   - Acquire returns an error and changes nothing if [Claim.Validate] refuses the claim.
//   - A call whose context has already ended returns the context's error and changes
//     nothing.
//   - Any other failure (an unreachable server, a deadline) is returned as an error; the
//     call may or may not have taken effect.
//
// All methods are safe for concurrent use. Those with a context return when it ends.
type Store interface {
	// Acquire claims key for claim.Owner, or reports the record that is in the way.
	//
	//   - No record, or one whose retention has passed: a running record is
	//     created with attempt 1, and begins the operation claim.ID; Grant.State is [Acquired].
	//   - A running record whose lease has not passed: [Running], nothing is changed, even
	//     if it belongs to claim.Owner.
	//   - A free record: it becomes claim.Owner's, with the claim's fingerprint, lease
	//     and retention and its attempt one higher: [Acquired], with Grant.Free. Any claim
	//     gets it, whatever its Takeover, Fingerprint and Attempt. If the record has kept its
	//     operation ([Capabilities].Fail, [Inspector].Change), a claim with the same fingerprint goes on with
	//     that. Any other begins the operation claim.ID. If the record is uncertain as well, the claim
	//     is a takeover, without Grant.Free.
	//   - A running record whose lease has passed (abandoned): if claim.Takeover is
	//     set, claim.Fingerprint equals the record's, and claim.Attempt is zero or
	//     equals the record's, the record becomes claim.Owner's, with the claim's
	//     lease, retention and [About] and its attempt one higher: [Acquired]. The
	//     operation goes on. Otherwise [Abandoned], nothing is changed.
	//   - A finished record whose retention has not passed: [Done], with the result.
	//   - A finished record that has outlived its result ([Capabilities].Outlive): [Done], with Grant.Expired, nothing is changed.
	//
	// An operation that goes on keeps its ID, its steps ([Capabilities].Checkpoint), and the first Secret that one of its
	// claims has named: all three are in the Grant. One that begins has none of the steps. An operation without an ID does not go on:
	// the next claim begins one.
	//
	// An abandoned or free record is remembered for the retention of the claim that made
	// it, counted from the end of its lease (or from the call that made it one), and is
	// then gone.
	Acquire(ctx context.Context, key string, claim Claim) (Grant, error)

	// Renew moves the end of the lease to lease from now. A lease that is not more than
	// zero is an error other than [ErrLost], and changes nothing. The retention after the
	// lease stays the claim's. Renew returns [ErrLost] and changes nothing unless the
	// record is running and owner's. A lease that has passed can be renewed as long as the
	// record is remembered and nobody has taken it over.
	Renew(ctx context.Context, key string, owner Owner, lease time.Duration) error

	// Complete turns owner's running record into a finished one that is kept for
	// retention from now and keeps result. It returns [ErrLost] and changes nothing
	// unless the record is running and owner's. As for Renew, the lease may have
	// passed.
	//
	// The steps of the operation are gone in either case.
	//
	// With a retention of zero or less, Complete keeps nothing of the run, nor of those
	// before it, but their number. A record of the first attempt is removed. A later one
	// becomes free: nobody runs, and nothing is uncertain. It then has no owner, as after a
	// Release that keeps it.
	Complete(ctx context.Context, key string, owner Owner, result []byte, retention time.Duration) error

	// Release ends owner's running record. It returns [ErrLost] and changes nothing
	// unless the record is running and owner's. As for Renew, the lease may have
	// passed.
	//
	//   - A record of the first attempt is removed: the next Acquire starts again with
	//     attempt 1.
	//   - A record of a later attempt becomes what it was before the claim, free (with its operation, if
	//     the claim has gone on with that) or abandoned, but keeps the claim's attempt and fingerprint. Its lease ends now, and
	//     it is remembered for the retention of its claim, counted from now. So the next
	//     run has a higher number than every earlier one (fencing tokens never go back),
	//     and it stays known if an earlier run never finished. The record then has no
	//     owner: every later call of owner gets [ErrLost], and so does one with the zero
	//     Owner.
	Release(ctx context.Context, key string, owner Owner) error

	// Abandon ends owner's running record as one whose run may have taken effect. It
	// leaves what a crash leaves, without waiting for the lease to pass. It returns
	// [ErrLost] and changes nothing unless the record is running and owner's. As for
	// Renew, the lease may have passed.
	//
	// Whatever its attempt, the record becomes an abandoned one: its lease ends now,
	// and it is remembered for the retention of its claim, counted from now (with a
	// retention of zero it is removed). The record then has no owner, as after a
	// Release that keeps it.
	Abandon(ctx context.Context, key string, owner Owner) error

	// Capabilities returns what the store can do beyond these calls. It does not block, and always returns the same.
	Capabilities() Capabilities
}

// Capabilities are what a store can do beyond its five calls. The zero Capabilities are none. Later versions may have more fields:
// a store that does not set them lacks them.
//
// A type that embeds a store passes its capabilities on. To leave one out, it changes what the store has declared:
//
//	func (s *unwatched) Capabilities() store.Capabilities {
//		c := s.Store.Capabilities()
//		c.Watch = nil
//		return c
//	}
//
// A type that calls the store with other keys must change Watch, Checkpoint, Fail and Outlive, too. A type whose calls leave the
// process is not Local.
type Capabilities struct {
	// Watch tells a waiter that a record has changed. It returns a channel that is closed when the record under key has been
	// completed, released, abandoned by [Store.Abandon] or taken over. It may also be closed at any time without a reason, so the
	// waiter must look again. It is not closed when a lease or a retention passes; waiters keep a timer for that. If there is no
	// running record under key, the channel is already closed.
	//
	// stop ends the watch and frees its resources. It may be called more than once, and after the channel is closed. It is nil only
	// if err is not.
	//
	// The engine polls a store without a Watch, with growing, jittered pauses.
	Watch func(ctx context.Context, key string) (changed <-chan struct{}, stop func(), err error)

	// Recall returns what Acquire returns if there is a finished record under key, and the [Claim.Raw] of the claim under which it
	// ran. Otherwise ok is false. No record is changed. key belongs to the caller, who changes it after the call.
	//
	// It is for stores in the memory of the process. They can look at a finished record before its fingerprint is derived, which
	// takes longer than the rest of a replay. The engine then derives none for a retry with the same bytes.
	Recall func(key []byte) (grant Grant, raw uint64, ok bool)

	// Checkpoint stores steps, of up to 256 KiB, as the finished steps of the operation of the record under key, and replaces those
	// stored before. The next run of the operation gets them ([Grant].Steps). Checkpoint returns [ErrLost] and changes nothing
	// unless the record is running and owner's; as for Renew, the lease may have passed. [ErrFull]: there is no room, and nothing
	// was changed.
	//
	// The first 8 bytes of steps are the checkpoint's number, big-endian. It is higher than those of all earlier checkpoints of the
	// operation. If these bytes are not greater than the first 8 bytes of the steps in the record, Checkpoint changes nothing and
	// returns nil: the store may carry out a call that has failed for its caller after a newer one. (Steps in the record may have no
	// number, and be shorter. Any number is greater.)
	Checkpoint func(ctx context.Context, key string, owner Owner, steps []byte) error

	// Fail ends owner's running record for a run that has failed. It returns [ErrLost] as Release does. If goesOn is set, the record
	// keeps its operation for the next claim: whatever its attempt, it becomes free, and is remembered for the retention of its claim,
	// counted from now. If the claim was a takeover, the record is uncertain: so is the next claim. Else the operation has
	// ended: the record of a first attempt is removed, and a later one becomes free, with nothing but its attempt.
	//
	// (A store in which a run commits something of its own, as by sqlstore's RunTx, does not forget that: the record then becomes
	// what it does by Release.) A store has both Checkpoint and Fail, or neither.
	Fail func(ctx context.Context, key string, owner Owner, goesOn bool) error

	// Outlive is Complete with a result that the record outlives: result is kept for retention from now, and after that the key is
	// remembered without it for known. Both must be greater than zero. The store hands out nothing of the result once its retention
	// has passed. It may remove it later, when the key is claimed or the store is cleaned up, but not later than the record.
	Outlive func(ctx context.Context, key string, owner Owner, result []byte, retention, known time.Duration) error

	// RecallFor is the store whose Acquire Recall replaces. The engine recalls only if that is the engine's own store: a type that
	// embeds this one may do more in an Acquire of its own (count, encrypt, fail), and sees every call. If Recall may bypass its
	// Acquire, it sets RecallFor to itself.
	RecallFor Store

	// Inspect looks at the records and changes them for an operator.
	Inspect Inspector

	// ListsOldest says that a list of running or abandoned records has those begun first at its head, see [Inspector].List.
	ListsOldest bool

	// Capacity is how many records of up to 512 bytes, with their keys, a store of bounded size holds. Zero means that it has no
	// bound, or does not know it.
	Capacity int

	// InProcess says that only this process can reach the records. The engine then needs no name of the service, takes
	// tokens with a secret of the process, and refuses requests of preforked processes.
	InProcess bool

	// Local says that no call ever blocks on anything outside the process. The engine then calls without a
	// deadline of its own.
	Local bool
}
