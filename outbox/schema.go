package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/idem-go/idem/core/store/sqlstore"
)

const defaultTable = "idem_outbox"

// clock is the database's clock in SQL, in whole microseconds since 1970 UTC.
func clock(d sqlstore.Dialect) string {
	switch d {
	case sqlstore.PostgreSQL:
		return "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
	case sqlstore.MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	default:
		return "(CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) * 1000)"
	}
}

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,49}\.)?[A-Za-z_][A-Za-z0-9_]{0,49}$`)

func checkTable(d sqlstore.Dialect, table string) error {
	if d < sqlstore.PostgreSQL || d > sqlstore.SQLite {
		return fmt.Errorf("outbox: the dialect is unknown: %d", d)
	}
	if !tableName.MatchString(table) {
		return fmt.Errorf("outbox: %q is not a valid table name: up to 50 letters, digits and _, not beginning with a digit; "+
			"a schema and a dot may come first", table)
	}
	return nil
}

const (
	createSQL = `CREATE TABLE IF NOT EXISTS {table} (
	position {serial},
	id {name} NOT NULL UNIQUE,
	message_key {name} NOT NULL,
	exchange {name} NOT NULL,
	topic {name} NOT NULL,
	headers {text} NOT NULL,
	content_type {name} NOT NULL,
	body {bytes} NOT NULL,
	created_at BIGINT NOT NULL,
	state SMALLINT NOT NULL,
	state_at BIGINT NOT NULL,
	attempts INTEGER NOT NULL,
	last_error {text} NOT NULL{key}
){engine};
`
	createIndexSQL = `CREATE INDEX IF NOT EXISTS {index} ON {on} (state, state_at, position);
`
	createLeaseSQL = `CREATE TABLE IF NOT EXISTS {table}_lease (
	name {name} NOT NULL PRIMARY KEY,
	owner {name} NOT NULL,
	lease_until BIGINT NOT NULL
){engine};
INSERT {ignore}INTO {table}_lease (name, owner, lease_until) VALUES ('relay', '', 0){conflict};
`
)

// Schema returns the statements that make the tables, each ended by a semicolon, for a migration
// tool. They may be run more than once. An empty table means "idem_outbox". It returns an error
// for an unknown dialect or a bad table name.
func Schema(dialect sqlstore.Dialect, table string) (string, error) {
	if table == "" {
		table = defaultTable
	}
	if err := checkTable(dialect, table); err != nil {
		return "", err
	}
	index := table[strings.Index(table, ".")+1:]
	words := []string{"{table}", table}
	template := createSQL + createIndexSQL + createLeaseSQL
	switch dialect {
	case sqlstore.PostgreSQL:
		words = append(words, "{serial}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "{name}",
			"TEXT", "{text}", "TEXT", "{bytes}", "BYTEA",
			"{key}", "", "{engine}", "", "{index}", index+"_state", "{on}", table, "{ignore}", "",
			"{conflict}", " ON CONFLICT (name) DO NOTHING")
	case sqlstore.MySQL: // bytes, which no character set or collation changes; and no CREATE INDEX IF NOT EXISTS
		template = createSQL + createLeaseSQL
		words = append(words, "{serial}", "BIGINT AUTO_INCREMENT PRIMARY KEY", "{name}", "VARBINARY(255)",
			"{text}", "LONGBLOB", "{bytes}", "LONGBLOB",
			"{key}", ",\n\tKEY (state, state_at)", "{engine}", " ENGINE=InnoDB ROW_FORMAT=DYNAMIC", "{ignore}", "IGNORE ", "{conflict}", "")
	case sqlstore.SQLite: // where it is the index that has the schema
		words = append(words, "{serial}", "INTEGER PRIMARY KEY AUTOINCREMENT", "{name}", "TEXT", "{text}", "TEXT", "{bytes}", "BLOB",
			"{key}", "", "{engine}", "", "{index}", table+"_state", "{on}", index, "{ignore}", "OR IGNORE ", "{conflict}", "")
	}
	return strings.NewReplacer(words...).Replace(template), nil
}

// Migrate creates the tables if they do not exist. It may be called at every start, by many processes
// at once. It needs the right to create tables only if they do not exist. It returns an error if a
// table of that name is not an outbox's, or if MySQL's autocommit is off.
func (o *Outbox) Migrate(ctx context.Context) error {
	found := o.checkTables(ctx)
	if found == nil {
		return nil
	}
	if err := o.create(ctx); err != nil {
		return fmt.Errorf("%w (before that: %w)", err, found)
	}
	return o.checkTables(ctx)
}

// checkTables returns an error if the tables do not exist, or are not fit for an outbox.
func (o *Outbox) checkTables(ctx context.Context) error {
	_, _, err := o.holder(ctx)
	if err == nil {
		err = o.query(ctx, "migrate", o.sql("SELECT "+columns+", state_at, last_error FROM {table} WHERE 1 = 0"), nil)
	}
	if err != nil || o.dialect != sqlstore.MySQL {
		return err
	}
	autocommit := false
	err = o.query(ctx, "migrate", "SELECT @@autocommit", func(rows *sql.Rows) error { return rows.Scan(&autocommit) })
	if err == nil && !autocommit {
		err = errors.New("outbox: autocommit is off: the relay's changes would not be committed")
	}
	return err
}

var errNoLease = errors.New("outbox: the lease's row is missing: run Migrate")

// create makes the tables. In PostgreSQL, one of two CREATE TABLE IF NOT EXISTS at once may fail: it finds them the next time.
func (o *Outbox) create(ctx context.Context) error {
	schema, err := Schema(o.dialect, o.table)
	if err != nil {
		return err
	}
	statements := strings.SplitAfter(strings.TrimSpace(schema), ";\n")
	return o.retry(ctx, "migrate", func() error {
		tx, err := o.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
}
