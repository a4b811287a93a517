package benchmarks

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/redisstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// backing is a store for one benchmark: a name space of its own, which is removed with it.
type backing struct {
	store   store.Store
	service string                 // may be empty in memory
	seal    *core.Seal             // of its engines
	records func(b *testing.B) int // how many the store holds
}

// engine returns an engine on the store.
func (s backing) engine() *core.Engine {
	return core.MustNew(core.Config{
		Store: s.store, Service: s.service, User: core.UserFromHeader("X-User"), Seal: s.seal,
		StoreTimeout: time.Minute, // a slow disk is measured, not refused
	})
}

// stores are the columns of the matrix. They are made for so many records at most.
var stores = []struct {
	name string
	open func(b *testing.B, records int) backing
}{
	{"memory", openMemory},
	{"redis", func(b *testing.B, _ int) backing { return openRedis(b, backend.Redis(b)) }},
	{"sqlite", func(b *testing.B, _ int) backing {
		return openSQL(b, "sqlite:"+filepath.Join(b.TempDir(), "idem.db"))
	}},
	{"postgres", func(b *testing.B, _ int) backing { return openSQL(b, backend.Postgres(b)) }},
}

func openMemory(b *testing.B, records int) backing {
	store := newMemstore(b, memstore.Config{MaxEntries: records})
	return backing{store: store, records: func(*testing.B) int { return store.Len() }}
}

// newMemstore makes a store that is not bounded by bytes.
func newMemstore(tb testing.TB, o memstore.Config) *memstore.Store {
	tb.Helper()
	o.MaxBytes = 1 << 40
	store, err := memstore.New(o)
	require.NoError(tb, err)
	return store
}

func openRedis(b *testing.B, url string) backing {
	store, err := redisstore.NewURL(url, redisstore.Config{})
	require.NoError(b, err)
	b.Cleanup(store.Close)
	options, err := rueidis.ParseURL(url)
	require.NoError(b, err)
	client, err := rueidis.NewClient(options)
	require.NoError(b, err)
	b.Cleanup(client.Close)

	service := "bench-" + rand.Text()[:12]
	// each shows all keys of the service to do, page by page.
	each := func(b *testing.B, do func(page []string)) {
		for cursor := uint64(0); ; {
			page, err := client.Do(context.Background(),
				client.B().Scan().Cursor(cursor).Match("idem:"+service+":*").Count(1000).Build()).AsScanEntry()
			require.NoError(b, err)
			if len(page.Elements) > 0 {
				do(page.Elements)
			}
			if cursor = page.Cursor; cursor == 0 {
				return
			}
		}
	}
	b.Cleanup(func() {
		each(b, func(page []string) {
			var unlink rueidis.Commands
			for _, key := range page {
				unlink = append(unlink, client.B().Unlink().Key(key).Build())
			}
			for _, r := range client.DoMulti(context.Background(), unlink...) {
				require.NoError(b, r.Error())
			}
		})
	})
	return backing{store: store, service: service, records: func(b *testing.B) int {
		keys := map[string]struct{}{} // a scan may show one twice
		each(b, func(page []string) {
			for _, key := range page {
				keys[key] = struct{}{}
			}
		})
		return len(keys)
	}}
}

func openSQL(b *testing.B, url string) backing {
	table := "idem_bench_" + strings.ToLower(rand.Text()[:12])
	db, dialect, err := sqlstore.Open(url)
	require.NoError(b, err)
	b.Cleanup(func() { db.Close() })
	store, err := sqlstore.New(db, dialect, sqlstore.Config{Table: table})
	require.NoError(b, err)
	b.Cleanup(store.Close)
	require.NoError(b, store.Migrate(b.Context()))
	b.Cleanup(func() {
		_, err := db.Exec("DROP TABLE " + table)
		require.NoError(b, err)
	})
	return backing{store: store, service: "bench", records: func(b *testing.B) int { return rows(b, db, table) }}
}

func rows(b *testing.B, db *sql.DB, table string) (n int) {
	b.Helper()
	require.NoError(b, db.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
	return n
}
