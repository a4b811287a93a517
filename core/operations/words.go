package operations

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/idem-go/idem/core/store"
)

// Explain says in a sentence what the state of the operation means.
func (op *Operation) Explain() string {
	left := Span(op.Remaining)
	switch op.State {
	case store.Running:
		return "Running: its lease is valid for " + left + ", and is renewed while its process lives."
	case store.Abandoned:
		return "Abandoned: a run began and never finished. idem cannot tell whether it took effect. The record is kept for " + left + "."
	case store.Free:
		return "Free: the next request runs. The record is kept for " + left + "."
	}
	if op.Expired {
		return "Done, and its result is no longer kept. Requests with its key are refused for " + left + ", whatever their parameters."
	}
	return "Done: duplicates get its result for " + left + "."
}

// Age says how long ago the operation was begun, by this process's clock; "-" if that is not known. It is negative if a clock
// was set back since.
func (op *Operation) Age() string {
	if op.Begun.IsZero() {
		return "-"
	}
	return Span(time.Since(op.Begun))
}

var units = []struct {
	name string
	of   time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// Span is a duration as people read it, in one unit, or two from a minute on: 450 ms, 12 s, 2 min 5 s, 3 d 4 h.
func Span(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := sign + strconv.FormatInt(int64(d/u.of), 10) + " " + u.name
		if rest := d % u.of; i < 3 && rest >= units[i+1].of {
			text += " " + strconv.FormatInt(int64(rest/units[i+1].of), 10) + " " + units[i+1].name
		}
		return text
	}
	return "0 s"
}

// Printable is text with U+FFFD for what a terminal would act on, or what would change how the rest is read, such as U+202E: all but
// letters, marks, numbers, punctuation, symbols, blanks, and what is allowed.
func Printable(text string, allowed ...rune) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !slices.Contains(allowed, r) {
			return '\ufffd'
		}
		return r
	}, text)
}
