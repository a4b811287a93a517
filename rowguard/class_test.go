package rowguard_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/rowguard"
)

// coded is an error with a code; SQLite's driver has it in the text, too.
type coded struct {
	code int
	text string
}

func (c coded) Error() string { return c.text }
func (c coded) Code() int     { return c.code }

func TestFaults(t *testing.T) {
	pg := func(state string) error { return &pgconn.PgError{Code: state} }
	my := func(number uint16) error {
		return &mysql.MySQLError{Number: number, SQLState: [5]byte([]byte("HY000")), Message: "m"}
	}
	lite := func(code int) error { return coded{code, fmt.Sprintf("database is locked (%d) (SQLITE_BUSY)", code)} }
	for _, c := range []struct {
		err        error
		want       any
		rolledBack bool // when it comes from a COMMIT
	}{
		{pg("40001"), rowguard.ClassUndone, true},
		{pg("40P01"), rowguard.ClassUndone, true},
		{pg("55P03"), rowguard.ClassRefused, true},
		{pg("23505"), rowguard.ClassDuplicate, true},
		{pg("23503"), rowguard.ClassOther, true},
		{pg("53100"), rowguard.ClassOther, true},
		{pg("40003"), rowguard.ClassOther, false}, // statement_completion_unknown
		{pg("57P01"), rowguard.ClassOther, false}, // shut down by the administrator
		{pg("57014"), rowguard.ClassOther, false}, // cancelled, maybe while it waited for a standby
		{pg("08006"), rowguard.ClassOther, false},
		{pg("58030"), rowguard.ClassOther, false},
		{pg("XX000"), rowguard.ClassOther, false},
		{pgx.ErrTxCommitRollback, rowguard.ClassOther, true},
		{my(1213), rowguard.ClassUndone, true},
		{my(1020), rowguard.ClassUndone, true},
		{my(1205), rowguard.ClassBusy, true},
		{my(3572), rowguard.ClassRefused, true},
		{my(1062), rowguard.ClassDuplicate, true},
		{my(1586), rowguard.ClassDuplicate, true},
		{my(1180), rowguard.ClassOther, false}, // error during COMMIT
		{&mysql.MySQLError{Number: 1213, Message: "of an old server"}, rowguard.ClassUndone, true},
		{mysql.ErrInvalidConn, rowguard.ClassOther, false},
		{lite(5), rowguard.ClassBusy, true},
		{lite(261), rowguard.ClassBusy, true}, // SQLITE_BUSY_RECOVERY
		{lite(517), rowguard.ClassUndone, true},
		{lite(6), rowguard.ClassBusy, true},
		{lite(262), rowguard.ClassBusy, true}, // SQLITE_LOCKED_SHAREDCACHE
		{lite(2067), rowguard.ClassDuplicate, true},
		{lite(1555), rowguard.ClassDuplicate, true},
		{lite(2579), rowguard.ClassDuplicate, true},
		{lite(787), rowguard.ClassOther, true}, // SQLITE_CONSTRAINT_FOREIGNKEY
		{lite(13), rowguard.ClassOther, true},  // SQLITE_FULL
		{lite(10), rowguard.ClassOther, false}, // SQLITE_IOERR
		{errors.New("database is locked"), rowguard.ClassBusy, true},
		{errors.New("database table is locked"), rowguard.ClassBusy, true},
		{errors.New("UNIQUE constraint failed: coupons.code"), rowguard.ClassDuplicate, true},
		{errors.New("FOREIGN KEY constraint failed"), rowguard.ClassOther, true},
		{errors.New("database or disk is full"), rowguard.ClassOther, true},
		{errors.New("the connection broke"), rowguard.ClassOther, false},
		// Somebody's own, whose codes mean something else.
		{coded{5, "not found"}, rowguard.ClassOther, false},
		{coded{6, "exists already"}, rowguard.ClassOther, false},
		{coded{517, "no such thing"}, rowguard.ClassOther, false},
		{errors.New("item 1213 is out of stock"), rowguard.ClassOther, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), fmt.Errorf("%w and %w", errors.New("other"), c.err)} {
			assert.EqualValues(t, c.want, rowguard.ClassOf(err), "%#v", err)
			assert.Equal(t, c.rolledBack, rowguard.RolledBack(err), "%#v", err)
			assert.Equal(t, c.want == rowguard.ClassDuplicate, rowguard.IsDuplicate(err), "%#v", err)
		}
	}
	assert.EqualValues(t, rowguard.ClassOther, rowguard.ClassOf(nil))
}
