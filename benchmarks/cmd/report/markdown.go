package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// about says what a table of benchmarks is, under its name.
var about = map[string]string{
	"Matrix":    "One request after the other, without a network: a JSON body of 200 bytes, answered with 201. \"added\" is what the guard adds to the bare framework.",
	"FiberPeer": "A guard on Fiber beside Fiber's own idempotency middleware, each with its in-process store.",
	"RedisPeer": "64 goroutines on one Redis: a whole operation (claim and result) and a replay, through the store, by rueidis sending the same, and by rueidis with plain commands, which compare no owner.",
	"Keys":      "The key of a request made of its parameters, by kind and size of the body, beside the MD5 of the same bytes and jsontext's canonical form.",
	"Body":      "A request whose handler reads the whole body, and whose key is made of it. \"none\" is the MD5 of the same bytes, alone and after they were read into memory of their own.",
	"Sign":      "Verifying a signed message with a body of 200 bytes, without the store of nonces.",
	"Token":     "Issuing a one-shot token, and using it on net/http with the store in memory, first and again, beside the same request with a client key.",
	"Memstore":  "The store in the process, by how many records it holds. B/record is beyond key and response; the percentiles are of single calls of Acquire, by the wall clock, and max-cpu is the most processor time that one took.",
	"Wait":      "From the end of a run until all duplicates that wait for it are answered, each with 4 KiB: how often the store is looked at and watched for them, and on Redis the round trips (one is the run's own) and what it sends.",
	"Limiter":   "Asking a limiter: in the process beside one bucket of golang.org/x/time/rate; on Redis, from 64 goroutines, beside the bare client that calls the same script, or counts with INCR.",
	"Do":        "An operation that is not HTTP.",
}

// markdown writes the report. It is made of the results alone, so that it can be made again.
func markdown(rs *results, charts []drawing) string {
	w := &strings.Builder{}
	c := rs.config
	w.WriteString("# Results\n\nWritten by `make bench`; do not edit. ")
	fmt.Fprintf(w, "%s, %s cores, %s %s, %s.\n", cmp.Or(c["cpu"], "unknown CPU"), cmp.Or(c["cores"], "?"),
		cmp.Or(c["goversion"], "unknown Go"), strings.Trim(c["goos"]+"/"+c["goarch"], "/"), cmp.Or(c["date"], "unknown date"))
	fmt.Fprintf(w, "Medians of %s; ± is how far the furthest run is from the median. Absolute times are this machine's, and others may have used it at the same time: compare within a table.\n", runs(rs))
	for _, note := range strings.Split(c["note"], "; ") {
		if note != "" {
			fmt.Fprintf(w, "\n**Note:** %s\n", note)
		}
	}

	w.WriteString("\n## Targets\n\n")
	var lines [][]string
	reached, all := 0, 0
	for _, t := range targets() {
		limit, value, m := t.judge(rs)
		lines = append(lines, []string{t.what, limit, value, string(m)})
		if all++; m == met {
			reached++
		}
	}
	fmt.Fprintf(w, "%d of %d are met. Computed from the tables below (✅ met, ❌ missed, ? this machine is too unsteady to tell, – not measured).\n\n", reached, all)
	table(w, []string{"what", "target", "reached", ""}, lines)

	for _, d := range charts {
		fmt.Fprintf(w, "![%s](charts/%s)\n\n", d.title, d.file)
	}

	for _, g := range rs.groups() {
		name := g[0].path()[0]
		if name == "Load" {
			continue
		}
		fmt.Fprintf(w, "## %s\n\n", name)
		if text := about[name]; text != "" {
			w.WriteString(text + "\n\n")
		}
		pivot(w, g)
		full(w, g)
	}
	loads(w, rs)
	return strings.TrimRight(w.String(), "\n") + "\n"
}

// runs says how often benchmarks ran.
func runs(rs *results) string {
	low, high := math.MaxInt, 0
	for _, r := range rs.rows {
		if r.path()[0] != "Load" {
			n := len(r.values["ns/op"])
			low, high = min(low, n), max(high, n)
		}
	}
	switch {
	case high == 0:
		return "no runs"
	case low == high && high == 1:
		return "1 run"
	case low == high:
		return fmt.Sprintf("%d runs", high)
	}
	return fmt.Sprintf("%d to %d runs", low, high)
}

// pivot writes the rows of a table with a bare framework by store: what is added, in time and
// allocations.
func pivot(w *strings.Builder, rows []*row) {
	var sides, tops []string
	cells := map[[2]string]string{}
	for _, r := range rows {
		bare := baselines[0].find(r, rows)
		path := r.path()
		if bare == nil || len(path) < 4 {
			continue
		}
		side, top := strings.Join(path[1:len(path)-1], ", "), path[len(path)-1]
		if !slices.Contains(sides, side) {
			sides = append(sides, side)
		}
		if !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
		cell := duration(r.median("ns/op") - bare.median("ns/op"))
		if a := r.median("allocs/op") - bare.median("allocs/op"); !math.IsNaN(a) {
			cell += fmt.Sprintf(", %s", whole(a))
		}
		cells[[2]string{side, top}] = cell
	}
	if len(tops) < 2 {
		return
	}
	w.WriteString("Added over the bare framework: time, allocations.\n\n")
	lines := make([][]string, 0, len(sides))
	for _, side := range sides {
		line := []string{side}
		for _, top := range tops {
			line = append(line, cmp.Or(cells[[2]string{side, top}], nothing))
		}
		lines = append(lines, line)
	}
	table(w, append([]string{""}, tops...), lines)
}

// full writes all rows of a table, each with its ratio to what it is compared with. A long one
// is folded.
func full(w *strings.Builder, rows []*row) {
	var units []string
	for _, r := range rows {
		for _, u := range r.units {
			if !slices.Contains(units, u) {
				units = append(units, u)
			}
		}
	}
	// Custom units come last, in their own order.
	slices.SortStableFunc(units, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	var against []baseline
	for _, b := range baselines {
		if slices.ContainsFunc(rows, func(r *row) bool { return b.find(r, rows) != nil }) {
			against = append(against, b)
		}
	}
	head := []string{""}
	for _, u := range units {
		head = append(head, heading(u))
	}
	for _, b := range against {
		head = append(head, "/ "+b.head)
	}
	lines := make([][]string, 0, len(rows))
	for _, r := range rows {
		line := []string{cmp.Or(strings.Join(r.path()[1:], ", "), r.name)}
		for _, u := range units {
			cell := value(r.median(u), u)
			if u == "ns/op" {
				cell += percent(spread(r.values[u]))
			}
			line = append(line, cell)
		}
		for _, b := range against {
			cell := nothing
			if base := b.find(r, rows); base != nil {
				cell = ratio(r.median("ns/op") / base.median("ns/op"))
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	const long = 40
	if len(rows) > long {
		fmt.Fprintf(w, "<details><summary>All %d rows</summary>\n\n", len(rows))
	}
	table(w, head, lines)
	if len(rows) > long {
		w.WriteString("</details>\n\n")
	}
}

func rank(unit string) int {
	if i := slices.Index([]string{"ns/op", "B/op", "allocs/op", "MB/s"}, unit); i >= 0 {
		return i
	}
	return 4
}

// loads writes the tables of the load over TCP.
func loads(w *strings.Builder, rs *results) {
	var closed, open [][]string
	for _, r := range rs.rows {
		c, ok := cellOf(r)
		if !ok {
			continue
		}
		unit := func(u string) string { return value(r.median(u), u) }
		line := []string{c.framework + ", " + storeNames[c.store], c.duplicates + " %", unit("req/s"), unit("p50-ns"), unit("p99-ns"), unit("p99.9-ns"), unit("max-ns"), unit("operations"), unit("replayed"), unit("conflicts")}
		if c.open {
			open = append(open, append(slices.Insert(line, 2, unit("due/s")), unit("late-p99-ns")))
			continue
		}
		against := nothing
		if bare := rs.row(loadName(c.framework, "bare", c.open, "0")); bare != nil && bare != r {
			against = ratio(r.median("req/s") / bare.median("req/s"))
		}
		closed = append(closed, slices.Insert(line, 3, against))
	}
	if len(closed)+len(open) == 0 {
		return
	}
	fmt.Fprintf(w, "## Load over TCP\n\nA service in a process of its own, or two behind one Redis, and %s connections to them from a generator on the same machine, which takes its share of the cores. "+
		"A duplicate asks again for one of the latest 1024 operations. Each run has asserted that every operation was carried out exactly once, by the services' own count, "+
		"and that every answer was the first one, the same again, or a 409 with Retry-After.\n\n", cmp.Or(rs.config["connections"], "many"))
	counts := []string{"operations", "replays", "409"}
	if len(closed) > 0 {
		w.WriteString("Closed loop: each connection sends when it has its answer. The column / bare is the answers a second, against the same service without a guard and without duplicates.\n\n")
		table(w, append([]string{"", "duplicates", "answers/s", "/ bare", "p50", "p99", "p99.9", "longest"}, counts...), closed)
	}
	if len(open) > 0 {
		w.WriteString("Open loop: requests are due at a fixed rate, half of what the closed loop reached, and latency counts from when they were due. The last column is by how much the generator woke late by itself (p99).\n\n")
		table(w, append(append([]string{"", "duplicates", "due/s", "answers/s", "p50", "p99", "p99.9", "longest"}, counts...), "late"), open)
	}
}
