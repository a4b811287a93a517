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
	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/httpidem"
)

// A file of SQLite is all that a service on one machine needs for its records to survive
// it. The driver is imported beside: _ "modernc.org/sqlite".
func Example() {
	dir, _ := os.MkdirTemp("", "idem")
	defer os.RemoveAll(dir)
	file := "sqlite:" + filepath.Join(dir, "idem.db")
	ctx := context.Background()

	for range 2 { // the second is a restart
		store, err := sqlstore.NewURL(ctx, file)
		if err != nil {
			fmt.Println(err)
			return
		}
		engine := core.MustNew(core.Config{Store: store})
		result, err := engine.Do(ctx, "2041", core.Policy{Name: "send invoice"}, func(context.Context) ([]byte, error) {
			fmt.Println("sending")
			return []byte("sent"), nil
		})
		fmt.Printf("%s, replayed: %v, %v\n", result.Value, result.Replayed, err)
		store.Close()
	}
	// Output:
	// sending
	// sent, replayed: false, <nil>
	// sent, replayed: true, <nil>
}

// The invoice and the record of it are one transaction.
func ExampleStore_DoTx() {
	ctx := context.Background()
	db, dialect, err := sqlstore.Open("sqlite::memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqlstore.New(db, dialect)
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

// Behind a guard, DoTx takes a key of its own that follows from the guard's. If the process
// dies after the commit and before the guard has stored the response, the next try takes the
// guard's record over, and DoTx gives it what was committed.
func ExampleStore_DoTx_behindAGuard() {
	db, dialect, _ := sqlstore.Open("sqlite::memory:")
	defer db.Close()
	store, _ := sqlstore.New(db, dialect)
	defer store.Close()
	if err := store.Migrate(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = db.Exec("CREATE TABLE orders (item TEXT)")

	engine := core.MustNew(core.Config{Store: store, User: core.UserFromHeader("X-User")})
	guard := engine.MustGuard(core.Policy{Key: core.Header(core.Required), Duplicate: core.Replay})
	handler := httpidem.New(guard)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run, _ := core.RunFrom(r.Context())
		result, err := store.DoTx(r.Context(), db, string(run.Key())+"#order", func(tx *sql.Tx) ([]byte, error) {
			_, err := tx.Exec("INSERT INTO orders VALUES ('book')")
			return []byte("ordered\n"), err
		})
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(result.Value)
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
