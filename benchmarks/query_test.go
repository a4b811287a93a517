package benchmarks

import (
	"database/sql"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/internal/backend"
)

// query is a handler that asks PostgreSQL a question that takes a millisecond.
type query struct {
	handler
	db *sql.DB
}

func (q *query) create(body io.Reader) []byte {
	if _, err := q.db.Exec("SELECT pg_sleep(0.001)"); err != nil {
		panic(err)
	}
	return q.handler.create(body)
}

// BenchmarkQuery is what a guard costs of a handler that does one query of a millisecond.
func BenchmarkQuery(b *testing.B) {
	db, err := sql.Open("pgx", backend.Postgres(b))
	require.NoError(b, err)
	b.Cleanup(func() { db.Close() })
	gin := frameworkNamed(b, "gin")
	b.Run("gin/bare/none", func(b *testing.B) {
		q := &query{db: db}
		workload{distinct: true, executed: true, want: wantCreated}.measure(b, &q.handler, gin.mount(q, nil).client())
	})
	for _, s := range stores {
		b.Run("gin/client-key-first/"+s.name, func(b *testing.B) {
			work := workload{keyed: true, distinct: true, executed: true, want: wantCreated}
			q, on := &query{db: db}, s.open(b, work.records(b.N))
			work.measure(b, &q.handler, gin.mount(q, on.engine().MustGuard(core.ClientKey())).client())
			require.Equal(b, work.records(b.N), on.records(b))
		})
	}
}
