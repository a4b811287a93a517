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
	"github.com/idem-go/idem/core/store"
)

// TxBeginner begins transactions: a *sql.DB or a *sql.Conn. One that has a pool of another kind may have
// a method Reset(), which is called when a server has turned out to be read-only, see [Reset].
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
// the same key and another fingerprint gets core.CodeKeyReused. The default is none.
func Fingerprint(fingerprint string) TxOption {
	return func(o *txOptions) { o.fingerprint = fingerprint }
}

// Retention sets how long the result stands, counted from the end of the run. The default is
// core.DefaultKeyRetention; zero or less is refused. It should be longer than any client
// tries again: a record that is gone cannot tell what a lost COMMIT has come to.
func Retention(retention time.Duration) TxOption {
	return func(o *txOptions) { o.retention = retention }
}

// Isolation sets the level of the transaction. The default is the database's.
func Isolation(level sql.IsolationLevel) TxOption {
	return func(o *txOptions) { o.isolation = level }
}

// ErrOutcomeUnknown is returned by [Store.DoTx] and [Store.RunTx] when the connection was lost, or
// the context ended, while the transaction was being committed, and the database could not be asked
// since whether it was. The next call for the same operation is safe, and finds out. An error that
// is this one is also core.CodeUnfinished.
var ErrOutcomeUnknown = errors.New("sqlstore: the commit was not answered: until the operation is tried again, nobody knows whether the transaction was committed")

// DoTx runs fn once for key, in a transaction of db that also makes the record of it: the
// change and the memory of the change are committed together or not at all, so that a crash
// at any moment neither doubles nor loses it. db must lead to the database in which the
// store's table is. It may be the store's own, but need not. In the handler of a guard, and in
// the function of a task, [Store.RunTx] does the same without a key of its own.
//
// fn makes its changes through tx, and only through tx. It neither commits nor rolls back,
// returns every error that tx gives it, and runs nothing that commits by itself (which in
// MySQL every change of the schema does). Nor does it call DoTx or RunTx for the same
// operation: that would wait for itself until ctx ends. It should hand ctx to each statement
// (tx.ExecContext): DoTx waits for fn, whatever becomes of ctx. What it returns is stored and
// goes to duplicates. fn may run several times in one call, because a deadlock or a
// serialisation failure rolls the whole transaction back; what only one of these runs has done
// is committed. If fn returns an error or panics, nothing is left of it, neither change nor
// record, and the error or panic goes on; the next call with the key runs.
//
// A duplicate of a call that is under way, on any machine, waits for its end for as long as
// ctx lets it (or a minute, if ctx has no end and the database does not wait by itself): the
// database makes it wait for the first one's row. Those of one process wait in the process,
// one behind the other. A later one gets the stored
// value, with Replayed set.
//
// When ctx ends, nothing is committed, and the error is ctx's (context.Canceled,
// context.DeadlineExceeded, and its cause): that is no fault of the database. What else keeps
// fn from running, or its changes from being committed, is a *core.Refusal; by errors.Is:
//
//   - core.CodeKeyMissing: key is empty.
//   - core.CodeKeyReused: the key stands with another fingerprint.
//   - core.CodeInProgress: the key is claimed by [Store.Acquire], and its lease stands. (One
//     whose lease has passed is taken over, and Result.Attempt is higher than 1.)
//   - core.CodeStoreUnavailable: the database failed; nothing was committed. A deadlock or a
//     serialisation failure that 20 tries have met with is one, and so is a server that only
//     reads. It is also store.ErrFull if the database has no room.
//   - core.CodeUnfinished: the database failed at the commit, or ctx ended in the midst of it,
//     and nobody knows more: DoTx asks again for 5 s, or until ctx ends. It is also
//     [ErrOutcomeUnknown].
//
// An error at the commit itself (a deferred constraint) is returned as the driver's.
//
// The record stands in the same table as those of a guard, under the key as it is given here,
// and Acquire finds it done. So that the two never mix up, begin keys with what they are for
// ("invoice:2041"); the engine's begin with its prefix ("idem:" unless configured).
func (s *Store) DoTx(ctx context.Context, db TxBeginner, key string, fn func(tx *sql.Tx) ([]byte, error), opts ...TxOption) (core.Result[[]byte], error) {
	t := txRun{store: s, call: "DoTx", db: db, key: key, fn: fn, options: txOptions{retention: core.DefaultKeyRetention}}
	for _, opt := range opts {
		opt(&t.options)
	}
	if key == "" {
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeKeyMissing, nil)
	}
	if t.options.retention <= 0 {
		return core.Result[[]byte]{}, fmt.Errorf("sqlstore: DoTx: the retention must be more than zero: %v", t.options.retention)
	}
	// Nobody sees the record before the commit, so the lease need not keep anybody out. But it
	// must not pass away while fn runs, however long that takes.
	t.claim = store.Claim{Owner: store.NewOwner(), Fingerprint: t.options.fingerprint, Lease: 1, Retention: math.MaxInt64, Takeover: true}
	if err := t.claim.Validate(); err != nil {
		return core.Result[[]byte]{}, err
	}
	return t.run(ctx)
}

// RunTx runs fn once for the run to which ctx belongs (see core.RunFrom), in a transaction of db
// that also marks the run's own record: the handler of a guard, or the function of a task, whose
// change is made in the store's database is exactly once by it. All that the guard's policy says
// holds: key, user, fingerprint, what a duplicate gets, how long the result stands. The guard
// must be of an engine on this store.
//
//	result, err := store.RunTx(r.Context(), db, func(tx *sql.Tx) ([]byte, error) {
//		return createOrder(r.Context(), tx)
//	})
//
// Once it has been committed, no other run of the operation commits anything: if this one does not
// end well (the process dies, the handler fails or panics), the next one takes over, and its
// RunTx returns the committed value, with Replayed set, in place of running fn. That is until the
// record is gone: its result has stood for the policy's retention, or the handler has succeeded
// under a policy that releases then. A run whose claim was lost, and is another's by now, commits
// nothing.
//
// What DoTx says of db, fn and ctx holds here, too. One run has one RunTx: a second call in it
// gets what the first has committed. Of the options only [Isolation] has an effect; the others
// are the policy's, and an error here. The refusals are, by errors.Is:
//
//   - core.CodeKeyMissing: ctx belongs to no run: no guard is mounted, or the request needed no
//     key and had none.
//   - core.CodeInProgress: the claim was lost, and another run has it. It is also store.ErrLost.
//   - core.CodeStoreUnavailable and core.CodeUnfinished: as from DoTx.
//
// Return the error (Echo, Fiber), report it (c.Error in Gin) or hand it to httpidem.Refuse: the
// guard answers it as it answers its own.
//
// Leases are renewed while fn runs. At an isolation level of snapshots (from repeatable read up,
// in PostgreSQL) a transaction that takes longer than a third of the lease meets with a renewal
// and is run again: give its policy a longer lease.
func (s *Store) RunTx(ctx context.Context, db TxBeginner, fn func(tx *sql.Tx) ([]byte, error), opts ...TxOption) (core.Result[[]byte], error) {
	run := core.RunFrom(ctx)
	t := txRun{store: s, call: "RunTx", db: db, key: run.Key().Raw(), fn: fn, held: true, claim: store.Claim{Owner: run.Owner()}}
	for _, opt := range opts {
		opt(&t.options)
	}
	if run == nil {
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeKeyMissing, errNoRun)
	}
	if t.options.fingerprint != "" || t.options.retention != 0 {
		return core.Result[[]byte]{}, errors.New("sqlstore: RunTx: Fingerprint and Retention are the policy's")
	}
	return t.run(ctx)
}

var (
	errNoRun   = errors.New("sqlstore: RunTx: the context belongs to no run")
	errNotHere = fmt.Errorf("sqlstore: RunTx: %w: the store has no record of the run; is its guard on this store?", store.ErrLost)
)

// txRun is one call of DoTx or RunTx: one owner, and as many transactions as it takes.
type txRun struct {
	store   *Store
	call    string // its name
	held    bool   // the claim is a run's, which holds it already
	db      TxBeginner
	key     string
	fn      func(tx *sql.Tx) ([]byte, error)
	options txOptions
	claim   store.Claim

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

func (t *txRun) run(ctx context.Context) (core.Result[[]byte], error) {
	if t.db == nil || t.fn == nil {
		return core.Result[[]byte]{}, fmt.Errorf("sqlstore: %s: the database or the function is nil", t.call)
	}
	// Duplicates in this process wait here, and not each on a connection of the pool.
	leave, err := t.store.gates.enter(ctx, t.key)
	if err != nil {
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	defer leave()
	var p patience
	for {
		result, err := t.once(ctx)
		if !t.own {
			t.store.leave(ctx, t.db, err)
		}
		switch {
		case err == nil:
			return result, nil
		case !t.lost.IsZero():
			// It may have been committed: ask by the same owner token. The insert waits for
			// what is still under way, and then meets with our own record, or with none.
			t.asked++
			over := t.losses == maxLosses || time.Since(t.lost) > askFor || errors.Is(err, sql.ErrConnDone)
			if over || !pause(ctx, t.asked, askPause) {
				return core.Result[[]byte]{}, core.NewRefusal(core.CodeUnfinished, fmt.Errorf("%w: %w", ErrOutcomeUnknown, errors.Join(t.err, ended(ctx))))
			}
		case t.own:
			return core.Result[[]byte]{}, err
		case !p.again(ctx, t.store.dialect, err):
			if t.store.dialect.temporary(err) {
				err = t.refused(ctx, err)
			}
			return core.Result[[]byte]{}, err
		}
	}
}

// once runs one transaction.
func (t *txRun) once(ctx context.Context) (core.Result[[]byte], error) {
	s := t.store
	leave, err := s.enter(ctx, t.db)
	if err != nil {
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	defer leave()
	begun, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: t.options.isolation})
	if err != nil {
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	tx := &transaction{Tx: begun, ours: t.db == TxBeginner(s.db)}
	ended := false
	defer func() {
		if !ended { // also when fn panics
			_ = within(ctx, tx.Rollback)
		}
	}()

	grant, holder, err := t.begin(ctx, tx)
	if errors.Is(err, store.ErrLost) {
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeInProgress, err)
	}
	if err != nil {
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	t.lost = time.Time{} // now it is known
	switch {
	case grant.State == store.Acquired:
	case grant.Fingerprint != t.claim.Fingerprint:
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeKeyReused, nil)
	case grant.State == store.Running:
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeInProgress, nil)
	case t.losses > 0 && bytes.Equal(holder, t.claim.Owner[:]): // the commit that was lost did take place
		return core.Result[[]byte]{Value: grant.Result, Attempt: grant.Attempt}, nil
	default:
		return core.Result[[]byte]{Value: grant.Result, Replayed: true}, nil
	}

	value, err := t.fn(tx.Tx)
	if err != nil {
		return core.Result[[]byte]{}, t.failed(ctx, err)
	}
	n, err := t.end(ctx, tx, value)
	switch {
	case ctx.Err() != nil:
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	case err == nil && n == 0 && t.held:
		return core.Result[[]byte]{}, core.NewRefusal(core.CodeInProgress, store.ErrLost)
	case err == nil && n == 0, errors.Is(err, sql.ErrTxDone), s.dialect.noTransaction(err):
		return core.Result[[]byte]{}, errTxEnded
	case err != nil:
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	ended = true
	if err := within(ctx, tx.Commit); err != nil {
		return core.Result[[]byte]{}, t.uncommitted(ctx, err)
	}
	return core.Result[[]byte]{Value: value, Attempt: grant.Attempt}, nil
}

// begin claims the key in tx, or looks whether the run still holds it. holder is the owner of the
// record that stands.
func (t *txRun) begin(ctx context.Context, tx *transaction) (g store.Grant, holder []byte, err error) {
	s := t.store
	if !t.held {
		return s.claim(ctx, tx, t.key, t.claim)
	}
	r, err := s.queryRow(ctx, tx, s.q.look, &values{key: storedKey(t.key)})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return g, nil, errNotHere
	case err != nil:
		return g, nil, err
	case r.state != stateRunning || r.left <= 0 || !bytes.Equal(r.owner, t.claim.Owner[:]):
		return g, nil, store.ErrLost
	}
	g = store.Grant{State: store.Acquired, Attempt: uint64(r.attempt)}
	if len(r.result) > 0 {
		g.State, g.Result = store.Done, r.result[1:]
		return g, r.owner, nil
	}
	// Nothing else tells that the function has ended the transaction: what comes after that would
	// be committed by itself, the mark in the record, too.
	_, err = tx.ExecContext(ctx, "SAVEPOINT idem_run")
	return g, nil, err
}

// end stores value in the record, as the last statement of tx.
func (t *txRun) end(ctx context.Context, tx *transaction, value []byte) (int64, error) {
	s := t.store
	if !t.held {
		return s.exec(ctx, tx, s.q.complete, completion(t.key, t.claim.Owner, value, t.options.retention))
	}
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT idem_run"); err != nil {
		return 0, err
	}
	marked := append([]byte{committed}, value...) // never empty
	return s.exec(ctx, tx, s.q.mark, &values{key: storedKey(t.key), owner: t.claim.Owner[:], result: marked})
}

// committed stands in front of a value in a record that is running.
const committed = 'c'

var errTxEnded = errors.New("sqlstore: the function has ended the transaction that it was given, or went on after an error that had ended it; " +
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
		return fmt.Errorf("sqlstore: %s: commit: %w", t.call, err) // nothing to do with the store
	}
	return t.unavailable(ctx, err)
}

// unavailable is the error for a transaction that failed and left nothing. One that run may try
// again stays as it is until then.
func (t *txRun) unavailable(ctx context.Context, err error) error {
	if ctx.Err() == nil && t.store.dialect.temporary(err) {
		return err
	}
	return t.refused(ctx, err)
}

// refused is the error with which a call ends that has left nothing: ctx's if that has ended, else
// the database's.
func (t *txRun) refused(ctx context.Context, err error) error {
	gone := ended(ctx)
	switch {
	case gone == nil:
		return core.NewRefusal(core.CodeStoreUnavailable, t.store.failure(ctx, t.call, err))
	case err == nil || errors.Is(gone, err):
		return fmt.Errorf("sqlstore: %s: %w", t.call, gone)
	}
	return fmt.Errorf("sqlstore: %s: %w: %w", t.call, gone, err)
}

// ended returns why ctx has ended, or nil.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
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
