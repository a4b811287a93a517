package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are what benchmarks have printed, in the Go benchmark data format: lines "key: value",
// and lines of results, which are as many for a benchmark as it ran times.
type results struct {
	config map[string]string
	rows   []*row // in the order in which they first came
}

// row is one benchmark and all its runs.
type row struct {
	pkg    string
	name   string // path, without "Benchmark" and without the number of processors
	units  []string
	values map[string][]float64 // by unit, one for each run
}

// path returns the parts of the name.
func (r *row) path() []string { return strings.Split(r.name, "/") }

// median returns the median of a unit's values, or NaN if there are none.
func (r *row) median(unit string) float64 {
	if r == nil {
		return math.NaN()
	}
	return median(r.values[unit])
}

// row returns a benchmark by its name, or nil.
func (rs *results) row(name string) *row {
	for _, r := range rs.rows {
		if r.name == name {
			return r
		}
	}
	return nil
}

var (
	configLine = regexp.MustCompile(`^([a-z][^\s:]*):\s*(.*)$`)
	procs      = regexp.MustCompile(`-(\d+)$`)
)

// parse reads results. What is neither a result nor a configuration line (PASS, logs) is
// passed over; a line of a result that makes no sense is an error.
func parse(in io.Reader) (*results, error) {
	rs := &results{config: map[string]string{}}
	byName := map[[2]string]*row{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if m := configLine.FindStringSubmatch(line); m != nil {
			rs.config[m[1]] = m[2]
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || !isBenchmark(fields[0]) {
			continue
		}
		if _, err := strconv.ParseUint(fields[1], 10, 64); err != nil {
			continue // a benchmark's log line
		}
		if len(fields)%2 != 0 {
			return nil, fmt.Errorf("line %d: a value without a unit: %q", n, line)
		}
		id := [2]string{rs.config["pkg"], strings.TrimPrefix(fields[0], "Benchmark")}
		r := byName[id]
		if r == nil {
			r = &row{pkg: id[0], name: id[1], values: map[string][]float64{}}
			byName[id] = r
			rs.rows = append(rs.rows, r)
		}
		for i := 2; i < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			unit := fields[i+1]
			if !slices.Contains(r.units, unit) {
				r.units = append(r.units, unit)
			}
			r.values[unit] = append(r.values[unit], v)
		}
	}
	rs.dropProcs()
	return rs, lines.Err()
}

// isBenchmark says whether a word names a benchmark: as for go test, no lower-case letter
// follows.
func isBenchmark(word string) bool {
	rest, ok := strings.CutPrefix(word, "Benchmark")
	return ok && rest != "" && (rest[0] < 'a' || rest[0] > 'z')
}

// dropProcs takes the number of processors off the names, which go test adds to all or, if it
// is one, to none. A name may end in such a number by itself, so it must be the same everywhere.
func (rs *results) dropProcs() {
	if len(rs.rows) == 0 {
		return
	}
	suffix := procs.FindString(rs.rows[0].name)
	for _, r := range rs.rows {
		if suffix == "" || !strings.HasSuffix(r.name, suffix) {
			return
		}
	}
	for _, r := range rs.rows {
		r.name = strings.TrimSuffix(r.name, suffix)
	}
}

// groups returns the rows by the first part of their names and their package, in order.
func (rs *results) groups() [][]*row {
	var groups [][]*row
	at := map[[2]string]int{}
	for _, r := range rs.rows {
		id := [2]string{r.pkg, r.path()[0]}
		i, ok := at[id]
		if !ok {
			i = len(groups)
			at[id] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// median returns the middle one of the values, or the mean of the two in the middle, or NaN if
// there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread returns by which share of the median the values differ from it at most; NaN if there
// are fewer than two, or if the median is zero and not all are.
func spread(values []float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	m := median(values)
	furthest := 0.0
	for _, v := range values {
		furthest = max(furthest, math.Abs(v-m))
	}
	if furthest == 0 {
		return 0
	}
	if m == 0 {
		return math.NaN()
	}
	return furthest / math.Abs(m)
}
