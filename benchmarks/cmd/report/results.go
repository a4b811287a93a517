package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are what benchmarks have printed, in the Go benchmark data format.
type results struct {
	config map[string]string // of lines "key: value"
	rows   []*row            // in the order in which they first came
}

// row is one benchmark, with all its runs.
type row struct {
	name   string // "Keys/json/1MiB/md5"
	units  []string
	values map[string][]float64 // by unit, one for each run
}

var (
	configLine = regexp.MustCompile(`^([a-z]+): *(.*)$`)
	resultLine = regexp.MustCompile(`^Benchmark([A-Z]\S*?)(?:-\d+)?\s+\d+\s+(.*/.*)$`)
)

// parse reads results. It passes over what is neither a result nor configuration.
func parse(text string) (*results, error) {
	rs := &results{config: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := configLine.FindStringSubmatch(line); m != nil {
			rs.config[m[1]] = m[2]
		}
		m := resultLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r := rs.row(m[1])
		if r == nil {
			r = &row{name: m[1], values: map[string][]float64{}}
			rs.rows = append(rs.rows, r)
		}
		for pair := range slices.Chunk(strings.Fields(m[2]), 2) {
			v, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return nil, fmt.Errorf("no result: %q", line)
			}
			if !slices.Contains(r.units, pair[1]) {
				r.units = append(r.units, pair[1])
			}
			r.values[pair[1]] = append(r.values[pair[1]], v)
		}
	}
	if len(rs.rows) == 0 {
		return nil, errors.New("no results")
	}
	return rs, nil
}

// row returns a benchmark by its name, or nil.
func (rs *results) row(name string) *row {
	if i := slices.IndexFunc(rs.rows, func(r *row) bool { return r.name == name }); i >= 0 {
		return rs.rows[i]
	}
	return nil
}

// all returns a row's values, one for each run; none if there is no such row.
func (rs *results) all(name, unit string) []float64 {
	if r := rs.row(name); r != nil {
		return r.values[unit]
	}
	return nil
}

// median returns the middle one of a row's values, or NaN.
func (rs *results) median(name, unit string) float64 { return median(rs.all(name, unit)) }

func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	return (values[(n-1)/2] + values[n/2]) / 2
}

// number writes v with three digits that count, in the largest of the units in which it is at least one.
func number(v, step float64, units ...string) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	unit := 0
	for unit+1 < len(units) && math.Abs(v) >= step {
		v, unit = v/step, unit+1
	}
	digits := 2
	if a := math.Abs(v); a >= 100 {
		digits = 0
	} else if a >= 10 {
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return strings.TrimSpace(s + " " + units[unit])
}

// value writes a value of a unit.
func value(v float64, unit string) string {
	switch {
	case strings.HasPrefix(unit, "ns/") || strings.HasSuffix(unit, "-ns"):
		return number(v, 1000, "ns", "µs", "ms", "s")
	case strings.HasPrefix(unit, "B/"):
		return number(v, 1024, "B", "KiB", "MiB")
	}
	return number(v, 0, "")
}

func ratio(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2fx", v)
}
