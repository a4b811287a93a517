package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Inspector looks at records and changes them for an operator, outside of any run. A store has one in its
// [Capabilities]. All methods are safe for concurrent use, and return when their context ends.
type Inspector interface {
	// Lookup returns the record under key, with its result. The error is [ErrNoRecord] if there is none, or if its time
	// has passed.
	Lookup(ctx context.Context, key string) (Record, error)

	// List returns records that q asks for, without their results, and the cursor of those that follow. The first cursor is empty; an empty
	// next ends the list. A page has about q.Limit records. It may have fewer, or none, although more follow, or some more in a store that
	// can't cut it short. A cursor is text, and is good in any process, at any time, for the same q. It may contain a stored key. The error
	// is [ErrCursor] for text that is none of the store's cursors.
	//
	// The store goes on meanwhile: no page makes a call wait for longer than that call takes by itself. A record for
	// which q asks throughout the list is in it at least once; records that come, change or go meanwhile may be in it or
	// not. If q.States has neither [Done] nor [Free], those begun first are first, if the store
	// declares ListsOldest.
	List(ctx context.Context, q Query, cursor string) (page []Record, next string, err error)

	// Change applies c to the record under key, in one step, if the record still has the ID, the attempt and the state of expected.
	// Otherwise it changes nothing and returns [ErrMovedOn], or [ErrNoRecord] if there is no record. A c that the state of expected
	// does not allow is an error, and changes nothing.
	Change(ctx context.Context, key string, expected Record, c Change) error
}

// Record is what a store knows of an operation.
type Record struct {
	Key         string
	State       State // Running, Abandoned, Free or Done
	Expired     bool  // it is Done, and has outlived its result
	Attempt     uint64
	Fingerprint string
	About
	// Begun is when the first run of the operation was claimed, by the store's clock. (On Redis, it is the clock of the
	// process that made the claim.) It may be zero if the record was made without an [About].
	Begun time.Time
	// Remaining is how long the lease (State Running) or the record is still valid, by the store's clock.
	Remaining time.Duration
	// Size is how many bytes the result has, as it is kept. Result is the result itself, from Lookup only.
	Size   int
	Result []byte
	// Unopened says why the result that Lookup has found is not here. Only a store that encrypts what another one keeps sets it.
	Unopened error
}

// About describes an operation for people who look at its record. The store keeps it, and interprets only the ID.
type About struct {
	// ID identifies the operation. In a [Claim] it is that of the operation which the claim begins, if it begins one: a
	// claim that takes over goes on with the record's. Zero: nothing identifies it, as for nonces.
	ID ID
	// Policy is the policy's name, Creator the process that made the claim, and Remark a note, such as a trace id. Each has
	// at most 255 bytes of UTF-8, without NUL. A claim that takes over replaces them. A store may fill in an empty Creator.
	Policy, Creator, Remark string
}

// Query says which records [Inspector].List returns. The zero Query asks for all.
type Query struct {
	// Prefix is what their keys begin with.
	Prefix string
	// States are their states; none: any.
	States []State
	// Policy is their policy; empty: any.
	Policy string
	// ID is their ID; zero: any.
	ID ID
	// Match, unless it is nil, reports whether the record of a key is wanted. It is called before the store reads more of the
	// record than its key, and must not call the store.
	Match func(key string) bool
	// Limit is how many records a page has. Zero: 100. More than 1000 are 1000.
	Limit int
	// Brief says that only the Key and the State of the records are used: a store may leave the rest zero.
	Brief bool
}

// Change describes what an operator makes of a record.
type Change struct {
	// To is what becomes of the record:
	//
	//   - [Free]: an abandoned record becomes free, and keeps its operation: any claim gets it. It is uncertain: that claim counts as a
	//     takeover (its Grant is not Free), because the earlier run may have taken effect. The record is remembered for the
	//     retention of its claim, counted from now.
	//   - [Done]: an abandoned or free record becomes a finished one with Result, that is kept for Retention, which must be
	//     more than zero. Its steps are gone.
	//   - zero: the record is removed, whatever its state.
	To        State
	Result    []byte
	Retention time.Duration
	// Remark takes the place of the record's, unless it is empty. See [About].
	Remark string
}

// Errors of an [Inspector].
var (
	// ErrNoRecord is returned if there is no record under the key.
	ErrNoRecord = errors.New("idem: there is no record under this key")
	// ErrCursor is returned by List for text that is no cursor of such a list.
	ErrCursor = errors.New("idem: this is not a cursor of this list")
	// ErrMovedOn is returned by Change if the record is no longer the one that was expected. Nothing was changed.
	ErrMovedOn = errors.New("idem: the record has moved on: another run, or another operator, has changed it")
)

const maxNote = 255

var errNote = fmt.Errorf("idem: the texts of a record (policy, creator, remark) have at most %d bytes of UTF-8, without NUL", maxNote)

// Note makes text fit the texts of an [About]: it replaces invalid UTF-8 and NUL, and cuts off the end.
func Note(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
	return strings.ToValidUTF8(text[:min(len(text), maxNote)], "")
}

func isNote(s string) bool {
	return len(s) <= maxNote && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// Validate returns an error if a record in the state of expected can't become what c says. A store calls it before it
// changes anything.
func (c *Change) Validate(expected State) error {
	switch {
	case !isNote(c.Remark):
		return errNote
	case c.To == 0:
		return nil
	case c.To == Free && expected != Abandoned, c.To == Done && expected != Abandoned && expected != Free, c.To != Free && c.To != Done:
		return fmt.Errorf("idem: a record that is %v can't be made %v", expected, c.To)
	case c.To == Done && c.Retention <= 0:
		return errors.New("idem: the retention of a settled record must be more than zero")
	}
	return nil
}

// Wants reports whether r is one of the records for which q asks, and has a State that is one of q.States. It does not call
// q.Match.
func (q *Query) Wants(r *Record) bool {
	return (len(q.States) == 0 || slices.Contains(q.States, r.State)) && (q.Policy == "" || r.Policy == q.Policy) &&
		(q.ID == ID{} || r.ID == q.ID) && strings.HasPrefix(r.Key, q.Prefix)
}

// Size returns how many records a page has.
func (q *Query) Size() int {
	if q.Limit <= 0 {
		return 100
	}
	return min(q.Limit, 1000)
}
