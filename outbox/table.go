package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store/sqlstore"
)

// The states of a message in the table.
const (
	stateNew      = 0
	stateRetrying = 1 // it has failed, and is tried again at state_at
	stateSent     = 2
	stateParked   = 3
)

// The statements. All but the first run outside of the caller's transactions, each by itself. They
// may run twice, so that they are tried again after any failure.
const (
	insertSQL = `INSERT INTO {table} (id, message_key, exchange, topic, headers, content_type, body,
	created_at, state, state_at, attempts, last_error) VALUES %s`
	insertRow = `(?, ?, ?, ?, ?, ?, ?, {now}, 0, 0, 0, '')`

	columns = "position, id, message_key, exchange, topic, headers, content_type, body, created_at, attempts, state"

	// It does not remember a position up to which everything was read: of two transactions, the one
	// with the lower positions may be committed later. The range of state_at, which is 0 in all new
	// messages, keeps the planner from following the primary key through all sent ones.
	readSQL = `SELECT * FROM (SELECT ` + columns + ` FROM {table} WHERE {new}
	AND (message_key = '' OR message_key NOT IN (SELECT message_key FROM {table} WHERE state = 1 AND message_key <> ''))
	ORDER BY state, state_at, position LIMIT %[1]s) AS fresh
UNION ALL SELECT * FROM (SELECT ` + columns + ` FROM {table} WHERE state = 1 AND state_at <= {now}
	ORDER BY state_at, position LIMIT %[1]s) AS failed`

	// A message that was sent is marked as sent, whichever relay holds the lease by now.
	sentSQL   = `UPDATE {table}{primary} SET state = 2, state_at = {now} WHERE position IN (%s) AND state <> 2`
	failedSQL = `UPDATE {table} SET state = %d, state_at = {now} + %d, attempts = %d, last_error = ?
WHERE position = %d AND state IN (0, 1)`
	unparkSQL = `UPDATE {table} SET state = 0, state_at = 0, attempts = 0 WHERE id = ? AND state = 3`

	leaseSQL = `UPDATE {table}_lease SET owner = ?, lease_until = {now} + %d
WHERE name = 'relay' AND (owner = ? OR lease_until <= {now})`
	remainingSQL = `SELECT owner, lease_until - {now} FROM {table}_lease WHERE name = 'relay'`
	releaseSQL   = `UPDATE {table}_lease SET lease_until = 0 WHERE name = 'relay' AND owner = ?`

	statsSQL = `SELECT state, COUNT(*), {now} - MIN(created_at) FROM {table} WHERE state IN (0, 1, 3) GROUP BY state`

	// In two steps, the second by the primary key: MySQL then locks no gap into which others insert.
	oldSQL   = `SELECT position FROM {table} WHERE state = 2 AND state_at <= {now} - %d ORDER BY state_at, position LIMIT %s`
	purgeSQL = `DELETE FROM {table}{using} WHERE position IN (%s) AND state = 2`
)

// words replaces what a statement has in braces.
func words(dialect sqlstore.Dialect, table string) *strings.Replacer {
	primary, using, fresh := "", "", "state = 0 AND state_at <= 0"
	switch dialect {
	case sqlstore.PostgreSQL:
		// For bounds that it does not know before it runs the statement, the planner assumes a third of
		// the rows each, whatever its statistics say: so many that it does not sort them. See limit.
		fresh = "state < (SELECT 1) AND state_at <= (SELECT 0)"
	case sqlstore.MySQL:
		// In a small table MySQL would read and lock all rows, including those of transactions that
		// are under way.
		primary = " FORCE INDEX (PRIMARY)"
		using = " USING " + table + primary
	}
	return strings.NewReplacer("{table}", table, "{now}", clock(dialect), "{primary}", primary, "{using}", using, "{new}", fresh)
}

// limit returns n for a LIMIT. PostgreSQL's planner takes one that it does not know for a tenth of
// the rows, for which it follows the index. If it knew n, and believed that there are no more rows
// than that (in a table without statistics, say), it would sort the whole backlog for each page.
func (o *Outbox) limit(n int) string {
	if o.dialect == sqlstore.PostgreSQL {
		return fmt.Sprintf("(SELECT %d)", n)
	}
	return strconv.Itoa(n)
}

// planAgain is appended to a statement when there is a backlog. The other text makes PostgreSQL plan
// again where a driver has prepared the statement (pgx does) when the table was empty: with
// statistics that say so, a plan is made then that reads the whole table.
const planAgain = " /* backlog */"

// sql returns a statement in the database's dialect.
func (o *Outbox) sql(template string, args ...any) string {
	text := o.words.Replace(fmt.Sprintf(template, args...))
	if o.dialect != sqlstore.PostgreSQL {
		return text
	}
	parts := strings.Split(text, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}

// failure returns err as a call returns it, with a hint if the tables do not exist.
func failure(d sqlstore.Dialect, what string, err error) error {
	if d.IsNoTable(err) {
		return fmt.Errorf("outbox: %s: the table does not exist: run Migrate, or the statements of Schema: %w", what, err)
	}
	return fmt.Errorf("outbox: %s: %w", what, err)
}

const (
	tries     = 20 // package sqlstore says why
	lastPause = 50 * time.Millisecond
)

// retry tries several times: deadlocks, serialisation failures, SQLite's locks and broken
// connections are mostly short.
func (o *Outbox) retry(ctx context.Context, what string, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		if n == tries || !sleep(ctx, rand.N(min(time.Millisecond<<n, lastPause)), nil) {
			return failure(o.dialect, what, err)
		}
	}
}

// exec runs a statement, and returns how many rows it changed.
func (o *Outbox) exec(ctx context.Context, what, statement string, args ...any) (n int64, err error) {
	err = o.retry(ctx, what, func() error {
		result, err := o.db.ExecContext(ctx, statement, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

// query calls scan for each row.
func (o *Outbox) query(ctx context.Context, what, statement string, scan func(*sql.Rows) error) error {
	rows, err := o.db.QueryContext(ctx, statement)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return failure(o.dialect, what, err)
	}
	return nil
}

// sleep returns after d, or when woken, or when ctx has ended. It reports whether ctx has not.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// maxList is how many positions a statement names at most. MariaDB would turn 1000 into a table to
// join with, and then read and lock all rows.
const maxList = 500

// list returns positions as they are written in IN (…).
func list(positions []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(positions), " ", ","), "[]")
}

// read returns the messages that may be sent now, by position, at most limit of each kind: new
// ones, except those whose key has a failed message; and failed ones that are due again.
func (o *Outbox) read(ctx context.Context, limit int, suffix string) (fresh, failed []Message, err error) {
	err = o.query(ctx, "read", o.sql(readSQL, o.limit(limit))+suffix, func(rows *sql.Rows) error {
		var m Message
		var headers []byte
		var created int64
		var state int
		err := rows.Scan(&m.Position, &m.ID, &m.Key, &m.Exchange, &m.Topic, &headers, &m.ContentType, &m.Body, &created, &m.Attempt, &state)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(headers, &m.Headers); err != nil {
			return fmt.Errorf("the headers of %q: %w", m.ID, err)
		}
		m.CreatedAt = time.UnixMicro(created)
		m.Attempt++
		if state == stateNew {
			fresh = append(fresh, m)
		} else {
			failed = append(failed, m)
		}
		return nil
	})
	slices.SortFunc(fresh, byPosition) // the union promises no order
	slices.SortFunc(failed, byPosition)
	return fresh, failed, err
}

func byPosition(a, b Message) int { return cmp.Compare(a.Position, b.Position) }

// lease acquires or renews the lease for owner. If another relay holds it, remaining is how long
// that lease is still valid.
func (o *Outbox) lease(ctx context.Context, owner string, lease time.Duration) (held bool, remaining time.Duration, err error) {
	n, err := o.exec(ctx, "lease", o.sql(leaseSQL, lease.Microseconds()), owner, owner)
	if err != nil || n > 0 {
		return n > 0, 0, err
	}
	_, remaining, err = o.holder(ctx)
	return false, remaining, err
}

// holder returns the latest owner of the lease, and how long the lease is still valid.
func (o *Outbox) holder(ctx context.Context) (owner string, remaining time.Duration, err error) {
	var left int64
	found := false
	err = o.query(ctx, "lease", o.sql(remainingSQL), func(rows *sql.Rows) error { found = true; return rows.Scan(&owner, &left) })
	if err == nil && !found {
		err = errNoLease
	}
	return owner, time.Duration(left) * time.Microsecond, err
}

// Stats are figures for monitoring.
type Stats struct {
	// Unsent is how many messages are still to be sent, and Oldest the age of the oldest of them.
	Unsent int64
	Oldest time.Duration
	// Retrying is how many of Unsent have failed and will be tried again.
	Retrying int64
	// Parked is how many messages are not sent any more, see RelayConfig.MaxAttempts.
	Parked int64
	// Relay is the name of the relay that holds the lease; empty if none does.
	Relay string
}

// Stats reads the figures from the database. Its cost grows with the number of unsent messages.
func (o *Outbox) Stats(ctx context.Context) (s Stats, err error) {
	err = o.query(ctx, "stats", o.sql(statsSQL), func(rows *sql.Rows) error {
		var state int
		var count, age int64
		err := rows.Scan(&state, &count, &age)
		if state == stateParked {
			s.Parked = count
			return err
		}
		if state == stateRetrying {
			s.Retrying = count
		}
		s.Unsent += count
		s.Oldest = max(s.Oldest, time.Duration(age)*time.Microsecond)
		return err
	})
	if err != nil {
		return Stats{}, err
	}
	owner, remaining, err := o.holder(ctx)
	if err == nil && remaining > 0 {
		s.Relay, _, _ = strings.Cut(owner, ownerMark)
	}
	return s, err
}

// Purge removes the messages that were sent more than olderThan ago, and returns how many it
// removed. It works in batches of 500, each a transaction of its own; after an error, the messages
// that it has counted stay removed. Parked messages stay. It may run concurrently with all other calls.
func (o *Outbox) Purge(ctx context.Context, olderThan time.Duration) (purged int64, err error) {
	for suffix := ""; ; suffix = planAgain {
		var old []int64
		err := o.query(ctx, "purge", o.sql(oldSQL, olderThan.Microseconds(), o.limit(maxList))+suffix, func(rows *sql.Rows) error {
			var position int64
			err := rows.Scan(&position)
			old = append(old, position)
			return err
		})
		if err != nil || len(old) == 0 {
			return purged, err
		}
		n, err := o.exec(ctx, "purge", o.sql(purgeSQL, list(old)))
		purged += n
		if err != nil || len(old) < maxList {
			return purged, err
		}
	}
}

// Unpark makes the parked message with this ID due again, as if it were new, and reports whether
// there was one. Later messages of its key may have been sent before it.
func (o *Outbox) Unpark(ctx context.Context, id string) (bool, error) {
	n, err := o.exec(ctx, "unpark", o.sql(unparkSQL), id)
	return n > 0, err
}
