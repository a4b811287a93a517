package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxFingerprint is the greatest length of a [Claim]'s fingerprint, in bytes.
const maxFingerprint = 64

// maxSecret is the greatest length of the name of a secret, in bytes.
const maxSecret = 64

var errSecret = fmt.Errorf("idem: the name of a secret is at most %d bytes of UTF-8, without NUL", maxSecret)

// Claim asks a [Store] for the right to run an operation.
type Claim struct {
	// Owner is what Renew, Complete, Release and Abandon must name.
	// The zero Owner is refused.
	Owner Owner
	// Fingerprint is the digest of the operation's parameters. The store keeps it in
	// the record and reports it to later callers. At most 64 bytes; may be empty.
	Fingerprint string
	// Raw, unless it is zero, is a keyed hash of all that Fingerprint is derived from, as it was
	// sent. It is good within the process only. A store with a [Capabilities].Recall keeps it, others ignore it.
	Raw uint64
	// Secret is the name of the secret from which the run derives keys, of up to 64 bytes of text; may be empty. An operation that goes on
	// keeps the first that was named.
	Secret string
	// About describes the operation for people who look at its record.
	About
	// Lease is how long the claim is valid without renewal. It must be more than zero.
	Lease time.Duration
	// Retention is how long the record of an abandoned run is remembered after its
	// lease has passed. Until then a new run counts as a takeover, and an uncertain
	// outcome stays uncertain. It must not be negative; with zero the record is
	// forgotten when its lease passes.
	Retention time.Duration
	// Takeover allows the claim to take over an abandoned record.
	Takeover bool
	// Attempt, if not zero, allows only the takeover of the abandoned record with this attempt number: a decision about one run
	// must not take over another. Zero means any.
	Attempt uint64
}

// Validate returns an error if c has no owner, a lease that is not more than zero, a
// negative retention, a fingerprint of more than 64 bytes, or a Secret or an [About] that is too long or not text. A
// store calls it before it changes anything.
func (c Claim) Validate() error {
	switch {
	case c.Owner.IsZero():
		return errors.New("idem: a claim needs an owner")
	case len(c.Fingerprint) > maxFingerprint:
		return errors.New("idem: a claim's fingerprint is at most 64 bytes long")
	case c.Retention < 0:
		return errors.New("idem: a claim's retention must not be negative")
	case c.Lease <= 0:
		return errors.New("idem: a lease must be longer than zero")
	case len(c.Secret) > maxSecret || !isNote(c.Secret):
		return errSecret
	case !isNote(c.Policy) || !isNote(c.Creator) || !isNote(c.Remark):
		return errNote
	}
	return nil
}

// Grant is a [Store]'s answer to a [Claim].
type Grant struct {
	// State says whether the claim was made, and otherwise which record is there.
	State State
	// Attempt counts the runs of the operation from 1. It is one higher at each
	// claim of an abandoned or free record and serves as a fencing token. It is the
	// caller's own if State is Acquired, else that of the record that is there.
	Attempt uint64
	// Free says that the record was free, and not uncertain, so that the claim is no takeover. Only if State
	// is Acquired.
	Free bool
	// Expired says that the record has outlived its result (see [Capabilities].Outlive): State is Done, and Result is empty.
	Expired bool
	// ID is the operation's: the record's, and after a claim that has begun one, the claim's.
	ID ID
	// Secret and Steps are what earlier runs of the operation have left: see [Claim].Secret and [Capabilities].Checkpoint. Only if
	// State is Acquired. Steps belongs to the caller; none are empty or nil.
	Secret string
	Steps  []byte
	// Fingerprint is the fingerprint of the record that is there. It is empty if State is Acquired.
	Fingerprint string
	// Remark is the remark of the record that is there, if the store can be looked into. It is empty if State is Acquired.
	Remark string
	// Result is the stored result if State is Done. It belongs to the caller. It is
	// empty if the result was empty or nil; stores need not tell the two apart.
	Result []byte
	// Unopened says why Result or Steps is missing although the record has it. Only a store that encrypts what another one keeps
	// sets it.
	Unopened error
	// Remaining is how long the lease (State Running) or the retention (State Done
	// and Abandoned) is still valid, by the store's clock. If Expired is set, it is how long the key is still known.
	Remaining time.Duration
}

// State is what [Store.Acquire] found. The zero State is invalid.
type State uint8

// The states of a record, as [Store.Acquire] reports them.
const (
	// Acquired means that the caller now holds the claim and must run the operation.
	Acquired State = iota + 1
	// Running means that another owner holds the claim and its lease has not passed.
	Running
	// Abandoned means that a run began and never finished: its lease has passed, it was
	// ended by Abandon, or a run that had taken over from it was released. (A free record
	// has no state here: every Acquire gets it.)
	Abandoned
	// Done means that the operation has finished; its result is kept.
	Done
	// Free means that nobody runs: any claim gets the record. Only an [Inspector] reports it.
	Free
)

var stateNames = [...]string{"invalid", "acquired", "running", "abandoned", "done", "free"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[0]
}

// ParseState reads what String returns. It returns false for other text.
func ParseState(text string) (State, bool) {
	i := slices.Index(stateNames[:], text)
	return State(max(i, 0)), i > 0
}

// Owner is 128 random bits by which a store recognises the holder of a claim.
// The zero Owner holds no claim.
type Owner [16]byte

// NewOwner returns a new owner. It is safe for concurrent use.
func NewOwner() Owner {
	var o Owner
	rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

// String returns the token in lower-case hexadecimal.
func (o Owner) String() string { return hex.EncodeToString(o[:]) }

// IsZero reports whether o is the zero Owner, which no claim may have.
func (o Owner) IsZero() bool { return o == Owner{} }

// ID identifies an operation: 128 random bits, made with its first claim. It is not secret. The zero ID is none.
type ID [16]byte

// NewID returns a new ID. It is safe for concurrent use.
func NewID() ID { return ID(NewOwner()) }

// ParseID reads what String returns.
func ParseID(text string) (id ID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return ID{}, fmt.Errorf("idem: %q is no operation id, which has 32 hexadecimal digits", text)
	}
	return ID(b), nil
}

// String returns the ID in lower-case hexadecimal, and nothing for the zero ID.
func (id ID) String() string {
	if id == (ID{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// MarshalText implements [encoding.TextMarshaler]: it returns what String returns.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// Errors that stores return. After any other error the call may or may not have taken
// effect.
var (
	// ErrLost is returned if the named owner does not hold the claim, or no longer does.
	ErrLost = errors.New("idem: the claim is not, or no longer, held by this owner")
	// ErrFull is returned by Acquire and Complete if the store has no room. Nothing was
	// changed.
	ErrFull = errors.New("idem: the store is full")
)
