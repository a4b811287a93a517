package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/core/store"
)

// The statements of the Inspector. A state is a number of store.State there.
const (
	stateSQL = `CASE WHEN state = 2 THEN 4 WHEN state <> 1 THEN 0
	WHEN retention < 0 AND LENGTH(owner) = 0 THEN 5 WHEN lease_until > {now} THEN 2 ELSE 3 END`

	recordSQL = `SELECT serial_number, ` + stateSQL + `, attempt, fingerprint, operation_id, policy, creator, remark,
	created_at, lease_until - {now}, ` + endsSQL + ` - {now}, retention, LENGTH(result)`
	standingSQL = ` FROM {table} WHERE source_type = {source} AND ` + endsSQL + ` > {now}`

	lookUpSQL = recordSQL + `, result` + standingSQL + ` AND serial_number = {key}`
	listedSQL = recordSQL + standingSQL + ` AND serial_number IN `
	rangeSQL  = recordSQL + standingSQL + ` AND serial_number >= {from} AND serial_number < {to} ORDER BY serial_number LIMIT {batch}`

	// A list goes through all records in its order, so that no statement takes longer, however few are wanted.
	scanSQL = `SELECT serial_number, created_at, CASE WHEN ` + endsSQL + ` > {now} AND ({states} & (1 << (` + stateSQL + `))) <> 0
	AND (policy = {policy} OR {policy} = '') AND (operation_id = {id} OR LENGTH({id}) = 0) THEN 1 ELSE 0 END
FROM {table} WHERE source_type = {source}`
	byKeySQL = scanSQL + ` AND serial_number >= {from} AND serial_number < {to} ORDER BY serial_number LIMIT {batch}`
	byAgeSQL = scanSQL + ` AND state = 1 AND created_at >= {since} AND (created_at > {since} OR serial_number >= {from})
ORDER BY created_at, serial_number LIMIT {batch}`

	expectedSQL = ` WHERE source_type = {source} AND serial_number = {key} AND ` + endsSQL + ` > {now}
	AND operation_id = {was} AND attempt = {attempt} AND ` + stateSQL + ` = {state}`

	remarkSQL = `remark = COALESCE(NULLIF({remark}, ''), remark), `

	// What RunTx has committed stays, for the next run.
	freeSQL   = endSQL + remarkSQL + `owner = {nobody}, uncertain = 1, retention = -1 - (` + span + `)` + expectedSQL
	settleSQL = `UPDATE {table} SET state = 2, result = {result}, steps = {nobody}, retention = {retention},
	expires_at = {now} + {retention}, ` + remarkSQL + `owner = {nobody}, updated_at = {now}, version = version + 1` + expectedSQL
	dropSQL = `DELETE FROM {table}` + expectedSQL
)

// inspector is the store's [store.Inspector]. It sees the records of the store's source only. Each record that stands
// throughout a list is in it exactly once; a free one that is claimed meanwhile is another operation. A list without
// finished ones has those begun first at its head.
type inspector struct{ *Store }

// Lookup implements [store.Inspector].
func (s inspector) Lookup(ctx context.Context, key string) (r store.Record, err error) {
	for _, stored := range storedForms(key) {
		err = s.retry(ctx, "lookup", func() error {
			found := store.ErrNoRecord
			err := s.query(ctx, s.q.lookUp, &values{key: stored}, func(rows *sql.Rows) (err error) {
				r, err = s.scan(rows, true)
				found = nil
				return err
			})
			if err != nil {
				return err
			}
			return found
		})
		if !errors.Is(err, store.ErrNoRecord) {
			break
		}
	}
	return r, err
}

// storedForms returns how the table may have a key: as storedKey says, but one that comes from a Record may be cut already.
func storedForms(key string) [][]byte {
	if len(key) == maxKey {
		return [][]byte{[]byte(key), storedKey(key)}
	}
	return [][]byte{storedKey(key)}
}

// scan reads a record, from a row that ends with its result if that is wanted.
func (s inspector) scan(rows *sql.Rows, withResult bool) (r store.Record, err error) {
	var key, fingerprint, id, result []byte
	var attempt, created, lease, left, retention int64
	dest := []any{&key, &r.State, &attempt, &fingerprint, &id, &r.Policy, &r.Creator, &r.Remark,
		&created, &lease, &left, &retention, &r.Size}
	if withResult {
		dest = append(dest, &result)
	}
	if err := rows.Scan(dest...); err != nil {
		return store.Record{}, err
	}
	r.Key, r.Attempt, r.Fingerprint, r.Begun = string(key), uint64(attempt), string(fingerprint), time.UnixMicro(created)
	copy(r.ID[:], id)
	switch r.State {
	case store.Running:
		left = lease - micros(s.dialect.tick())
	case store.Done:
		left, r.Expired = keeps(left, retention)
	}
	r.Remaining = remaining(left)
	if r.Result = result; r.State != store.Done || r.Expired { // what RunTx has committed is none yet
		r.Size, r.Result = 0, nil
	}
	return r, nil
}

// spot is where a record is in a list.
type spot struct {
	begun int64
	key   string
}

// cursor is text from which the list goes on behind p.
func (p spot) cursor() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.begun)), p.key...))
}

// after returns the first spot behind a cursor.
func after(cursor string) (spot, error) {
	if cursor == "" {
		return spot{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < 8 {
		return spot{}, store.ErrCursor
	}
	return spot{begun: int64(binary.BigEndian.Uint64(b)), key: string(b[8:]) + "\x00"}, nil
}

// beyond is greater than every stored key.
var beyond = bytes.Repeat([]byte{0xff}, maxKey+1)

// successor returns the least text that is greater than all that begin with prefix.
func successor(prefix string) []byte {
	b := []byte(prefix)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return beyond
	}
	b[len(b)-1]++
	return b
}

// List implements [store.Inspector]. A page comes of at most 1000 records, whether they are wanted or not.
func (s inspector) List(ctx context.Context, q store.Query, cursor string) (page []store.Record, next string, err error) {
	from, err := after(cursor)
	if err != nil {
		return nil, "", err
	}
	v := &values{from: []byte(from.key), since: from.begun, to: successor(q.Prefix), policy: q.Policy, id: idColumn(q.ID), states: -1}
	scan := s.q.byKey
	if len(q.States) > 0 && !slices.Contains(q.States, store.Done) { // there is an index of what has not finished
		scan = s.q.byAge
	} else if string(v.from) < q.Prefix {
		v.from = []byte(q.Prefix)
	}
	if len(q.States) > 0 {
		v.states = 0
	}
	for _, state := range q.States {
		v.states |= 1 << state
	}

	var spots []spot
	var wanted []bool
	err = s.retry(ctx, "list", func() error {
		spots, wanted = nil, nil
		return s.query(ctx, scan, v, func(rows *sql.Rows) error {
			var p spot
			var w bool
			err := rows.Scan(&p.key, &p.begun, &w)
			spots, wanted = append(spots, p), append(wanted, w)
			return err
		})
	})
	if err != nil {
		return nil, "", err
	}
	if len(spots) == batch {
		next = spots[batch-1].cursor()
	}
	var keys []any
	for i, p := range spots {
		if !wanted[i] || !strings.HasPrefix(p.key, q.Prefix) || q.Match != nil && !q.Match(p.key) {
			continue
		}
		if len(keys) == q.Size() {
			next = spots[i-1].cursor()
			break
		}
		keys = append(keys, []byte(p.key))
	}
	if scan == s.q.byKey && len(keys) > batch/10 { // a range is read faster than so many single keys
		v.from, v.to = keys[0].([]byte), append(slices.Clone(keys[len(keys)-1].([]byte)), 0)
		page, err = s.read(ctx, &q, keys, s.q.listedRange.text, func() []any { return s.args(s.q.listedRange, v) })
	} else {
		page, err = s.read(ctx, &q, keys, s.among(len(keys)), func() []any { return append(s.args(s.q.listed, v), keys...) })
	}
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// among returns the statement that reads the records under n keys.
func (s inspector) among(n int) string {
	var text strings.Builder
	text.WriteString(s.q.listed.text)
	for i := range n {
		text.WriteByte("(,"[min(i, 1)])
		if s.dialect == PostgreSQL {
			text.WriteString("$" + strconv.Itoa(len(s.q.listed.params)+i+1))
		} else {
			text.WriteByte('?')
		}
	}
	text.WriteByte(')')
	return text.String()
}

// read returns the records under keys that are still wanted, in the order of keys, of those that the statement has found.
func (s inspector) read(ctx context.Context, q *store.Query, keys []any, text string, args func() []any) (page []store.Record, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found := map[string]store.Record{}
	err = s.retry(ctx, "list", func() error {
		rows, err := s.db.QueryContext(ctx, text, args()...)
		return each(rows, err, func(rows *sql.Rows) error {
			r, err := s.scan(rows, false)
			found[r.Key] = r
			return err
		})
	})
	for _, key := range keys {
		if r, ok := found[string(key.([]byte))]; ok && q.Wants(&r) {
			page = append(page, r)
		}
	}
	return page, err
}

// Change implements [store.Inspector]. The error is also [store.ErrFull] if the database has no room for the result.
func (s inspector) Change(ctx context.Context, key string, expected store.Record, c store.Change) error {
	if err := c.Validate(expected.State); err != nil {
		return err
	}
	v := &values{
		was: idColumn(expected.ID), attempt: int64(expected.Attempt), state: int64(expected.State),
		result: c.Result, retention: micros(c.Retention), remark: c.Remark,
	}
	if v.result == nil {
		v.result = []byte{} // nil would be NULL
	}
	q := map[store.State]*statement{0: s.q.drop, store.Free: s.q.free, store.Done: s.q.settle}[c.To]
	var err error
	for _, v.key = range storedForms(key) {
		err = s.retry(ctx, "change", func() error {
			if n, err := s.exec(ctx, nil, q, v); err != nil || n > 0 {
				return err
			}
			r, err := s.queryRow(ctx, nil, s.q.look, v)
			switch {
			case errors.Is(err, sql.ErrNoRows), err == nil && r.left <= 0:
				return store.ErrNoRecord
			case err == nil:
				return store.ErrMovedOn
			}
			return err
		})
		if !errors.Is(err, store.ErrNoRecord) {
			break
		}
	}
	return err
}

// query runs q and calls scan for each row.
func (s *Store) query(ctx context.Context, q *statement, v *values, scan func(*sql.Rows) error) error {
	stmt, err := s.prepared(ctx, nil, q)
	if err != nil {
		return err
	}
	var rows *sql.Rows
	if args := s.args(q, v); stmt != nil {
		rows, err = stmt.QueryContext(ctx, args...)
	} else {
		rows, err = s.db.QueryContext(ctx, q.text, args...)
	}
	return each(rows, err, scan)
}

// each calls scan for each row, and closes rows. err is the error of the query.
func each(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
