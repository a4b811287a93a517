package rowguard_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/rowguard"
)

var order = rowguard.MustMachine("new", rowguard.Transitions{
	"new":       {"paid", "cancelled"},
	"paid":      {"shipped", "refunded"},
	"shipped":   {"returned"},
	"returned":  {"refunded", "shipped"},
	"refunded":  {},
	"cancelled": nil,
})

// TestMove: also in a CHAR, which is padded with blanks.
func TestMove(t *testing.T) {
	for _, column := range []string{"state", "padded"} {
		t.Run(column, func(t *testing.T) { testMove(t, column) })
	}
}

func testMove(t *testing.T, column string) {
	each(t, func(t *testing.T, b *bank) {
		b.State = column
		move := func(to string, set rowguard.Set) error {
			return rowguard.Move(t.Context(), b.db, b.Table, order, 1, to, set)
		}
		illegal := func(err error, from, to string) {
			t.Helper()
			var illegal *rowguard.TransitionError
			require.ErrorAs(t, err, &illegal)
			assert.ErrorIs(t, err, rowguard.ErrTransition)
			assert.Equal(t, rowguard.TransitionError{From: from, To: to}, *illegal)
			assert.ErrorContains(t, err, `from "`+from+`" to "`+to+`"`)
			assert.NotErrorIs(t, err, rowguard.ErrAlready)
		}
		assert.ErrorIs(t, move("new", nil), rowguard.ErrAlready)
		illegal(move("shipped", nil), "new", "shipped")
		require.NoError(t, move("paid", rowguard.Set{"balance": 5}))
		balance, version, err := b.account(b.db, 1)
		require.NoError(t, err)
		assert.Equal(t, []int{5, 2}, []int{balance, int(version)}, "what is written comes with it, and is counted")

		err = move("paid", rowguard.Set{"balance": 6})
		assert.ErrorIs(t, err, rowguard.ErrAlready)
		assert.NotErrorIs(t, err, rowguard.ErrTransition)
		assert.Equal(t, 5, b.balance(1), "a repeat writes nothing")
		illegal(move("new", nil), "paid", "new")
		illegal(move("cancelled", rowguard.Set{"balance": 6}), "paid", "cancelled")
		for _, to := range []string{"shipped", "returned", "shipped", "returned", "refunded"} {
			require.NoError(t, move(to, nil), to)
		}
		illegal(move("paid", nil), "refunded", "paid")
		assert.ErrorIs(t, rowguard.Move(t.Context(), b.db, b.Table, order, 3, "paid", nil), rowguard.ErrNotFound)
		assert.ErrorIs(t, rowguard.Move(t.Context(), b.db, b.Table, order, 3, "new", nil), rowguard.ErrNotFound)

		b.exec("UPDATE " + b.Name + " SET " + column + " = 'of old' WHERE id = 1")
		illegal(move("paid", nil), "of old", "paid")
		b.exec("UPDATE " + b.Name + " SET " + column + " = NULL WHERE id = 1")
		illegal(move("paid", nil), "", "paid")
		if column == "state" && b.Dialect != rowguard.MySQL { // where blanks at the end count
			b.exec("UPDATE " + b.Name + " SET state = 'paid ' WHERE id = 1")
			illegal(move("paid", nil), "paid ", "paid")
		}

		table := b.Table
		table.Version = ""
		require.NoError(t, rowguard.Move(t.Context(), b.db, table, order, 2, "paid", nil))
		_, version, err = b.account(b.db, 2)
		require.NoError(t, err)
		assert.EqualValues(t, 1, version, "a table without versions")
	})
}

// TestMoveTogether: of 100 concurrent moves to paid or cancelled, one succeeds, and every other gets an error that names the state.
func TestMoveTogether(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		wanted := func(i int) string { return []string{"paid", "cancelled"}[i%2] }
		errs := together(func(i int) error {
			move := func() error { return rowguard.Move(t.Context(), b.db, b.Table, order, 1, wanted(i), nil) }
			if i%4 < 2 { // half of them in a transaction
				move = func() error {
					return b.inTx(func(tx *sql.Tx) error {
						if _, _, err := b.account(tx, 1); err != nil { // a snapshot, in MySQL
							return err
						}
						return rowguard.Move(t.Context(), tx, b.Table, order, 1, wanted(i), nil)
					})
				}
			}
			return rowguard.Retry(t.Context(), 10_000, move)
		})
		is, moved := b.state(), 0
		for i, err := range errs {
			var illegal *rowguard.TransitionError
			switch {
			case err == nil:
				moved++
				assert.Equal(t, is, wanted(i))
			case errors.As(err, &illegal):
				assert.Equal(t, rowguard.TransitionError{From: is, To: wanted(i)}, *illegal)
				assert.NotEqual(t, is, wanted(i))
			default:
				assert.ErrorIs(t, err, rowguard.ErrAlready)
				assert.Equal(t, is, wanted(i))
			}
		}
		assert.Equal(t, 1, moved)
	})
}

// TestMoveSeesWhatIsThere: and not MySQL's snapshot of what was there.
func TestMoveSeesWhatIsThere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		if b.Dialect == rowguard.SQLite {
			t.Skip("a transaction that has a snapshot there can't write, and Move is a serialisation failure")
		}
		tx := b.begin()
		_, _, err := b.account(tx, 1)
		require.NoError(t, err)
		require.NoError(t, rowguard.Move(t.Context(), b.db, b.Table, order, 1, "paid", nil))
		assert.ErrorIs(t, rowguard.Move(t.Context(), tx, b.Table, order, 1, "paid", nil), rowguard.ErrAlready)
		assert.Equal(t, &rowguard.TransitionError{From: "paid", To: "cancelled"},
			rowguard.Move(t.Context(), tx, b.Table, order, 1, "cancelled", nil))
	})
}

// slow is a connection on which something happens between any two statements.
type slow struct {
	rowguard.Conn[*sql.Row]
	between func()
}

func (s slow) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s.between()
	return s.Conn.QueryRowContext(ctx, query, args...)
}

// TestMoveMeetsAnother: a row that comes into a state that leads there just after the statement is no illegal transition.
func TestMoveMeetsAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *bank) {
		b.State = "padded"
		b.exec("UPDATE " + b.Name + " SET padded = 'paid' WHERE id = 1")
		db := slow{b.db, func() { b.exec("UPDATE " + b.Name + " SET padded = 'shipped' WHERE id = 1") }}
		err := rowguard.Retry(t.Context(), 2, func() error {
			return rowguard.Move(t.Context(), db, b.Table, order, 1, "returned", nil)
		})
		require.NoError(t, err)
		assert.ErrorIs(t, rowguard.Move(t.Context(), b.db, b.Table, order, 1, "returned", nil), rowguard.ErrAlready)
		assert.ErrorIs(t, rowguard.Move(t.Context(), db, b.Table, order, 1, "returned", nil), rowguard.ErrStale)
	})
}

func TestNewMachine(t *testing.T) {
	_, err := rowguard.NewMachine("start", rowguard.Transitions{
		"new":  {"paid", "paid", "lost", "new"},
		"paid": {},
		"":     {"paid"},
	})
	for _, fault := range []string{
		`the initial state "start" is not declared`, `a state is empty`, `the state "lost" follows "new", but is not declared`,
		`the state "new" follows itself`, `the state "paid" follows "new" twice`,
	} {
		assert.ErrorContains(t, err, fault)
	}
	_, err = rowguard.NewMachine("new", rowguard.Transitions{"new": {"paid"}, "paid": nil, "island": {"isle"}, "isle": {"island", "paid"}})
	assert.EqualError(t, err, "rowguard: the state \"island\" can't be reached\nrowguard: the state \"isle\" can't be reached")
	_, err = rowguard.NewMachine("", nil)
	assert.Error(t, err)
	assert.PanicsWithError(t, `rowguard: the initial state "x" is not declared`, func() { rowguard.MustMachine("x", nil) })

	// What is changed afterwards is not the machine's.
	next := rowguard.Transitions{"new": {"paid"}, "paid": {}}
	m, err := rowguard.NewMachine("new", next)
	require.NoError(t, err)
	next["new"][0] = "new"
	next["paid"] = []string{"new"}
	c := new(fakeConn)
	table := rowguard.Table{Dialect: rowguard.SQLite, Name: "t"}
	require.NoError(t, rowguard.Move(t.Context(), c, table, m, 1, "paid", nil))
	assert.Equal(t, []any{"paid", 1, "new"}, c.args)
	require.ErrorIs(t, rowguard.Move(t.Context(), c, table, m, 1, "new", nil), rowguard.ErrTransition)
}
