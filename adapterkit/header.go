package adapterkit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idem/core/adapter"
)

// Changed returns those of fields that a handler has set or changed since before, in the memory of
// fields. Names whose lines are all the same as before are left out: an outer middleware has set
// them, and sets them again on a replay. A Content-Type is never left out, for it belongs to the body.
// In fields, the lines of one name are together; names are compared with their case.
func Changed(fields, before []adapter.Field) []adapter.Field {
	if len(before) == 0 {
		return fields
	}
	changed := fields[:0]
	for i := 0; i < len(fields); {
		start := i
		for i < len(fields) && fields[i].Name == fields[start].Name {
			i++
		}
		if lines := fields[start:i]; lines[0].Name == "Content-Type" || !same(lines, before) {
			changed = append(changed, lines...)
		}
	}
	clear(fields[len(changed):])
	return changed
}

// Removed returns the names in before that are not in fields: the handler has deleted them. As in [Changed], the lines
// of one name are together, and names are compared with their case.
func Removed(fields, before []adapter.Field) (names []string) {
	for i, f := range before {
		if i > 0 && f.Name == before[i-1].Name || strings.HasPrefix(f.Name, http.TrailerPrefix) {
			continue
		}
		if !slices.ContainsFunc(fields, func(left adapter.Field) bool { return left.Name == f.Name }) {
			names = append(names, f.Name)
		}
	}
	return names
}

// same reports whether before has exactly these lines of their name.
func same(lines, before []adapter.Field) bool {
	n := 0
	for _, f := range before {
		if f.Name != lines[0].Name {
			continue
		}
		if n == len(lines) || lines[n].Value != f.Value {
			return false
		}
		n++
	}
	return n == len(lines)
}
