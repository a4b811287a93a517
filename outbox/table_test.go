package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/outbox"
)

// exec runs a statement of the test's own on the table {t}.
func (f *fixture) exec(statement string) {
	f.Helper()
	_, err := f.db.Exec(strings.ReplaceAll(statement, "{t}", f.table))
	require.NoError(f, err)
}

// writeMany writes that many messages without a key.
func (f *fixture) writeMany(n int) {
	f.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	for part := range slices.Chunk(names, 101) {
		f.writeNames(part...)
	}
}

// purged purges, which removes that many messages.
func (f *fixture) purged(olderThan time.Duration, want int) {
	f.Helper()
	n, err := f.Purge(f.Context(), olderThan)
	require.NoError(f, err)
	require.EqualValues(f, want, n)
}

func TestStats(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		require.Equal(f, outbox.Stats{}, f.stats())
		f.writeNames("sent", "new", "old", "retrying", "parked", "parked too")
		f.exec("UPDATE {t} SET state = 1 WHERE id = 'retrying'")
		f.exec("UPDATE {t} SET state = 2, created_at = 0 WHERE id = 'sent'")
		f.exec("UPDATE {t} SET state = 3, created_at = 0 WHERE id IN ('parked', 'parked too')")
		f.exec("UPDATE {t} SET created_at = created_at - 3600000000 WHERE id = 'old'")
		s := f.stats()
		require.InDelta(f, time.Hour.Seconds(), s.Oldest.Seconds(), 60)
		s.Oldest = 0
		require.Equal(f, outbox.Stats{Unsent: 3, Retrying: 1, Parked: 2}, s)
	})
}

// TestPurge: what was sent long ago goes, in batches, and nothing else; nor does it wait for
// those who write.
func TestPurge(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		const old = 2*outbox.PurgeBatch + 10
		f.writeMany(old)
		f.exec("UPDATE {t} SET state = 2, state_at = created_at - 3600000000")
		f.writeNames("new", "retrying", "parked", "just sent")
		f.exec("UPDATE {t} SET state = 1 WHERE id = 'retrying'")
		f.exec("UPDATE {t} SET state = 3 WHERE id = 'parked'")
		f.exec("UPDATE {t} SET state = 2, state_at = created_at WHERE id = 'just sent'")

		if f.dialect != sqlstore.SQLite {
			tx, err := f.db.BeginTx(f.Context(), nil)
			require.NoError(f, err)
			defer tx.Rollback()
			require.NoError(f, f.Write(f.Context(), tx, named("being written")...))
		}
		f.purged(2*time.Hour, 0)
		f.purged(59*time.Minute, old)
		f.purged(0, 1)
		var left int
		require.NoError(f, f.db.QueryRow("SELECT COUNT(*) FROM "+f.table).Scan(&left))
		require.Equal(f, 3, left)
	})
}

// TestPlans: PostgreSQL goes by the index, for each page of a backlog, without statistics or with old ones. "kept" is the plan
// of a driver that prepares statements, made in a table that was empty; others plan each time.
func TestPlans(t *testing.T) {
	t.Parallel()
	for analyse, kept := range map[string]string{"SELECT 1": "SELECT%position LIMIT%", "ANALYZE {t}": "SELECT%position LIMIT%backlog%"} {
		t.Run(strings.Fields(analyse)[0], func(t *testing.T) {
			t.Parallel()
			f := fresh(t, engines[0].url(t), outbox.Config{})
			f.db.SetMaxOpenConns(1) // where the statements are prepared
			f.exec("ALTER TABLE {t} SET (autovacuum_enabled = false)")
			f.exec(analyse)
			lines := func(query string, args ...any) (lines []string) {
				rows, err := f.db.Query(query, args...)
				require.NoError(t, err)
				defer rows.Close()
				for rows.Next() {
					lines = append(lines, "")
					require.NoError(t, rows.Scan(&lines[len(lines)-1]))
				}
				require.NoError(t, rows.Err())
				return lines
			}
			prepared := func(like string) []string {
				return lines("SELECT name FROM pg_prepared_statements WHERE statement LIKE $1", like)
			}
			options := f.quick()
			options.Batch = 1000
			start(t, f.Outbox, &broker{}, options)
			await(t, "a first read", func() bool { return len(prepared("SELECT%position LIMIT%")) > 0 })
			for _, messages := range []string{"1500", "2500", "26000"} {
				f.exec("INSERT INTO {t} (id, message_key, exchange, topic, headers, content_type, body, created_at, " +
					"state, state_at, attempts, last_error) SELECT gen_random_uuid(), '', '', 'test', '{}', '', '', 1, 0, 0, 0, '' FROM " +
					"generate_series(1, " + messages + ")")
				f.sent()
				_, err := f.Purge(t.Context(), 0)
				require.NoError(t, err)
				for _, of := range []string{kept, "SELECT%position LIMIT%"} {
					names := prepared(of)
					require.NotEmpty(t, names)
					for _, name := range names {
						plan := strings.Join(lines(`EXPLAIN EXECUTE "`+name+`"`), "\n")
						require.NotContains(t, plan, "Sort", messages)
						require.NotContains(t, plan, "Seq Scan", messages)
					}
					f.exec("DISCARD PLANS")
				}
			}
		})
	}
}

// TestPositionsCountUp: the position of a message that was removed is no other's. A relay that has sent the first, and marks it
// late, would mark the other.
func TestPositionsCountUp(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		var positions [2]int64
		for i := range positions {
			f.writeNames("a")
			require.NoError(f, f.db.QueryRow("SELECT position FROM "+f.table).Scan(&positions[i]))
			f.exec("UPDATE {t} SET state = 2")
			f.purged(0, 1)
		}
		require.Greater(f, positions[1], positions[0])
	})
}

// TestClock: is the moment of the statement, whatever the session's time zone and the beginning of the transaction.
func TestClock(t *testing.T) {
	t.Parallel()
	for i, zone := range []string{"&timezone=America/New_York", "?time_zone=%27-05:00%27"} {
		t.Run(engines[i].name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, engines[i].url(t), outbox.Config{})
			db, _ := open(t, f.url+zone)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer tx.Rollback()
			var before, created int64
			now := "SELECT (EXTRACT(EPOCH FROM now()) * 1000000)::bigint" // of the transaction's beginning
			if f.dialect == sqlstore.MySQL {
				now = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
			}
			require.NoError(t, tx.QueryRow(now).Scan(&before))
			time.Sleep(5 * time.Millisecond)
			require.NoError(t, f.Write(t.Context(), tx, named("a")...))
			require.NoError(t, tx.Commit())
			require.NoError(t, f.db.QueryRow("SELECT created_at FROM "+f.table).Scan(&created))
			require.GreaterOrEqual(t, created-before, (5 * time.Millisecond).Microseconds())
			require.Less(t, created-before, time.Minute.Microseconds())
		})
	}
}

// TestEngine: tables know transactions, also where others are the default.
func TestEngine(t *testing.T) {
	t.Parallel()
	f := fresh(t, engines[1].url(t), outbox.Config{})
	f.exec("DROP TABLE {t}")
	f.exec("DROP TABLE {t}_lease")
	db, _ := open(t, f.url+"?default_storage_engine=MyISAM")
	require.NoError(t, f.beside(db).Migrate(t.Context()))
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, f.Write(t.Context(), tx, named("a")...))
	require.NoError(t, tx.Rollback())
	require.Zero(t, f.stats())
}

// TestWhatIsBeingWrittenHoldsNobodyUp: the notes of a relay touch the rows that they are about, and
// wait for no transaction that is under way.
func TestWhatIsBeingWrittenHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		if f.dialect == sqlstore.SQLite {
			f.Skip("SQLite has one writer at a time")
		}
		const many = 2*outbox.PurgeBatch + 10
		f.writeNames("a", "b", "c", "p/1")
		f.exec("UPDATE {t} SET state = 2, state_at = created_at - 10 WHERE id = 'a'")
		tx, err := f.db.BeginTx(f.Context(), nil)
		require.NoError(f, err)
		defer tx.Rollback()
		require.NoError(f, f.Write(f.Context(), tx, named("being written")...))
		refused := false
		b := refusing(func(m outbox.Message) bool {
			first := m.Key == "p" && !refused
			refused = refused || first
			return first
		})
		options := f.quick()
		options.Batch = 2 * many
		stop := start(f, f.Outbox, b, options)
		f.sent()
		require.NoError(f, stop())
		f.writeMany(many)
		start(f, f.Outbox, b, options)
		f.sent()
		require.Equal(f, 3+many, b.count())
		f.purged(0, 4+many)
		require.Empty(f, f.of(outbox.DatabaseFailed))

		// And nobody who writes waits for a purge.
		require.NoError(f, f.Write(f.Context(), tx, named("and another")...))
		require.NoError(f, tx.Commit())
		f.sent()
		require.Equal(f, 5+many, b.count())
	})
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		// Many processes at once, at every start.
		f.dropped(f.table+"_m", f.table+"_m_lease", f.table+"_s", f.table+"_s_lease", f.table+"_x", f.table+"_x_lease")
		var wg sync.WaitGroup
		for range 4 {
			db, _ := open(f, f.url)
			o := f.beside(db, "_m")
			wg.Go(func() {
				assert.NoError(f, o.Migrate(f.Context()))
				assert.NoError(f, o.Migrate(f.Context()))
			})
		}
		wg.Wait()

		// It was forgotten.
		o := f.beside(f.db, "_n")
		_, err := o.Stats(f.Context())
		require.ErrorContains(f, err, "run Migrate")
		_, err = o.Unpark(f.Context(), "1")
		require.ErrorContains(f, err, "run Migrate")
		tx, err := f.db.BeginTx(f.Context(), nil)
		require.NoError(f, err)
		require.ErrorContains(f, o.Write(f.Context(), tx, outbox.Message{Topic: "t"}), "run Migrate")
		require.NoError(f, tx.Rollback())

		// The statements of Schema, one by one, and again.
		schema, err := outbox.Schema(f.dialect, f.table+"_s")
		require.NoError(f, err)
		for range 2 {
			for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
				f.exec(strings.TrimSuffix(statement, ";"))
			}
		}
		o = f.beside(f.db, "_s")
		require.NoError(f, o.Migrate(f.Context()))

		// The row of the lease is gone: a relay says so, and does not wait for ever.
		f.exec("DELETE FROM {t}_s_lease")
		stop := start(f, o, &broker{}, f.quick())
		await(f, "it is said", func() bool { return len(f.of(outbox.DatabaseFailed)) > 0 })
		require.ErrorContains(f, f.of(outbox.DatabaseFailed)[0].Err, "run Migrate")
		require.NoError(f, stop())
		require.NoError(f, o.Migrate(f.Context()))
		_, err = o.Stats(f.Context())
		require.NoError(f, err)

		// A table of somebody else's.
		f.exec("CREATE TABLE {t}_x (position INTEGER, state INTEGER, state_at INTEGER)")
		require.Error(f, f.beside(f.db, "_x").Migrate(f.Context()))
	})
}

func TestMigrateWithoutAutocommit(t *testing.T) {
	t.Parallel()
	f := fresh(t, engines[1].url(t), outbox.Config{})
	db, _ := open(t, f.url+"?autocommit=0")
	require.ErrorContains(t, f.beside(db).Migrate(t.Context()), "autocommit")
}

func TestTableInASchema(t *testing.T) {
	t.Parallel()
	each(t, func(f *fixture) {
		schema := map[sqlstore.Dialect]string{sqlstore.PostgreSQL: "public", sqlstore.MySQL: "test", sqlstore.SQLite: "main"}[f.dialect]
		table := schema + "." + f.table + "_in"
		var err error
		f.Outbox, err = outbox.New(f.db, f.dialect, outbox.Config{Table: table})
		require.NoError(f, err)
		f.dropped(table, table+"_lease")
		require.NoError(f, f.Migrate(f.Context()))
		start(f, f.Outbox, &broker{}, f.quick())
		f.writeNames("a/0", "a/1")
		f.sent()
		f.purged(0, 2)
	})
}

func TestSchemaRefuses(t *testing.T) {
	_, err := outbox.Schema(0, "")
	require.ErrorContains(t, err, "dialect")
	_, err = outbox.Schema(sqlstore.SQLite, "a b")
	require.ErrorContains(t, err, "not a valid table name")
	for dialect, index := range map[sqlstore.Dialect]string{
		sqlstore.PostgreSQL: "INDEX IF NOT EXISTS idem_outbox_state ON idem_outbox (state, state_at",
		sqlstore.MySQL:      "KEY (state, state_at",
		sqlstore.SQLite:     "INDEX IF NOT EXISTS idem_outbox_state ON idem_outbox (state, state_at",
	} {
		schema, err := outbox.Schema(dialect, "")
		require.NoError(t, err)
		require.Contains(t, schema, "idem_outbox_lease")
		require.Contains(t, schema, index)
	}
}
