package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/internal/backend"
)

// till is where payments are made in the transaction that holds the record. The ledger is
// the table of payments itself: what was rolled back was not executed.
type till struct {
	*trial
	store   *sqlstore.Store
	db      *sql.DB // the store's
	dialect sqlstore.Dialect
	direct  *sql.DB                     // not behind a link
	begin   func()                      // called before each transaction, if set
	leave   func()                      // ends the call that is under way
	inside  func(op string, tx *sql.Tx) // called when the payment has been made, and is not committed
	runs    map[string]int              // how often that was, by operation
}

const payments = "CREATE TABLE payments (operation VARCHAR(64) NOT NULL)"

// newTill returns a till whose database is reached by url, and another way by direct.
func newTill(t *testing.T, url, direct string) *till {
	db, dialect, err := sqlstore.Open(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlstore.New(db, dialect, sqlstore.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	_, err = db.ExecContext(t.Context(), payments)
	require.NoError(t, err)
	return &till{trial: newTrial(t), store: store, db: db, dialect: dialect, direct: openSQL(t, direct), runs: map[string]int{}}
}

// BeginTx makes the till a sqlstore.TxBeginner that tests can get hold of.
func (c *till) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if c.begin != nil {
		c.begin()
	}
	return c.db.BeginTx(ctx, opts)
}

// pay makes a payment, as a caller does who waits no longer than limit, and returns "done",
// "done before", "unavailable", or "unknown".
func (c *till) pay(op string, limit time.Duration) string {
	c.t.Helper()
	answer := c.ask(op, limit)
	c.note(answer, op)
	return answer
}

func (c *till) ask(op string, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c.leave = cancel
	result, err := c.store.DoTx(ctx, c, op, func(tx *sql.Tx) ([]byte, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO payments (operation) VALUES ('"+op+"')"); err != nil {
			return nil, err
		}
		c.runs[op]++
		if c.inside != nil {
			c.inside(op, tx)
		}
		return []byte("receipt of " + op), nil
	})
	switch {
	case errors.Is(err, sqlstore.ErrOutcomeUnknown):
		return "unknown"
	case err != nil:
		if ctx.Err() == nil {
			assert.ErrorIs(c.t, err, codes.StoreUnavailable)
		}
		return "unavailable"
	}
	assert.Equal(c.t, "receipt of "+op, string(result.Value))
	if result.Replayed {
		return "done before"
	}
	return "done"
}

// until pays again and again, as a caller that retries, until the answer is want.
func (c *till) until(want, op string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got := c.ask(op, patience)
		if got == want {
			c.note(got, op)
			return
		}
		require.True(c.t, time.Now().Before(deadline), "still %s, want %s", got, want)
	}
}

// report writes the ledger from what stands in the table, checks that each payment has its
// record, and reports.
func (c *till) report(fault, store string, operations ...string) {
	c.t.Helper()
	audit(c.trial, c.direct, operations...)
	c.trial.report(transactions, fault, store, tally{executions: len(operations)}, operations...)
}

func audit(tr *trial, db *sql.DB, operations ...string) {
	tr.t.Helper()
	for _, op := range operations {
		var n int
		require.NoError(tr.t, db.QueryRow("SELECT COUNT(*) FROM payments WHERE operation = '"+op+"'").Scan(&n))
		for range n {
			tr.ledger.add(op, 1)
		}
	}
	var paid, records int
	require.NoError(tr.t, db.QueryRow("SELECT COUNT(*) FROM payments").Scan(&paid))
	require.NoError(tr.t, db.QueryRow("SELECT COUNT(*) FROM idem_records").Scan(&records))
	require.Equal(tr.t, paid, records, "payments and their records")
}

func TestDoTxConnections(t *testing.T) {
	t.Parallel()
	for _, e := range sqlEngines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := e.start(t)
			start := func(t *testing.T) (*operator, *till) {
				t.Parallel()
				url := freshDatabase(t, server)
				return newOperator(t, e, server, url), newTill(t, url, url)
			}
			link := func(t *testing.T) (*backend.Proxy, *till) {
				t.Parallel()
				url := freshDatabase(t, server)
				proxy := backend.NewProxy(t, server.Addr())
				return proxy, newTill(t, proxy.URL(url), url)
			}
			t.Run("killed before", func(t *testing.T) {
				o, c := start(t)
				for _, op := range three {
					o.endAll()
					c.until("done", op) // whether the driver notices in time is its own affair
					require.Equal(t, "done before", c.pay(op, patience))
				}
				c.report("sessions killed before the transaction", e.name, three...)
			})
			t.Run("killed inside", func(t *testing.T) {
				o, c := start(t)
				c.inside = func(op string, _ *sql.Tx) {
					if c.runs[op] == 1 {
						o.endAll()
					}
				}
				for _, op := range three {
					require.Equal(t, "unavailable", c.pay(op, patience))
					c.until("done", op)
					require.Equal(t, "done before", c.pay(op, patience))
					require.Equal(t, 2, c.runs[op])
				}
				c.report("session killed inside the transaction, after the change", e.name, three...)
			})
			t.Run("killed inside, a duplicate waits", func(t *testing.T) {
				o, c := start(t)
				heir := newTillBeside(t, c)
				for _, op := range three {
					answer := make(chan string, 1)
					c.inside = func(_ string, tx *sql.Tx) {
						var self int64
						assert.NoError(t, tx.QueryRow(e.self).Scan(&self))
						go func() { answer <- heir.ask(op, patience) }()
						o.await(e.blocked, 1)
						o.end(self)
					}
					require.Equal(t, "unavailable", c.pay(op, patience))
					got := <-answer
					require.Equal(t, "done", got)
					c.note(got, op)
					c.inside = nil
					c.until("done before", op)
				}
				c.report("session killed inside the transaction while a duplicate waits for it", e.name, three...)
			})
			t.Run("cut before commit", func(t *testing.T) {
				proxy, c := link(t)
				c.inside = func(op string, _ *sql.Tx) {
					if c.runs[op] == 1 {
						proxy.CutBefore([]byte(e.commit))
					}
				}
				for _, op := range three {
					require.Equal(t, "done", c.pay(op, patience))
					require.Equal(t, 2, c.runs[op], "the first was rolled back")
					require.Equal(t, "done before", c.pay(op, patience))
				}
				c.report("link cut at COMMIT before it took effect", e.name, three...)
			})
			t.Run("cut after commit", func(t *testing.T) {
				proxy, c := link(t)
				c.inside = func(string, *sql.Tx) { proxy.CutAfter([]byte(e.commit)) }
				for _, op := range three {
					require.Equal(t, "done", c.pay(op, patience))
					require.Equal(t, 1, c.runs[op], "it has found its own record")
					require.Equal(t, "done before", c.pay(op, patience))
				}
				c.report("link cut at COMMIT after it took effect", e.name, three...)
			})
			for _, at := range []struct {
				name, last string
				cut        func(*backend.Proxy, []byte) <-chan struct{}
			}{
				{"before", "done", (*backend.Proxy).CutBefore},
				{"after", "done before", (*backend.Proxy).CutAfter},
			} {
				t.Run("down from commit on, "+at.name, func(t *testing.T) {
					proxy, c := link(t)
					for _, op := range three {
						var cut <-chan struct{}
						c.inside = func(string, *sql.Tx) { cut = at.cut(proxy, []byte(e.commit)) }
						asked := 0
						c.begin = func() {
							if cut == nil {
								return
							}
							<-cut
							proxy.Cut()
							if asked++; asked == 5 { // DoTx asks what has become of it
								c.leave()
							}
						}
						require.Equal(t, "unknown", c.pay(op, patience))
						c.inside, c.begin = nil, nil
						proxy.Restore()
						c.until(at.last, op)
					}
					c.report("link cut at COMMIT "+at.name+" it took effect, and down until later", e.name, three...)
				})
			}
		})
	}
}

// newTillBeside is another till on the same tables.
func newTillBeside(t *testing.T, c *till) *till {
	store, err := sqlstore.New(c.db, c.dialect, sqlstore.Config{}) // of its own: duplicates on one wait in the process
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &till{trial: newTrial(t), store: store, db: c.db, dialect: c.dialect, runs: map[string]int{}}
}

func TestDoTxServer(t *testing.T) {
	t.Parallel()
	for _, e := range sqlEngines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := e.start(t)
			for _, at := range []struct {
				fault        string
				before       bool // the transaction, or else inside
				harm, repair func()
			}{
				{"server killed before the transaction, restarted later", true, server.Kill, server.Start},
				{"server killed inside the transaction, restarted later", false, server.Kill, server.Start},
				{"server frozen beyond the deadline before the transaction, thawed", true, server.Freeze, server.Thaw},
				{"server frozen beyond the deadline inside the transaction, thawed", false, server.Freeze, server.Thaw},
			} {
				t.Run(at.fault, func(t *testing.T) {
					url := freshDatabase(t, server)
					c := newTill(t, url, url)
					for _, op := range three {
						if at.before {
							at.harm()
						} else {
							c.inside = func(string, *sql.Tx) { at.harm() }
						}
						require.Equal(t, "unavailable", c.pay(op, storeTimeout))
						c.inside = nil
						at.repair()
						c.until("done", op)
						require.Equal(t, "done before", c.pay(op, patience))
					}
					c.report(at.fault, e.name, three...)
				})
			}
		})
	}
}
