package outbox

import (
	"errors"
	"strings"
)

// isNoTable reports whether an error of a driver, which is not imported, says that a table does not exist. MySQL's and
// SQLite's errors have their codes in their drivers' types only.
func isNoTable(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "42P01"
	}
	text := err.Error()
	return strings.Contains(text, "Error 1146") || strings.Contains(text, "no such table")
}
