package sqlstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/core/storetest"
	"github.com/idem-go/idem/internal/backend"
)

// TestPooler: through a pooler that gives each transaction another connection, a store works as without. There are fewer
// connections than clients, so that each serves many.
func TestPooler(t *testing.T) {
	url := with(backend.StartPgBouncer(t, engines[0].url(t), 3).URL(), "pooler=transaction")
	storetest.Run(t, func(tb testing.TB) storetest.Instance { return instance(tb, url) }, storetest.Features{})

	t.Run("DoTx", func(t *testing.T) { newBooks(t, url).atOnce() })
}

// TestLostStatements: a connection whose prepared statements are gone, as behind a proxy that has taken another server, fails
// once. pgx before 5.8 went on naming them for as long as the connection stood.
func TestLostStatements(t *testing.T) {
	t.Parallel()
	s, db, _ := fresh(t, engines[0].url(t), sqlstore.Config{})
	db.SetMaxOpenConns(1)
	c := claim(time.Hour)
	_, err := s.Acquire(t.Context(), "k", c)
	require.NoError(t, err)
	require.NoError(t, s.Renew(t.Context(), "k", c.Owner, time.Hour))
	_, err = db.Exec("DEALLOCATE ALL")
	require.NoError(t, err)
	require.ErrorContains(t, s.Renew(t.Context(), "k", c.Owner, time.Hour), "does not exist")
	require.NoError(t, s.Renew(t.Context(), "k", c.Owner, time.Hour))
}

// TestPoolerThatNobodyHasNamed: two services on one connection meet with each other's prepared statements. The second is
// told what to do.
func TestPoolerThatNobodyHasNamed(t *testing.T) {
	t.Parallel()
	url := backend.StartPgBouncer(t, engines[0].url(t), 1).URL()
	_, _, name := fresh(t, with(url, "pooler=transaction"), sqlstore.Config{})
	var err error
	for range 2 {
		s := openStore(t, url, name)
		var g store.Grant
		if g, err = s.Acquire(t.Context(), "k", claim(time.Hour)); err == nil {
			require.Equal(t, store.Acquired, g.State)
		}
	}
	require.ErrorContains(t, err, "pooler=transaction")
}

// TestPoolerIsNotBlamed: a pooler's own errors have a code of the same kind.
func TestPoolerIsNotBlamed(t *testing.T) {
	blamed := func(text string) bool {
		err := sqlstore.Failure(sqlstore.PostgreSQL, &pgconn.PgError{Code: "08P01", Message: text})
		return strings.Contains(err.Error(), "pooler=transaction")
	}
	assert.True(t, blamed(`bind message supplies 3 parameters, but prepared statement "" requires 1`))
	assert.False(t, blamed("query_wait_timeout"))
}
