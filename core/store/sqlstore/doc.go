// Package sqlstore keeps records in a table of a SQL database: PostgreSQL, MySQL, MariaDB or
// SQLite. It uses database/sql and imports no driver. It is a module of its own:
// go get github.com/idem-go/idem/core/store/sqlstore.
//
//	import _ "modernc.org/sqlite"
//
//	store, err := sqlstore.NewURL(ctx, "sqlite:idem.db", sqlstore.Config{}) // or postgres://…, mysql://…
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	engine, err := core.New(core.Config{Service: "shop", Store: store})
//
// With a *sql.DB of your own:
//
//	store, err := sqlstore.New(db, sqlstore.PostgreSQL, sqlstore.Config{Table: "payments.idem"})
//	if err != nil {
//		return err
//	}
//	err = store.Migrate(ctx) // or run the statements of Schema with your migration tool
//
// Either way, purge the table now and then: see Purge below.
//
// SQLite suits a service on one machine: there is nothing to install, and acknowledged records survive the end of the
// process, even by SIGKILL. If the operations change a SQL database anyway, use that one: [Store.RunTx] then commits
// the change and its record in one transaction.
//
// # The table
//
//	source_type    half of the primary key: whose records these are, see Source
//	serial_number  the other half: the key, exact bytes. A key of 2048 bytes and more is its
//	               first 2016 bytes and the SHA-256 digest of the whole
//	state          1 running, or abandoned when lease_until has passed; 2 done
//	owner          the run that holds or has finished the record
//	attempt        the number of the run
//	fingerprint    digest of the parameters
//	result         the stored result; while the run is running, what RunTx has committed in it. Sealed under core.Config.Seal
//	remark         for people: the claim's, or that of WithRemark
//	creator        for people, see Creator: who made the record, or took it over
//	created_at     when the operation was begun: takeovers leave it
//	updated_at     when it was last changed
//	lease_until    end of the lease; 0 if the record has no owner: it is abandoned, or free
//	retention      microseconds for which a result is kept, or an abandoned record is remembered;
//	               -1-retention of a record that is free, or was free before it was claimed; -1-n of a finished
//	               one that is known for n longer than its result is kept
//	expires_at     when the record stops counting and Purge may remove it; indexed. Of a record that is known for
//	               longer than its result is kept: the end of the result plus 1<<62, until Purge has removed it
//	version        counts the changes
//	operation_id   the operation's ID, of 16 bytes: the same over takeovers; empty: there is none
//	policy         the name of its policy
//	uncertain      of a free record that has kept its operation, and of the run that has claimed it, not 0: 1 if an
//	               earlier run may have taken effect, 2 if none
//	secret         the name of the secret from which the operation derives keys, or empty
//	steps          the finished steps of an operation that is not done, or empty (in MySQL also NULL); they begin
//	               with the number of their checkpoint, 8 bytes
//	operation_at   created_at, as it was when operation_id was written: if they differ, a process of 0.1.0 has begun
//	               another operation, and operation_id, secret and steps are not this one's
//
// Times are microseconds since 1970 UTC by the clock of the database server. They are whole
// numbers: the types for dates differ in their limits and time zones. To read them:
// to_timestamp(created_at / 1e6) in PostgreSQL, FROM_UNIXTIME(created_at / 1e6) in MySQL,
// datetime(created_at / 1e6, 'unixepoch') in SQLite, whose clock has steps of a millisecond.
// To read a serial number: convert_from(serial_number, 'UTF8') in PostgreSQL, and a CAST to
// CHAR or TEXT elsewhere.
//
// The primary key makes an operation run once: never use a table without it. There are two more indexes: one for Purge,
// and one of the records that are not done (in MySQL, of all), for lists of running operations.
//
// # Upgrading
//
// [Store.Migrate] adds the columns from operation_id on, and the second index, to a table of 0.1.0. Until then every
// call fails. The columns have defaults, so processes of 0.1.0 can continue to use the table: start the new processes,
// and then stop the old ones. Records of old processes have no operation_id until the next takeover, or still have that
// of the expired record which they replaced. An old process treats a free record as abandoned, even if an operator has
// made it free. It treats a record that outlives its result as a finished one that does not expire until Purge has
// removed the result, and replays it until then.
//
// Columns are added at once, however large the table is (MySQL 5.7 copies it). That waits for open transactions on the
// table, including those of DoTx and RunTx. Calls wait meanwhile, for 0.2 s at a time (MySQL: 1 s). Then Migrate lets
// them pass and tries again, until its context ends or for a minute. Making the index takes time, in which PostgreSQL
// and SQLite do not write to the table. In PostgreSQL, make the index beforehand if the table is large:
//
//	CREATE INDEX CONCURRENTLY idem_records_created_at ON idem_records (source_type, created_at) WHERE state = 1;
//
// A migration tool runs that, and adds the columns as [Schema] has them. In MySQL:
//
//	CREATE INDEX idem_records_created_at ON idem_records (source_type, state, created_at);
//
// # Round trips
//
// Acquire takes one for a new key. For a key that has a record it takes one, with MySQL two. It takes one more to
// replace an abandoned, free or expired record, and another one if its operation has left steps, or the name of a
// secret. Renew, Complete, Release and Abandon take one; a Release of a later attempt takes two. A checkpoint of a step
// takes one, and so does a run that fails and keeps its operation. Of the Inspector, Lookup and Change take one (two if
// Change is refused), and a page of List takes two. Each statement is atomic at every isolation level, and no
// transaction is held open. Statements are prepared once per connection: for MySQL and SQLite by the store, for
// PostgreSQL by pgx, or by [Config].Prepared for lib/pq.
//
// A statement that a deadlock or a serialisation failure has undone is tried again, up to 20 times with pauses. A
// statement that has waited too long for a lock is tried again until the context ends, or for a minute. A statement
// that may have taken effect is not tried again.
//
// Set up a *sql.DB of your own as [Open] does. Any will do, including one from pgx's stdlib.OpenDBFromPool. Behind a
// pooler that shares connections between transactions, pgx needs default_query_exec_mode=exec, and lib/pq needs
// binary_parameters=yes. With MySQL, autocommit must be on; Migrate checks that. With SQLite, calls may outlive their
// contexts by the busy_timeout, because the driver ignores contexts while it waits for a lock.
//
// DoTx takes four in addition to those of its function: begin, insert, update, commit. For a duplicate it takes three
// (four with MySQL). RunTx takes six: begin, look, savepoint, its release, update, commit. The savepoint shows that the
// function has not ended the transaction. On a *sql.DB that is not the store's own, MySQL's driver prepares each of
// these statements anew.
//
// The store can't be watched (store.Capabilities): a waiting duplicate polls, with pauses that grow from 10 ms to
// 250 ms.
//
// # Purge
//
// Calls ignore an expired record, but its row stays until its key is used again, or until Purge. The same applies to a
// result that its record outlives (RefuseExpired of core.Policy): no call hands it out any more, and Purge removes it
// from its row. Call [Store.Purge] from a ticker, as its example does, in one process or in all of them: every ten
// minutes, say, or each time some thousands of records have expired.
//
// # What survives
//
// An acknowledged record is as safe as a transaction that the database has committed.
//
//   - PostgreSQL: with synchronous_commit=on (the default) it survives a crash of the server.
//     With off, the last moments may be lost: an operation that was done runs again, and one
//     that is running runs twice. A failover to an asynchronous standby loses what had not
//     reached it, with the same effect.
//   - MySQL and MariaDB: it survives with innodb_flush_log_at_trx_commit=1 and sync_binlog=1 (0
//     and 2 lose up to a second when the machine crashes). A failover to an asynchronous replica
//     is as in PostgreSQL. Galera certifies at commit; a refusal counts as a deadlock. Its sessions
//     must wait for what other nodes have committed (wsrep_sync_wait=3): Migrate checks that, and
//     NewURL sets it.
//   - SQLite: with synchronous=FULL, which [Open] sets, it survives a loss of power; with
//     NORMAL only the end of the process. The file must not be on a network file system, nor be
//     moved or deleted while it is in use: the process would go on with a file that no other
//     process sees.
//
// All calls must go to the primary: on a replica that lags, an operation runs twice. When a server turns out to be
// read-only, the store closes its idle connections, at most once a second, and tries the call again on a new one, up to
// twice. The new connection may lead to the new primary. See [Config].Reset for pools below the *sql.DB. The same
// applies to a node that is cut off from its Galera cluster, except that a call outside a transaction is not tried
// again, because it may have taken effect.
//
// While the database can't be reached, nothing is acquired, running operations lose their leases, and results of runs
// that end stay in their processes (core.Unsettled). If the server's clock is set forward, leases end early.
//
// # Operations that are changes of the database
//
// A crash between an operation and Complete leaves a change without a result, and the next
// run must find out what happened. If the change is made in the store's database, this gap can
// be closed: the change and its record are committed in one transaction.
//
// In the handler of a guard, [Store.RunTx] marks the record of the guard:
//
//	result, err := store.RunTx(r.Context(), db, func(tx *sql.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(r.Context(), "INSERT INTO orders …")
//		return []byte("ordered"), err
//	})
//
// Once that is committed, no other run of the operation commits anything, however this one ends. docs/transactions.md
// shows handlers for each framework.
//
// Without a guard, [Store.DoTx] makes the record, under a key that you choose:
//
//	result, err := store.DoTx(ctx, db, "invoice:2041", func(tx *sql.Tx) ([]byte, error) {
//		_, err := tx.ExecContext(ctx, "INSERT INTO invoices …")
//		return []byte("booked"), err
//	})
//
// It inserts the record, runs the function, stores its result in the record and commits.
// The unique key makes a duplicate wait, inside the database, until the first has been
// committed or rolled back. No lease is needed: when a process dies, the server rolls its
// transaction back. (When a machine vanishes, the server has to notice first: see
// tcp_keepalives_idle and idle_in_transaction_session_timeout in PostgreSQL, wait_timeout
// in MySQL.)
//
// When the connection breaks at the commit, both look for the record by its owner until they know whether it was
// committed.
//
// In SQLite the function holds the only write lock, and every other writer waits. Do not call
// the store within the function: the call would wait for the transaction.
//
// # Transactions on the store's own pool
//
// A transaction holds a connection until it ends, and the guard outside it needs one to
// claim, renew and complete. So transactions of DoTx and RunTx on the store's own *sql.DB
// leave one free: with SetMaxOpenConns(n), at most n-1 of them are open at once, counted over all
// stores on that *sql.DB in the process. The others wait in order of arrival, until their contexts
// end. In SQLite only one is open at a time, on whatever pool, and calls of the store run between
// two of them.
//
// With n = 1, transactions and calls of the store take turns. Then a transaction must be shorter
// than core.Config.StoreTimeout, the longest that a call waits, and no lease is renewed while one
// is open. Connections that are held in other ways (by a transaction that a handler begins itself,
// or a *sql.Conn) are not counted: in that case give the store a pool of its own, by [NewURL].
package sqlstore
