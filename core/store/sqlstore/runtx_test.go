package sqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/codes"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/memstore"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/httpidem"
)

// counter is a guarded route whose handler is a test's.
type counter struct {
	*books
	handler func(w http.ResponseWriter, r *http.Request)
	served  http.Handler
}

func newCounter(t *testing.T, url string, policy core.Policy) *counter {
	c := &counter{books: newBooks(t, url)}
	engine := core.MustNew(core.Config{Service: "shop", Store: c.store, User: core.SharedByAllCallers()})
	c.served = httpidem.New(engine.MustGuard(policy))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.handler(w, r) }))
	return c
}

// post sends an order, and returns the answer: status and body.
func (c *counter) post(key string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(c.t.Context(), "POST", "/orders", strings.NewReader("item=book"))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	defer func() { _ = recover() }()
	c.served.ServeHTTP(w, r)
	return w
}

// order is what a handler does: it enters name, and answers with what that has come to.
func (c *counter) order(w http.ResponseWriter, r *http.Request, name string) (core.Result[[]byte], bool) {
	result, err := c.store.RunTx(r.Context(), c.db, c.enter(name))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(result.Value)
	case !httpidem.Refuse(w, r, err):
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	return result, err == nil
}

var byKey = core.Policy{Key: core.Header(core.Required)}

// TestRunTxRemembersWhatWasCommitted: the next run gets the committed value, however the run ends, for as long as the policy
// remembers.
func TestRunTxRemembersWhatWasCommitted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		for name, end := range map[string]func(w http.ResponseWriter, r *http.Request){
			"fails":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			"panics":  func(w http.ResponseWriter, r *http.Request) { panic("oops") },
			"says so": func(w http.ResponseWriter, r *http.Request) { core.RunFrom(r.Context()).Abandon() },
		} {
			c := newCounter(t, url, byKey)
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				result, err := c.store.RunTx(r.Context(), c.db, c.enter(name))
				assert.NoError(t, err)
				assert.Equal(t, core.Result[[]byte]{Value: []byte("entered " + name), Attempt: 1}, result)
				end(w, r)
			}
			c.post("k-1")
			var records int
			require.NoError(t, c.db.QueryRow("SELECT COUNT(*) FROM "+c.store.TableName()).Scan(&records))
			assert.Equal(t, 1, records, "no second record stands beside the guard's")
			for range 2 { // also when the second one fails
				c.handler = func(w http.ResponseWriter, r *http.Request) {
					result, err := c.store.RunTx(r.Context(), c.db, never)
					assert.NoError(t, err, name)
					assert.Equal(t, core.Result[[]byte]{Value: []byte("entered " + name), Replayed: true}, result)
					w.WriteHeader(http.StatusBadGateway)
				}
				assert.Equal(t, http.StatusBadGateway, c.post("k-1").Code)
			}
			c.handler = func(w http.ResponseWriter, r *http.Request) { c.order(w, r, name) }
			assert.Equal(t, http.StatusCreated, c.post("k-1").Code)
			assert.True(t, httpidem.Replayed(c.post("k-1")))
			assert.Equal(t, 1, c.count(name))
		}
	})
}

// TestRunTxSealed: what a run has committed is sealed in its record, and the next one opens it, or is refused. It does not run again.
func TestRunTxSealed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		key := func(name string) []byte { return []byte(name + strings.Repeat("0123456789", 4)) }
		serve := func(c *counter, ring ...string) {
			seal := &core.Seal{DigestKey: key("digest")}
			for _, name := range ring {
				seal.Keys = append(seal.Keys, core.Secret{Name: name, Key: key(name)})
			}
			engine := core.MustNew(core.Config{Service: "shop", Store: c.store, User: core.SharedByAllCallers(), Seal: seal})
			guarded := httpidem.New(engine.MustGuard(byKey))
			c.served = guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.handler(w, r) }))
		}
		c := newCounter(t, url, byKey)
		serve(c, "a")
		c.handler = func(w http.ResponseWriter, r *http.Request) {
			_, err := c.store.RunTx(r.Context(), c.db, c.enter("book"))
			assert.NoError(t, err)
			w.WriteHeader(http.StatusBadGateway)
		}
		c.post("k-1")
		var result []byte
		require.NoError(t, c.db.QueryRow("SELECT result FROM "+c.store.TableName()).Scan(&result))
		assert.NotEmpty(t, result)
		assert.NotContains(t, string(result), "entered")

		c.handler = func(w http.ResponseWriter, r *http.Request) { c.order(w, r, "book") }
		serve(c, "b")
		w := c.post("k-1")
		assert.Equal(t, http.StatusConflict, w.Code)
		assert.Equal(t, string(codes.ResultUnavailable), w.Header().Get(core.RefusedHeader))
		serve(c, "b", "a")
		w = c.post("k-1")
		assert.Equal(t, "201 entered book", fmt.Sprint(w.Code, " ", w.Body))
		assert.True(t, httpidem.Replayed(c.post("k-1")))
		assert.Equal(t, 1, c.count("book"))
	})
}

// TestRunTxForgetsWithThePolicy: the same parameters are another operation once the first one's
// result is gone, or was released: it runs.
func TestRunTxForgetsWithThePolicy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		for name, policy := range map[string]core.Policy{
			"retention": {Record: core.Record{Retention: time.Millisecond}},
			"released":  {Record: core.Record{OnSuccess: core.Release}, Duplicate: core.Reject("")},
		} {
			c := newCounter(t, url, policy)
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				_, ok := c.order(w, r, name)
				assert.True(t, ok)
			}
			for range 3 {
				w := c.post("")
				assert.Equal(t, http.StatusCreated, w.Code, w.Body)
				time.Sleep(5 * time.Millisecond)
			}
			assert.Equal(t, 3, c.count(name), name)
		}

		// Also if the run that has succeeded had taken over what another had committed. That success has left a free record. A run
		// that claims it, commits and fails has not: it may not run again.
		c := newCounter(t, url, core.Policy{Record: core.Record{OnSuccess: core.Release}, Duplicate: core.Reject("")})
		for i, status := range []int{http.StatusBadGateway, http.StatusCreated, http.StatusBadGateway, http.StatusCreated} {
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, i%2 == 1, httpidem.Run(r).Takeover(), i)
				result, err := c.store.RunTx(r.Context(), c.db, c.enter("free"))
				assert.NoError(t, err)
				assert.Equal(t, i%2 == 1, result.Replayed, i)
				w.WriteHeader(status)
			}
			assert.Equal(t, status, c.post("").Code, i)
		}
		assert.Equal(t, 2, c.count("free"))
	})
}

// TestRunTxLost: a run whose claim is another's by now commits nothing.
func TestRunTxLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		c := newCounter(t, url, byKey)
		steal := func(db interface {
			Exec(string, ...any) (sql.Result, error)
		}) error { // as a takeover does
			_, err := db.Exec("UPDATE " + c.store.TableName() + " SET attempt = attempt + 1, owner = substr(serial_number, 1, 3)")
			return err
		}
		for name, handler := range map[string]func(tx *sql.Tx) ([]byte, error){
			"before": nil,
			"passed": nil, // record and all
			"within": func(tx *sql.Tx) ([]byte, error) {
				v, err := c.enter("within")(tx)
				if dialectOf(url) == sqlstore.SQLite { // which has one writer
					return v, errors.Join(err, steal(tx))
				}
				return v, errors.Join(err, steal(c.db))
			},
		} {
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				switch name {
				case "before":
					assert.NoError(t, steal(c.db))
					handler = never
				case "passed":
					_, err := c.db.Exec("UPDATE " + c.store.TableName() + " SET expires_at = 0 WHERE state = 1")
					assert.NoError(t, err)
					handler = never
				}
				_, err := c.store.RunTx(r.Context(), c.db, handler)
				assert.ErrorIs(t, err, codes.InProgress, name)
				assert.ErrorIs(t, err, store.ErrLost, name)
				assert.True(t, httpidem.Refuse(w, r, err))
			}
			w := c.post(name)
			assert.Equal(t, http.StatusConflict, w.Code, w.Body)
			assert.Equal(t, "in_progress", w.Header().Get(core.RefusedHeader))
			assert.Equal(t, 0, c.count(name))
		}
	})
}

// TestRunTxElsewhere: a run that holds its claim in another store than RunTx's is refused, and the log says why. Which *Store it is does
// not matter.
func TestRunTxElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		c := newCounter(t, url, byKey)
		c.handler = func(w http.ResponseWriter, r *http.Request) { c.order(w, r, "k") }
		require.Equal(t, http.StatusCreated, c.post("k-1").Code)
		memory, err := memstore.New(memstore.Config{})
		require.NoError(t, err)
		here := c.store
		other, _, _ := fresh(t, url, sqlstore.Config{})
		missing := openStore(t, url, "idem_test_missing")
		down := &broken{Store: other, err: errUnlucky}
		same := struct{ *sqlstore.Store }{openStore(t, url, c.table)}
		for _, tc := range []struct {
			runTx  *sqlstore.Store
			engine store.Store
			key    string
			status int
			code   string
		}{
			{here, memory, "k-1", 500, "no_run"}, // where RunTx looks there is another run's record
			{here, memory, "k-2", 500, "no_run"}, // … or none
			{here, other, "k-2", 500, "no_run"},
			{missing, other, "k-2", 500, "no_run"},
			{missing, missing, "k-2", 503, "store_unavailable"},
			{here, down, "k-3", 503, "store_unavailable"},
			{here, same, "k-2", 201, ""},
		} {
			c.store = tc.runTx
			var log bytes.Buffer
			engine := core.MustNew(core.Config{Service: "shop", Store: tc.engine, User: core.SharedByAllCallers(),
				Observe: core.LogEvents(slog.New(slog.NewTextHandler(&log, nil)), slog.LevelDebug)})
			guarded := httpidem.New(engine.MustGuard(byKey))
			c.served = guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.order(w, r, "k") }))
			for range 2 {
				log.Reset()
				w := c.post(tc.key)
				assert.Equal(t, tc.status, w.Code, w.Body)
				assert.Equal(t, tc.code, w.Header().Get(core.RefusedHeader))
				warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "its record is not here")
				assert.Equal(t, tc.code == "no_run", warned, log.String())
			}
		}
		assert.Equal(t, 2, c.count("k"))
	})
}

// broken is a store that renews no lease.
type broken struct {
	store.Store
	err error
}

func (b *broken) Renew(context.Context, string, store.Owner, time.Duration) error { return b.err }

func TestRunTxRefuses(t *testing.T) {
	url := engines[2].url(t)
	c := newCounter(t, url, byKey)
	_, err := c.store.RunTx(t.Context(), c.db, never)
	require.ErrorIs(t, err, codes.NoRun)

	here := core.MustNew(core.Config{Service: "shop", Store: c.store}).MustTask(core.TaskPolicy{Name: "here"})
	for _, option := range []sqlstore.TxOption{sqlstore.Fingerprint("f"), sqlstore.Retention(time.Hour)} {
		_, err = core.Do(t.Context(), here, core.Call{Key: "k"}, func(ctx context.Context) (string, error) {
			_, err := c.store.RunTx(ctx, c.db, never, option)
			return "", err
		})
		require.ErrorContains(t, err, "are the policy's")
	}
	var ended context.Context
	_, err = core.Do(t.Context(), here, core.Call{Key: "ended"}, func(ctx context.Context) (string, error) { ended = ctx; return "", nil })
	require.NoError(t, err)
	_, lost := c.store.RunTx(context.WithoutCancel(ended), c.db, never)
	require.ErrorIs(t, lost, codes.InProgress)
	require.ErrorIs(t, lost, store.ErrLost)
	_, err = core.Do(t.Context(), here, core.Call{Key: "k"}, func(ctx context.Context) (string, error) {
		_, err := c.store.RunTx(ctx, c.db, func(*sql.Tx) ([]byte, error) { return nil, lost })
		return "", err
	})
	require.Equal(t, lost, err, "of another run")
	result, err := core.Do(t.Context(), here, core.Call{Key: "k"}, func(ctx context.Context) (string, error) {
		r, err := c.store.RunTx(ctx, c.db, c.enter("task"))
		return string(r.Value), err
	})
	require.NoError(t, err)
	assert.Equal(t, "entered task", result.Value)
	assert.Equal(t, 1, c.count("task"))
}

// TestContextEnds: the end of the context is not reported as a fault of the database, in any step. Nothing is committed, unless
// the context ends during the commit.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	errLeft := errors.New("the client has left")
	each(t, func(t *testing.T, url string) {
		b := newBooks(t, url)
		pool, l := lossyDB(t, b.db, url)
		var leave func()
		at := func(step string) func() { // leaves there
			return func() {
				l.step = func(s string) {
					if s == step {
						leave()
					}
				}
			}
		}
		enter := b.enter("k")
		type step struct {
			name string
			set  func()
			fn   func(tx *sql.Tx) ([]byte, error)
		}
		steps := []step{
			{"before", func() { leave() }, never},
			{"begin", at("begin"), never},
			{"claim", at("statement"), never},
			{"fn", func() {}, func(tx *sql.Tx) ([]byte, error) { leave(); return enter(tx) }},
			{"complete", func() {}, func(tx *sql.Tx) ([]byte, error) { v, err := enter(tx); leave(); return v, err }},
			{"commit", func() { l.before.Store(1); l.hold = func() { leave() } }, enter},
		}
		for name, call := range b.calls() {
			for _, step := range steps {
				for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
					ctx, cancel := context.WithCancelCause(t.Context())
					leave = func() { cancel(errLeft) }
					if want == context.DeadlineExceeded {
						ctx = late{ctx}
					}
					step.set()
					_, err := call(ctx, pool, "k", step.fn)
					if step.name == "commit" { // which goes on when DoTx has returned
						assert.Eventually(t, func() bool { return l.before.Load() <= 0 && pool.Stats().InUse == 0 },
							10*time.Second, time.Millisecond)
					}
					l.step, l.hold = nil, nil
					l.before.Store(0)
					cancel(nil)
					about := name + ", " + step.name
					assert.ErrorIs(t, err, want, about)
					assert.ErrorIs(t, err, errLeft, about)
					assert.NotErrorIs(t, err, codes.StoreUnavailable, about)
					assert.Equal(t, step.name == "commit", errors.Is(err, sqlstore.ErrOutcomeUnknown), about)
					assert.Equal(t, step.name == "commit", errors.Is(err, codes.Unfinished), about)
				}
			}
		}
		assert.Zero(t, b.count("k"))
	})
}

// late is a context that has ended because its deadline has passed.
type late struct{ context.Context }

func (c late) Err() error {
	if c.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// ended has the values of one context, and the end of another.
type ended struct {
	context.Context
	by context.Context
}

func (c ended) Done() <-chan struct{}       { return c.by.Done() }
func (c ended) Err() error                  { return c.by.Err() }
func (c ended) Deadline() (time.Time, bool) { return c.by.Deadline() }

func (c ended) Value(key any) any {
	if v := c.by.Value(key); v != nil { // package context looks for its own
		return v
	}
	return c.Context.Value(key)
}

// TestStepsBesideRunTx: a step in a transaction would be finished although that is rolled back, and so it is an error. What RunTx has
// committed stays, however a run with steps fails.
func TestStepsBesideRunTx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		c := newCounter(t, url, core.Policy{})
		steps := 0
		step := func(ctx context.Context) error {
			_, err := core.Step(ctx, "mail", func(context.Context) (int, error) { steps++; return steps, nil })
			return err
		}
		for i, status := range []int{http.StatusBadGateway, http.StatusBadGateway, http.StatusPaymentRequired, http.StatusCreated} {
			c.handler = func(w http.ResponseWriter, r *http.Request) {
				ctx := r.Context()
				within := func(*sql.Tx) ([]byte, error) { return nil, step(ctx) }
				if i == 0 {
					_, err := c.store.RunTx(ctx, c.db, within)
					assert.ErrorContains(t, err, "Step: called in a RunTx or DoTx")
					_, err = c.store.DoTx(ctx, c.db, "another", within)
					assert.ErrorContains(t, err, "Step: called in a RunTx or DoTx")
					assert.Zero(t, steps)
				}
				assert.NoError(t, step(ctx))
				assert.Equal(t, i > 1, httpidem.Run(r).Takeover(), i)
				if i > 0 {
					result, err := c.store.RunTx(ctx, c.db, c.enter("order"))
					assert.NoError(t, err)
					assert.Equal(t, i > 1, result.Replayed, i)
				}
				w.WriteHeader(status)
			}
			assert.Equal(t, status, c.post("").Code, i)
		}
		assert.Equal(t, 1, c.count("order"))
		assert.Equal(t, 1, steps)
	})
}

// away is a store that takes no record of a run while it is away.
type away struct {
	store.Store
	gone atomic.Bool
}

func (a *away) Renew(ctx context.Context, key string, owner store.Owner, lease time.Duration) error {
	if a.gone.Load() {
		return errors.New("away")
	}
	return a.Store.Renew(ctx, key, owner, lease)
}

func (a *away) Complete(ctx context.Context, key string, owner store.Owner, result []byte, retention time.Duration) error {
	if a.gone.Load() {
		return errors.New("away")
	}
	return a.Store.Complete(ctx, key, owner, result, retention)
}

// TestRunTxSettledLate: a run that has committed, and whose answer the store does not take, is settled when the store is back. Nobody
// enters anything again meanwhile, here or elsewhere.
func TestRunTxSettledLate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		policy := byKey
		policy.Lease = time.Second
		elsewhere := newCounter(t, url, policy)
		here := &counter{books: elsewhere.books}
		records := &away{Store: here.store}
		engine := core.MustNew(core.Config{Service: "shop", Store: records, User: core.SharedByAllCallers(),
			StoreTimeout: 500 * time.Millisecond})
		guarded := httpidem.New(engine.MustGuard(policy))
		here.served = guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { here.handler(w, r) }))
		here.handler = func(w http.ResponseWriter, r *http.Request) {
			here.order(w, r, "late")
			records.gone.Store(true)
		}
		elsewhere.handler = func(w http.ResponseWriter, r *http.Request) {
			result, err := elsewhere.store.RunTx(r.Context(), elsewhere.db, never)
			assert.NoError(t, err)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(result.Value)
		}
		for _, key := range []string{"settled", "taken over"} {
			records.gone.Store(false)
			// On a busy machine a claim may take longer than it has time for.
			assert.Eventually(t, func() bool { return here.post(`"`+key+`"`).Code == http.StatusCreated }, time.Minute, 10*time.Millisecond)
			assert.Equal(t, 1, engine.Unsettled())
			again := here.post(`"` + key + `"`)
			assert.True(t, httpidem.Replayed(again))
			assert.Equal(t, "entered late", again.Body.String())
			if key == "taken over" {
				assert.Eventually(t, func() bool { return elsewhere.post(`"`+key+`"`).Code == http.StatusCreated },
					time.Minute, 10*time.Millisecond)
			}
			records.gone.Store(false)
			assert.Eventually(t, func() bool { return engine.Unsettled() == 0 }, time.Minute, time.Millisecond)
			for _, c := range []*counter{here, elsewhere} {
				assert.True(t, httpidem.Replayed(c.post(`"`+key+`"`)))
			}
		}
		assert.Equal(t, 2, here.count("late"))
	})
}
