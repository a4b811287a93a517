package sqlstore_test

import (
	"context"
	"database/sql"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
)

// pieces reads one byte at a time: TLS and slow links cut what a server sends.
type pieces struct{ net.Conn }

func (p pieces) Read(b []byte) (int, error) { return p.Conn.Read(b[:min(1, len(b))]) }

// TestAnswersInPieces: Open has MySQL's driver ask for the server's limit, and before 1.10 it misread an answer in pieces.
func TestAnswersInPieces(t *testing.T) {
	mysql.RegisterDialContext("pieces", func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return pieces{conn}, err
	})
	dsn, err := sqlstore.DSN(engines[1].url(t), "mysql")
	require.NoError(t, err)
	db, err := sql.Open("mysql", strings.Replace(dsn, "tcp(", "pieces(", 1))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Ping())
}

func TestConfig(t *testing.T) {
	_, err := sqlstore.New(nil, 0, sqlstore.Config{Table: "no table", Source: "a\x00"})
	for _, fault := range []string{"database is nil", "dialect is unknown", `Config.Table: "no table"`, "Config.Source: "} {
		require.ErrorContains(t, err, fault)
	}
	db, dialect := open(t, "sqlite::memory:")
	for name, good := range map[string]bool{
		"t": true, "_T1": true, "a.b": true, strings.Repeat("t", 50): true,
		"": true, "1t": false, "a.b.c": false, "a.": false, ".a": false, "t;": false, `t"`: false, "t`": false,
		"té": false, strings.Repeat("t", 51): false,
	} {
		_, err := sqlstore.New(db, dialect, sqlstore.Config{Table: name})
		assert.Equal(t, good, err == nil, "%q: %v", name, err)
	}
	for source, good := range map[string]bool{
		"s": true, "payments/eu é": true, strings.Repeat("s", 64): true,
		"": true, strings.Repeat("s", 65): false, "a\x00": false, "a\xff": false,
	} {
		_, err := sqlstore.New(db, dialect, sqlstore.Config{Source: source})
		assert.Equal(t, good, err == nil, "%q: %v", source, err)
	}
}

func TestURLs(t *testing.T) {
	const safe = "_pragma=busy_timeout(50)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	for _, c := range []struct{ url, driver, want string }{
		{"postgres://u:p@h/d?sslmode=require", "pgx", "postgres://u:p@h/d?sslmode=require"},
		{"postgres://u:p@h/d", "pgx", "postgres://u:p@h/d"},
		{"postgres://h/d?pooler=transaction", "pgx", "postgres://h/d?default_query_exec_mode=exec"},
		{"postgres://h/d?a=b&pooler=transaction&default_query_exec_mode=simple_protocol", "pgx",
			"postgres://h/d?a=b&default_query_exec_mode=simple_protocol"},
		{"postgresql://u:p@h/d", "postgres", "postgresql://u:p@h/d"},
		{"postgres://h/d?pooler=transaction", "postgres", "postgres://h/d?binary_parameters=yes"},
		{"postgres://h/d?binary_parameters=no&pooler=transaction", "postgres", "postgres://h/d?binary_parameters=no"},
		{"mysql://root@h/d", "mysql", "root@tcp(h:3306)/d?autocommit=1&innodb_lock_wait_timeout=5&maxAllowedPacket=0"},
		{"mysql://u:p%40%2F:x%3F@h:1/d%20e?tls=true&loc=Asia/Tokyo", "mysql",
			"u:p@/:x?@tcp(h:1)/d%20e?autocommit=1&innodb_lock_wait_timeout=5&maxAllowedPacket=0&tls=true&loc=Asia%2FTokyo"},
		{"mysql://[::1]:3307/d", "mysql", "tcp([::1]:3307)/d?autocommit=1&innodb_lock_wait_timeout=5&maxAllowedPacket=0"},
		{"sqlite:a.db", "sqlite", "file:a.db?" + safe},
		{"sqlite:///var/a.db", "sqlite", "file:/var/a.db?" + safe},
		{"sqlite:/var/50%#.db?mode=rw", "sqlite", "file:/var/50%25%23.db?" + safe + "&mode=rw"},
		{"sqlite:a.db?_txlock=deferred&_pragma=Busy_Timeout(9)", "sqlite",
			"file:a.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=deferred&_pragma=Busy_Timeout(9)"},
		{"sqlite:a.db", "sqlite3", "file:a.db?_busy_timeout=50&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate"},
	} {
		got, err := sqlstore.DSN(c.url, c.driver)
		require.NoError(t, err, c.url)
		assert.Equal(t, c.want, got)
		if c.driver == "mysql" {
			_, err := mysql.ParseDSN(got)
			require.NoError(t, err)
		}
	}
	for _, url := range []string{"", "redis://h", "oracle://secret@h", "sqlite:", "sqlite:?mode=rw", "mysql://", "mysql://h",
		"mysql:///d", "mysql://h/a/b", "postgres://u:secret@h/d?pooler=session", "mysql://a%3Ab:secret@h/d", "mysql://u:secret@h:port/d"} {
		_, _, err := sqlstore.Open(url)
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "secret")
		if strings.Contains(url, ":secret@h:") {
			assert.ErrorContains(t, err, "mysql://user:password@host:port/database")
		}
		_, err = sqlstore.NewURL(t.Context(), url, sqlstore.Config{})
		require.Error(t, err, url)
	}
}

func TestDriverIsNamed(t *testing.T) {
	d, err := sqlstore.Pick(sqlstore.SQLite, []string{"sqlite", "sqlite3"}, []string{"mysql", "sqlite3"})
	require.NoError(t, err)
	assert.Equal(t, "sqlite3", d)
	for dialect, says := range map[sqlstore.Dialect]string{
		sqlstore.PostgreSQL: `no driver for PostgreSQL is registered: import _ "github.com/jackc/pgx/v5/stdlib"`,
		sqlstore.MySQL:      `no driver for MySQL is registered: import _ "github.com/go-sql-driver/mysql"`,
		sqlstore.SQLite:     `no driver for SQLite is registered: import _ "modernc.org/sqlite"`,
	} {
		_, err := sqlstore.Pick(dialect, []string{"a"}, []string{"b"})
		require.ErrorContains(t, err, says)
	}
}

// TestSQLiteSettings: what durability rests on.
func TestSQLiteSettings(t *testing.T) {
	db, _ := open(t, "sqlite:"+filepath.Join(t.TempDir(), "a file.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "50"} {
		var got string
		require.NoError(t, db.QueryRow("PRAGMA "+pragma).Scan(&got))
		assert.Equal(t, want, got, pragma)
	}
}

func TestMemory(t *testing.T) {
	s, err := sqlstore.NewURL(t.Context(), "sqlite::memory:", sqlstore.Config{})
	require.NoError(t, err)
	defer s.Close()
	other, err := sqlstore.NewURL(t.Context(), "sqlite::memory:", sqlstore.Config{})
	require.NoError(t, err)
	defer other.Close()
	for _, records := range []*sqlstore.Store{s, other} {
		g, err := records.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, store.Acquired, g.State)
	}
	g, err := s.Acquire(t.Context(), "k", claim(time.Hour))
	require.NoError(t, err)
	assert.Equal(t, store.Running, g.State)
}

func TestClose(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		s, db, name := fresh(t, url, sqlstore.Config{})
		_, err := s.Acquire(t.Context(), "k", claim(time.Hour))
		require.NoError(t, err)
		s.Close()
		s.Close()
		require.NoError(t, db.PingContext(t.Context()), "the pool is the caller's")

		owner, err := sqlstore.NewURL(t.Context(), url, sqlstore.Config{Table: name})
		require.NoError(t, err)
		owner.Close()
		owner.Close()
		_, err = owner.Acquire(t.Context(), "k", claim(time.Hour))
		require.Error(t, err)
	})
}
