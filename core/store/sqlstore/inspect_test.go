package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// lookup expects a record under key.
func lookup(t *testing.T, s *sqlstore.Store, key string) store.Record {
	t.Helper()
	r, err := s.Capabilities().Inspect.Lookup(t.Context(), key)
	require.NoError(t, err)
	return r
}

// list returns the keys of all records that q asks for, in the order of the list.
func list(t *testing.T, s *sqlstore.Store, q store.Query) (keys []string) {
	t.Helper()
	cursor := ""
	for i := 0; i == 0 || cursor != ""; i++ {
		require.Less(t, i, 1000, "the list has no end")
		page, next, err := s.Capabilities().Inspect.List(t.Context(), q, cursor)
		require.NoError(t, err)
		for _, r := range page {
			keys = append(keys, r.Key)
		}
		cursor = next
	}
	return keys
}

// TestListsEachOnce: a list has each record exactly once, in its order, also keys at the limits of the column, and behind
// batches of records that it passes over. What it has can be looked up and changed.
func TestListsEachOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		other := newOn(t, db, dialectOf(url), sqlstore.Config{Table: name, Source: "other"})
		long := strings.Repeat("\xfe", 2015)
		keys := []string{"b", "", "\xff", "\xff\xff", "a", long, long + "a", long + "b", long + strings.Repeat("c", 100), "\xff%", "B"}
		var stored []string
		for _, key := range keys {
			_, err := s.Acquire(t.Context(), key, claim(time.Hour))
			require.NoError(t, err)
			stored = append(stored, string(sqlstore.StoredKey(key)))
			assert.Equal(t, stored[len(stored)-1], lookup(t, s, key).Key)
			assert.Equal(t, stored[len(stored)-1], lookup(t, s, stored[len(stored)-1]).Key)
		}
		_, err := other.Acquire(t.Context(), "b", claim(time.Hour))
		require.NoError(t, err)
		fill(t, db, name, 2*sqlstore.Batch+10)

		sorted := slices.Sorted(slices.Values(stored))
		for _, limit := range []int{1, 3, len(keys)} {
			assert.Equal(t, sorted, list(t, s, store.Query{Limit: limit}))
			byAge := list(t, s, store.Query{Limit: limit, States: []store.State{store.Running}})
			assert.ElementsMatch(t, stored, byAge)
			if dialectOf(url) != sqlstore.SQLite { // whose clock has long steps
				assert.Equal(t, stored, byAge)
			}
			for _, states := range [][]store.State{nil, {store.Running}} {
				assert.ElementsMatch(t, []string{"\xff", "\xff\xff", "\xff%"},
					list(t, s, store.Query{Limit: limit, Prefix: "\xff", States: states}))
				assert.ElementsMatch(t, []string{"a"}, list(t, s, store.Query{Limit: limit, Prefix: "a", States: states}))
			}
		}
		assert.Equal(t, []string{"b"}, list(t, other, store.Query{}))

		for _, key := range list(t, s, store.Query{}) {
			require.NoError(t, s.Capabilities().Inspect.Change(t.Context(), key, lookup(t, s, key), store.Change{}))
		}
		assert.Empty(t, list(t, s, store.Query{}))
		_, _, err = s.Capabilities().Inspect.List(t.Context(), store.Query{}, "AAAA")
		assert.ErrorIs(t, err, store.ErrCursor, "too short")
	})
}

// TestCreator: whom the record names, and whose remark it has.
func TestCreator(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, c := range []struct{ config, claim, want string }{{"c", "p", "c"}, {"", "p", "p"}, {"", "", host}} {
		s, db, _ := fresh(t, engines[2].url(t), sqlstore.Config{Creator: c.config})
		mine := claim(time.Hour)
		mine.Creator, mine.Remark = c.claim, "the claim's"
		_, err := s.Acquire(t.Context(), "k", mine)
		require.NoError(t, err)
		assert.Equal(t, c.want, lookup(t, s, "k").Creator)
		assert.Equal(t, "the claim's", lookup(t, s, "k").Remark)
		_, err = s.DoTx(t.Context(), db, "tx", func(*sql.Tx) ([]byte, error) { return nil, nil })
		require.NoError(t, err)
		assert.NotZero(t, lookup(t, s, "tx").ID)
	}
}

// TestStepsAreDeleted: they may tell of people, and are gone from the table with their operation.
func TestStepsAreDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		ctx, can := t.Context(), s.Capabilities()
		forget := func(c store.Claim) error { return s.Complete(ctx, "k", c.Owner, nil, 0) }
		for ending, end := range map[string]func(c store.Claim) error{
			"done": func(c store.Claim) error { return s.Complete(ctx, "k", c.Owner, []byte("result"), time.Hour) },
			"outlived": func(c store.Claim) error {
				return can.Outlive(ctx, "k", c.Owner, []byte("result"), time.Hour, time.Hour)
			},
			"forgotten":       forget,
			"failed for good": func(c store.Claim) error { return can.Fail(ctx, "k", c.Owner, false) },
			"settled": func(c store.Claim) error {
				require.NoError(t, s.Abandon(ctx, "k", c.Owner))
				return can.Inspect.Change(ctx, "k", lookup(t, s, "k"), store.Change{To: store.Done, Retention: time.Hour})
			},
			"released": func(c store.Claim) error { // the run after one that is forgotten
				require.NoError(t, forget(c))
				_, err := s.Acquire(ctx, "k", c)
				require.NoError(t, err)
				require.NoError(t, can.Checkpoint(ctx, "k", c.Owner, []byte("steps")))
				return s.Release(ctx, "k", c.Owner)
			},
		} {
			c := claim(time.Hour)
			c.Takeover, c.ID = true, store.NewID()
			for range 2 {
				_ = s.Abandon(ctx, "k", c.Owner) // of the first run
				_, err := s.Acquire(ctx, "k", c)
				require.NoError(t, err)
				require.NoError(t, can.Checkpoint(ctx, "k", c.Owner, []byte("steps")))
			}
			require.NoError(t, end(c), ending)
			var left int
			require.NoError(t, db.QueryRow("SELECT COALESCE(SUM(LENGTH(steps)), 0) FROM "+name).Scan(&left))
			assert.Zero(t, left, ending)
			_, err := db.Exec("DELETE FROM " + name)
			require.NoError(t, err)
		}
	})
}

// TestStepsBesideVersion010: a process of 0.1.0 that replaces an expired record leaves the id, the secret and the steps of an
// operation that is long over. The operation which it has begun does not get them.
func TestStepsBesideVersion010(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		ctx, can := t.Context(), s.Capabilities()
		c := store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID()}, Secret: "s1", Fingerprint: "f", Lease: time.Hour,
			Retention: time.Hour, Takeover: true}
		_, err := s.Acquire(ctx, "k", c)
		require.NoError(t, err)
		require.NoError(t, can.Checkpoint(ctx, "k", c.Owner, []byte("steps")))

		begun, hour := time.Now().Add(time.Second).UnixMicro(), time.Hour.Microseconds() // not when the first was
		_, err = db.Exec(fmt.Sprintf(`UPDATE %s SET state = 1, owner = %s, attempt = 1, fingerprint = %s, created_at = %d, updated_at = %[4]d,
	lease_until = 0, retention = %d, expires_at = %d, version = version + 1`,
			name, literal(url, "0123456789abcdef"), literal(url, "f"), begun, hour, begun+hour))
		require.NoError(t, err)

		next := c
		next.Owner, next.ID, next.Secret = store.NewOwner(), store.NewID(), "s2"
		g, err := s.Acquire(ctx, "k", next)
		require.NoError(t, err)
		require.Equal(t, store.Grant{State: store.Acquired, Attempt: 2, ID: next.ID, Secret: "s2"}, g)
		require.NoError(t, can.Checkpoint(ctx, "k", next.Owner, []byte("its own")))
		require.NoError(t, s.Abandon(ctx, "k", next.Owner))
		g, err = s.Acquire(ctx, "k", c)
		require.NoError(t, err)
		require.Equal(t, store.Grant{State: store.Acquired, Attempt: 3, ID: next.ID, Secret: "s2", Steps: []byte("its own")}, g)
	})
}

// TestReleasedAfterACommit: what RunTx has committed stays when an operator frees the record. The operation's next run gets
// it, and an operation with other parameters does not.
func TestReleasedAfterACommit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		c := newCounter(t, url, byKey)
		for i, same := range []bool{true, false} {
			key, name := fmt.Sprint("k-", i), fmt.Sprint("n", i)
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				_, err := c.store.RunTx(r.Context(), c.db, c.enter(name))
				assert.NoError(t, err)
				w.WriteHeader(http.StatusBadGateway)
			}
			c.post(key)
			abandoned := list(t, c.store, store.Query{States: []store.State{store.Abandoned}})
			require.Len(t, abandoned, 1)
			r := lookup(t, c.store, abandoned[0])
			assert.Zero(t, r.Size, "a committed value is no result yet")
			require.NoError(t, c.store.Capabilities().Inspect.Change(t.Context(), r.Key, r, store.Change{To: store.Free}))
			next := store.Claim{Owner: store.NewOwner(), Fingerprint: r.Fingerprint, Lease: time.Hour}
			if !same {
				next.Fingerprint = "other"
			}
			g, err := c.store.Acquire(t.Context(), r.Key, next)
			require.NoError(t, err)
			require.Equal(t, store.Acquired, g.State)
			var result []byte
			const claimed = " WHERE state = 1 AND attempt = 2 AND expires_at > 0 AND LENGTH(owner) > 0"
			require.NoError(t, c.db.QueryRow("SELECT result FROM "+c.store.TableName()+claimed).Scan(&result))
			assert.Equal(t, same, len(result) > 0)
			require.NoError(t, c.store.Complete(t.Context(), r.Key, next.Owner, nil, time.Hour))
		}
	})
}

// table010 is the table of version 0.1.0.
var table010 = map[sqlstore.Dialect]string{
	sqlstore.PostgreSQL: `CREATE TABLE {t} (source_type TEXT NOT NULL, serial_number BYTEA NOT NULL, state SMALLINT NOT NULL, owner BYTEA NOT NULL,
	attempt BIGINT NOT NULL, fingerprint BYTEA NOT NULL, result BYTEA NOT NULL, remark TEXT NOT NULL, creator TEXT NOT NULL, created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, lease_until BIGINT NOT NULL, retention BIGINT NOT NULL, expires_at BIGINT NOT NULL, version BIGINT NOT NULL,
	PRIMARY KEY (source_type, serial_number)); CREATE INDEX {t}_expires_at ON {t} (expires_at)`,
	sqlstore.MySQL: `CREATE TABLE {t} (source_type VARBINARY(64) NOT NULL, serial_number VARBINARY(2048) NOT NULL, state SMALLINT NOT NULL, owner VARBINARY(16) NOT NULL,
	attempt BIGINT NOT NULL, fingerprint VARBINARY(64) NOT NULL, result LONGBLOB NOT NULL, remark VARCHAR(255) NOT NULL, creator VARCHAR(255) NOT NULL, created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL, lease_until BIGINT NOT NULL, retention BIGINT NOT NULL, expires_at BIGINT NOT NULL, version BIGINT NOT NULL,
	PRIMARY KEY (source_type, serial_number), KEY {t}_expires_at (expires_at)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4`,
	sqlstore.SQLite: `CREATE TABLE {t} (source_type TEXT NOT NULL, serial_number BLOB NOT NULL, state INTEGER NOT NULL, owner BLOB NOT NULL,
	attempt INTEGER NOT NULL, fingerprint BLOB NOT NULL, result BLOB NOT NULL, remark TEXT NOT NULL, creator TEXT NOT NULL, created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL, lease_until INTEGER NOT NULL, retention INTEGER NOT NULL, expires_at INTEGER NOT NULL, version INTEGER NOT NULL,
	PRIMARY KEY (source_type, serial_number)); CREATE INDEX {t}_expires_at ON {t} (expires_at)`,
}

// TestUpgrade: a table of 0.1.0 becomes the present one, with its records, by several processes at once. A process of 0.1.0
// may go on inserting into it, and the store goes on with what it has inserted.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		ctx, inspect := t.Context(), s.Capabilities().Inspect
		for _, q := range []string{"DROP TABLE " + name, strings.ReplaceAll(table010[dialectOf(url)], "{t}", name)} {
			_, err := db.Exec(q)
			require.NoError(t, err)
		}
		hour, now := time.Hour.Microseconds(), time.Now().UnixMicro()
		insert := func(prefix string) {
			put := func(key string, state int, owner, result string, attempt, lease, retention int64) {
				t.Helper()
				values := fmt.Sprintf("'idem', %s, %d, %s, %d, %s, %s, 'remark', 'creator', %d, %d, %d, %d, %d, 1",
					literal(url, prefix+key), state, literal(url, owner), attempt, literal(url, "f"), literal(url, result),
					now-hour, now, lease, retention, now+hour)
				_, err := db.Exec("INSERT INTO " + name + ` (source_type, serial_number, state, owner, attempt, fingerprint, result,
	remark, creator, created_at, updated_at, lease_until, retention, expires_at, version) VALUES (` + values + ")")
				require.NoError(t, err)
			}
			put("running", 1, "0123456789abcdef", "", 1, now+hour, hour)
			put("abandoned", 1, "0123456789abcdef", "", 1, now-hour, hour)
			put("done", 2, "0123456789abcdef", "result", 3, now-hour, hour)
			put("free", 1, "", "", 2, 0, -1-hour)
		}
		insert("before/")
		_, err := s.Acquire(ctx, "k", claim(time.Hour))
		require.ErrorContains(t, err, "run Migrate")
		_, err = s.DoTx(ctx, db, "k", func(*sql.Tx) ([]byte, error) { return nil, nil })
		require.ErrorContains(t, err, "run Migrate")
		_, _, err = inspect.List(ctx, store.Query{}, "")
		require.ErrorContains(t, err, "run Migrate")

		var wg sync.WaitGroup
		for range 4 {
			pool, dialect := open(t, url)
			pool.SetMaxOpenConns(1)
			s := newOn(t, pool, dialect, sqlstore.Config{Table: name})
			wg.Go(func() { assert.NoError(t, s.Migrate(ctx)) })
		}
		wg.Wait()
		insert("after/")

		for _, prefix := range []string{"before/", "after/"} {
			for key, want := range map[string]store.Record{
				"running": {State: store.Running, Attempt: 1}, "abandoned": {State: store.Abandoned, Attempt: 1},
				"free": {State: store.Free, Attempt: 2}, "done": {State: store.Done, Attempt: 3, Size: 6, Result: []byte("result")},
			} {
				r := lookup(t, s, prefix+key)
				want.Key, want.Fingerprint, want.About = prefix+key, "f", store.About{Creator: "creator", Remark: "remark"}
				want.Begun, want.Remaining = time.UnixMicro(now-hour), r.Remaining
				assert.Equal(t, want, r)
			}
			assert.Len(t, list(t, s, store.Query{Prefix: prefix, Limit: 1}), 4)
			assert.Len(t, list(t, s, store.Query{Prefix: prefix, States: []store.State{store.Running, store.Abandoned}}), 2)

			c := store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID()}, Fingerprint: "f", Lease: time.Hour,
				Retention: time.Hour, Takeover: true}
			for key, want := range map[string]store.Grant{
				"running":   {State: store.Running, Attempt: 1, Fingerprint: "f", Remark: "remark"},
				"done":      {State: store.Done, Attempt: 3, Fingerprint: "f", Remark: "remark", Result: []byte("result")},
				"abandoned": {State: store.Acquired, Attempt: 2, ID: c.ID},
				"free":      {State: store.Acquired, Attempt: 3, ID: c.ID, Free: true},
			} {
				g, err := s.Acquire(ctx, prefix+key, c)
				require.NoError(t, err)
				g.Remaining = 0
				assert.Equal(t, want, g)
			}
			assert.Equal(t, now-hour, lookup(t, s, prefix+"abandoned").Begun.UnixMicro(), "the operation goes on")
			require.NoError(t, s.Complete(ctx, prefix+"running", store.Owner([]byte("0123456789abcdef")), nil, time.Hour))
		}
		require.NoError(t, s.Migrate(ctx))
	})
}

// literal is text as SQL for a column of bytes.
func literal(url, text string) string {
	if dialectOf(url) == sqlstore.PostgreSQL {
		return fmt.Sprintf(`'\x%x'`, text)
	}
	return fmt.Sprintf("x'%x'", text)
}

// TestUpgradeBesideATransaction: while Migrate waits for a transaction that has the table, calls pass.
func TestUpgradeBesideATransaction(t *testing.T) {
	t.Parallel()
	run(t, engines[:2], func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		lack := map[sqlstore.Dialect]string{sqlstore.PostgreSQL: "", sqlstore.MySQL: " ON " + name}
		_, err := db.Exec("DROP INDEX " + name + "_created_at" + lack[dialectOf(url)])
		require.NoError(t, err)
		tx, err := db.Begin()
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.Exec("DELETE FROM " + name + " WHERE 1 = 0")
		require.NoError(t, err)
		migrated := make(chan error, 1)
		go func() { migrated <- s.Migrate(t.Context()) }()
		waiting := map[sqlstore.Dialect]string{
			sqlstore.PostgreSQL: "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = '" + name + "'::regclass",
			sqlstore.MySQL: "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE '%metadata lock%' " +
				"AND INFO LIKE 'CREATE INDEX `" + name + "%'",
		}[dialectOf(url)]
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, db.QueryRow(waiting).Scan(&n))
			return n > 0
		}, 10*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = s.Acquire(ctx, "k", claim(time.Hour))
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-migrated)
	})
}

// TestUpgradeWithoutRights: a process that may not alter the table needs no right to, as long as it lacks nothing. Else the
// error says what it lacks.
func TestUpgradeWithoutRights(t *testing.T) {
	t.Parallel()
	_, owner, name := fresh(t, engines[0].url(t), sqlstore.Config{})
	db, _ := open(t, engines[0].url(t))
	db.SetMaxOpenConns(1)
	for _, q := range []string{"CREATE ROLE " + name, "GRANT SELECT, INSERT, UPDATE, DELETE ON " + name + " TO " + name} {
		_, err := owner.Exec(q)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := owner.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name)
		require.NoError(t, err)
	})
	_, err := db.Exec("SET ROLE " + name)
	require.NoError(t, err)
	s := newOn(t, db, sqlstore.PostgreSQL, sqlstore.Config{Table: name})
	require.NoError(t, s.Migrate(t.Context()))
	for fault, q := range map[string]string{
		"no column policy": "ALTER TABLE " + name + " DROP COLUMN policy",
		"no index":         "DROP INDEX " + name + "_created_at",
	} {
		_, err := owner.Exec(q)
		require.NoError(t, err)
		err = s.Migrate(t.Context())
		require.ErrorContains(t, err, fault)
		require.ErrorContains(t, err, "must be owner")
	}
}
