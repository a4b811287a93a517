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
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
)

// TxBeginner begins transactions: a *sql.DB, a *sql.Conn, or a wrapper of one, which may also be a
// [Resetter].
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Resetter is implemented by a [TxBeginner] on a pool that is no *sql.DB. When a server turns out to be read-only, Reset closes the
// pool's idle connections, because new ones may lead to the new primary. It is called at most once a second and must be safe for
// concurrent use. [Config].Reset does the same for the store's own pool.
type Resetter interface {
	Reset()
}

// TxOption sets up a call of [Store.DoTx].
type TxOption func(*txOptions)

type txOptions struct {
	fingerprint string
	retention   time.Duration
	isolation   sql.IsolationLevel
}

// Fingerprint sets the digest of the operation's parameters, at most 64 bytes. A call with
// the same key and another fingerprint gets codes.KeyReused. The default is empty.
func Fingerprint(fingerprint string) TxOption {
	return func(o *txOptions) { o.fingerprint = fingerprint }
}

// Retention sets how long the result is kept, counted from the end of the run. It must be greater
// than zero; the default is 24 hours. Choose it longer than any client keeps
// trying: when the record is gone, a retry runs again.
func Retention(retention time.Duration) TxOption {
	return func(o *txOptions) { o.retention = retention }
}

// Isolation sets the isolation level of the transaction. The default is the database's.
func Isolation(level sql.IsolationLevel) TxOption {
	return func(o *txOptions) { o.isolation = level }
}

// ErrOutcomeUnknown is returned by [Store.DoTx] and [Store.RunTx] if the connection broke, or the
// context ended, during the commit, and the database did not answer afterwards whether the
// transaction was committed. Calling again for the same operation is safe, and finds out. An error
// that is ErrOutcomeUnknown is also codes.Unfinished.
var ErrOutcomeUnknown = errors.New(
	"sqlstore: the commit was not answered: the transaction may or may not have been committed; try the operation again to find out")

// DoTx runs fn once for key, in a transaction of db that also makes the operation's record. The
// change and its record are committed together or not at all: a crash at any moment neither
// doubles nor loses the change. db must lead to the database that has the store's table; it may
// be the store's own *sql.DB. In the handler of a guard, or in the function of a task, use
// [Store.RunTx] instead, which takes the key from the context.
//
// Rules for fn:
//
//   - It makes its changes through tx only, and returns every error of tx.
//   - It does not commit or roll back, and runs no statement that commits by itself (in MySQL
//     every change of the schema does).
//   - It does not call DoTx or RunTx for the same operation: that would wait for itself until
//     ctx ends.
//   - It passes ctx to each statement (tx.ExecContext): DoTx waits for fn even if ctx has ended.
//   - It may run several times in one call, because a deadlock or a serialisation failure rolls
//     the transaction back. Only one of these runs is committed.
//
// The value that fn returns is stored, not sealed by any core.Config.Seal, and duplicates get it, with Replayed set. If fn returns an
// error or panics, neither its changes nor the record are kept, DoTx returns the error or panics,
// and the next call with the key runs fn.
//
// A duplicate of a call that is under way, on any machine, waits until that call has ended or ctx
// ends (or for a minute, if ctx has no end and the database does not wait by itself).
//
// When ctx ends before the commit, nothing is committed, and the error is ctx's
// (context.Canceled or context.DeadlineExceeded, and the cause). Other errors that kept fn from
// running or its changes from being committed are a *core.Refusal; by errors.Is:
//
//   - codes.KeyMissing: key is empty.
//   - codes.KeyReused: the record of key has another fingerprint.
//   - codes.KeyExpired: a guard with RefuseExpired has finished the operation, and its result is no longer kept.
//   - codes.InProgress: key is claimed by [Store.Acquire], and the lease has not passed. (A record
//     whose lease has passed is taken over; Result.Attempt is then higher than 1.)
//   - codes.StoreUnavailable: the database failed, and nothing was committed. That includes
//     20 deadlocks or serialisation failures in a row, and a read-only server. It is also
//     store.ErrFull if the database has no room.
//   - codes.Unfinished: the database failed during the commit, or ctx ended during it, and
//     DoTx could not find out the outcome. It tries for 5 s, or until ctx ends. It is also
//     [ErrOutcomeUnknown].
//
// An error of the commit itself (a deferred constraint, say) is returned as the driver's.
//
// The record is in the same table as a guard's, under the key as it is given, and Acquire
// finds it done. Begin keys with the service and what they are for ("shop:invoice:2041"), so that two
// services on one table never answer for each other. An engine's keys begin with "idem:".
func (s *Store) DoTx(ctx context.Context, db TxBeginner, key string, fn func(tx *sql.Tx) ([]byte, error),
	opts ...TxOption) (core.Result[[]byte], error) {
	t := txRun{store: s, call: "DoTx", db: db, key: key, fn: fn, options: txOptions{retention: 24 * time.Hour}}
	for _, opt := range opts {
		opt(&t.options)
	}
	if key == "" {
		return core.Result[[]byte]{}, core.NewRefusal(codes.KeyMissing, nil)
	}
	if t.options.retention <= 0 {
		return core.Result[[]byte]{}, fmt.Errorf("sqlstore: DoTx: the retention must be more than zero: %v", t.options.retention)
	}
	// No other call sees the record before the commit, so that its lease keeps none out. But the
	// record must not expire while fn runs, however long that takes.
	t.claim = store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID()}, Fingerprint: t.options.fingerprint, Lease: 1,
		Retention: math.MaxInt64, Takeover: true}
	if err := t.claim.Validate(); err != nil {
		return core.Result[[]byte]{}, err
	}
	return t.run(ctx)
}

// RunTx runs fn for the run to which ctx belongs (see core.RunFrom), in a transaction of db that
// also marks the run's record. With it, a handler or a task makes its change in the store's
// database exactly once. Key, user, fingerprint, retention and what a duplicate gets are those of
// the guard's policy. The guard's engine must use this store.
//
//	result, err := store.RunTx(r.Context(), db, func(tx *sql.Tx) ([]byte, error) {
//		return createOrder(r.Context(), tx)
//	})
//
// Once the transaction is committed, no other run of the operation commits anything. If this run
// then fails (the process dies, the handler returns an error or panics), the next run takes over,
// and its RunTx returns the committed value, with Replayed set, without running fn. This holds
// until the record is gone: its retention has passed, or the handler has succeeded under a policy
// that releases on success. A run that has lost its claim commits nothing.
//
// The rules of [Store.DoTx] for db, fn and ctx hold here, too. A second RunTx in the same run
// returns what the first has committed. The only option is [Isolation]; Fingerprint and
// Retention are the policy's, and setting them is an error. The refusals are, by errors.Is:
//
//   - codes.NoRun: no guard has seen ctx: none is mounted, or ctx is not the request's (but a *gin.Context, say). Or the
//     run holds its claim in another store, or another database than db's.
//   - codes.KeyMissing: the request needed no key and had none.
//   - codes.InProgress: the claim was lost to another run. It is also store.ErrLost.
//   - codes.ResultUnavailable: an earlier run has committed, and its value can't be opened (core.ErrSealed).
//   - codes.StoreUnavailable and codes.Unfinished: as from DoTx; the former also if the guard has let the request
//     pass because of its FailOpen.
//
// Return the error (Echo, Fiber), report it (c.AbortWithError in Gin, with status 500) or pass it to httpidem.Refuse: the
// guard answers it like its own refusals.
//
// Leases are renewed while fn runs. At an isolation level with snapshots (from repeatable read up,
// in PostgreSQL) a transaction longer than a third of the lease conflicts with a renewal and runs
// again: give its policy a longer lease.
func (s *Store) RunTx(ctx context.Context, db TxBeginner, fn func(tx *sql.Tx) ([]byte, error),
	opts ...TxOption) (core.Result[[]byte], error) {
	run, err := core.RequireRun(ctx)
	t := txRun{store: s, call: "RunTx", db: db, key: run.Key().Raw(), fn: fn, of: run, held: true, claim: store.Claim{Owner: run.Owner()}}
	for _, opt := range opts {
		opt(&t.options)
	}
	if err != nil {
		return core.Result[[]byte]{}, err
	}
	if t.options.fingerprint != "" || t.options.retention != 0 {
		return core.Result[[]byte]{}, errors.New("sqlstore: RunTx: Fingerprint and Retention are the policy's")
	}
	result, err := t.run(ctx)
	if !t.own && errors.Is(err, errNotHeld) { // the run's engine may have another store, where it is
		switch held := run.Renew(ctx); {
		case held == nil:
			err = core.NewRefusal(codes.NoRun, errElsewhere)
		case !errors.Is(held, store.ErrLost):
			err = t.refused(ctx, held)
		}
	}
	return result, err
}

var (
	errNotHeld   = fmt.Errorf("sqlstore: RunTx: %w: the run holds no record", store.ErrLost)
	errElsewhere = errors.New("sqlstore: RunTx: the run holds its claim, but its record is not here: use the store of the run's engine, " +
		"and a db on which the store's table is")
)

// txRun is one call of DoTx or RunTx: one owner, and as many transactions as it takes.
type txRun struct {
	store   *Store
	call    string    // the name of the method, for errors
	held    bool      // RunTx: the run holds the claim already
	of      *core.Run // RunTx: the run
	db      TxBeginner
	key     string
	fn      func(tx *sql.Tx) ([]byte, error)
	options txOptions
	claim   store.Claim

	lost   time.Time // when a commit failed whose outcome is not known yet; zero: none
	err    error     // the error of that commit
	losses int       // how many commits failed like that in this call
	checks int       // how often the outcome was looked up

	own bool // the error is the function's own
}

const (
	checkFor   = 5 * time.Second        // how long the outcome of a lost commit is looked up
	checkPause = 250 * time.Millisecond // at most, between two look-ups
	maxLosses  = 3                      // lost commits after which the call gives up
)

func (t *txRun) run(ctx context.Context) (core.Result[[]byte], error) {
	if t.db == nil || t.fn == nil {
		return core.Result[[]byte]{}, fmt.Errorf("sqlstore: %s: the database or the function is nil", t.call)
	}
	// Duplicates in this process wait here, and not each on a connection of the pool.
	unlock, err := t.store.inTx.lock(ctx, t.key)
	if err != nil {
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	defer unlock()
	defer core.RunFrom(ctx).BeginTx()()
	var r retries
	for {
		result, err := t.try(ctx)
		if !t.own {
			t.store.leaveReadOnly(ctx, t.db, err)
		}
		switch {
		case err == nil:
			return result, nil
		case !t.lost.IsZero():
			// It may have been committed: try again with the same owner. The insert waits
			// for a commit that is still under way, and then finds our own record, or none.
			t.checks++
			over := t.losses == maxLosses || time.Since(t.lost) > checkFor || errors.Is(err, sql.ErrConnDone)
			if over || !pause(ctx, t.checks, checkPause) {
				return core.Result[[]byte]{},
					core.NewRefusal(codes.Unfinished, fmt.Errorf("%w: %w", ErrOutcomeUnknown, errors.Join(t.err, ended(ctx))))
			}
		case t.own:
			return core.Result[[]byte]{}, err
		case !r.next(ctx, t.store.dialect, err):
			if t.store.dialect.temporary(err) {
				err = t.refused(ctx, err)
			}
			return core.Result[[]byte]{}, err
		}
	}
}

// try runs one transaction.
func (t *txRun) try(ctx context.Context) (core.Result[[]byte], error) {
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
	switch {
	case errors.Is(err, store.ErrLost):
		return core.Result[[]byte]{}, core.NewRefusal(codes.InProgress, err)
	case errors.Is(err, core.ErrSealed):
		return core.Result[[]byte]{}, core.NewRefusal(codes.ResultUnavailable, err)
	case err != nil:
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	t.lost = time.Time{} // the outcome is known now
	switch {
	case grant.State == store.Acquired:
	case grant.Expired:
		return core.Result[[]byte]{}, core.NewRefusal(codes.KeyExpired, nil)
	case grant.Fingerprint != t.claim.Fingerprint:
		return core.Result[[]byte]{}, core.NewRefusal(codes.KeyReused, nil)
	case grant.State == store.Running:
		return core.Result[[]byte]{}, core.NewRefusal(codes.InProgress, nil)
	case t.losses > 0 && bytes.Equal(holder, t.claim.Owner[:]): // the lost commit took effect
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
		return core.Result[[]byte]{}, core.NewRefusal(codes.InProgress, store.ErrLost)
	case err == nil && n == 0, errors.Is(err, sql.ErrTxDone), s.dialect.noTransaction(err):
		return core.Result[[]byte]{}, errTxEnded
	case err != nil:
		return core.Result[[]byte]{}, t.unavailable(ctx, err)
	}
	ended = true
	if err := within(ctx, func() error { return s.commit(tx.Tx) }); err != nil {
		return core.Result[[]byte]{}, t.uncommitted(ctx, err)
	}
	return core.Result[[]byte]{Value: value, Attempt: grant.Attempt}, nil
}

// begin claims the key in tx, or checks that the run still holds it. holder is the owner of the
// record that is there.
func (t *txRun) begin(ctx context.Context, tx *transaction) (g store.Grant, holder []byte, err error) {
	s := t.store
	if !t.held {
		return s.claim(ctx, tx, t.key, t.claim)
	}
	r, err := s.queryRow(ctx, tx, s.q.look, &values{key: storedKey(t.key)})
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows) && !s.dialect.IsNoTable(err):
		return g, nil, err
	case r.state != stateRunning || r.left <= 0 || !bytes.Equal(r.owner, t.claim.Owner[:]):
		return g, nil, errNotHeld
	}
	g = store.Grant{State: store.Acquired, Attempt: uint64(r.attempt), ID: r.operation()}
	if len(r.result) > 0 {
		marked, err := t.of.Open(r.result)
		if err != nil {
			return g, nil, err
		}
		g.State, g.Result = store.Done, marked[1:]
		return g, r.owner, nil
	}
	// RELEASE of this savepoint fails if the function has ended the transaction. Without it, the
	// statements after that, the mark in the record included, would be committed one by one.
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
	return s.exec(ctx, tx, s.q.mark, &values{key: storedKey(t.key), owner: t.claim.Owner[:], result: t.of.Seal(marked)})
}

// committed comes before the value in a running record, so that it is never empty. It tells the value from one that is sealed.
const committed = 'c'

var errTxEnded = errors.New("sqlstore: the function has ended the transaction itself, or continued after an error that had ended it; " +
	"some of its changes may have been committed without a record")

// failed returns the call's error for an error of the function: the same, unless it comes from
// the database.
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

// uncommitted returns the call's error for a failed commit.
func (t *txRun) uncommitted(ctx context.Context, err error) error {
	s := t.store
	switch {
	case !s.dialect.undone(err):
		t.lost, t.err = time.Now(), err
		t.losses++
		return err
	case s.dialect.class(err) == classOther:
		return fmt.Errorf("sqlstore: %s: commit: %w", t.call, err) // a deferred constraint, say
	}
	return t.unavailable(ctx, err)
}

// unavailable returns the error for a transaction that failed and was rolled back. An error that
// run may retry is returned as it is.
func (t *txRun) unavailable(ctx context.Context, err error) error {
	if ctx.Err() == nil && t.store.dialect.temporary(err) {
		return err
	}
	return t.refused(ctx, err)
}

// refused returns the error of a call that committed nothing: ctx's if that has ended, else the
// database's.
func (t *txRun) refused(ctx context.Context, err error) error {
	gone := ended(ctx)
	switch {
	case gone == nil:
		return core.NewRefusal(codes.StoreUnavailable, t.store.failure(ctx, t.call, err))
	case err == nil || errors.Is(gone, err):
		return fmt.Errorf("sqlstore: %s: %w", t.call, gone)
	}
	return fmt.Errorf("sqlstore: %s: %w: %w", t.call, gone, err)
}

// commit commits tx. When SQLite can't commit because others are reading, it leaves the transaction open. Not every driver rolls it
// back then, although database/sql takes it for ended. So COMMIT is a statement here: if it fails, database/sql can still roll back.
// Otherwise it ends an empty transaction.
func (s *Store) commit(tx *sql.Tx) error {
	if s.dialect == SQLite {
		if _, err := tx.Exec("COMMIT; BEGIN"); err != nil {
			_ = tx.Rollback()
			return err
		}
	}
	return tx.Commit()
}

// ended returns why ctx has ended, or nil.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// within calls end, and returns at the latest when ctx ends: not all drivers stop a COMMIT or a
// ROLLBACK to a silent server. Its goroutine then ends with the connection.
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
