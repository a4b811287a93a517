package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Schema returns the statements that make the table, each ended by a semicolon, for those
// who leave changes of the schema to a tool of their own. An empty table means
// "idem_records". It returns an error for an unknown dialect or a faulty name.
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
var columns = []struct{ name, postgres, mysql, sqlite string }{
	{"source_type", "TEXT", "VARBINARY(64)", "TEXT"},
	{"serial_number", "BYTEA", "VARBINARY(2048)", "BLOB"},
	{"state", "SMALLINT", "SMALLINT", "INTEGER"},
	{"owner", "BYTEA", "VARBINARY(16)", "BLOB"},
	{"attempt", "BIGINT", "BIGINT", "INTEGER"},
	{"fingerprint", "BYTEA", "VARBINARY(64)", "BLOB"},
	{"result", "BYTEA", "LONGBLOB", "BLOB"},
	{"remark", "TEXT", "VARCHAR(255)", "TEXT"},
	{"creator", "TEXT", "VARCHAR(255)", "TEXT"},
	{"created_at", "BIGINT", "BIGINT", "INTEGER"},
	{"updated_at", "BIGINT", "BIGINT", "INTEGER"},
	{"lease_until", "BIGINT", "BIGINT", "INTEGER"},
	{"retention", "BIGINT", "BIGINT", "INTEGER"},
	{"expires_at", "BIGINT", "BIGINT", "INTEGER"},
	{"version", "BIGINT", "BIGINT", "INTEGER"},
}

// schema returns the statements that make t, if it is not there.
func (d Dialect) schema(t table) []string {
	var create strings.Builder
	fmt.Fprintf(&create, "CREATE TABLE IF NOT EXISTS %s (\n", t.name)
	for _, c := range columns {
		kind := map[Dialect]string{PostgreSQL: c.postgres, MySQL: c.mysql, SQLite: c.sqlite}[d]
		fmt.Fprintf(&create, "\t%s %s NOT NULL,\n", c.name, kind)
	}
	create.WriteString("\tPRIMARY KEY (source_type, serial_number)")
	if d == MySQL { // which has no CREATE INDEX IF NOT EXISTS
		fmt.Fprintf(&create, ",\n\tKEY %s (expires_at)\n) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4", t.index)
		return []string{create.String()}
	}
	create.WriteString("\n)")
	return []string{create.String(), fmt.Sprintf("CREATE INDEX IF NOT EXISTS %s ON %s (expires_at)", t.index, t.on)}
}

// Migrate makes the table, if it is not there. It may be called at every start, by many
// processes at once. If the table is there, no right to make one is needed. It returns an
// error if there is a table of that name which is not a store's.
func (s *Store) Migrate(ctx context.Context) error {
	return s.retry(ctx, "migrate", func() error {
		found := s.check(ctx)
		if found == nil {
			return nil
		}
		if err := s.create(ctx); err != nil && err.Error() != found.Error() {
			return fmt.Errorf("%w (and the table %s can't be used as it is: %w)", err, s.table.name, found)
		} else if err != nil {
			return err
		}
		return s.check(ctx)
	})
}

// check reports what the table lacks.
func (s *Store) check(ctx context.Context) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	rows, err := s.db.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+s.table.name+" WHERE 1 = 0")
	if err != nil {
		return err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return err
	}
	for i, c := range columns {
		// Text would merge keys that differ in case only, or in blanks at the end.
		switch kind := types[i].DatabaseTypeName(); {
		case c.name != "serial_number":
		case kind != "BYTEA" && kind != "VARBINARY" && kind != "BLOB":
			return fmt.Errorf("table %s: column %s has the type %s, which does not keep bytes as they are", s.table.name, c.name, kind)
		}
	}
	if err := rows.Err(); err != nil || s.dialect != MySQL {
		return err // in the other dialects, the statements fail without the primary key
	}
	return s.checkMySQL(ctx)
}

// checkMySQL reports what else a table of MySQL lacks that operations rely on to run once.
func (s *Store) checkMySQL(ctx context.Context) error {
	const where = " WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?"
	var engine, keys, short string
	err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(ENGINE), '') FROM information_schema.TABLES"+where, s.table.schema, s.table.plain).Scan(&engine)
	if err != nil {
		return err
	}
	if !strings.EqualFold(engine, "InnoDB") {
		return fmt.Errorf("table %s: the engine is %s, which has no transactions; InnoDB is needed", s.table.name, engine)
	}
	err = s.db.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(columns), '') FROM (SELECT GROUP_CONCAT(COLUMN_NAME, COALESCE(SUB_PART, '') ORDER BY COLUMN_NAME SEPARATOR '+') AS columns"+
		" FROM information_schema.STATISTICS"+where+" AND NON_UNIQUE = 0 GROUP BY INDEX_NAME) AS indexes", s.table.schema, s.table.plain).Scan(&keys)
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Split(keys, ","), "serial_number+source_type") {
		return fmt.Errorf("table %s: (source_type, serial_number) is not unique", s.table.name)
	}
	err = s.db.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(COLUMN_NAME), '') FROM information_schema.COLUMNS"+where+
		" AND (COLUMN_NAME = 'serial_number' AND CHARACTER_MAXIMUM_LENGTH < ? OR COLUMN_NAME = 'source_type' AND DATA_TYPE <> 'varbinary')",
		s.table.schema, s.table.plain, maxKey).Scan(&short)
	if err != nil {
		return err
	}
	if short != "" {
		return fmt.Errorf("table %s: not of the type that Schema gives: %s", s.table.name, short)
	}
	var autocommit bool
	if err := s.db.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&autocommit); err != nil {
		return err
	}
	if !autocommit {
		return errors.New("autocommit is off: nothing that the store does would be committed")
	}
	return nil
}

// migrationLock is what those who make tables of a PostgreSQL database wait for each other
// by: two CREATE TABLE IF NOT EXISTS at once may fail.
const migrationLock = 0x6964656d // "idem"

func (s *Store) create(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if s.dialect == PostgreSQL {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock); err != nil {
			return err
		}
	}
	for _, statement := range s.dialect.schema(s.table) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
