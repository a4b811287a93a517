package rowguard

import (
	"context"
	"errors"
	"fmt"
)

// Update writes set into the row id of t if the row still has the version with which it was read, and increments the
// version: a change that the caller has not seen is never overwritten. It is one statement,
// UPDATE … WHERE id = ? AND version = ?, and holds no lock before it. With an empty set it changes the version only.
//
// It returns [ErrStale] if the row has another version, [ErrNotFound] if there is no such row, and [ErrDuplicate] if
// set violates a unique index. In PostgreSQL at REPEATABLE READ and above, a change that the transaction can't see is a
// serialisation failure instead, after which [InTx] runs the transaction again.
func Update[R Row](ctx context.Context, c Conn[R], t Table, id any, version int64, set Set) error {
	if t.Version == "" {
		return fmt.Errorf("rowguard: the table %q has no Version", t.Name)
	}
	g, err := on(c, t, set, t.Version)
	if err != nil {
		return err
	}
	if updated, err := g.update(ctx, set, id, g.quote(t.Version), version); err != nil || updated {
		return err
	}
	if err := g.look(ctx, id, "1", new(int)); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrStale, g.Name)
}

// defaultTries is how often [Retry], [InTx] and [Transact] run a function at most, unless the caller says otherwise. Package
// sqlstore says why it is this number.
const defaultTries = 20

// Retry calls fn again while it returns [ErrStale], a deadlock or the like: at most tries times (20 if zero
// or less), with random pauses of up to 50 ms between them. fn reads the row, decides, and makes one guarded write.
// After the last try Retry returns an error that wraps fn's. If ctx ends during a pause, the error wraps both fn's and
// ctx's.
//
// Do not run all tries in one transaction: it may read the same old row each time, and PostgreSQL aborts it at the first
// error. To read and write in a transaction, call [InTx] in fn.
func Retry(ctx context.Context, tries int, fn func() error) error {
	return again(ctx, tries, func(err error) bool { return errors.Is(err, ErrStale) || transient(err) }, fn)
}

// again calls try until its error is not retried, at most tries times.
func again(ctx context.Context, tries int, retried func(error) bool, try func() error) error {
	if tries <= 0 {
		tries = defaultTries
	}
	for n := 1; ; n++ {
		err := try()
		switch {
		case err == nil || !retried(err):
			return err
		case n >= tries:
			return fmt.Errorf("%w after %d tries: %w", errGaveUp, n, err)
		}
		if ended := pause(ctx, n); ended != nil {
			return fmt.Errorf("rowguard: %w: %w", ended, err)
		}
	}
}

var errGaveUp = errors.New("rowguard: gave up")
