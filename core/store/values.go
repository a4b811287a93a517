package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"
)

// MaxFingerprint is the greatest length of a [Claim]'s fingerprint, in bytes.
const MaxFingerprint = 64

// Claim is what a caller asks a [Store] for.
type Claim struct {
	// Owner is the random token that must be shown to renew, complete, release or abandon.
	// The zero Owner is refused.
	Owner Owner
	// Fingerprint is the digest of the operation's parameters. It is kept beside
	// the key and reported to later callers. At most 64 bytes; may be empty.
	Fingerprint string
	// Lease is how long the claim stands without renewal. More than zero.
	Lease time.Duration
	// Retention is how much longer the record of an abandoned run is remembered
	// after its lease has passed, so that a takeover is counted as one and an
	// uncertain outcome stays uncertain. Zero or more; with zero the record is
	// forgotten at the moment when its lease passes.
	Retention time.Duration
	// Takeover allows the claim to take over an abandoned record.
	Takeover bool
	// Attempt, if not zero, restricts Takeover to an abandoned record with this attempt
	// number: a decision about one run must not take over another. Zero means any.
	Attempt uint64
}

// Validate returns an error for a claim that no store may accept: one without an
// owner, with a lease that is not longer than zero, a negative retention, or a
// fingerprint of more than 64 bytes. Stores call it before they change anything.
func (c Claim) Validate() error {
	switch {
	case c.Owner.IsZero():
		return errors.New("idem: a claim needs an owner")
	case len(c.Fingerprint) > MaxFingerprint:
		return errors.New("idem: a claim's fingerprint is at most 64 bytes long")
	case c.Retention < 0:
		return errors.New("idem: a claim's retention must not be negative")
	case c.Lease <= 0:
		return errors.New("idem: a lease must be longer than zero")
	}
	return nil
}

// Grant is a [Store]'s answer to a [Claim].
type Grant struct {
	// State says what the caller has met with.
	State State
	// Attempt counts the runs of the operation, from 1; it is one higher at each
	// takeover and serves as a fencing token. It is the caller's own when
	// State is Acquired, else the one of the record that stands.
	Attempt uint64
	// Fingerprint is the one that the standing record was created with. It is not
	// set when State is Acquired.
	Fingerprint string
	// Result is what the first run stored, when State is Done. It belongs to the
	// caller. It is empty if nothing was stored; a store need not tell a nil result
	// from one of no bytes.
	Result []byte
	// Remaining is how long the lease (State Running) or the retention (State Done
	// and Abandoned) still stands, by the store's clock.
	Remaining time.Duration
}

// State is what [Store.Acquire] has found.
type State uint8

// The states of a record, as [Store.Acquire] reports them.
const (
	// Acquired means that the caller now holds the claim and must run the operation.
	Acquired State = iota + 1
	// Running means that another owner holds the claim and its lease stands.
	Running
	// Abandoned means that a run was begun and never finished: its lease has passed,
	// it was given up by Abandon, or a later run that had taken over from it was released.
	Abandoned
	// Done means that the operation has finished; its result stands.
	Done
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Acquired:
		return "acquired"
	case Running:
		return "running"
	case Abandoned:
		return "abandoned"
	case Done:
		return "done"
	}
	return "invalid"
}

// Owner is the random token by which a store recognises the holder of a claim.
// The zero Owner is not a valid one.
type Owner [16]byte

// NewOwner returns an owner token of 128 random bits. It is safe for concurrent use.
func NewOwner() Owner {
	var o Owner
	rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

// String returns the token in lower-case hexadecimal.
func (o Owner) String() string { return hex.EncodeToString(o[:]) }

// IsZero reports whether o is the zero Owner, which no claim may have.
func (o Owner) IsZero() bool { return o == Owner{} }

// Errors that stores return. Every other error of a store means that it could not
// do its work, and that the caller does not know whether it did.
var (
	// ErrLost is returned to a caller that does not, or no longer, hold the claim.
	ErrLost = errors.New("idem: the claim is not, or no longer, held by this owner")
	// ErrFull is returned by Acquire (or Complete) when the store has reached
	// its bounds. Nothing was changed.
	ErrFull = errors.New("idem: the store is full")
)
