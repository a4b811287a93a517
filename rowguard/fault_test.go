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
		{pg("40001"), rowguard.FaultUndone, true},
		{pg("40P01"), rowguard.FaultUndone, true},
		{pg("55P03"), rowguard.FaultRefused, true},
		{pg("23505"), rowguard.FaultDuplicate, true},
		{pg("23503"), rowguard.FaultOther, true},
		{pg("53100"), rowguard.FaultOther, true},
		{pg("40003"), rowguard.FaultOther, false}, // statement_completion_unknown
		{pg("57P01"), rowguard.FaultOther, false}, // shut down by the administrator
		{pg("57014"), rowguard.FaultOther, false}, // cancelled, maybe while it waited for a standby
		{pg("08006"), rowguard.FaultOther, false},
		{pg("58030"), rowguard.FaultOther, false},
		{pg("XX000"), rowguard.FaultOther, false},
		{pgx.ErrTxCommitRollback, rowguard.FaultOther, true},
		{my(1213), rowguard.FaultUndone, true},
		{my(1020), rowguard.FaultUndone, true},
		{my(1205), rowguard.FaultBusy, true},
		{my(3572), rowguard.FaultRefused, true},
		{my(1062), rowguard.FaultDuplicate, true},
		{my(1586), rowguard.FaultDuplicate, true},
		{my(1180), rowguard.FaultOther, false}, // error during COMMIT
		{&mysql.MySQLError{Number: 1213, Message: "of an old server"}, rowguard.FaultUndone, true},
		{mysql.ErrInvalidConn, rowguard.FaultOther, false},
		{lite(5), rowguard.FaultBusy, true},
		{lite(261), rowguard.FaultBusy, true}, // SQLITE_BUSY_RECOVERY
		{lite(517), rowguard.FaultUndone, true},
		{lite(6), rowguard.FaultBusy, true},
		{lite(262), rowguard.FaultBusy, true}, // SQLITE_LOCKED_SHAREDCACHE
		{lite(2067), rowguard.FaultDuplicate, true},
		{lite(1555), rowguard.FaultDuplicate, true},
		{lite(2579), rowguard.FaultDuplicate, true},
		{lite(787), rowguard.FaultOther, true}, // SQLITE_CONSTRAINT_FOREIGNKEY
		{lite(13), rowguard.FaultOther, true},  // SQLITE_FULL
		{lite(10), rowguard.FaultOther, false}, // SQLITE_IOERR
		{errors.New("database is locked"), rowguard.FaultBusy, true},
		{errors.New("database table is locked"), rowguard.FaultBusy, true},
		{errors.New("UNIQUE constraint failed: coupons.code"), rowguard.FaultDuplicate, true},
		{errors.New("FOREIGN KEY constraint failed"), rowguard.FaultOther, true},
		{errors.New("database or disk is full"), rowguard.FaultOther, true},
		{errors.New("the connection broke"), rowguard.FaultOther, false},
		// Somebody's own, whose codes mean something else.
		{coded{5, "not found"}, rowguard.FaultOther, false},
		{coded{6, "exists already"}, rowguard.FaultOther, false},
		{coded{517, "no such thing"}, rowguard.FaultOther, false},
		{errors.New("item 1213 is out of stock"), rowguard.FaultOther, false},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err), fmt.Errorf("%w and %w", errors.New("other"), c.err)} {
			assert.EqualValues(t, c.want, rowguard.FaultOf(err), "%#v", err)
			assert.Equal(t, c.rolledBack, rowguard.RolledBack(err), "%#v", err)
			assert.Equal(t, c.want == rowguard.FaultDuplicate, rowguard.IsDuplicate(err), "%#v", err)
		}
	}
	assert.EqualValues(t, rowguard.FaultOther, rowguard.FaultOf(nil))
}
