package pgxidem_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/core/store/sqlstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/pgxidem"
	"github.com/idem-go/idem/rowguard"
)

// A store on the pool that transactions are made on, too. A service also purges, see [sqlstore.Store.Purge].
func Example() {
	open := func(ctx context.Context, url string) (*pgxpool.Pool, *sqlstore.Store, error) {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		db := stdlib.OpenDBFromPool(pool)
		db.SetMaxOpenConns(int(pool.Config().MaxConns)) // so that transactions leave the store a connection
		store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Config{})
		if err == nil {
			err = store.Migrate(ctx)
		}
		return pool, store, err
	}
	_ = open
}

// A consumer charges once for each message: the charge, the mark of the message and the messages that follow from it are one
// transaction.
func ExampleDoTx() {
	charge := func(ctx context.Context, store *sqlstore.Store, pool *pgxpool.Pool, box *outbox.Outbox, messageID, order string) error {
		_, err := pgxidem.DoTx(ctx, store, pool, "charge:"+messageID, func(tx pgx.Tx) ([]byte, error) {
			if _, err := tx.Exec(ctx, "INSERT INTO charges (order_number) VALUES ($1)", order); err != nil {
				return nil, err
			}
			return nil, box.Write(ctx, pgxidem.Adapt(tx), outbox.Message{Key: order, Topic: "order.charged"})
		}, sqlstore.Retention(30*24*time.Hour))
		return err // acknowledge if it is nil
	}
	_ = charge
}

// A handler behind a guard.
func ExampleRunTx() {
	create := func(store *sqlstore.Store, pool *pgxpool.Pool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			result, err := pgxidem.RunTx(r.Context(), store, pool, func(tx pgx.Tx) ([]byte, error) {
				var id string
				err := tx.QueryRow(r.Context(), "INSERT INTO orders (sku) VALUES ($1) RETURNING id", r.FormValue("sku")).Scan(&id)
				return fmt.Appendf(nil, `{"order_id":%q}`, id), err
			})
			switch {
			case err == nil:
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(result.Value)
			case !httpidem.Refuse(w, r, err):
				http.Error(w, "the order could not be entered", http.StatusInternalServerError)
			}
		}
	}
	_ = create
}

// Guards of rows, in a transaction that rowguard runs again after a deadlock.
func ExampleAdapt() {
	accounts := rowguard.Table{Dialect: rowguard.PostgreSQL, Name: "accounts", Version: "version"}
	spend := func(ctx context.Context, pool *pgxpool.Pool, account string, amount int) error {
		return rowguard.Transact(ctx, 0, pool.Begin, func(tx pgx.Tx) error {
			var balance int
			var version int64
			conn := pgxidem.Adapt(tx)
			err := rowguard.Lock(ctx, conn, accounts, account, time.Second, rowguard.Scan{"balance": &balance, "version": &version})
			if err != nil {
				return err
			}
			if balance < amount {
				return fmt.Errorf("the account has %d, and not %d", balance, amount)
			}
			return rowguard.Update(ctx, conn, accounts, account, version, rowguard.Set{"balance": balance - amount})
		})
	}
	_ = spend
}
