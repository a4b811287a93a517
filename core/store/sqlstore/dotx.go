package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
)

// TxBeginner begins transactions: a *sql.DB or a *sql.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// TxOption sets up a call of [Store.DoTx].
type TxOption func(*txOptions)

type txOptions struct {
	fingerprint string
	retention   time.Duration
	isolation   sql.IsolationLevel
}

// Fingerprint sets the digest of the operation's parameters, at most 64 bytes: a call with
// the same key and another fingerprint gets core.ErrKeyReused. The default is none.
func Fingerprint(fingerprint string) TxOption {
	return func(o *txOptions) { o.fingerprint = fingerprint }
}

// Retention sets how long the result stands, counted from the end of the run. The default is
// core.DefaultRetention; zero or less is refused. It should be longer than any client
// tries again: a record that is gone cannot tell what a lost COMMIT has come to.
func Retention(retention time.Duration) TxOption {
	return func(o *txOptions) { o.retention = retention }
}

// Isolation sets the level of the transaction. The default is the database's.
func Isolation(level sql.IsolationLevel) TxOption {
	return func(o *txOptions) { o.isolation = level }
}

// ErrOutcomeUnknown is returned by [Store.DoTx] when the connection was lost, or the context
// ended, while the transaction was being committed, and the database could not be asked since whether it was.
// To call DoTx again with the same key is safe, and finds out. An error that is this one is
// also core.ErrStoreUnavailable.
var ErrOutcomeUnknown = errors.New("sqlstore: the commit was not answered: until DoTx is called again with this key, nobody knows whether the transaction was committed")

// DoTx runs fn once for key, in a transaction of db that also makes the record of it: the
// change and the memory of the change are committed together or not at all, so that a crash
// at any moment neither doubles nor loses it. db must lead to the database in which the
// store's table is. It may be the store's own, but need not.
//
// fn makes its changes through tx, and only through tx. It neither commits nor rolls back,
// returns every error that tx gives it, and runs nothing that commits by itself (which in
// MySQL every change of the schema does). It should hand ctx to each statement
// (tx.ExecContext): DoTx waits for fn, whatever becomes of ctx. What it returns is stored and goes to duplicates.
// fn may run several times in one call, because a deadlock or a serialisation failure rolls
// the whole transaction back; what only one of these runs has done is committed. If fn
// returns an error or panics, nothing is left of it, neither change nor record, and the error
// or panic goes on; the next call with the key runs.
//
// A duplicate of a call that is under way, on any machine, waits for its end for as long as
// ctx lets it (or a minute, if ctx has no end and the database does not wait by itself): the
// database makes it wait for the first one's row. Those of one process wait in the process,
// one behind the other. A later one gets the stored
// value, with Replayed set. The errors are, by errors.Is:
//
//   - core.ErrKeyMissing: key is empty.
//   - core.ErrKeyReused: the key stands with another fingerprint.
//   - core.ErrInProgress: the key is claimed by [Store.Acquire], and its lease stands. (One
//     whose lease has passed is taken over, and Result.Attempt is higher than 1.)
//   - core.ErrStoreUnavailable: the database failed, or ctx ended; nothing was committed.
//   - [ErrOutcomeUnknown]: the database failed at the commit, and is still out of reach: DoTx
//     asks again for 5 s, or until ctx ends.
//   - core.ErrStoreFull: the database has no room; nothing was committed.
//
// An error at the commit itself (a deferred constraint) is returned as the driver's.
//
// The record stands in the same table as those of a guard, under the key as it is given here,
// and Acquire finds it done. So that the two never mix up, begin keys with what they are for
// ("invoice:2041"); the engine's begin with its prefix ("idem:" unless configured). Behind a
// guard, whose own record is running, derive the key from the guard's by a suffix with a '#',
// which no key of the engine has in its last part: string(run.Key()) + "#ledger".
func (s *Store) DoTx(ctx context.Context, db TxBeginner, key string, fn func(tx *sql.Tx) ([]byte, error), opts ...TxOption) (core.Result, error) {
	o := txOptions{retention: core.DefaultRetention}
	for _, opt := range opts {
		opt(&o)
	}
	if key == "" {
		return core.Result{}, core.ErrKeyMissing
	}
	if db == nil || fn == nil {
		return core.Result{}, errors.New("sqlstore: DoTx: the database or the function is nil")
	}
	if o.retention <= 0 {
		return core.Result{}, fmt.Errorf("sqlstore: DoTx: the retention must be more than zero: %v", o.retention)
	}
	t := txRun{
		store: s, db: db, key: key, fn: fn, options: o,
		// Nobody sees the record before the commit, so the lease need not keep anybody out.
		// But it must not pass away while fn runs, however long that takes.
		claim: core.Claim{Owner: core.NewOwner(), Fingerprint: o.fingerprint, Lease: 1, Retention: math.MaxInt64, Takeover: true},
	}
	if err := t.claim.Validate(); err != nil {
		return core.Result{}, err
	}
	return t.run(ctx)
}

// txRun is one call of DoTx: one owner, and as many transactions as it takes.
type txRun struct {
	store   *Store
	db      TxBeginner
	key     string
	fn      func(tx *sql.Tx) ([]byte, error)
	options txOptions
	claim   core.Claim

	lost   time.Time // when a commit was lost whose outcome is not known yet; zero: none
	err    error     // what it was lost with
	losses int       // how many were, in this call
	asked  int       // how often it was asked what has become of one

	own bool // the error is the function's own
}

const (
	askFor    = 5 * time.Second        // how long a database that has gone at a commit is asked again
	askPause  = 250 * time.Millisecond // at most, between two times
	maxLosses = 3                      // a database that goes at every commit is left alone
)

func (t *txRun) run(ctx context.Context) (core.Result, error) {
	// Duplicates in this process wait here, and not each on a connection of the pool.
	leave, err := t.store.gates.enter(ctx, t.key)
	if err != nil {
		return core.Result{}, t.unavailable(ctx, err)
	}
	defer leave()
	var p patience
	for {
		result, err := t.once(ctx)
		switch {
		case err == nil:
			return result, nil
		case !t.lost.IsZero():
			// It may have been committed: ask by the same owner token. The insert waits for
			// what is still under way, and then meets with our own record, or with none.
			t.asked++
			over := t.losses == maxLosses || time.Since(t.lost) > askFor || errors.Is(err, sql.ErrConnDone)
			if over || !pause(ctx, t.asked, askPause) {
				return core.Result{}, fmt.Errorf("%w: %w: %w", ErrOutcomeUnknown, core.ErrStoreUnavailable, errors.Join(t.err, ctx.Err()))
			}
		case t.own || !p.again(ctx, t.store.dialect, err):
			return core.Result{}, err
		}
	}
}

// once runs one transaction.
func (t *txRun) once(ctx context.Context) (core.Result, error) {
	s := t.store
	begun, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: t.options.isolation})
	if err != nil {
		return core.Result{}, t.unavailable(ctx, err)
	}
	tx := &transaction{Tx: begun, ours: t.db == TxBeginner(s.db)}
	ended := false
	defer func() {
		if !ended { // also when fn panics
			_ = within(ctx, tx.Rollback)
		}
	}()

	grant, holder, err := s.claim(ctx, tx, t.key, t.claim)
	if err != nil {
		return core.Result{}, t.unavailable(ctx, err)
	}
	t.lost = time.Time{} // now it is known
	switch {
	case grant.State == core.Acquired:
	case grant.Fingerprint != t.claim.Fingerprint:
		return core.Result{}, core.ErrKeyReused
	case grant.State == core.Running:
		return core.Result{}, core.ErrInProgress
	case bytes.Equal(holder, t.claim.Owner[:]): // the commit that was lost did take place
		return core.Result{Value: grant.Result, Attempt: grant.Attempt}, nil
	default:
		return core.Result{Value: grant.Result, Replayed: true}, nil
	}

	value, err := t.fn(tx.Tx)
	if err != nil {
		return core.Result{}, t.failed(ctx, err)
	}
	n, err := s.exec(ctx, tx, s.q.complete, completion(t.key, t.claim.Owner, value, t.options.retention))
	switch ended := ctx.Err(); {
	case ended != nil:
		return core.Result{}, t.unavailable(ctx, ended)
	case err == nil && n == 0, errors.Is(err, sql.ErrTxDone), sqlState(err) == "25P02": // in_failed_sql_transaction
		return core.Result{}, errTxEnded
	case err != nil:
		return core.Result{}, t.unavailable(ctx, err)
	}
	ended = true
	if err := within(ctx, tx.Commit); err != nil {
		return core.Result{}, t.uncommitted(ctx, err)
	}
	return core.Result{Value: value, Attempt: grant.Attempt}, nil
}

var errTxEnded = errors.New("sqlstore: DoTx: the function has ended the transaction that it was given, or went on after an error that had ended it; " +
	"of what it has done, something may have been committed without a record")

// failed is what an error of the function means: its own business, unless it comes from the
// database.
func (t *txRun) failed(ctx context.Context, err error) error {
	d := t.store.dialect
	t.own = !d.fromDriver(err)
	switch state := sqlState(err); {
	case ctx.Err() != nil, errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		d == PostgreSQL && (strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08")):
		return t.unavailable(ctx, err)
	}
	return err
}

// uncommitted is what a failed commit means.
func (t *txRun) uncommitted(ctx context.Context, err error) error {
	s := t.store
	switch {
	case !s.dialect.undone(err):
		t.lost, t.err = time.Now(), err
		t.losses++
		return err
	case s.dialect.fault(err) == faultOther:
		return fmt.Errorf("sqlstore: DoTx: commit: %w", err) // nothing to do with the store
	}
	return t.unavailable(ctx, err)
}

// unavailable is the error for a transaction that failed and left nothing.
func (t *txRun) unavailable(ctx context.Context, err error) error {
	err = t.store.failure(ctx, "DoTx", err)
	if errors.Is(err, core.ErrStoreFull) || errors.Is(err, core.ErrStoreUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", core.ErrStoreUnavailable, err)
}

// within calls end, and returns when ctx has ended, too: not all drivers give up a COMMIT or
// a ROLLBACK to a server that does not answer. What is left then ends with the connection.
func within(ctx context.Context, end func() error) error {
	if ctx.Done() == nil {
		return end()
	}
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done: // at the same moment
			return err
		default:
			return ctx.Err()
		}
	}
}
