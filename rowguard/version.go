package rowguard

import (
	"context"
	"errors"
	"fmt"
)

// Update writes set into the row id of t if its version is still the one with which it was read, and makes the
// version one higher: nobody's change is overwritten unseen. It is one statement, UPDATE … WHERE id = ? AND
// version = ?, and holds no lock while the caller thinks. An empty set counts a change all the same.
//
// It returns [ErrStale] if the row has another version, [ErrNotFound] if it is not there, and [ErrDuplicate] if
// set has a value that must be unique and is taken. At REPEATABLE READ and above, PostgreSQL reports a change that
// the transaction can't see as a serialisation failure instead, on which [InTx] begins anew.
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

// DefaultTries is how often [Retry], [InTx] and [Transact] run a function at most, if nothing else is said.
const DefaultTries = 10

// Retry calls fn until it returns something else than [ErrStale], or a deadlock or the like, which has no effect
// either: at most tries times ([DefaultTries] if zero or less), with random pauses of up to 50 ms between them. fn
// reads the row, decides, and makes one guarded write. After the last try its error is returned; when ctx ends, an
// error that is both that and ctx's.
//
// fn must not run in one transaction for all tries, which may show it the same old row each time, and which
// PostgreSQL ends at an error. To read and write in a transaction, call [InTx] in fn.
func Retry(ctx context.Context, tries int, fn func() error) error {
	return again(ctx, tries, func(err error) bool { return errors.Is(err, ErrStale) || transient(err) }, fn)
}

// again calls try until its error is none that is retried, at most tries times.
func again(ctx context.Context, tries int, retried func(error) bool, try func() error) error {
	if tries <= 0 {
		tries = DefaultTries
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

var errGaveUp = errors.New("rowguard: given up")
