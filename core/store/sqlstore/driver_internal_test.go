package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/backend"
)

func TestDriversAreKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		driver  string
		dialect Dialect
		url     func(testing.TB) string
		known   string // the type of the driver, if it makes a difference
	}{
		"pgx":     {"pgx", PostgreSQL, backend.Postgres, typePGX},
		"lib/pq":  {"postgres", PostgreSQL, backend.Postgres, typePQ},
		"mysql":   {"mysql", MySQL, backend.MySQL, ""},
		"modernc": {"sqlite", SQLite, func(testing.TB) string { return "sqlite::memory:" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dsn, err := DSN(tc.url(t), tc.driver)
			require.NoError(t, err)
			db, err := sql.Open(tc.driver, dsn)
			require.NoError(t, err)
			defer db.Close()
			if tc.known != "" {
				assert.Equal(t, tc.known, driverOf(db))
			}
			_, err = db.ExecContext(t.Context(), "SELECT * FROM idem_there_is_none")
			wrapped := fmt.Errorf("reading: %w", err)
			code := any(sqlState(wrapped))
			switch tc.dialect {
			case MySQL:
				code = mysqlNumber(wrapped)
			case SQLite:
				code = sqliteCode(wrapped)
			}
			assert.EqualValues(t, map[Dialect]any{PostgreSQL: "42P01", MySQL: 1146, SQLite: 1}[tc.dialect], code, "%#v", err)
			assert.True(t, tc.dialect.IsNoTable(wrapped), err)
			assert.True(t, tc.dialect.fromDriver(wrapped), err)
			assert.False(t, tc.dialect.fromDriver(errors.New("the caller's")))
		})
	}
}

// behind is a context whose timer is late.
type behind struct{ context.Context }

func (behind) Deadline() (time.Time, bool) { return time.Now(), true }

// TestDeadlineOfASocket: what a socket reports at the deadline is the context's error, although the context has not ended yet.
func TestDeadlineOfASocket(t *testing.T) {
	s := &Store{dialect: SQLite}
	assert.ErrorIs(t, s.failure(behind{t.Context()}, "renew", os.ErrDeadlineExceeded), context.DeadlineExceeded)
	assert.NotErrorIs(t, s.failure(t.Context(), "renew", os.ErrDeadlineExceeded), context.DeadlineExceeded)
}
