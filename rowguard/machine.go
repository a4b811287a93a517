package rowguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Transitions are the states of a machine, and for each those that follow it. A state that nothing follows is there
// with nothing behind it.
type Transitions map[string][]string

// Machine says which transitions are legal. It does not change, and may be used concurrently. Make one with
// [NewMachine]; the zero Machine has no states.
type Machine struct {
	states []string // from the initial one on, in the order in which they are reached
	next   Transitions
}

// NewMachine returns a machine whose rows begin in the state initial. All faults are reported at once: a state that is
// empty, or follows another but is not declared itself; one that can't be reached; one that follows another twice, or
// itself, for that is what a repeat looks like.
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
				fault("the state %q follows %q, and is not declared", to, from)
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

// MustMachine is [NewMachine] for the variables of a package. It panics with the faults.
func MustMachine(initial string, next Transitions) *Machine {
	m, err := NewMachine(initial, next)
	if err != nil {
		panic(err)
	}
	return m
}

// TransitionError is an illegal transition, and is [ErrTransition]. From is the state in which the row is: empty if that
// is NULL, and it may be one that the machine does not know. To is the wanted one.
type TransitionError struct{ From, To string }

func (e *TransitionError) Error() string {
	return fmt.Sprintf("%v: from %q to %q", ErrTransition, e.From, e.To)
}

// Is makes it ErrTransition.
func (e *TransitionError) Is(target error) bool { return target == ErrTransition }

// Move brings the row id of t into the state to, if that may follow the state in which it is, and writes set (which may be
// nil) with it. It is one statement, UPDATE … WHERE id = ? AND state IN (…): of any number of moves at once that exclude
// each other, one succeeds. If t has a Version, it is counted up, so that who has read the row before is stale.
//
// It returns [ErrAlready] if the row is in that state, a [*TransitionError] if it is in one that does not lead there, and
// [ErrNotFound]; and [ErrStale] if it has come into one that leads there only since the statement, so that another try ([Retry])
// makes sense. An unknown state to is an error of the caller's.
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
	var state sql.NullString
	switch err := g.look(ctx, id, g.State, &state); {
	case err != nil:
		return err
	case state.String == to:
		return fmt.Errorf("%w: %q", ErrAlready, to)
	case slices.Contains(from, any(state.String)): // since a moment ago
		return fmt.Errorf("%w: %s", ErrStale, g.Name)
	}
	return &TransitionError{From: state.String, To: to}
}

// plain are names that can stand in a diagram as they are; reserved are those of them that mean something there.
var (
	plain    = regexp.MustCompile(`^\pL[\pL\pN_]*$`)
	reserved = regexp.MustCompile(`(?i)^(accDescr|accTitle|class|classDef|click|default|note|scale|state|stateDiagram|style)$`)
)

// Mermaid returns the machine as a Mermaid diagram (stateDiagram-v2), for documentation: each line once, in the order in
// which states are reached.
func (m *Machine) Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	ids := make(map[string]string, len(m.states))
	for i, state := range m.states {
		ids[state] = state
		if !plain.MatchString(state) || reserved.MatchString(state) {
			ids[state] = fmt.Sprintf("_%d", i) // which is no plain name
			label := strings.NewReplacer(`"`, "#quot;", "\n", " ", "\r", " ").Replace(state)
			fmt.Fprintf(&b, "    state \"%s\" as %s\n", label, ids[state])
		}
	}
	for i, state := range m.states {
		if i == 0 {
			fmt.Fprintf(&b, "    [*] --> %s\n", ids[state])
		}
		for _, to := range m.next[state] {
			fmt.Fprintf(&b, "    %s --> %s\n", ids[state], ids[to])
		}
		if len(m.next[state]) == 0 {
			fmt.Fprintf(&b, "    %s --> [*]\n", ids[state])
		}
	}
	return b.String()
}
