package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// nothing stands in a table where nothing was measured.
const nothing = "–"

// significant writes a number with three digits that count.
func significant(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nothing
	case a == 0:
		return "0"
	case a >= 100:
		return thousands(v)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// thousands writes a whole number in groups of three digits.
func thousands(v float64) string {
	s := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "-" + s
	}
	return s
}

// whole writes a number that is whole as such, and others with three digits.
func whole(v float64) string {
	if v == math.Trunc(v) {
		return thousands(v)
	}
	return significant(v)
}

// scaled writes v in the largest of the units in which it is at least one.
func scaled(v, step float64, units ...string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nothing
	}
	i := 0
	for i+1 < len(units) && math.Abs(v) >= step {
		v /= step
		i++
	}
	if i == 0 && math.Abs(v) >= 10 {
		v = math.Round(v)
	}
	return strings.TrimSuffix(strings.TrimSuffix(significant(v), ".00"), ".0") + " " + units[i]
}

// duration writes nanoseconds.
func duration(ns float64) string { return scaled(ns, 1000, "ns", "µs", "ms", "s") }

// size writes bytes.
func size(b float64) string { return scaled(b, 1024, "B", "KiB", "MiB", "GiB") }

// count writes a large number in short: 1k, 5M.
func count(v float64) string {
	return strings.ReplaceAll(scaled(v, 1000, "", "k", "M", "G"), " ", "")
}

// value writes a value in its unit.
func value(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
		return nothing
	case unit == "ns/op" || strings.HasSuffix(unit, "-ns"):
		return duration(v)
	case unit == "B/op" || strings.HasPrefix(unit, "B/"):
		return size(v)
	default:
		return whole(v)
	}
}

// heading names a unit at the head of a column.
func heading(unit string) string {
	switch unit {
	case "ns/op":
		return "time"
	case "B/op":
		return "bytes"
	case "allocs/op":
		return "allocations"
	}
	return strings.TrimSuffix(unit, "-ns")
}

// ratio writes how many times the baseline something is.
func ratio(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nothing
	}
	return fmt.Sprintf("%.2fx", v)
}

// percent writes a spread.
func percent(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(" ±%.0f %%", 100*v)
}

// table writes a Markdown table. The first column is text, the others are numbers.
func table(w *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) {
		for _, c := range cells {
			w.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
		}
		w.WriteString("|\n")
	}
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "--:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range rows {
		line(r)
	}
	w.WriteString("\n")
}
