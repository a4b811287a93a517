package rowguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Dialect is the SQL that a database speaks. There is no default: the zero Dialect is refused.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // PostgreSQL 12 and later
	MySQL                         // MariaDB 10.6 and later, MySQL 8.0.1 and later, with InnoDB
	SQLite                        // SQLite 3.24 and later
)

// Table describes a table whose rows are guarded. Names of tables and columns are quoted, and their case is kept;
// values are always parameters. A function that gets a faulty Table returns an error and changes nothing.
type Table struct {
	Dialect Dialect
	Name    string // optionally with a schema: "shop.orders"
	ID      string // column that identifies a row; "id" if empty
	Version string // column that counts the changes of a row, an integer that is not NULL; empty if there is none
	State   string // column of a row's state, a text; "state" if empty
}

// Set maps the columns that are written to their new values.
type Set map[string]any

// Scan maps the columns that are read to the pointers that receive their values. An empty Scan reads nothing.
type Scan map[string]any

// Row is one row of a result: a *sql.Row, a pgx.Row. If there is no row, Scan returns an error that is
// sql.ErrNoRows.
type Row interface {
	Scan(dest ...any) error
}

// Conn runs statements. *sql.DB, *sql.Tx and *sql.Conn are Conns, and so are types that embed one; the compiler
// infers R. For other drivers, see the package comment.
type Conn[R Row] interface {
	// ExecContext returns, in RowsAffected, how many rows were changed.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) R
}

// guard is one call: a table with its names quoted, and the connection.
type guard[R Row] struct {
	Table
	conn Conn[R]
	args []any // of the statement that is being built
}

// on returns the guard of a call that names columns beside those of t. None of them may be one of own, which the
// call itself writes.
func on[R Row, V any](c Conn[R], t Table, columns map[string]V, own ...string) (*guard[R], error) {
	g := &guard[R]{Table: t, conn: c}
	var faults []error
	if t.Dialect < PostgreSQL || t.Dialect > SQLite {
		faults = append(faults, errDialect)
	}
	parts := strings.Split(t.Name, ".")
	for _, name := range append(slices.Sorted(maps.Keys(columns)), parts...) {
		if name == "" || strings.ContainsRune(name, 0) {
			faults = append(faults, fmt.Errorf("rowguard: %q is not a valid name of a table or column", name))
		}
	}
	for name := range columns {
		if slices.ContainsFunc(own, func(own string) bool { return strings.EqualFold(own, name) }) {
			faults = append(faults, fmt.Errorf("rowguard: the guard itself writes the column %q", name))
		}
	}
	for i, name := range parts {
		parts[i] = g.quote(name)
	}
	g.Name, g.ID, g.State = strings.Join(parts, "."), g.quote(cmp.Or(t.ID, "id")), g.quote(cmp.Or(t.State, "state"))
	return g, errors.Join(faults...)
}

var errDialect = errors.New("rowguard: the dialect is unknown")

func (g *guard[R]) quote(name string) string {
	mark := "`" // in SQLite, "name" is a text if there is no such column
	if g.Dialect == PostgreSQL {
		mark = `"`
	}
	return mark + strings.ReplaceAll(name, mark, mark+mark) + mark
}

// arg returns the placeholder of the statement's next parameter.
func (g *guard[R]) arg(v any) string {
	g.args = append(g.args, v)
	if g.Dialect == PostgreSQL {
		return "$" + strconv.Itoa(len(g.args))
	}
	return "?"
}

// change runs the statement, and returns how many rows it has changed.
func (g *guard[R]) change(ctx context.Context, statement string) (int64, error) {
	args := g.args
	g.args = nil
	result, err := g.conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, failure(ctx, err)
	}
	return result.RowsAffected()
}

// read scans the one row that the query returns.
func (g *guard[R]) read(ctx context.Context, query string, dest ...any) error {
	args := g.args
	g.args = nil
	err := g.conn.QueryRowContext(ctx, query, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w in %s", ErrNotFound, g.Name)
	}
	return failure(ctx, err)
}

// update writes set into the row id if column has one of the values, and counts the version up. It reports whether it did.
func (g *guard[R]) update(ctx context.Context, set Set, id any, column string, values ...any) (bool, error) {
	var changes []string
	if g.Version != "" {
		changes = append(changes, g.quote(g.Version)+" = "+g.quote(g.Version)+" + 1")
	}
	for _, column := range slices.Sorted(maps.Keys(set)) {
		changes = append(changes, g.quote(column)+" = "+g.arg(set[column]))
	}
	where := " WHERE " + g.ID + " = " + g.arg(id)
	n, err := g.change(ctx, "UPDATE "+g.Name+" SET "+strings.Join(changes, ", ")+where+" AND "+g.in(column, values...))
	return n > 0, err
}

// in returns a condition: column has one of the values.
func (g *guard[R]) in(column string, values ...any) string {
	var oneOf []string
	for _, v := range values {
		oneOf = append(oneOf, g.arg(v))
	}
	return column + " IN (" + strings.Join(oneOf, ", ") + ")"
}

// unpadded returns an expression: the text of column without blanks at its end that do not count.
func (g *guard[R]) unpadded(column string) string {
	switch g.Dialect {
	case PostgreSQL: // the cast of a CHAR drops them
		return column + "::text"
	case MySQL: // a CHAR has them in the mode PAD_CHAR_TO_FULL_LENGTH
		return "IF(" + column + " = RTRIM(" + column + "), RTRIM(" + column + "), " + column + ")"
	}
	return column
}

// look reads columns of a row as it is now. In MySQL a plain SELECT would read the transaction's snapshot; the row is
// locked already, by the UPDATE before.
func (g *guard[R]) look(ctx context.Context, id any, columns string, dest ...any) error {
	query := "SELECT " + columns + " FROM " + g.Name + " WHERE " + g.ID + " = " + g.arg(id)
	if g.Dialect == MySQL {
		query += " FOR UPDATE"
	}
	return g.read(ctx, query, dest...)
}

// selection returns a query without its WHERE, and the pointers for its columns.
func (g *guard[R]) selection(into Scan) (query string, dest []any) {
	columns := []string{}
	for _, column := range slices.Sorted(maps.Keys(into)) {
		columns, dest = append(columns, g.quote(column)), append(dest, into[column])
	}
	if dest == nil {
		columns, dest = []string{"1"}, []any{new(int)}
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + g.Name, dest
}
