package rowguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/rowguard"
)

// memory is a database in memory with the account 1, in which there are 100, and the order 1, which is new.
func memory() *sql.DB {
	db, err := sql.Open("sqlite", fmt.Sprintf("file:/example%d?vfs=memdb", time.Now().UnixNano()))
	if err != nil {
		panic(err)
	}
	for _, statement := range []string{
		"CREATE TABLE accounts (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, balance INTEGER NOT NULL)",
		"CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)",
		"CREATE TABLE coupons (code TEXT PRIMARY KEY, redeemed_by TEXT NOT NULL)",
		"INSERT INTO accounts VALUES (1, 1, 100)",
		"INSERT INTO orders VALUES (1, 'new')",
	} {
		if _, err := db.Exec(statement); err != nil {
			panic(err)
		}
	}
	return db
}

// Two clerks each book a deposit of 10, each on the balance that they have read: one of the deposits is lost. With the
// version, the later one reads again.
func ExampleUpdate() {
	ctx, db := context.Background(), memory()
	defer db.Close()
	accounts := rowguard.Table{Dialect: rowguard.SQLite, Name: "accounts", Version: "version"}
	read := func() (balance int, version int64) {
		_ = db.QueryRow("SELECT balance, version FROM accounts WHERE id = 1").Scan(&balance, &version)
		return balance, version
	}

	ann, _ := read()
	bob, _ := read()
	_, _ = db.Exec("UPDATE accounts SET balance = ? WHERE id = 1", ann+10)
	_, _ = db.Exec("UPDATE accounts SET balance = ? WHERE id = 1", bob+10)
	balance, _ := read()
	fmt.Println("unguarded:", balance)

	_, _ = db.Exec("UPDATE accounts SET balance = 100 WHERE id = 1")
	ann, version := read()
	first := true
	err := rowguard.Retry(ctx, 5, func() error {
		bob, read := read()
		if first { // in the meantime, Ann's is written
			first = false
			fmt.Println("Ann:", rowguard.Update(ctx, db, accounts, 1, version, rowguard.Set{"balance": ann + 10}))
		}
		err := rowguard.Update(ctx, db, accounts, 1, read, rowguard.Set{"balance": bob + 10})
		fmt.Println("Bob:", err)
		return err
	})
	balance, _ = read()
	fmt.Println("guarded:", balance, err)
	// Output:
	// unguarded: 110
	// Ann: <nil>
	// Bob: rowguard: the row has changed since it was read: `accounts`
	// Bob: <nil>
	// guarded: 120 <nil>
}

// Two purchases of 80 at once, of a balance of 100: both find that there is enough. With the lock, the second one looks
// when the first has paid.
func ExampleLock() {
	ctx, db := context.Background(), memory()
	defer db.Close()
	accounts := rowguard.Table{Dialect: rowguard.SQLite, Name: "accounts"}
	balance := func() (balance int) {
		_ = db.QueryRow("SELECT balance FROM accounts WHERE id = 1").Scan(&balance)
		return balance
	}

	first, second := balance(), balance()
	for _, seen := range []int{first, second} {
		if seen >= 80 {
			_, _ = db.Exec("UPDATE accounts SET balance = balance - 80 WHERE id = 1")
		}
	}
	fmt.Println("unguarded:", balance())

	_, _ = db.Exec("UPDATE accounts SET balance = 100 WHERE id = 1")
	errPoor := errors.New("there is not enough")
	buy := func() error {
		return rowguard.InTx(ctx, db, rowguard.TxOptions{Dialect: rowguard.SQLite}, func(tx *sql.Tx) error {
			var balance int
			err := rowguard.Lock(ctx, tx, accounts, 1, time.Second, rowguard.Scan{"balance": &balance})
			switch {
			case err != nil:
				return err
			case balance < 80:
				return errPoor
			}
			_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = balance - 80 WHERE id = 1")
			return err
		})
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { errs[i] = buy() })
	}
	wg.Wait()
	fmt.Println("guarded:", balance(), errors.Join(errs...))
	// Output:
	// unguarded: -60
	// guarded: 20 there is not enough
}

// A parcel leaves for an order that was cancelled a moment ago. With the machine, it does not, and whoever cancels twice is
// told so.
func ExampleMove() {
	ctx, db := context.Background(), memory()
	defer db.Close()
	orders := rowguard.Table{Dialect: rowguard.SQLite, Name: "orders"}
	machine := rowguard.MustMachine("new", rowguard.Transitions{
		"new":       {"paid", "cancelled"},
		"paid":      {"shipped", "cancelled"},
		"shipped":   {},
		"cancelled": {},
	})
	move := func(to string) error { return rowguard.Move(ctx, db, orders, machine, 1, to, nil) }

	var state string
	_ = db.QueryRow("SELECT state FROM orders WHERE id = 1").Scan(&state)
	_, _ = db.Exec("UPDATE orders SET state = 'cancelled' WHERE id = 1") // by the customer
	if state != "cancelled" {
		_, _ = db.Exec("UPDATE orders SET state = 'shipped' WHERE id = 1")
	}
	_ = db.QueryRow("SELECT state FROM orders WHERE id = 1").Scan(&state)
	fmt.Println("unguarded:", state)

	_, _ = db.Exec("UPDATE orders SET state = 'paid' WHERE id = 1")
	fmt.Println(move("cancelled"))
	err := move("shipped")
	fmt.Println(err)
	var illegal *rowguard.TransitionError
	fmt.Println(errors.As(err, &illegal) && illegal.From == "cancelled")
	fmt.Println(move("cancelled"))
	_ = db.QueryRow("SELECT state FROM orders WHERE id = 1").Scan(&state)
	fmt.Println("guarded:", state)
	// Output:
	// unguarded: shipped
	// <nil>
	// rowguard: illegal transition: from "cancelled" to "shipped"
	// true
	// rowguard: the row is in that state already: "cancelled"
	// guarded: cancelled
}

// A coupon is redeemed by two at once: both have looked, and it was free. With a unique index and Insert, the first one has it.
func ExampleInsert() {
	ctx, db := context.Background(), memory()
	defer db.Close()
	_, _ = db.Exec("CREATE TABLE unguarded (code TEXT, redeemed_by TEXT)")
	free := func() bool {
		var n int
		_ = db.QueryRow("SELECT COUNT(*) FROM unguarded WHERE code = 'gift'").Scan(&n)
		return n == 0
	}
	ann, bob := free(), free()
	for name, free := range map[string]bool{"ann": ann, "bob": bob} {
		if free {
			_, _ = db.Exec("INSERT INTO unguarded VALUES ('gift', ?)", name)
		}
	}
	var n int
	_ = db.QueryRow("SELECT COUNT(*) FROM unguarded").Scan(&n)
	fmt.Println("unguarded:", n)

	coupons := rowguard.Table{Dialect: rowguard.SQLite, Name: "coupons"}
	for _, name := range []string{"ann", "bob"} {
		err := rowguard.Insert(ctx, db, coupons, rowguard.Set{"code": "gift", "redeemed_by": name})
		fmt.Println(name, err, errors.Is(err, rowguard.ErrDuplicate))
	}
	// Output:
	// unguarded: 2
	// ann <nil> false
	// bob rowguard: a row with this unique value exists already in `coupons` true
}

// Two workers look for something to do, and both find the same. With LockNext the second one does not get it.
func ExampleLockNext() {
	ctx, db := context.Background(), memory()
	defer db.Close()
	orders := rowguard.Table{Dialect: rowguard.SQLite, Name: "orders"}
	machine := rowguard.MustMachine("new", rowguard.Transitions{"new": {"packed"}, "packed": {}})

	var ann, bob int
	for _, worker := range []*int{&ann, &bob} {
		_ = db.QueryRow("SELECT id FROM orders WHERE state = 'new' ORDER BY id LIMIT 1").Scan(worker)
	}
	fmt.Println("unguarded:", ann, bob)

	for range 2 {
		err := rowguard.InTx(ctx, db, rowguard.TxOptions{Dialect: rowguard.SQLite}, func(tx *sql.Tx) error {
			var id int
			if err := rowguard.LockNext(ctx, tx, orders, "new", rowguard.Scan{"id": &id}); err != nil {
				return err
			}
			fmt.Println("packs", id)
			return rowguard.Move(ctx, tx, orders, machine, id, "packed", nil)
		})
		fmt.Println(err)
	}
	// Output:
	// unguarded: 1 1
	// packs 1
	// <nil>
	// rowguard: no such row in `orders`
}
