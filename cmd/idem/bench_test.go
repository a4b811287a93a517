package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// BenchmarkList lists a store of a million records (with -short of ten thousand), of which ten run. first-row-ms is until the first one is
// printed, all-ms until the last, and heap-MB the most memory meanwhile.
func BenchmarkList(b *testing.B) {
	n := 1_000_000
	if testing.Short() {
		n = 10_000
	}
	for name, url := range map[string]func(testing.TB) string{
		"redis": func(tb testing.TB) string { return backend.StartRedis(tb).URL() }, "postgres": backend.Postgres, "mysql": backend.MySQL,
		"sqlite": func(tb testing.TB) string { return "sqlite:" + tb.TempDir() + "/idem.db" },
	} {
		b.Run(name, func(b *testing.B) {
			url := url(b)
			args := []string{"-store", url, "-service", "big"}
			if strings.HasPrefix(url, "redis") {
				fillRedis(b, url, n)
			} else {
				table := "idem_big_" + store.NewOwner().String()[:8]
				args = append(args, "-table", table)
				fillTable(b, url, table, n)
			}
			for _, list := range [][]string{{"-state", "running"}, {"-all"}} {
				b.Run(strings.Trim(list[0], "-"), func(b *testing.B) {
					var first, all time.Duration
					heap := uint64(0)
					for b.Loop() {
						out := &watchedOutput{}
						begun := time.Now()
						require.Zero(b, run(context.Background(), append(append(args, "list"), list...), out, out), "%s", out.head)
						all += time.Since(begun)
						first += out.first.Sub(begun)
						heap = max(heap, out.heap)
						require.GreaterOrEqual(b, out.lines, map[string]int{"-state": 11, "-all": n + 11}[list[0]])
					}
					b.ReportMetric(float64(first.Milliseconds())/float64(b.N), "first-row-ms")
					b.ReportMetric(float64(all.Milliseconds())/float64(b.N), "all-ms")
					b.ReportMetric(float64(heap>>20), "heap-MB")
				})
			}
		})
	}
}

// watchedOutput counts lines, and looks at the clock and the memory.
type watchedOutput struct {
	first time.Time
	lines int
	heap  uint64
	head  []byte
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	if w.lines == 1 { // behind the header
		w.first = time.Now()
	}
	if w.lines++; w.lines%10_000 == 2 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.heap = max(w.heap, m.HeapInuse)
	}
	if len(w.head) < 300 {
		w.head = append(w.head, p...)
	}
	return len(p), nil
}

// fillTable puts n finished records and ten running ones into a new table.
func fillTable(b *testing.B, url, table string, n int) {
	db, dialect, err := sqlstore.Open(url)
	require.NoError(b, err)
	b.Cleanup(func() {
		_, err := db.Exec("DROP TABLE " + table)
		require.NoError(b, err)
		db.Close()
	})
	s, err := sqlstore.New(db, dialect, sqlstore.Config{Table: table})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	require.NoError(b, s.Migrate(context.Background()))
	running(b, s)
	digit := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL " +
		"SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	from, number := "", "0"
	for i, m := 0, 1; m < n; i, m = i+1, m*10 {
		from += fmt.Sprintf(", %s AS t%d", digit, i)
		number += fmt.Sprintf(" + %d * t%d.d", m, i)
	}
	text := map[sqlstore.Dialect]string{
		sqlstore.PostgreSQL: "convert_to('idem:big:U=u' || lpad((%s)::text, 7, '0') || 'M=POST%%20/ordersK=k', 'UTF8')",
		sqlstore.MySQL:      "CONCAT('idem:big:U=u', LPAD(%s, 7, '0'), 'M=POST%%20/ordersK=k')",
		sqlstore.SQLite:     "CAST(printf('idem:big:U=u%%07dM=POST%%%%20/ordersK=k', %s) AS BLOB)",
	}[dialect]
	key := fmt.Sprintf(text, number)
	at := time.Now().UnixMicro()
	_, err = db.Exec(fmt.Sprintf(`INSERT INTO %s (source_type, serial_number, state, owner, attempt, fingerprint, result, remark, creator,
	created_at, updated_at, lease_until, retention, expires_at, version, policy)
SELECT 'idem', %s, 2, '', 1, '', 'result', '', 'host 1', %d, %d, 0, 0, %d, 1, 'orders' FROM %s`, table, key, at, at,
		at+int64(time.Hour/time.Microsecond), from[2:]))
	require.NoError(b, err)
}

// running begins ten runs.
func running(b *testing.B, s store.Store) {
	for i := range 10 {
		c := store.Claim{Owner: store.NewOwner(), About: store.About{ID: store.NewID(), Policy: "orders", Creator: "host 1"},
			Lease: time.Hour, Retention: time.Hour}
		_, err := s.Acquire(context.Background(), fmt.Sprintf("idem:big:U=r%dM=POST%%20/ordersK=k", i), c)
		require.NoError(b, err)
	}
}

func fillRedis(b *testing.B, url string, n int) {
	records, closeStore, err := open(context.Background(), url, "", func(error) {})
	require.NoError(b, err)
	defer closeStore()
	running(b, records)
	o, err := rueidis.ParseURL(url)
	require.NoError(b, err)
	client, err := rueidis.NewClient(o)
	require.NoError(b, err)
	defer client.Close()
	script := "for i = ARGV[1], ARGV[1] + 9999 do redis.call('SET', string.format('idem:big:U=u%07dM=POST%%20/ordersK=k', i), " +
		"'D1;0;0;result', 'PX', 3600000) end return 1"
	for i := 0; i < n; i += 10_000 {
		require.NoError(b, client.Do(context.Background(), client.B().Eval().Script(script).Numkeys(0).Arg(fmt.Sprint(i)).Build()).Error())
	}
}
