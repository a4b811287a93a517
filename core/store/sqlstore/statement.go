package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idem/core/store"
)

// The states of a record in the table. A running record whose lease has passed is an
// abandoned one.
const (
	stateNew     = 0 // reported by insertOrLook for a record that was not there before
	stateRunning = 1
	stateDone    = 2
)

// statements are the SQL of a store. Each is atomic at every isolation level: the conditions of
// a change are in its own WHERE.
type statements struct {
	insertOrLook *statement // PostgreSQL only
	insert       *statement
	look         *statement
	left         *statement
	replace      *statement
	takeOver     *statement
	takeFree     *statement
	renew        *statement
	mark         *statement
	checkpoint   *statement
	complete     *statement
	outlive      *statement
	remove       *statement
	undo         *statement
	abandon      *statement
	forget       *statement
	reset        *statement
	keep         *statement
	finish       *statement
	leave        *statement
	strip        *statement
	purge        *statement

	// of the Inspector
	lookUp      *statement
	listed      *statement // without its end
	listedRange *statement
	byKey       *statement
	byAge       *statement
	free        *statement
	settle      *statement
	drop        *statement
}

const (
	insertSQL = `INSERT INTO {table} (source_type, serial_number, state, owner, attempt, fingerprint, result,
	remark, creator, created_at, updated_at, lease_until, retention, expires_at, version, operation_id, operation_at, secret, policy)
VALUES ({source}, {key}, 1, {owner}, 1, {fingerprint}, {result},
	{remark}, {creator}, {now}, {now}, {now} + {lease}, {retention}, {now} + {lease} + {retention}, 1, {id}, {now}, {secret}, {policy})`

	lookSQL = `SELECT state, attempt, fingerprint, result, owner, lease_until - {now}, ` + endsSQL + ` - {now}, retention, operation_id,
	uncertain + CASE WHEN secret <> '' OR LENGTH(steps) > 0 THEN 4 ELSE 0 END AS uncertain, remark
FROM {table} WHERE source_type = {source} AND serial_number = {key}`

	// The look sees the table as it was before the insert. If the insert conflicts with a record
	// that was committed since, there is no row at all.
	insertOrLookSQL = `WITH ins AS (` + insertSQL + ` ON CONFLICT (source_type, serial_number) DO NOTHING RETURNING 1)
SELECT 0::smallint, 1::bigint, ''::bytea, ''::bytea, ''::bytea, 0::bigint, 0::bigint, 0::bigint, ''::bytea, 0, '' FROM ins
UNION ALL ` + lookSQL + ` AND NOT EXISTS (SELECT 1 FROM ins)`

	// What an operation has left for its next run. Few have left anything. It is good only if operation_at is created_at: a process of
	// 0.1.0 that replaces an expired record leaves it.
	leftSQL = `SELECT created_at - operation_at, secret, steps FROM {table} WHERE source_type = {source} AND serial_number = {key}`

	// An expired record is replaced by a new one.
	replaceSQL = `UPDATE {table} SET state = 1, owner = {owner}, attempt = 1, fingerprint = {fingerprint}, result = {result},
	operation_id = {id}, operation_at = {now}, uncertain = 0, secret = {secret}, steps = {nobody},
	policy = {policy}, remark = {remark}, creator = {creator}, created_at = {now}, updated_at = {now},
	lease_until = {now} + {lease}, retention = {retention}, expires_at = {now} + {lease} + {retention}, version = version + 1
WHERE source_type = {source} AND serial_number = {key} AND ` + endsSQL + ` <= {now}`

	// {id} is that of the operation as it goes on, {was} and {steps} are those of the record that was seen: the grant tells of the same
	// operation as the record, and of all its steps.
	takeOverSQL = `UPDATE {table} SET owner = {owner}, attempt = attempt + 1,
	steps = CASE WHEN ` + sameSQL + ` THEN steps ELSE {nobody} END, secret = {secret}, operation_id = {id}, operation_at = created_at,
	uncertain = 0, policy = {policy}, remark = {remark}, creator = {creator}, updated_at = {now},
	lease_until = {now} + {lease}, retention = {retention}, expires_at = {now} + {lease} + {retention}, version = version + 1
WHERE source_type = {source} AND serial_number = {key} AND state = 1 AND lease_until <= {now} AND expires_at > {now}
	AND fingerprint = {fingerprint} AND attempt = {attempt} AND operation_id = {was} AND COALESCE(steps, {nobody}) = {steps}
	AND (retention >= 0 OR LENGTH(owner) > 0)`

	// The retention of a free record, and of a run that has claimed one, is stored as -1-retention. A free record
	// has no owner. expires_at comes first: PostgreSQL takes the type of a parameter from its first use. What is compared
	// comes before it is assigned: MySQL sees what it has assigned already. An operation with other parameters does not get
	// what RunTx has committed in the one before it.
	takeFreeSQL = `UPDATE {table} SET expires_at = {now} + {lease} + {retention}, retention = -1 - {retention},
	created_at = CASE WHEN ` + sameSQL + ` THEN created_at ELSE {now} END,
	operation_at = CASE WHEN ` + sameSQL + ` THEN operation_at ELSE {now} END,
	steps = CASE WHEN ` + sameSQL + ` THEN steps ELSE {nobody} END, secret = {secret}, operation_id = {id}, uncertain = {uncertain},
	result = CASE WHEN fingerprint = {fingerprint} THEN result ELSE {nobody} END, fingerprint = {fingerprint},
	owner = {owner}, attempt = attempt + 1, policy = {policy},
	remark = {remark}, creator = {creator}, updated_at = {now}, lease_until = {now} + {lease}, version = version + 1
WHERE source_type = {source} AND serial_number = {key} AND state = 1 AND retention < 0 AND LENGTH(owner) = 0 AND expires_at > {now}
	AND attempt = {attempt} AND operation_id = {was} AND COALESCE(steps, {nobody}) = {steps}`

	sameSQL = `operation_id = {id} AND LENGTH(operation_id) > 0`

	span = `CASE WHEN retention < 0 THEN -1 - retention ELSE retention END`

	heldSQL = ` WHERE source_type = {source} AND serial_number = {key} AND state = 1 AND owner = {owner} AND expires_at > {now}`

	renewSQL = `UPDATE {table} SET lease_until = {now} + {lease}, expires_at = {now} + {lease} + ` + span + `,
	updated_at = {now}, version = version + 1` + heldSQL

	// A running record has a result if RunTx has committed one in its run. A takeover keeps it.
	markSQL = `UPDATE {table} SET result = {result}, updated_at = {now}, version = version + 1` + heldSQL

	// A checkpoint that comes after a newer one leaves the steps as they are. (In MySQL they may be NULL.)
	checkpointSQL = `UPDATE {table} SET steps = CASE WHEN SUBSTR(steps, 1, 8) >= {number} THEN steps ELSE {steps} END,
	updated_at = {now}, version = version + 1` + heldSQL

	completeSQL = `UPDATE {table} SET state = 2, result = {result}, steps = {nobody}, retention = {retention},
	expires_at = {now} + {retention}, updated_at = {now}, version = version + 1` + heldSQL

	// A finished record that outlives its result has the retention -1-known. Until the result is removed, its expires_at is when the result
	// ends, plus far: so Purge finds it by the index, and a process of 0.1.0 does not take it for expired.
	outliveSQL = `UPDATE {table} SET state = 2, result = {result}, steps = {nobody}, retention = {known},
	expires_at = {now} + {retention} + ` + far + `, updated_at = {now}, version = version + 1` + heldSQL

	far = `4611686018427387904` // 1<<62 microseconds

	// endsSQL is when a record stops counting.
	endsSQL = `CASE WHEN expires_at > ` + far + ` THEN expires_at - ` + far + ` - 1 - retention ELSE expires_at END`

	// Release runs these two. The first removes a first attempt. The second keeps a later one without an owner as what it
	// was before, free or abandoned, and one that has committed a result as an abandoned one. The operation of a free record
	// has ended, unless the claim has gone on with one that was kept (uncertain is 1 or 2).
	removeSQL = forgetSQL + ` AND LENGTH(result) = 0`
	undoSQL   = endSQL + `owner = {nobody},
	operation_id = CASE WHEN ` + overSQL + ` THEN {nobody} ELSE operation_id END,
	steps = CASE WHEN ` + overSQL + ` THEN {nobody} ELSE steps END,
	retention = CASE WHEN LENGTH(result) > 0 THEN ` + span + ` ELSE retention END` + heldSQL + `
	AND (attempt > 1 OR LENGTH(result) > 0)`

	overSQL = `retention < 0 AND uncertain = 0 AND LENGTH(result) = 0`

	// A Fail that goes on runs keepSQL, another one removeSQL and finishSQL. What has committed a result is left to leaveSQL. Of
	// the statements of a call only one can hold of a record: so the call is one step, also if its owner claims the record anew
	// between two of them.
	keepSQL = endSQL + `owner = {nobody}, uncertain = CASE WHEN uncertain = 1 OR retention >= 0 AND attempt > 1 THEN 1 ELSE 2 END,
	retention = -1 - (` + span + `)` + heldSQL + ` AND LENGTH(result) = 0`
	finishSQL = resetSQL + ` AND LENGTH(result) = 0`
	leaveSQL  = undoSQL + ` AND LENGTH(result) > 0`

	abandonSQL = endSQL + `owner = {nobody}, uncertain = 0, retention = ` + span + heldSQL

	// Complete without a retention runs these two, which also forget a committed result.
	forgetSQL = `DELETE FROM {table}` + heldSQL + ` AND attempt = 1`
	resetSQL  = endSQL + `owner = {nobody}, operation_id = {nobody}, steps = {nobody}, uncertain = 0, result = {nobody},
	retention = -1 - (` + span + `)` + heldSQL + ` AND attempt > 1`

	// The lease ends at 0, not at {now}: a statement that began earlier has an earlier {now}. expires_at comes before
	// retention: MySQL sees what it has assigned already.
	endSQL = `UPDATE {table} SET expires_at = {now} + ` + span + `, lease_until = 0, updated_at = {now}, version = version + 1, `

	// Purge runs these two, on batches.
	stripSQL   = `UPDATE {table} SET result = {nobody}, expires_at = ` + endsSQL + `, updated_at = {now}, version = version + 1`
	outlived   = `expires_at > ` + far + ` AND expires_at <= ` + far + ` + {now}`
	deleteSQL  = `DELETE FROM {table}`
	expiredSQL = `expires_at <= {now}`
)

// inBatches is a statement about a batch of the records of which a condition holds.
func (d Dialect) inBatches(statement, condition string) string {
	rest := condition + ` ORDER BY expires_at LIMIT {batch}`
	switch d {
	case PostgreSQL:
		// A record that another statement is replacing is skipped. One that was replaced between the
		// subquery and the lock is checked again, by the outer WHERE.
		return statement + ` WHERE ` + condition + ` AND ctid = ANY (ARRAY(
	SELECT ctid FROM {table} WHERE ` + rest + ` FOR UPDATE SKIP LOCKED))`
	case SQLite:
		return statement + ` WHERE rowid IN (
	SELECT rowid FROM {table} WHERE ` + rest + `)`
	}
	return statement + ` WHERE ` + rest
}

func newStatements(d Dialect, table, now string) statements {
	c := func(text string) *statement { return compile(d, table, now, text) }
	s := statements{
		look: c(lookSQL), left: c(leftSQL), replace: c(replaceSQL), takeOver: c(takeOverSQL), takeFree: c(takeFreeSQL),
		renew: c(renewSQL), mark: c(markSQL), checkpoint: c(checkpointSQL), complete: c(completeSQL), outlive: c(outliveSQL),
		remove: c(removeSQL), undo: c(undoSQL), abandon: c(abandonSQL), forget: c(forgetSQL), reset: c(resetSQL), keep: c(keepSQL),
		finish: c(finishSQL), leave: c(leaveSQL), lookUp: c(lookUpSQL), listed: c(listedSQL), listedRange: c(rangeSQL), byKey: c(byKeySQL),
		byAge: c(byAgeSQL), free: c(freeSQL), settle: c(settleSQL), drop: c(dropSQL),
		strip: c(d.inBatches(stripSQL, outlived)), purge: c(d.inBatches(deleteSQL, expiredSQL)),
	}
	switch d {
	case PostgreSQL:
		s.insertOrLook = c(insertOrLookSQL)
	case MySQL:
		s.insert = c(insertSQL) // not INSERT IGNORE, which would also cut a value that is too long
	case SQLite:
		s.insert = c(insertSQL + ` ON CONFLICT (source_type, serial_number) DO NOTHING`)
	}
	return s
}

func (s *statements) all() []*statement {
	return []*statement{s.insertOrLook, s.insert, s.look, s.left, s.replace, s.takeOver, s.takeFree, s.renew,
		s.mark, s.checkpoint, s.complete, s.outlive,
		s.remove, s.undo, s.abandon, s.forget, s.reset, s.keep, s.finish, s.leave, s.strip, s.purge, s.lookUp,
		s.byKey, s.byAge, s.free, s.settle, s.drop}
}

// statement is one SQL statement in a dialect.
type statement struct {
	text     string
	params   []string // the names of the parameters, in the order of the placeholders
	prepared atomic.Pointer[sql.Stmt]
}

// compile replaces each {name} in template: {table} and {now} by their text, the others by
// placeholders.
func compile(d Dialect, table, now, template string) *statement {
	var text strings.Builder
	q := &statement{}
	numbers := map[string]int{}
	for rest := template; ; {
		plain, after, found := strings.Cut(rest, "{")
		text.WriteString(plain)
		if !found {
			break
		}
		name, tail, _ := strings.Cut(after, "}")
		rest = tail
		switch {
		case name == "table":
			text.WriteString(table)
		case name == "now":
			text.WriteString(now)
		case d == PostgreSQL:
			if numbers[name] == 0 {
				q.params = append(q.params, name)
				numbers[name] = len(q.params)
			}
			text.WriteString("$" + strconv.Itoa(numbers[name]))
		default:
			q.params = append(q.params, name)
			text.WriteString("?")
		}
	}
	q.text = text.String()
	return q
}

// values are a call's values for the parameters of a statement.
type values struct {
	key, owner, fingerprint, result []byte
	lease, retention, attempt       int64
	known                           int64 // as the column retention has it
	uncertain                       int64
	secret, policy, creator, remark string
	id, was, steps                  []byte // never nil, which would be NULL
	number                          []byte // of the steps

	// of the Inspector
	state, states, since int64
	from, to             []byte
}

// args returns the arguments of a statement. It is long and simple: one case for each parameter that a statement may name.
//
//gocyclo:ignore
func (s *Store) args(q *statement, v *values) []any {
	args := make([]any, len(q.params))
	for i, name := range q.params {
		switch name {
		case "source":
			args[i] = s.source
		case "creator":
			args[i] = v.creator
		case "secret":
			args[i] = v.secret
		case "steps":
			args[i] = v.steps
		case "number":
			args[i] = v.number
		case "uncertain":
			args[i] = v.uncertain
		case "policy":
			args[i] = v.policy
		case "id":
			args[i] = v.id
		case "was":
			args[i] = v.was
		case "state":
			args[i] = v.state
		case "states":
			args[i] = v.states
		case "since":
			args[i] = v.since
		case "from":
			args[i] = v.from
		case "to":
			args[i] = v.to
		case "key":
			args[i] = v.key
		case "owner":
			args[i] = v.owner
		case "nobody":
			args[i] = []byte{}
		case "fingerprint":
			args[i] = v.fingerprint
		case "result":
			args[i] = v.result
		case "remark":
			args[i] = v.remark
		case "lease":
			args[i] = v.lease
		case "retention":
			args[i] = v.retention
		case "known":
			args[i] = v.known
		case "attempt":
			args[i] = v.attempt
		case "batch":
			args[i] = int64(batch)
		}
	}
	if s.resends {
		args[0] = &sendOnce{value: args[0]}
	}
	return args
}

// sendOnce is an argument that makes the second sending of its statement fail. database/sql sends a statement again if
// the driver says that it was not sent; lib/pq also says so if the connection broke afterwards
// (https://github.com/lib/pq/issues/939). The second claim would then find the first.
type sendOnce struct {
	value any
	sent  bool
}

// Value implements driver.Valuer.
func (o *sendOnce) Value() (driver.Value, error) {
	if o.sent {
		return nil, errSentTwice
	}
	o.sent = true
	return o.value, nil
}

var errSentTwice = errors.New("the connection broke; the statement may or may not have taken effect")

// transaction is one in which a store's statements run together with others.
type transaction struct {
	*sql.Tx
	ours bool // begun on the store's own pool
}

// exec runs q, in tx if that is not nil, and returns the number of rows that it changed.
func (s *Store) exec(ctx context.Context, tx *transaction, q *statement, v *values) (int64, error) {
	if s.dialect == SQLite && tx == nil {
		select {
		case s.pool.writer <- struct{}{}:
			defer func() { <-s.pool.writer }()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if s.dialect == MySQL && len(v.result) > large {
		return s.execLarge(ctx, tx, q, v)
	}
	var result sql.Result
	stmt, err := s.prepared(ctx, tx, q)
	switch args := s.args(q, v); {
	case err != nil:
		return 0, err
	case stmt != nil:
		result, err = stmt.ExecContext(ctx, args...)
	case tx != nil:
		result, err = tx.ExecContext(ctx, q.text, args...)
	default:
		result, err = s.db.ExecContext(ctx, q.text, args...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// large is the size of a result from which on MySQL's statements are prepared for one call only:
// a prepared statement that was given more than max_allowed_packet can't be used again.
const large = 64 << 10

// execLarge is exec for a large result. It prepares the statement, because a result grows when it
// is escaped into the text. A result over the server's limit is not sent: the server would close
// the connection without a reason.
func (s *Store) execLarge(ctx context.Context, tx *transaction, q *statement, v *values) (int64, error) {
	limit := s.packet.Load()
	query, prepare := s.db.QueryRowContext, s.db.PrepareContext
	if tx != nil {
		query, prepare = tx.QueryRowContext, tx.PrepareContext
	}
	if limit == 0 {
		if err := query(ctx, "SELECT @@max_allowed_packet").Scan(&limit); err != nil {
			return 0, err
		}
		s.packet.Store(limit)
	}
	if int64(len(v.result))+large > limit {
		return 0, fmt.Errorf("%w: a result of %d bytes, where max_allowed_packet is %d", store.ErrFull, len(v.result), limit)
	}
	stmt, err := prepare(ctx, q.text)
	if err != nil {
		return 0, err
	}
	defer stmt.Close()
	result, err := stmt.ExecContext(ctx, s.args(q, v)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// queryRow runs q, in tx if that is not nil, and returns the record that it finds. The error is
// sql.ErrNoRows if there is none.
func (s *Store) queryRow(ctx context.Context, tx *transaction, q *statement, v *values) (r row, err error) {
	err = s.queryOne(ctx, tx, q, v, &r.state, &r.attempt, &r.fingerprint, &r.result, &r.owner, &r.lease, &r.left,
		&r.retention, &r.id, &r.uncertain, &r.remark)
	r.hasLeft, r.uncertain = r.uncertain >= hasLeft, r.uncertain%hasLeft
	return r, err
}

// queryOne runs q, in tx if that is not nil, and reads the row that it finds.
func (s *Store) queryOne(ctx context.Context, tx *transaction, q *statement, v *values, dest ...any) error {
	var found *sql.Row
	stmt, err := s.prepared(ctx, tx, q)
	switch args := s.args(q, v); {
	case err != nil:
		return err
	case stmt != nil:
		found = stmt.QueryRowContext(ctx, args...)
	case tx != nil:
		found = tx.QueryRowContext(ctx, q.text, args...)
	default:
		found = s.db.QueryRowContext(ctx, q.text, args...)
	}
	return found.Scan(dest...)
}

// row is a record as the table has it.
type row struct {
	state                      int
	attempt                    int64
	fingerprint, result, owner []byte
	lease, left                int64 // remaining time of the lease and of the record, in microseconds
	retention                  int64 // negative: see takeFreeSQL, and of a finished record, outliveSQL
	id                         []byte
	uncertain                  int64 // of a free record, and of a run that has claimed one: see uncertain and kept
	hasLeft                    bool  // there are a secret or steps
	remark                     string
}

// The values of the column uncertain, but 0: the record has kept its operation.
const (
	uncertain = 1 // and an earlier run may have taken effect
	kept      = 2
	hasLeft   = 4 // see lookSQL
)

// operation returns the ID of the operation.
func (r *row) operation() (id store.ID) {
	copy(id[:], r.id)
	return id
}

// idColumn is id as the table has it.
func idColumn(id store.ID) []byte {
	if id == (store.ID{}) {
		return []byte{}
	}
	return id[:]
}

// keeps returns how long a finished record keeps its result, or, if it has outlived that, how long it is known without it. left is how
// long it counts.
func keeps(left, retention int64) (remains int64, expired bool) {
	known := -1 - retention
	if retention >= 0 || left <= known {
		return left, retention < 0
	}
	return left - known, false
}

// free reports whether any claim gets the record.
func (r *row) free() bool { return r.retention < 0 && len(r.owner) == 0 }

// prepared returns q as a prepared statement, or nil if it is to be sent as text: to PostgreSQL
// without Config.Prepared, and in a transaction on another pool.
func (s *Store) prepared(ctx context.Context, tx *transaction, q *statement) (*sql.Stmt, error) {
	if !s.prepares {
		return nil, nil
	}
	stmt := q.prepared.Load()
	if tx != nil {
		// Preparing takes a connection of the pool. A pool of one would wait for itself.
		if stmt == nil || !tx.ours {
			return nil, nil
		}
		return tx.StmtContext(ctx, stmt), nil
	}
	if stmt != nil {
		return stmt, nil
	}
	if s.closed.Load() {
		return nil, errClosed
	}
	stmt, err := s.db.PrepareContext(ctx, q.text)
	if err != nil {
		return nil, err
	}
	if !q.prepared.CompareAndSwap(nil, stmt) {
		stmt.Close() // another call was faster
		return q.prepared.Load(), nil
	}
	if s.closed.Load() { // meanwhile
		q.close()
		return nil, errClosed
	}
	return stmt, nil
}

func (q *statement) close() {
	if stmt := q.prepared.Swap(nil); stmt != nil {
		stmt.Close()
	}
}

var errClosed = errors.New("the store is closed")
