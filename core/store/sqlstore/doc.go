// Package sqlstore keeps the records of operations in a table of a SQL database, by way of
// database/sql: PostgreSQL, MySQL and MariaDB, or SQLite. It imports no driver, and is a module of its own:
// go get github.com/idem-go/idem/core/store/sqlstore.
//
//	import _ "modernc.org/sqlite"
//
//	store, err := sqlstore.NewURL(ctx, "sqlite:idem.db") // or postgres://…, mysql://…
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	engine, err := core.New(core.Config{Store: store})
//
// With a pool of one's own:
//
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Table("payments.idem"))
//	if err != nil {
//		return err
//	}
//	err = store.Migrate(ctx) // or the statements of Schema, by a tool of one's own
//
// SQLite is the choice for a service on one machine: nothing to install, and what was
// acknowledged survives the end of the process, also a SIGKILL. Use the database in which
// the operations take effect anyway, and [Store.RunTx] makes the two one.
//
// # The table
//
//	source_type    half of the primary key: whose records these are, see Source
//	serial_number  the other half: the key, exact bytes. Beyond 2047 bytes, its first 2016 and
//	               the SHA-256 digest of the whole
//	state          1 running, or abandoned when lease_until has passed; 2 done
//	owner          the token of the run that holds the record, or that has finished it
//	attempt        the number of the run
//	fingerprint    digest of the parameters
//	result         what was stored when it was done; while it runs, what its run has committed
//	remark         for people, see WithRemark
//	creator        for people, see Creator: who made the record, or took it over
//	created_at     of the record
//	updated_at     of the latest change
//	lease_until    end of the lease; 0 after Abandon, or Release of a run that had taken over
//	retention      microseconds for which a result stands, or an abandoned record is remembered
//	expires_at     from when on the record counts as gone, and Purge removes it. It has an index
//	version        counts the changes
//
// Times are microseconds since 1970 UTC by the clock of the database server, as whole numbers,
// which have neither the limits nor the time zones of the types for dates. To read them:
// to_timestamp(created_at / 1e6) in PostgreSQL, FROM_UNIXTIME(created_at / 1e6) in MySQL,
// datetime(created_at / 1e6, 'unixepoch') in SQLite, whose clock has steps of a millisecond.
// To read a serial number: convert_from(serial_number, 'UTF8') in PostgreSQL, and a CAST to
// CHAR or TEXT elsewhere.
//
// The primary key is what makes an operation run once: never use a table without it.
//
// # Round trips
//
// Acquire takes one for a new key, and one for a key that stands; two with MySQL. A record
// that is taken over, or whose time has passed, takes one more. Renew, Complete, Release and
// Abandon take one; a Release after a takeover takes two. Each is a statement of its own that is
// atomic at every isolation level, in no transaction that would be held open. MySQL's and
// SQLite's statements are prepared once per connection, PostgreSQL's by pgx, or by [Prepared] for
// lib/pq. A statement that a deadlock or a
// serialisation failure has undone is tried again, up to 20 times with pauses; one that the
// database has not let wait any longer for a lock, until the context ends (or for a minute);
// one of which nobody knows whether it took effect is not.
//
// A pool of one's own should be set up as [Open] does it; any *sql.DB serves, also one from pgx's
// stdlib.OpenDBFromPool. Behind a pooler that shares connections between transactions, pgx needs
// default_query_exec_mode=exec, and lib/pq binary_parameters=yes. With MySQL, autocommit must be on,
// which Migrate checks. With SQLite, a busy_timeout of some seconds makes calls outlive their
// contexts by as much, for its driver does not look at them while it waits.
//
// DoTx takes four beside those of its function: begin, insert, update, commit. For a
// duplicate it takes three (four with MySQL). RunTx takes six: begin, look, a savepoint and its
// release, by which it knows that the function has left the transaction standing, update, commit. On a pool that
// is not the store's own, MySQL's driver prepares each of their statements anew.
//
// The store has no store.Watcher: a duplicate that waits looks again after pauses of 10 ms
// that grow to 250 ms.
//
// # Purge
//
// A record whose time has passed is gone for all calls, but its row stays until its key is
// used again, or until Purge. Call [Store.Purge] from a ticker, in one process or in all of
// them: every ten minutes, say, or as often as some thousands of records expire.
//
// # What survives
//
// What a store has acknowledged is as safe as what the database has committed.
//
//   - PostgreSQL: with synchronous_commit=on (the default) it survives a crash of the server.
//     With off, the last moments may be lost: an operation that was done runs again, or one
//     that is running runs twice. A failover to a standby that is not synchronous loses in
//     the same way what had not reached it.
//   - MySQL and MariaDB: the same with innodb_flush_log_at_trx_commit=1 and sync_binlog=1 (0
//     and 2 lose up to a second at a crash of the machine), and with asynchronous replicas.
//     Galera certifies at commit; what it refuses counts as a deadlock. Its sessions must wait for what other
//     nodes have committed (wsrep_sync_wait=3), which Migrate checks and NewURL sets.
//   - SQLite: with synchronous=FULL, which [Open] sets, it survives a loss of power, and with
//     NORMAL only the end of the process. The file must not be on a network file system, nor be
//     moved or deleted while it is in use: a process would go on with what nobody else sees.
//
// All calls must go to the primary: a replica that lags behind lets an operation run twice. A server that
// only reads is left: idle connections are closed, at most once a second, and the call is made again on a new one, up
// to twice, which may lead to the new primary (see [Reset] for pools below the *sql.DB). A node of Galera that is cut off
// is left, too; but a call outside a transaction is not made again, for it may have taken effect.
// Cut off from the database, nothing is acquired; a run that is under way when that happens
// loses its lease. A clock of the server that is set forward ends leases early.
//
// # Operations that are changes of the database
//
// Between an operation and Complete there is a moment in which a crash leaves a change
// without a result, and the next run must find out. Where the change is made in the same
// database, this gap is closed: the memory of the change and the change are one transaction.
//
// In the handler of a guard, [Store.RunTx] marks the record of the guard:
//
//	result, err := store.RunTx(r.Context(), db, func(tx *sql.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(r.Context(), "INSERT INTO orders …")
//		return []byte("ordered"), err
//	})
//
// Once that is committed, no other run of the operation commits anything, whatever becomes of
// this one. docs/sql-transactions.md shows handlers of each framework.
//
// Without a guard, [Store.DoTx] makes the record, under a key of the caller's:
//
//	result, err := store.DoTx(ctx, db, "invoice:2041", func(tx *sql.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(ctx, "INSERT INTO invoices …")
//		return []byte("booked"), err
//	})
//
// It inserts the record, runs the function, stores its result in the record and commits.
// The unique key makes a duplicate wait, inside the database, until the first has been
// committed or rolled back. No lease is needed: a process that dies takes its transaction
// with it. (A machine that vanishes without a word does so when the server notices: see
// tcp_keepalives_idle and idle_in_transaction_session_timeout in PostgreSQL, wait_timeout
// in MySQL.)
//
// When the connection breaks at the commit, both ask again, with the owner token that is in the
// record, until they know.
//
// In SQLite the function holds the one lock for writing, and every other writer waits.
// Within the function, do not call the store, whose call would wait for the transaction.
//
// # One pool for both
//
// A transaction holds a connection for as long as it takes, and the guard in front of it needs one
// to claim, to renew and to settle. So transactions of DoTx and RunTx on the store's own pool
// leave it one: with MaxOpenConns(n), at most n-1 of them are open at once, counted over all
// stores on that pool in the process, and the others wait in the order in which they came, for as
// long as their contexts let them. In SQLite one is open at a time, on whatever pool, and calls of
// the store come between any two.
//
// In a pool of one (n = 1), transactions and calls of the store take turns. That serves as long as
// a transaction is shorter than core.Config.StoreTimeout, which the calls wait for at most; and no
// lease is renewed while one is open. What holds connections by other ways (a transaction that a
// handler begins itself, a *sql.Conn) is not counted: give a store beside such a pool of its own,
// by [NewURL].
package sqlstore
