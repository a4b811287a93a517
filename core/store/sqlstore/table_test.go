package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// TestRow: what a person sees in the table.
func TestRow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{Source: "billing", Creator: "host-7"})
		ctx := t.Context()
		c := claim(time.Minute)
		c.Fingerprint = "f"
		before := time.Now()
		_, err := s.Acquire(sqlstore.WithRemark(ctx, "order 17 \x00\xff"+strings.Repeat("é", 300)), "Key \x00\xff", c)
		require.NoError(t, err)

		var source, remark, creator string
		var key, owner, fingerprint, result []byte
		var numbers [3]int // state, attempt, version
		var created, updated, lease, retention, expires int64
		read := func() {
			t.Helper()
			row := db.QueryRow("SELECT source_type, serial_number, state, owner, attempt, fingerprint, result, remark, creator, " +
				"created_at, updated_at, lease_until, retention, expires_at, version FROM " + name)
			require.NoError(t, row.Scan(&source, &key, &numbers[0], &owner, &numbers[1], &fingerprint, &result, &remark, &creator,
				&created, &updated, &lease, &retention, &expires, &numbers[2]))
		}
		read()
		assert.Equal(t, "billing", source)
		assert.Equal(t, "Key \x00\xff", string(key))
		assert.Equal(t, c.Owner[:], owner)
		assert.Equal(t, "f", string(fingerprint))
		assert.Empty(t, result)
		assert.Equal(t, "order 17 \ufffd\ufffd"+strings.Repeat("é", 255-11), remark)
		assert.Equal(t, "host-7", creator)
		assert.Equal(t, [3]int{1, 1, 1}, numbers)
		assert.WithinDuration(t, before, time.UnixMicro(created), time.Minute) // the server's clock
		assert.Equal(t, created, updated)
		assert.InDelta(t, time.Minute.Microseconds(), lease-created, 1000)
		assert.Equal(t, time.Hour.Microseconds(), retention)
		assert.Equal(t, retention, expires-lease)

		require.NoError(t, s.Renew(ctx, "Key \x00\xff", c.Owner, time.Hour))
		read()
		assert.InDelta(t, time.Hour.Microseconds(), lease-updated, 1000)
		assert.Equal(t, [3]int{1, 1, 2}, numbers)
		require.NoError(t, s.Abandon(ctx, "Key \x00\xff", c.Owner))
		read()
		assert.Equal(t, [3]int{1, 1, 3}, numbers)
		assert.Empty(t, owner)
		assert.Zero(t, lease)
		assert.Equal(t, time.Hour.Microseconds(), retention)
		assert.Equal(t, retention, expires-updated)
		c.Takeover = true
		_, err = s.Acquire(ctx, "Key \x00\xff", c)
		require.NoError(t, err)
		require.NoError(t, s.Complete(ctx, "Key \x00\xff", c.Owner, []byte("result"), 24*time.Hour))
		read()
		assert.Equal(t, [3]int{2, 2, 5}, numbers)
		assert.Equal(t, "result", string(result))
		assert.Equal(t, 24*time.Hour.Microseconds(), expires-updated)
		assert.Equal(t, 24*time.Hour.Microseconds(), retention)
	})
}

func TestSourcesShareATable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		other := newOn(t, db, dialectOf(url), sqlstore.Config{Table: name, Source: "other"})
		mine, theirs := claim(time.Hour), claim(time.Hour)
		for records, c := range map[*sqlstore.Store]store.Claim{s: mine, other: theirs} {
			g, err := records.Acquire(t.Context(), "k", c)
			require.NoError(t, err)
			require.Equal(t, store.Acquired, g.State)
		}
		require.ErrorIs(t, other.Complete(t.Context(), "k", mine.Owner, nil, time.Hour), store.ErrLost)
		require.NoError(t, s.Complete(t.Context(), "k", mine.Owner, []byte("mine"), time.Hour))
		g, err := other.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
		require.Equal(t, store.Running, g.State)
	})
}

// TestLongKeys: keys that are longer than the column differ from each other, and from those that fit.
func TestLongKeys(t *testing.T) {
	stem := strings.Repeat("k", 2015)
	digest := sha256.Sum256([]byte(stem + "k" + strings.Repeat("x", 100)))
	keys := []string{
		stem + strings.Repeat("a", 32), stem + strings.Repeat("a", 33), // the longest that fits, and one more
		stem + "k" + strings.Repeat("x", 100), stem + "k" + strings.Repeat("x", 99) + "y",
		stem + "k" + string(digest[:]), // what the one before the last is stored as
		strings.Repeat("k", 1<<20), strings.Repeat("k", 1<<20) + "k",
	}
	seen := map[string]bool{}
	for _, key := range keys {
		stored := sqlstore.StoredKey(key)
		assert.LessOrEqual(t, len(stored), 2048)
		seen[string(stored)] = true
	}
	require.Len(t, seen, len(keys))
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		_, err := db.Exec("DROP TABLE " + name)
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), "k", claim(time.Hour))
		require.ErrorContains(t, err, "run Migrate")
		require.ErrorContains(t, err, name)
		_, err = s.DoTx(t.Context(), db, "k", func(*sql.Tx) ([]byte, error) { return nil, nil })
		require.ErrorContains(t, err, "run Migrate")
		var wg sync.WaitGroup
		var acquired atomic.Int32
		start := make(chan struct{})
		for range 8 {
			pool, dialect := open(t, url)
			pool.SetMaxOpenConns(1) // making and checking the table takes one at a time
			s := newOn(t, pool, dialect, sqlstore.Config{Table: name})
			wg.Go(func() {
				<-start
				for range 2 { // it may be called at every start
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					assert.NoError(t, s.Migrate(ctx))
					g, err := s.Acquire(t.Context(), "k", claim(time.Hour))
					assert.NoError(t, err)
					if g.State == store.Acquired {
						acquired.Add(1)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		assert.EqualValues(t, 1, acquired.Load(), "records are kept")
	})
}

func TestSchema(t *testing.T) {
	_, err := sqlstore.Schema(0, "t")
	require.Error(t, err)
	_, err = sqlstore.Schema(sqlstore.SQLite, "t; DROP TABLE t")
	require.Error(t, err)
	ddl, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	require.NoError(t, err)
	assert.Contains(t, ddl, `"idem_records"`)
}

func TestQualifiedTable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		_, db, name := fresh(t, url, sqlstore.Config{})
		dialect := dialectOf(url)
		schema := map[sqlstore.Dialect]string{sqlstore.PostgreSQL: "public", sqlstore.MySQL: "test", sqlstore.SQLite: "main"}[dialect]
		s := newOn(t, db, dialect, sqlstore.Config{Table: schema + "." + name + "_Q"})
		require.NoError(t, s.Migrate(t.Context()))
		_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
		assert.NoError(t, err)
		_, err = db.Exec("DROP TABLE " + s.TableName())
		require.NoError(t, err)
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		ctx := t.Context()
		live := claim(time.Hour)
		_, err := s.Acquire(ctx, "live", live)
		require.NoError(t, err)
		abandoned := claim(1) // remembered for an hour
		_, err = s.Acquire(ctx, "abandoned", abandoned)
		require.NoError(t, err)
		n, err := s.Purge(ctx)
		require.NoError(t, err)
		require.Zero(t, n)

		const dead = 2*sqlstore.Batch + 10
		for _, outlives := range []int64{0, 1 << 62} { // and it has results that purges have not removed yet
			fill(t, db, name, dead)
			_, err = db.Exec(fmt.Sprintf("UPDATE %s SET expires_at = expires_at + %d, retention = -2 WHERE expires_at = 2", name, outlives))
			require.NoError(t, err)
			n, err = s.Purge(ctx)
			require.NoError(t, err)
			assert.EqualValues(t, dead, n)
		}
		var left int
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+name).Scan(&left))
		assert.Equal(t, 2, left)
		require.NoError(t, s.Complete(ctx, "live", live.Owner, nil, time.Hour))
		require.NoError(t, s.Complete(ctx, "abandoned", abandoned.Owner, nil, time.Hour))
		n, err = s.Purge(ctx)
		require.NoError(t, err)
		assert.Zero(t, n)

		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.Purge(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestPurgeRemovesResults: those that their records have outlived, and no others. A process of 0.1.0 neither takes the records for
// expired, nor removes them.
func TestPurgeRemovesResults(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		ctx := t.Context()
		finish := func(key string, retention, known time.Duration) {
			t.Helper()
			c := claim(time.Hour)
			g, err := s.Acquire(ctx, key, c)
			require.NoError(t, err)
			require.Equal(t, store.Acquired, g.State, key)
			require.NoError(t, s.Capabilities().Outlive(ctx, key, c.Owner, []byte("result"), retention, known))
		}
		for i := range 10 {
			finish(fmt.Sprint("expired", i), time.Microsecond, time.Hour)
			finish(fmt.Sprint("kept", i), time.Hour, time.Microsecond)
		}
		finish("gone", time.Microsecond, time.Microsecond)
		finish("gone, too", time.Microsecond, time.Microsecond)
		_, err := db.Exec("UPDATE " + name + " SET creator = 'seen'")
		require.NoError(t, err)
		time.Sleep(2 * sqlstore.Tick(dialectOf(url)))
		count := func(condition string) (n int) {
			t.Helper()
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+name+" WHERE "+condition).Scan(&n))
			return n
		}
		now := time.Now().UnixMicro()
		require.Equal(t, 22, count(fmt.Sprintf("state = 2 AND LENGTH(result) = 6 AND expires_at > %d", now)))
		expired := func() int {
			t.Helper()
			n, err := s.Expired(ctx, 100)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 12, expired(), "what a table holds if nobody purges")
		finish("gone", time.Hour, time.Hour) // a record that no purge has seen is made anew
		n, err := s.Purge(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Zero(t, expired())
		const removed = "LENGTH(result) = 0 AND creator = 'seen' AND expires_at BETWEEN %d AND %d"
		require.Equal(t, 10, count(fmt.Sprintf(removed, now, now+2*time.Hour.Microseconds())))
		require.Equal(t, 11, count("LENGTH(result) = 6"))
		for i := range 10 {
			g, err := s.Acquire(ctx, fmt.Sprint("expired", i), claim(time.Hour))
			require.NoError(t, err)
			require.True(t, g.Expired)
			require.Greater(t, g.Remaining, 30*time.Minute)
			g, err = s.Acquire(ctx, fmt.Sprint("kept", i), claim(time.Hour))
			require.NoError(t, err)
			require.Equal(t, "result", string(g.Result))
		}
		n, err = s.Purge(ctx)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// fill makes so many records whose time has passed long ago.
func fill(t *testing.T, db *sql.DB, table string, n int) {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	for i := 0; i < n; i += 500 {
		var rows []string
		for j := i; j < min(i+500, n); j++ {
			rows = append(rows, fmt.Sprintf("('idem', '%d', 2, '', 1, '', '', '', '', 1, 1, 1, 1, 2, 1)", j))
		}
		const columns = " (source_type, serial_number, state, owner, attempt, fingerprint, result, remark, creator, " +
			"created_at, updated_at, lease_until, retention, expires_at, version)"
		_, err := tx.Exec("INSERT INTO " + table + columns + " VALUES " + strings.Join(rows, ", "))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
}

// TestPurgeEvery: processes purge in turn, and end with their contexts.
func TestPurgeEvery(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		rows := func() (n int) {
			require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+name).Scan(&n))
			return n
		}
		fill(t, db, name, 3)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- s.PurgeEvery(ctx, 40*time.Millisecond) }()
		}
		require.Eventually(t, func() bool { return rows() <= 1 }, 10*time.Second, 5*time.Millisecond, "what is left is the claim")
		stop()
		assert.ErrorIs(t, <-ended, context.Canceled)
		assert.ErrorIs(t, <-ended, context.Canceled)

		// The claim of another process keeps this one from it.
		require.Eventually(t, func() bool {
			g, err := s.Acquire(t.Context(), "purge", claim(time.Hour))
			return err == nil && g.State == store.Acquired
		}, 10*time.Second, 5*time.Millisecond)
		fill(t, db, name, 1)
		ctx, stop = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		assert.ErrorIs(t, s.PurgeEvery(ctx, 10*time.Millisecond), context.DeadlineExceeded)
		assert.Equal(t, 2, rows())
	})
}

// TestPurgeNeverTakesWhatLives: records that are acquired while others purge stay acquired.
func TestPurgeNeverTakesWhatLives(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		const workers, rounds = 6, 60
		var purged, died atomic.Int64
		// Both must have happened: a purge of dead records, and a dead one that was made anew
		// before a purge came (for of each worker's records there is one row at most).
		both := func() bool { return purged.Load() > 0 && died.Load()-purged.Load() > workers }
		var working, purging sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			purging.Go(func() {
				for {
					n, err := s.Purge(t.Context())
					if err != nil {
						t.Errorf("Purge: %v", err)
					}
					purged.Add(n)
					select {
					case <-stop:
						return
					case <-time.After(rand.N(10 * time.Millisecond)):
					}
				}
			})
		}
		for w := range workers {
			working.Go(func() {
				for round := 0; round < rounds || !both() && round < 50*rounds; round++ {
					key := fmt.Sprint(w)
					c := claim(time.Hour)
					g, err := s.Acquire(t.Context(), key, c)
					for err == nil && g.State == store.Done { // until the clock moves on
						g, err = s.Acquire(t.Context(), key, c)
					}
					if err != nil || g.State != store.Acquired || g.Attempt != 1 {
						t.Errorf("Acquire(%q): %v, %v", key, g.State, err)
						return
					}
					if err := s.Complete(t.Context(), key, c.Owner, nil, 1); err != nil {
						t.Errorf("a record that was acquired beside a purge: %v", err)
						return
					}
					died.Add(1)
				}
			})
		}
		working.Wait()
		close(stop)
		purging.Wait()
		time.Sleep(2 * sqlstore.Tick(dialectOf(url)))
		n, err := s.Purge(t.Context())
		require.NoError(t, err)
		var left int64
		require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM "+name).Scan(&left))
		assert.Zero(t, left)
		// No row is left, so that what no purge has taken was made anew: this counts exactly what both could only bound.
		anew := died.Load() - purged.Load() - n
		assert.Positive(t, purged.Load(), "of %d dead records, none was purged meanwhile", died.Load())
		assert.Positive(t, anew, "of %d dead records, %d were purged", died.Load(), purged.Load()+n)
	})
}

// TestStoreFull: SQLite can be told how large it may become.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	s, db, _ := fresh(t, "sqlite::memory:", sqlstore.Config{})
	ctx := t.Context()
	c := claim(time.Hour)
	_, err := s.Acquire(ctx, "k", c)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA max_page_count = 20")
	require.NoError(t, err)

	require.ErrorIs(t, s.Complete(ctx, "k", c.Owner, make([]byte, 1<<20), time.Hour), store.ErrFull)
	g, err := s.Acquire(ctx, "k", claim(time.Hour))
	require.NoError(t, err)
	require.Equal(t, store.Running, g.State)
	_, err = s.DoTx(ctx, db, "tx", func(*sql.Tx) ([]byte, error) { return make([]byte, 1<<20), nil })
	require.ErrorIs(t, err, store.ErrFull)
	require.ErrorIs(t, err, codes.StoreUnavailable)
	require.NoError(t, s.Complete(ctx, "k", c.Owner, nil, time.Hour))
	for i := 0; err == nil || i == 0; i++ {
		require.Less(t, i, 10_000, "20 pages took that many records")
		_, err = s.Acquire(ctx, fmt.Sprint("more", i), claim(time.Hour))
	}
	require.ErrorIs(t, err, store.ErrFull)
}

// TestHugeResult: a result that is too large for the server is ErrFull, whatever pool, and must not break the connection, which
// would hide the reason: the record can be completed without it. Nor is a change committed whose value can't be. A result that
// fits arrives, also where the driver writes it into the text, in which it grows.
func TestHugeResult(t *testing.T) {
	b := newBooks(t, engines[1].url(t))
	var limit int
	require.NoError(t, b.db.QueryRow("SELECT @@max_allowed_packet").Scan(&limit))
	if limit > 64<<20 {
		t.Skipf("the server takes %d bytes at once", limit)
	}
	acquire := func(s *sqlstore.Store, key string, want store.State) (store.Claim, store.Grant) {
		c := claim(time.Hour)
		g, err := s.Acquire(t.Context(), key, c)
		require.NoError(t, err)
		require.Equal(t, want, g.State)
		return c, g
	}
	for pool, db := range map[string]*sql.DB{"Open's": b.db, "foreign": mysqlPool(t, ""), "text": mysqlPool(t, "interpolateParams=true")} {
		s := newOn(t, db, sqlstore.MySQL, sqlstore.Config{Table: b.table, Source: pool})
		for key, size := range map[string]int{"beyond": limit + 1, "far beyond": 3 * limit} {
			c, _ := acquire(s, key, store.Acquired)
			require.ErrorIs(t, s.Complete(t.Context(), key, c.Owner, make([]byte, size), time.Hour), store.ErrFull, pool)
			require.NoError(t, s.Complete(t.Context(), key, c.Owner, nil, time.Hour), pool)
		}
		c, _ := acquire(s, "within", store.Acquired)
		result := []byte(strings.Repeat("'\x00\\\"", limit/5)) // every byte is escaped in a text
		require.NoError(t, s.Complete(t.Context(), "within", c.Owner, result, time.Hour), pool)
		_, g := acquire(s, "within", store.Done)
		require.True(t, string(result) == string(g.Result), pool)
	}

	for name, call := range b.calls() {
		_, err := call(t.Context(), b.db, "huge", func(tx *sql.Tx) ([]byte, error) {
			_, err := b.enter(name)(tx)
			return make([]byte, limit+1), err
		})
		require.ErrorIs(t, err, codes.StoreUnavailable, name)
		require.ErrorIs(t, err, store.ErrFull, name)
		require.Zero(t, b.count(name))
		_, err = call(t.Context(), b.db, "huge", b.enter(name))
		require.NoError(t, err)
		require.Equal(t, 1, b.count(name))
	}
}
