package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem/core"
	"github.com/idem-go/idem/core/store"
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/httpidem"
)

// A file of SQLite is all that a service on one machine needs for its records to survive
// it. The driver is imported beside: _ "modernc.org/sqlite". A service also purges, see [sqlstore.Store.Purge].
func Example() {
	dir, _ := os.MkdirTemp("", "idem")
	defer os.RemoveAll(dir)
	file := "sqlite:" + filepath.Join(dir, "idem.db")
	ctx := context.Background()

	for range 2 { // the second is a restart
		store, err := sqlstore.NewURL(ctx, file, sqlstore.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		invoices := core.MustNew(core.Config{Service: "shop", Store: store}).MustTask(core.TaskPolicy{Name: "send invoice"})
		result, err := core.Do(ctx, invoices, core.Call{Key: "2041"}, func(context.Context) (string, error) {
			fmt.Println("sending")
			return "sent", nil
		})
		fmt.Printf("%s, replayed: %v, %v\n", result.Value, result.Replayed, err)
		store.Close()
	}
	// Output:
	// sending
	// sent, replayed: false, <nil>
	// sent, replayed: true, <nil>
}

// The invoice and the record of it are one transaction. A service also purges, see [sqlstore.Store.Purge].
func ExampleStore_DoTx() {
	ctx := context.Background()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlstore.New(db, dialect, sqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = db.Exec("CREATE TABLE invoices (number INTEGER, amount INTEGER)")

	for range 2 {
		result, err := store.DoTx(ctx, db, "invoice:2041", func(tx *sql.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO invoices VALUES (2041, 1000)")
			return []byte("2041 booked"), err
		}, sqlstore.Retention(30*24*time.Hour))
		fmt.Printf("%s, replayed: %v, %v\n", result.Value, result.Replayed, err)
	}
	var n int
	_ = db.QueryRow("SELECT COUNT(*) FROM invoices").Scan(&n)
	fmt.Println(n, "invoice")
	// Output:
	// 2041 booked, replayed: false, <nil>
	// 2041 booked, replayed: true, <nil>
	// 1 invoice
}

// A handler whose order is exactly once in its database. The guard has taken the key with its user
// from the request and compared the parameters; it replays the answer, and it renders what RunTx
// refuses. If the process dies after the commit, the next try gets what was committed. A service also
// purges, see [sqlstore.Store.Purge].
func ExampleStore_RunTx() {
	ctx := context.Background()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlstore.New(db, dialect, sqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = db.Exec("CREATE TABLE orders (item TEXT)")

	engine := core.MustNew(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	guard := engine.MustGuard(core.Policy{Key: core.Header(core.Required)})
	handler := httpidem.New(guard)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result, err := store.RunTx(r.Context(), db, func(tx *sql.Tx) ([]byte, error) {
			_, err := tx.ExecContext(r.Context(), "INSERT INTO orders VALUES ('book')")
			return []byte("ordered\n"), err
		})
		switch {
		case err == nil:
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(result.Value)
		case !httpidem.Refuse(w, r, err):
			http.Error(w, "the order could not be entered", http.StatusInternalServerError)
		}
	}))

	for range 2 {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader("item=book"))
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "k-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	var n int
	_ = db.QueryRow("SELECT COUNT(*) FROM orders").Scan(&n)
	fmt.Println(n, "order")
	// Output:
	// 201 ordered
	// 201 ordered
	// 1 order
}

// An expired record counts no more, but its row stays until it is purged. Every process may do that.
func ExampleStore_PurgeEvery() {
	_ = func(ctx context.Context, store *sqlstore.Store) {
		go store.PurgeEvery(ctx, 10*time.Minute) // ends with ctx
	}
}

// Who looks at the table at night finds the request that a record belongs to. The claim writes the remark: set it in
// front of the guard.
func ExampleWithRemark() {
	ctx := context.Background()
	db, dialect, _ := sqlstore.Open("sqlite::memory:")
	defer db.Close()
	store, _ := sqlstore.New(db, dialect, sqlstore.Config{})
	defer store.Close()
	_ = store.Migrate(ctx)

	engine := core.MustNew(core.Config{Service: "shop", Store: store, User: core.UserFromHeader("X-User")})
	order := httpidem.New(engine.MustGuard(core.ClientKey()))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}))
	remarked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := sqlstore.WithRemark(r.Context(), "request "+r.Header.Get("X-Request-Id"))
		order.ServeHTTP(w, r.WithContext(ctx))
	})

	for _, id := range []string{"4711", "4712"} { // the second is a replay
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("Idempotency-Key", "k-1")
		r.Header.Set("X-Request-Id", id)
		remarked.ServeHTTP(httptest.NewRecorder(), r)
	}
	var remark string
	err := db.QueryRow("SELECT remark FROM idem_records").Scan(&remark)
	fmt.Println(remark, err)
	// Output:
	// request 4711 <nil>
}

// The code of docs/stores.md stands here as it stands there.

func _(ctx context.Context) (store.Store, error) {
	store, err := sqlstore.NewURL(ctx, "postgres://shop@10.0.0.8/shop", sqlstore.Config{}) // with _ "github.com/jackc/pgx/v5/stdlib"
	return store, err
}

func _(ctx context.Context) (store.Store, error) {
	store, err := sqlstore.NewURL(ctx, "mysql://shop@10.0.0.9/shop", sqlstore.Config{}) // with _ "github.com/go-sql-driver/mysql"
	return store, err
}

func _(ctx context.Context) (store.Store, error) {
	store, err := sqlstore.NewURL(ctx, "sqlite:/var/lib/shop/idem.db", sqlstore.Config{}) // with _ "modernc.org/sqlite"
	return store, err
}
