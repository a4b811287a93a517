package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Open opens a pool of connections to the database that rawURL names, with settings that
// suit a store. It does not connect yet. It returns an error if the URL is malformed, or if the
// program has not imported a driver:
//
//	postgres://user:password@host:5432/database?…   _ "github.com/jackc/pgx/v5/stdlib", or lib/pq
//	mysql://user:password@host:3306/database?…      _ "github.com/go-sql-driver/mysql"
//	sqlite:FILE?…                                   _ "modernc.org/sqlite", or mattn/go-sqlite3
//
// The parameters after the question mark go to the driver. User, password and database are
// percent-encoded, as in any URL. FILE is a path without a question mark, not encoded; its
// directory must exist.
//
// Set pooler=transaction in a URL of PostgreSQL if a pooler such as PgBouncer is between, which gives each
// transaction another connection to the server (pool_mode=transaction). No statement is prepared then. For lib/pq that
// sets binary_parameters=yes, which sends every []byte as binary: your own statements that write one as jsonb fail.
//
// Connecting to a busy server may take longer than a call of the store may (core.Config.StoreTimeout). With pgx and go-sql-driver/mysql,
// the pool goes on for up to 10 s, and the connection serves a later call. A pool of [sql.Open] would drop it, and might not connect at
// all after an outage.
//
// PostgreSQL and MySQL get at most 16 connections, SQLite 8; change that with the methods of
// sql.DB. MySQL commits each statement, and stops waiting for a lock after 5 s
// (innodb_lock_wait_timeout). SQLite has a write-ahead log, synced at each commit
// (journal_mode=WAL, synchronous=FULL). Its transactions lock when they begin, and wait 50 ms for
// a lock (busy_timeout). The store itself tries again until its context ends; your own statements
// may need a longer busy_timeout. "sqlite::memory:" is a new database for each call of Open, with
// a single connection; it is gone when the pool is closed.
func Open(rawURL string) (*sql.DB, Dialect, error) {
	dialect, drivers, dsn, err := parse(rawURL)
	if err != nil {
		return nil, 0, fmt.Errorf("sqlstore: %w", err)
	}
	driver, err := pick(dialect, drivers, sql.Drivers())
	if err != nil {
		return nil, 0, fmt.Errorf("sqlstore: %w", err)
	}
	limit, opener := 16, open
	if dialect == SQLite {
		limit, opener = 8, sql.Open
	}
	db, err := opener(driver, dsn(driver))
	if err != nil {
		return nil, 0, fmt.Errorf("sqlstore: %w", err)
	}
	if path, _, _ := strings.Cut(rawURL, "?"); path == memoryURL {
		limit = 1 // each connection would be to a database of its own
	} else {
		db.SetConnMaxIdleTime(5 * time.Minute)
	}
	db.SetMaxOpenConns(limit)
	db.SetMaxIdleConns(limit)
	return db, dialect, nil
}

// NewURL returns a store on the database that rawURL names (see [Open]). It connects, and makes
// the table if it does not exist (see [Store.Migrate]). Close closes the connections. On a Galera
// cluster it sets wsrep_sync_wait=3, unless the URL or the server sets it.
func NewURL(ctx context.Context, rawURL string, c Config) (*Store, error) {
	s, err := newURL(ctx, rawURL, c)
	if errors.Is(err, errLags) && !strings.Contains(rawURL, "wsrep_sync_wait=") {
		sign := "?"
		if strings.Contains(rawURL, "?") {
			sign = "&"
		}
		return newURL(ctx, rawURL+sign+"wsrep_sync_wait=3", c) // which MySQL itself would not know
	}
	return s, err
}

func newURL(ctx context.Context, rawURL string, c Config) (*Store, error) {
	db, dialect, err := Open(rawURL)
	if err != nil {
		return nil, err
	}
	c.Prepared = c.Prepared || isDirectPQ(db, rawURL)
	s, err := New(db, dialect, c)
	if err == nil {
		s.owned = true
		err = s.Migrate(ctx)
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("%w (at %s)", err, place(dialect, rawURL))
	}
	return s, nil
}

// place is the part of a URL that says where the database is, without secrets.
func place(dialect Dialect, rawURL string) string {
	if dialect == SQLite {
		path, _, _ := strings.Cut(strings.TrimPrefix(rawURL, "sqlite:"), "?")
		return path
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a malformed URL"
	}
	return u.Host
}

const memoryURL = "sqlite::memory:"

// pick returns the first of the drivers that is registered.
func pick(dialect Dialect, drivers, registered []string) (string, error) {
	for _, d := range drivers {
		if slices.Contains(registered, d) {
			return d, nil
		}
	}
	return "", fmt.Errorf("no driver for %v is registered: import _ %q", dialect, imports[dialect])
}

var imports = map[Dialect]string{
	PostgreSQL: "github.com/jackc/pgx/v5/stdlib",
	MySQL:      "github.com/go-sql-driver/mysql",
	SQLite:     "modernc.org/sqlite",
}

// parse returns the dialect of a URL, the names of drivers for it, and a function that
// translates the URL for each of them.
func parse(rawURL string) (Dialect, []string, func(driver string) string, error) {
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch scheme {
	case "postgres", "postgresql":
		dsn, err := postgresDSN(rawURL)
		return PostgreSQL, []string{"pgx", "pgx/v5", "postgres"}, dsn, err
	case "mysql":
		dsn, err := mysqlDSN(rawURL)
		return MySQL, []string{"mysql"}, func(string) string { return dsn }, err
	case "sqlite":
		if rest == "" || rest[0] == '?' {
			return 0, nil, nil, errors.New("the URL names no file")
		}
		return SQLite, []string{"sqlite", "sqlite3"}, func(driver string) string { return sqliteDSN(rest, driver) }, nil
	}
	// Not the URL: it may hold a password.
	return 0, nil, nil, errors.New("the URL must begin with postgres:, mysql: or sqlite:")
}

// postgresDSN is the URL without the parameter pooler. Behind a pooler it has the setting by which the driver sends each
// statement in one message. Otherwise lib/pq sends two, and the pooler may give the second to another connection,
// where another client's statement is prepared.
func postgresDSN(rawURL string) (func(driver string) string, error) {
	base, query, _ := strings.Cut(rawURL, "?")
	var settings []string
	pooled := false
	for _, s := range strings.Split(query, "&") {
		mode, is := strings.CutPrefix(s, "pooler=")
		switch {
		case is && mode != "transaction":
			return nil, errors.New("the parameter pooler must be transaction, or left out")
		case is:
			pooled = true
		case s != "":
			settings = append(settings, s)
		}
	}
	return func(driver string) string {
		setting := "default_query_exec_mode=exec"
		if driver == "postgres" {
			setting = "binary_parameters=yes"
		}
		name, _, _ := strings.Cut(setting, "=")
		if pooled && !slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			settings = append(settings, setting)
		}
		if len(settings) == 0 {
			return base
		}
		return base + "?" + strings.Join(settings, "&")
	}, nil
}

const mysqlForm = "a URL of MySQL is mysql://user:password@host:port/database, with user and password percent-encoded"

// mysqlDSN is user:password@tcp(host:port)/database?parameters.
func mysqlDSN(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", errors.New("the URL is malformed: " + mysqlForm) // its error quotes the password
	}
	database := strings.TrimPrefix(u.EscapedPath(), "/")
	if u.Hostname() == "" || database == "" || strings.Contains(database, "/") {
		return "", errors.New(mysqlForm)
	}
	port := u.Port()
	if port == "" {
		port = "3306"
	}
	user := u.User.Username()
	if strings.Contains(user, ":") {
		return "", errors.New("MySQL's driver accepts no user name with a colon")
	}
	if password, set := u.User.Password(); set {
		user += ":" + password
	}
	if user != "" {
		user += "@"
	}
	// Each statement is committed, whatever the server's settings. maxAllowedPacket=0 takes the
	// server's limit: a larger packet is then an error instead of a broken connection. And an
	// abandoned statement does not wait inside the server for a lock for its default of 50 s.
	dsn := user + "tcp(" + net.JoinHostPort(u.Hostname(), port) + ")/" + database +
		"?autocommit=1&innodb_lock_wait_timeout=5&maxAllowedPacket=0"
	if u.RawQuery != "" {
		dsn += "&" + strings.ReplaceAll(u.RawQuery, "/", "%2F") // the driver takes the last slash for the one before the database
	}
	return dsn, nil
}

// sqliteDSN is file:path?parameters. A setting in the URL replaces the default: if a setting
// came twice, the driver would choose.
func sqliteDSN(file, driver string) string {
	path, params, _ := strings.Cut(file, "?")
	if strings.HasPrefix(path, "///") {
		path = path[2:] // sqlite:///var/lib/file
	}
	settings := []string{"_pragma=busy_timeout(50)", "_pragma=journal_mode(WAL)", "_pragma=synchronous(FULL)", "_txlock=immediate"}
	if driver == "sqlite3" {
		settings = []string{"_busy_timeout=50", "_journal_mode=WAL", "_synchronous=FULL", "_txlock=immediate"}
	}
	for i, name := range []string{"busy_timeout", "journal_mode", "synchronous", "_txlock"} {
		if strings.Contains(strings.ToLower(params), name) {
			settings[i] = ""
		}
	}
	settings = slices.DeleteFunc(append(settings, params), func(s string) bool { return s == "" })
	return "file:" + strings.NewReplacer("%", "%25", "#", "%23").Replace(path) + "?" + strings.Join(settings, "&")
}
