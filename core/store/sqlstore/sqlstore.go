package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/core/store"
)

// Store keeps records in a table of a SQL database. It implements store.Store.
// It can't be watched: waiting duplicates poll. All methods are safe for concurrent use. Any number of
// processes may share the table. The zero Store is not usable; make one with [New] or [NewURL].
type Store struct {
	db      *sql.DB
	owned   bool // db is closed with the store
	dialect Dialect
	table   table
	source  string
	creator string // empty: the claim's
	host    string // of claims without one
	q       statements
	pool    *pool

	prepares bool   // the store prepares its statements, for the driver does not
	resends  bool   // the driver may be lib/pq, also in a wrapper: see sendOnce
	reset    func() // see Reset; may be nil
	inTx     keyedMutex
	packet   atomic.Int64              // MySQL only: max_allowed_packet, once it is known
	left     atomic.Pointer[time.Time] // when leaveReadOnly last closed connections; nil: never
	closed   atomic.Bool
}

// Capabilities implements store.Store. The store has an Inspector, and keeps steps.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{Inspect: inspector{s}, ListsOldest: true, Checkpoint: s.checkpoint, Fail: s.fail, Outlive: s.outlive}
}

// Config configures a [Store]. The zero Config has the defaults.
type Config struct {
	// Table is the name of the table, optionally with a schema ("payments.idem"). Each part
	// begins with a letter or _ and has up to 50 letters, digits and _. Its case is kept. Empty: "idem_records".
	Table string

	// Source is the source type of the store's records, of up to 64 bytes. It is half of the primary
	// key, so that several services or kinds of keys can share a table: a store sees only the
	// records of its own source. Empty: "idem".
	Source string

	// Creator is the creator column of the records that this store makes, for people who read the table. It is cut after 255
	// characters. Empty: the Creator of the claim; if that is empty, the host name.
	Creator string

	// Reset is called when a server turns out to be read-only, such as a demoted primary that has kept its connections. By then the
	// store has closed the idle connections of its *sql.DB, and it tries the call again afterwards. Use Reset for a pool below the
	// *sql.DB: pgxpool.Pool.Reset, with a *sql.DB from stdlib.OpenDBFromPool. It is called at most once a second and must be safe
	// for concurrent use.
	Reset func()

	// Prepared makes the store prepare PostgreSQL's statements once per connection. Use it with lib/pq, whose calls take several
	// times as long without it; pgx prepares them by itself. [NewURL] sets it for lib/pq. It is not safe behind a pooler that
	// shares connections between transactions: the pooler could run another service's statement.
	Prepared bool

	now string // of tests: an SQL expression
}

// WithRemark sets the remark of the records that are made or taken over with the returned context, such as an order number, for
// people who read the table. It replaces the claim's remark, and is cut after 255 characters.
func WithRemark(ctx context.Context, remark string) context.Context {
	return context.WithValue(ctx, remarkKey{}, note(remark))
}

type remarkKey struct{}

// note makes s fit a column for people: valid UTF-8, no NUL, at most 255 characters.
func note(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
	if utf8.RuneCountInString(s) > 255 {
		s = string([]rune(s)[:255])
	}
	return s
}

// New returns a store on db, which remains the caller's. It does not connect: the table must
// exist when the store is first used, see [Store.Migrate]. The error names every fault: a nil
// db, an unknown dialect, a bad table name or source.
func New(db *sql.DB, dialect Dialect, c Config) (*Store, error) {
	c.Table, c.Source = cmp.Or(c.Table, "idem_records"), cmp.Or(c.Source, "idem")
	host, _ := os.Hostname()
	var faults []error
	if db == nil {
		faults = append(faults, errors.New("sqlstore: the database is nil"))
	}
	if dialect < PostgreSQL || dialect > SQLite {
		faults = append(faults, fmt.Errorf("sqlstore: the dialect is unknown: %d", dialect))
	}
	table, err := dialect.table(c.Table)
	if err != nil {
		faults = append(faults, fmt.Errorf("sqlstore: Config.Table: %w", err))
	}
	if len(c.Source) > 64 || note(c.Source) != c.Source {
		faults = append(faults, fmt.Errorf("sqlstore: Config.Source: %q is not 1 to 64 bytes of text", c.Source))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if c.now == "" {
		c.now = dialect.now()
	}
	s := &Store{
		db: db, dialect: dialect, table: table, source: c.Source, creator: note(c.Creator), host: note(host),
		q: newStatements(dialect, table.name, c.now), pool: poolOf(db), reset: c.Reset,
		prepares: dialect != PostgreSQL || c.Prepared, resends: dialect == PostgreSQL && driverOf(db) != typePGX,
	}
	return s, nil
}

// Close closes the store's prepared statements, and its connections if [NewURL] opened them. No
// call may be under way. It may be called more than once.
func (s *Store) Close() {
	s.closed.Store(true)
	for _, q := range s.q.all() {
		if q != nil {
			q.close()
		}
	}
	if s.owned {
		s.db.Close()
	}
}

// Acquire implements store.Store.
func (s *Store) Acquire(ctx context.Context, key string, claim store.Claim) (grant store.Grant, err error) {
	if err := claim.Validate(); err != nil {
		return store.Grant{}, err
	}
	err = s.retry(ctx, "acquire", func() error {
		started := time.Now()
		grant, _, err = s.claim(ctx, nil, key, claim)
		if err == nil && grant.State == store.Acquired && late(started, claim.Lease) {
			// If another claim has taken over already, the caller must not run; but the record
			// was changed, so that Acquire returns an error.
			if err = s.renew(ctx, key, claim.Owner, claim.Lease); errors.Is(err, store.ErrLost) {
				err = errOvertaken
			}
		}
		return err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return grant, nil
}

var errOvertaken = errors.New("the lease passed before the claim could be reported, and another owner has taken over")

// late reports whether a statement took so long that much of the lease which it set has
// passed: the server counts a lease from the start of the statement, which may then have waited
// for a lock. Leases under one second are used as given.
func late(started time.Time, lease time.Duration) bool {
	return lease >= time.Second && time.Since(started) > lease/4
}

// renew makes owner's lease end lease from now.
func (s *Store) renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	return s.change(ctx, "renew", &values{key: storedKey(key), owner: owner[:], lease: s.dialect.lease(lease)}, s.q.renew)
}

// claim does what Acquire does, in one try, and in tx if that is not nil. The error is errAgain
// if the record was changed meanwhile. holder is the owner of the record that is there.
func (s *Store) claim(ctx context.Context, tx *transaction, key string, claim store.Claim) (g store.Grant, holder []byte, err error) {
	v := &values{
		key: storedKey(key), owner: claim.Owner[:], fingerprint: []byte(claim.Fingerprint), result: []byte{},
		lease: s.dialect.lease(claim.Lease), retention: micros(claim.Retention),
		id: idColumn(claim.ID), secret: claim.Secret, policy: claim.Policy,
		creator: cmp.Or(s.creator, claim.Creator, s.host), remark: claim.Remark,
	}
	if remark, set := ctx.Value(remarkKey{}).(string); set {
		v.remark = remark
	}

	r, err := s.insertOrLook(ctx, tx, v)
	if err != nil {
		return g, nil, err
	}
	if r.state == stateNew {
		return store.Grant{State: store.Acquired, Attempt: 1, ID: claim.ID, Secret: claim.Secret}, nil, nil
	}
	// A transaction whose commit was lost looks for its own record, however old that is.
	ours := tx != nil && r.state == stateDone && bytes.Equal(r.owner, v.owner)
	if r.left <= 0 && !ours { // expired
		return s.take(ctx, tx, s.q.replace, v, store.Grant{Attempt: 1, ID: claim.ID, Secret: claim.Secret})
	}
	g = store.Grant{Attempt: uint64(r.attempt), Fingerprint: string(r.fingerprint), ID: r.operation(), Remark: r.remark}
	switch {
	case r.state == stateDone:
		g.State, g.Result = store.Done, r.result
		if r.left, g.Expired = keeps(r.left, r.retention); g.Expired {
			g.Result = nil
		}
		g.Remaining = remaining(r.left)
	case r.state != stateRunning:
		return g, nil, fmt.Errorf("the record is in an unknown state: %d", r.state)
	case r.free():
		return s.takeUp(ctx, tx, s.q.takeFree, v, &r, claim)
	case r.lease > 0:
		g.State, g.Remaining = store.Running, remaining(r.lease-micros(s.dialect.tick()))
	case claim.Takeover && claim.Fingerprint == g.Fingerprint && (claim.Attempt == 0 || claim.Attempt == g.Attempt):
		return s.takeUp(ctx, tx, s.q.takeOver, v, &r, claim)
	default:
		g.State, g.Remaining = store.Abandoned, remaining(r.left)
	}
	return g, r.owner, nil
}

// takeUp makes r, which is abandoned or free, the claim's. With the same parameters its operation goes on.
func (s *Store) takeUp(ctx context.Context, tx *transaction, q *statement, v *values, r *row,
	claim store.Claim) (store.Grant, []byte, error) {
	was, err := s.leftBy(ctx, tx, v, r.hasLeft)
	if err != nil {
		return store.Grant{}, nil, orAgain(err)
	}
	g := store.Grant{Attempt: uint64(r.attempt) + 1, ID: claim.ID, Secret: claim.Secret}
	if id := r.operation(); id != (store.ID{}) && claim.Fingerprint == string(r.fingerprint) && was.older == 0 {
		g.ID, g.Secret = id, cmp.Or(was.secret, claim.Secret)
		g.Steps = append(g.Steps, was.steps...)
	} else if r.uncertain == kept {
		r.uncertain = 0
	}
	g.Free = r.free() && r.uncertain != uncertain
	v.attempt, v.was, v.steps, v.uncertain = r.attempt, idColumn(r.operation()), append([]byte{}, was.steps...), r.uncertain
	v.id, v.secret = idColumn(g.ID), g.Secret
	return s.take(ctx, tx, q, v, g)
}

// legacy is what an operation has left for its next run.
type legacy struct {
	older  int64 // not 0: it is that of an operation before this one
	secret string
	steps  []byte
}

// leftBy returns what the operation of a record has left, if it has left anything.
func (s *Store) leftBy(ctx context.Context, tx *transaction, v *values, any bool) (l legacy, err error) {
	if !any {
		return l, nil
	}
	found := new(legacy) // most records have none, and cost nothing
	err = s.queryOne(ctx, tx, s.q.left, v, &found.older, &found.secret, &found.steps)
	return *found, err
}

// take makes an existing record the claim's, and returns g as the grant.
func (s *Store) take(ctx context.Context, tx *transaction, q *statement, v *values, g store.Grant) (store.Grant, []byte, error) {
	n, err := s.exec(ctx, tx, q, v)
	if err == nil && n == 0 {
		err = errAgain
	}
	g.State = store.Acquired
	return g, nil, err
}

// insertOrLook makes a new record, or reads the existing one.
func (s *Store) insertOrLook(ctx context.Context, tx *transaction, v *values) (row, error) {
	if s.dialect == PostgreSQL {
		r, err := s.queryRow(ctx, tx, s.q.insertOrLook, v)
		return r, orAgain(err)
	}
	// Across a network, inserting first saves a round trip for a new record. In SQLite, looking
	// first is cheap and does not wait for the writer; but in a transaction, SQLite may refuse to write
	// after a read.
	lookFirst := s.dialect == SQLite && tx == nil
	if lookFirst {
		if r, err := s.queryRow(ctx, tx, s.q.look, v); !errors.Is(err, sql.ErrNoRows) {
			return r, err
		}
	}
	n, err := s.exec(ctx, tx, s.q.insert, v)
	switch {
	case err == nil && n == 1:
		return row{state: stateNew}, nil
	case err != nil && s.dialect.class(err) != classDuplicate:
		return row{}, err
	case lookFirst:
		return row{}, errAgain
	}
	r, err := s.queryRow(ctx, tx, s.q.look, v)
	return r, orAgain(err)
}

// orAgain turns sql.ErrNoRows, for a record that was there a moment ago, into errAgain.
func orAgain(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errAgain
	}
	return err
}

// Renew implements store.Store.
func (s *Store) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if lease <= 0 {
		return errors.New("sqlstore: renew: a lease must be longer than zero")
	}
	started := time.Now()
	err := s.renew(ctx, key, owner, lease)
	if err == nil && late(started, lease) {
		err = s.renew(ctx, key, owner, lease)
	}
	return err
}

// Complete implements store.Store.
func (s *Store) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if retention <= 0 {
		return s.change(ctx, "complete", &values{key: storedKey(key), owner: owner[:]}, s.q.forget, s.q.reset)
	}
	return s.change(ctx, "complete", completion(key, owner, result, retention), s.q.complete)
}

// outlive is store.Capabilities.Outlive.
func (s *Store) outlive(ctx context.Context, key string, owner store.Owner, result []byte, retention, known time.Duration) error {
	v := completion(key, owner, result, retention)
	v.known = -1 - micros(known)
	return s.change(ctx, "complete", v, s.q.outlive)
}

func completion(key string, owner store.Owner, result []byte, retention time.Duration) *values {
	if result == nil {
		result = []byte{} // nil would be NULL
	}
	return &values{key: storedKey(key), owner: owner[:], result: result, retention: micros(retention)}
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, key string, owner store.Owner) error {
	return s.change(ctx, "release", &values{key: storedKey(key), owner: owner[:]}, s.q.remove, s.q.undo)
}

// Abandon implements store.Store.
func (s *Store) Abandon(ctx context.Context, key string, owner store.Owner) error {
	return s.change(ctx, "abandon", &values{key: storedKey(key), owner: owner[:]}, s.q.abandon)
}

// checkpoint is store.Capabilities.Checkpoint.
func (s *Store) checkpoint(ctx context.Context, key string, owner store.Owner, steps []byte) error {
	steps = append([]byte{}, steps...)
	return s.change(ctx, "checkpoint",
		&values{key: storedKey(key), owner: owner[:], steps: steps, number: steps[:min(8, len(steps))]}, s.q.checkpoint)
}

// fail is store.Capabilities.Fail.
func (s *Store) fail(ctx context.Context, key string, owner store.Owner, goesOn bool) error {
	v := &values{key: storedKey(key), owner: owner[:]}
	if goesOn {
		return s.change(ctx, "fail", v, s.q.keep, s.q.leave)
	}
	return s.change(ctx, "fail", v, s.q.remove, s.q.finish, s.q.leave)
}

// change runs statements until one of them changes the record that v.owner holds. The error
// is store.ErrLost if none does.
func (s *Store) change(ctx context.Context, call string, v *values, statements ...*statement) error {
	return s.retry(ctx, call, func() error {
		for _, q := range statements {
			if n, err := s.exec(ctx, nil, q, v); err != nil || n > 0 {
				return err
			}
		}
		return store.ErrLost
	})
}

// batch is how many records one statement of Purge removes, or one of List goes through, at most.
const batch = 1000

const (
	maxKey  = 2048 // of the serial_number column: InnoDB has 3072 bytes for a key, PostgreSQL about 2700
	keyStem = maxKey - sha256.Size
)

// storedKey is key as the table has it. A key that does not fit is stored as its beginning and
// a digest of the whole. That has exactly 2048 bytes, which no shorter key has.
func storedKey(key string) []byte {
	if len(key) < maxKey {
		return []byte(key)
	}
	sum := sha256.Sum256([]byte(key))
	return append([]byte(key[:keyStem]), sum[:]...)
}
