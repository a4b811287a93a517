package rowguard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Insert adds a row. It returns [ErrDuplicate] if any unique index of t has such an entry already. The table must have
// that index: a SELECT before the INSERT protects against nothing.
//
// If another transaction has inserted the same value and has not ended yet, Insert waits for it.
//
// The transaction can go on after ErrDuplicate, even in PostgreSQL, where an error would abort it: in PostgreSQL and
// SQLite the statement is INSERT … ON CONFLICT DO NOTHING, one round trip instead of a savepoint's three. A trigger that
// drops the row without an error looks like a duplicate. PostgreSQL refuses the statement for a table with a deferrable
// constraint: use an INSERT of your own there, and [IsDuplicate] for its errors.
func Insert[R Row](ctx context.Context, c Conn[R], t Table, set Set) error {
	g, err := on(c, t, set)
	if err != nil {
		return err
	}
	if len(set) == 0 {
		return fmt.Errorf("rowguard: nothing to insert into %s", g.Name)
	}
	var columns, values []string
	for _, column := range slices.Sorted(maps.Keys(set)) {
		columns, values = append(columns, g.quote(column)), append(values, g.arg(set[column]))
	}
	statement := "INSERT INTO " + g.Name + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
	if t.Dialect != MySQL {
		statement += " ON CONFLICT DO NOTHING"
	}
	n, err := g.change(ctx, statement)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w in %s", ErrDuplicate, g.Name)
	}
	return err
}
