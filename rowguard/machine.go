package rowguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Transitions maps each state of a machine to the states that may follow it. A final state is mapped to nil.
type Transitions map[string][]string

// Machine says which transitions are legal. It is immutable and safe for concurrent use. Make one with
// [NewMachine]; the zero Machine has no states.
type Machine struct {
	states []string // from the initial one on, in the order in which they are reached
	next   Transitions
}

// NewMachine returns a machine whose rows begin in the state initial. The error names every fault: a state that is empty,
// that has no entry of its own in next, that can't be reached, that follows another twice, or that follows itself (a
// repeated [Move] looks like that).
func NewMachine(initial string, next Transitions) (*Machine, error) {
	m := &Machine{states: []string{initial}, next: maps.Clone(next)}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("rowguard: "+format, args...)) }
	if _, declared := next[initial]; !declared {
		fault("the initial state %q is not declared", initial)
	}
	for i := 0; i < len(m.states); i++ {
		for _, to := range next[m.states[i]] {
			if _, declared := next[to]; declared && !slices.Contains(m.states, to) {
				m.states = append(m.states, to)
			}
		}
	}
	for _, from := range slices.Sorted(maps.Keys(next)) {
		m.next[from] = slices.Clone(next[from])
		if from == "" {
			fault("a state is empty")
		}
		if !slices.Contains(m.states, from) {
			fault("the state %q can't be reached", from)
		}
		for i, to := range next[from] {
			if _, declared := next[to]; !declared {
				fault("the state %q follows %q, but is not declared", to, from)
			}
			if to == from {
				fault("the state %q follows itself", to)
			}
			if slices.Index(next[from], to) < i {
				fault("the state %q follows %q twice", to, from)
			}
		}
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return m, nil
}

// MustMachine is [NewMachine] for package variables. It panics if there is a fault.
func MustMachine(initial string, next Transitions) *Machine {
	m, err := NewMachine(initial, next)
	if err != nil {
		panic(err)
	}
	return m
}

// TransitionError is the error of [Move] for an illegal transition. By errors.Is it is [ErrTransition]. From is the row's
// state, without blanks at its end that do not count in its column (a CHAR is padded with them): empty if that is NULL, and
// possibly a state that the machine does not know. To is the wanted one.
type TransitionError struct{ From, To string }

// Error returns a text with both states.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%v: from %q to %q", ErrTransition, e.From, e.To)
}

// Is reports whether target is [ErrTransition].
func (e *TransitionError) Is(target error) bool { return target == ErrTransition }

// Move changes the row id of t to the state to, if m allows that from its present state, and also writes set (which may be
// nil). It is one statement, UPDATE … WHERE id = ? AND state IN (…): of concurrent moves that exclude each other, one
// succeeds. If t has a Version, Move increments it, so that an [Update] of an older version gets [ErrStale].
//
// The database compares the states, by the column's type and collation: these say whether case and blanks at the end count.
// Move returns [ErrAlready] if the row is in the state to, a [*TransitionError] if m does not allow the transition, and
// [ErrNotFound] if there is no such row. It returns [ErrStale] if the row has entered a state that allows the move since
// the statement; [Retry] then tries again. It returns another error if m has no state to.
func Move[R Row](ctx context.Context, c Conn[R], t Table, m *Machine, id any, to string, set Set) error {
	if _, declared := m.next[to]; !declared {
		return fmt.Errorf("rowguard: the machine has no state %q", to)
	}
	column := cmp.Or(t.State, "state")
	g, err := on(c, t, set, t.Version, column)
	if err != nil {
		return err
	}
	written := Set{column: to}
	maps.Copy(written, set)
	var from []any
	for _, state := range m.states {
		if slices.Contains(m.next[state], to) {
			from = append(from, state)
		}
	}
	if from != nil {
		if moved, err := g.update(ctx, written, id, g.State, from...); err != nil || moved {
			return err
		}
	}
	// The database compares, as in the UPDATE: by the type and the collation of the column.
	is := "CASE WHEN " + g.in(g.State, to) + " THEN 1 "
	if from != nil {
		is += "WHEN " + g.in(g.State, from...) + " THEN 2 "
	}
	var fits int
	var state sql.NullString
	switch err := g.look(ctx, id, is+"ELSE 0 END, "+g.unpadded(g.State), &fits, &state); {
	case err != nil:
		return err
	case fits == 1:
		return fmt.Errorf("%w: %q", ErrAlready, to)
	case fits == 2: // it has changed since the UPDATE
		return fmt.Errorf("%w: %s", ErrStale, g.Name)
	}
	return &TransitionError{From: state.String, To: to}
}
