package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schema returns the statements that make the table, each ended by a semicolon, for a migration
// tool. See Upgrading in the package documentation for a table of an earlier version. An empty
// table means "idem_records". It returns an error for an unknown dialect or a bad table name.
func Schema(dialect Dialect, table string) (string, error) {
	if table == "" {
		table = "idem_records"
	}
	if dialect < PostgreSQL || dialect > SQLite {
		return "", fmt.Errorf("sqlstore: the dialect is unknown: %d", dialect)
	}
	t, err := dialect.table(table)
	if err != nil {
		return "", fmt.Errorf("sqlstore: %w", err)
	}
	return strings.Join(dialect.schema(t), ";\n") + ";\n", nil
}

// columns are the table's, each with its type by dialect.
var columns = slices.Concat(first, added)

// first are those of 0.1.0.
var first = []column{
	{"source_type", "TEXT NOT NULL", "VARBINARY(64) NOT NULL", "TEXT NOT NULL"},
	{"serial_number", "BYTEA NOT NULL", "VARBINARY(2048) NOT NULL", "BLOB NOT NULL"},
	{"state", "SMALLINT NOT NULL", "SMALLINT NOT NULL", "INTEGER NOT NULL"},
	{"owner", "BYTEA NOT NULL", "VARBINARY(16) NOT NULL", "BLOB NOT NULL"},
	{"attempt", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"fingerprint", "BYTEA NOT NULL", "VARBINARY(64) NOT NULL", "BLOB NOT NULL"},
	{"result", "BYTEA NOT NULL", "LONGBLOB NOT NULL", "BLOB NOT NULL"},
	{"remark", "TEXT NOT NULL", "VARCHAR(255) NOT NULL", "TEXT NOT NULL"},
	{"creator", "TEXT NOT NULL", "VARCHAR(255) NOT NULL", "TEXT NOT NULL"},
	{"created_at", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"updated_at", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"lease_until", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"retention", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"expires_at", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
	{"version", "BIGINT NOT NULL", "BIGINT NOT NULL", "INTEGER NOT NULL"},
}

// added are those that came later. A process that does not know them inserts without them. MySQL 5.7 has no default for a
// LONGBLOB.
var added = []column{
	{"operation_id", "BYTEA NOT NULL DEFAULT ''", "VARBINARY(16) NOT NULL DEFAULT ''", "BLOB NOT NULL DEFAULT x''"},
	{"policy", "TEXT NOT NULL DEFAULT ''", "VARCHAR(255) NOT NULL DEFAULT ''", "TEXT NOT NULL DEFAULT ''"},
	{"uncertain", "SMALLINT NOT NULL DEFAULT 0", "SMALLINT NOT NULL DEFAULT 0", "INTEGER NOT NULL DEFAULT 0"},
	{"secret", "TEXT NOT NULL DEFAULT ''", "VARCHAR(64) NOT NULL DEFAULT ''", "TEXT NOT NULL DEFAULT ''"},
	{"steps", "BYTEA NOT NULL DEFAULT ''", "LONGBLOB", "BLOB NOT NULL DEFAULT x''"},
	{"operation_at", "BIGINT NOT NULL DEFAULT 0", "BIGINT NOT NULL DEFAULT 0", "INTEGER NOT NULL DEFAULT 0"},
}

type column struct{ name, postgres, mysql, sqlite string }

// definition is the column in CREATE TABLE.
func (c column) definition(d Dialect) string {
	return c.name + " " + map[Dialect]string{PostgreSQL: c.postgres, MySQL: c.mysql, SQLite: c.sqlite}[d]
}

// kind is its type.
func (c column) kind(d Dialect) string { return strings.Fields(c.definition(d))[1] }

// schema returns the statements that make t, if it is not there.
func (d Dialect) schema(t table) []string {
	var create strings.Builder
	fmt.Fprintf(&create, "CREATE TABLE IF NOT EXISTS %s (\n", t.name)
	for _, c := range columns {
		fmt.Fprintf(&create, "\t%s,\n", c.definition(d))
	}
	create.WriteString("\tPRIMARY KEY (source_type, serial_number)")
	if d == MySQL { // which has no CREATE INDEX IF NOT EXISTS
		fmt.Fprintf(&create, ",\n\tKEY %s (expires_at),\n\tKEY %s (source_type, state, created_at)\n) ENGINE=InnoDB ROW_FORMAT=DYNAMIC "+
			"DEFAULT CHARSET=utf8mb4", t.expiry, t.begun)
		return []string{create.String()}
	}
	create.WriteString("\n)")
	return []string{create.String(), fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (expires_at)", t.expiry, t.on), d.index(t)}
}

// index returns the statement that makes the index of what runs, if it is not there.
func (d Dialect) index(t table) string {
	if d == MySQL { // which has no partial ones
		return fmt.Sprintf("CREATE INDEX %s ON %s (source_type, state, created_at)", t.begun, t.on)
	}
	return fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (source_type, created_at) WHERE state = 1", t.begun, t.on)
}

// add returns the statements that add columns to t.
func (d Dialect) add(t table, lacking []column) []string {
	var clauses, statements []string
	for _, c := range lacking {
		clause := "ADD COLUMN " + c.definition(d)
		if d == PostgreSQL {
			clause = "ADD COLUMN IF NOT EXISTS " + c.definition(d)
		}
		clauses = append(clauses, clause)
		statements = append(statements, "ALTER TABLE "+t.name+" "+clause)
	}
	if d == SQLite { // which adds one at a time
		return statements
	}
	return []string{"ALTER TABLE " + t.name + " " + strings.Join(clauses, ", ")}
}

// Migrate makes the table if it does not exist, adds what it lacks if an earlier version has made it (see Upgrading in
// the package documentation), and checks it. It may be called at every start, by many processes at once. It needs the
// right to create or to alter the table only if something is missing. It returns an error that names every fault of an
// existing table on which operations might run twice or results be cut: wrong types, no unique key, a wrong engine, an
// unlogged table. It also checks MySQL's autocommit, and wsrep_sync_wait on Galera.
func (s *Store) Migrate(ctx context.Context) error {
	return s.retry(ctx, "migrate", func() error {
		var was string
		var failed error
		for {
			lacks, found := s.check(ctx)
			switch {
			case len(lacks) == 0:
				return found
			case found.Error() != was: // at first, and when another process has changed something
			case failed != nil:
				return fmt.Errorf("%w (and the table %s can't be used as it is: %w)", failed, s.table.name, found)
			default:
				return found
			}
			was = found.Error()
			if failed = s.repair(ctx, lacks); s.dialect.temporary(failed) {
				return failed
			}
		}
	})
}

// check returns an error if the table does not exist, or is not fit for a store. lacks are the statements which may help,
// by transactions.
func (s *Store) check(ctx context.Context) (lacks [][]string, err error) {
	var none int
	err = s.db.QueryRowContext(ctx, "SELECT 1 FROM "+s.table.name+" WHERE 1 = 0").Scan(&none)
	switch {
	case s.dialect.IsNoTable(err):
		return [][]string{s.dialect.schema(s.table)}, err
	case !errors.Is(err, sql.ErrNoRows):
		return nil, err
	}
	faults, lacks, err := s.faults(ctx)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return lacks, fmt.Errorf("table %s is not the one that Schema gives: %s", s.table.name, strings.Join(faults, "; "))
	}
	if s.dialect != MySQL {
		return nil, nil
	}
	var autocommit bool
	if err := s.db.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&autocommit); err != nil {
		return nil, err
	}
	if !autocommit {
		return nil, errors.New("autocommit is off: nothing that the store does would be committed")
	}
	return nil, s.checkGalera(ctx)
}

// errLags is the error for a node of Galera whose sessions may read stale data.
var errLags = errors.New("the server is a node of a Galera cluster, and its sessions do not wait for what other nodes have committed, " +
	"so they miss records: set wsrep_sync_wait to 3 (or 7) in each session, by ?wsrep_sync_wait=3 " +
	"in the driver's DSN, or in the server")

// checkGalera returns errLags unless SELECT, UPDATE and DELETE see everything that was committed before them on any node. (An INSERT
// need not: a conflict undoes it at the commit, as a deadlock would.)
func (s *Store) checkGalera(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_sync_wait')")
	if err != nil {
		return err
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		values[name] = value
	}
	if waits, _ := strconv.Atoi(values["wsrep_sync_wait"]); values["wsrep_on"] == "ON" && waits&3 != 3 {
		return errLags
	}
	return rows.Err()
}

// catalog has the queries about a table. Their parameters are the table's schema, which may be empty, and its name.
type catalog struct {
	table   string // its faults, one a row
	columns string // name, type, and whether values come back as they were written
	unique  string // the columns of each unique key that may stand for the primary key, sorted, with commas between
	indexes string // their names
}

// catalogs find the faults that a database does not report: values that are cut, padded or merged, a table that is empty
// after a crash, no transactions; and faults that only Purge or a takeover would meet. A column may be wider than it
// needs to be.
var catalogs = map[Dialect]catalog{
	PostgreSQL: {
		table: `SELECT CASE WHEN c.relkind NOT IN ('r', 'p') THEN 'it is no table'
	WHEN c.relpersistence = 'u' THEN 'it is UNLOGGED: a crash of the server empties it'
	WHEN c.relpersistence = 't' THEN 'it is temporary' END
FROM pg_class c WHERE ` + ofPostgreSQL + ` AND (c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p')`,
		columns: `SELECT a.attname, format_type(a.atttypid, a.atttypmod), CASE
	WHEN a.attname IN ('serial_number', 'owner', 'fingerprint', 'result', 'operation_id', 'steps') THEN a.atttypid = 'bytea'::regtype
	WHEN a.attname IN ('source_type', 'secret') THEN a.atttypid IN ('text'::regtype, 'varchar'::regtype)
		AND (a.atttypmod = -1 OR a.atttypmod >= 68)
		AND COALESCE((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true)
	WHEN a.attname IN ('remark', 'creator', 'policy') THEN a.atttypid IN ('text'::regtype, 'varchar'::regtype)
		AND (a.atttypmod = -1 OR a.atttypmod >= 259)
	WHEN a.attname IN ('state', 'uncertain') THEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
	ELSE a.atttypid = 'int8'::regtype END
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE ` + ofPostgreSQL + ` AND a.attnum > 0 AND NOT a.attisdropped`,
		unique: `SELECT (SELECT string_agg(a.attname, ',' ORDER BY a.attname)
	FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
WHERE ` + ofPostgreSQL + ` AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL`,
		indexes: `SELECT n.relname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid JOIN pg_class n ON n.oid = i.indexrelid
WHERE ` + ofPostgreSQL + ` AND i.indisvalid`,
	},
	MySQL: {
		table: `SELECT CONCAT('its engine is ', COALESCE(ENGINE, 'none'), ', where InnoDB is needed')
FROM information_schema.TABLES WHERE ` + ofMySQL + ` AND COALESCE(ENGINE, '') <> 'InnoDB'`,
		columns: `SELECT COLUMN_NAME, CONCAT(COLUMN_TYPE, ' ', COALESCE(CHARACTER_SET_NAME, '')), COALESCE(CASE
	WHEN COLUMN_NAME IN ('source_type', 'fingerprint') THEN DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH >= 64
	WHEN COLUMN_NAME = 'serial_number' THEN DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH >= 2048
	WHEN COLUMN_NAME IN ('owner', 'operation_id') THEN DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH >= 16
	WHEN COLUMN_NAME IN ('result', 'steps') THEN DATA_TYPE = 'longblob'
	WHEN COLUMN_NAME IN ('remark', 'creator', 'policy') THEN CHARACTER_SET_NAME = 'utf8mb4'
		AND DATA_TYPE <> 'char' AND CHARACTER_MAXIMUM_LENGTH >= 255
	WHEN COLUMN_NAME = 'secret' THEN CHARACTER_SET_NAME = 'utf8mb4' AND DATA_TYPE <> 'char' AND CHARACTER_MAXIMUM_LENGTH >= 64
	WHEN COLUMN_NAME IN ('state', 'uncertain') THEN DATA_TYPE IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')
	ELSE DATA_TYPE = 'bigint' AND COLUMN_TYPE NOT LIKE '%unsigned%' END, 0)
FROM information_schema.COLUMNS WHERE ` + ofMySQL,
		unique: `SELECT GROUP_CONCAT(COLUMN_NAME, COALESCE(SUB_PART, '') ORDER BY COLUMN_NAME SEPARATOR ',')
FROM information_schema.STATISTICS WHERE ` + ofMySQL + ` AND NON_UNIQUE = 0 GROUP BY INDEX_NAME`,
		indexes: `SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE ` + ofMySQL,
	},
	SQLite: {
		table: `SELECT CASE WHEN type <> 'table' THEN 'it is no table' ELSE 'it is WITHOUT ROWID, by which Purge goes' END
FROM pragma_table_list WHERE schema = COALESCE(NULLIF(?1, ''), 'main') AND name = ?2 COLLATE NOCASE AND (type <> 'table' OR wr)`,
		columns: `SELECT name, type, CASE
	WHEN name IN ('serial_number', 'owner', 'fingerprint', 'result', 'operation_id', 'steps') THEN upper(type) = 'BLOB'
	WHEN name IN ('source_type', 'remark', 'creator', 'policy', 'secret') THEN upper(type) = 'TEXT' OR upper(type) LIKE '%CHAR%'
	ELSE upper(type) LIKE '%INT%' END
FROM pragma_table_info(?2, COALESCE(NULLIF(?1, ''), 'main'))`,
		unique: `SELECT (SELECT group_concat(name) FROM (
	SELECT name FROM pragma_index_xinfo(i.name, COALESCE(NULLIF(?1, ''), 'main')) WHERE "key" AND coll = 'BINARY' ORDER BY name))
FROM pragma_index_list(?2, COALESCE(NULLIF(?1, ''), 'main')) AS i WHERE i."unique" AND NOT i.partial
	AND NOT EXISTS (SELECT 1 FROM pragma_index_xinfo(i.name, COALESCE(NULLIF(?1, ''), 'main')) WHERE "key" AND coll <> 'BINARY')`,
		indexes: `SELECT name FROM pragma_index_list(?2, COALESCE(NULLIF(?1, ''), 'main'))`,
	},
}

const (
	ofPostgreSQL = `c.oid = to_regclass(CASE WHEN $1::text = '' THEN '' ELSE quote_ident($1::text) || '.' END || quote_ident($2::text))`
	ofMySQL      = `TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?`
)

// faults returns all that is wrong with the table, in words, and the statements that add what it lacks, by transactions:
// PostgreSQL locks a table for all others until what has added a column is committed, and making an index takes time.
func (s *Store) faults(ctx context.Context) (faults []string, lacks [][]string, err error) {
	c := catalogs[s.dialect]
	faults, err = s.strings(ctx, c.table)
	if err != nil {
		return nil, nil, err
	}
	kinds := map[string]string{}
	rows, err := s.db.QueryContext(ctx, c.columns, s.table.schema, s.table.plain)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind string
		var fits bool
		if err := rows.Scan(&name, &kind, &fits); err != nil {
			return nil, nil, err
		}
		kinds[name] = ""
		if !fits {
			kinds[name] = strings.TrimSpace(kind)
		}
	}
	// The connection goes back first: it may be the only one of the pool.
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, nil, err
	}
	var lacking []column
	for _, column := range columns {
		switch kind, there := kinds[column.name]; {
		case !there:
			faults = append(faults, "there is no column "+column.name)
			if slices.Contains(added, column) {
				lacking = append(lacking, column)
			}
		case kind != "":
			faults = append(faults, fmt.Sprintf("column %s has the type %s, and not %s", column.name, kind, column.kind(s.dialect)))
		}
	}
	if lacking != nil {
		lacks = append(lacks, s.dialect.add(s.table, lacking))
	}
	keys, err := s.strings(ctx, c.unique)
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(keys, "serial_number,source_type") {
		faults = append(faults, "(source_type, serial_number) is not unique")
	}
	indexes, err := s.strings(ctx, c.indexes)
	begun := s.table.plain + begunSuffix
	if !slices.ContainsFunc(indexes, func(name string) bool { return strings.EqualFold(name, begun) }) {
		faults = append(faults, "there is no index "+begun)
		lacks = append(lacks, []string{s.dialect.index(s.table)})
	}
	return faults, lacks, err
}

// strings returns the only column of a query of a catalog.
func (s *Store) strings(ctx context.Context, query string) (found []string, err error) {
	rows, err := s.db.QueryContext(ctx, query, s.table.schema, s.table.plain)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text sql.NullString
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		found = append(found, text.String)
	}
	return found, errors.Join(rows.Err(), rows.Close())
}

// migrationLock is the advisory lock in PostgreSQL under which tables are made: two CREATE TABLE
// IF NOT EXISTS at once may fail.
const migrationLock = 0x6964656d // "idem"

// repair runs statements, by transactions.
func (s *Store) repair(ctx context.Context, transactions [][]string) error {
	for _, statements := range transactions {
		if err := s.commitAll(ctx, statements); err != nil {
			return err
		}
	}
	return nil
}

// commitAll runs statements in a transaction. While ALTER TABLE waits for another transaction, all others wait for it. So it
// does not wait for long; Migrate tries again.
func (s *Store) commitAll(ctx context.Context, statements []string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch s.dialect {
	case PostgreSQL:
		statements = slices.Concat([]string{fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", migrationLock),
			"SET LOCAL lock_timeout = '200ms'"}, statements)
	case MySQL: // which has no less than a second
		if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = 1"); err != nil {
			return err
		}
		defer func() { _, _ = conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = DEFAULT") }()
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return s.commit(tx)
}
