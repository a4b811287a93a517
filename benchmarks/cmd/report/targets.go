package main

import (
	"fmt"
	"math"
)

// mark says whether a target is met.
type mark string

const (
	met        mark = "✅"
	missed     mark = "❌"
	unknown    mark = "?" // the machine itself is too unsteady to tell
	unmeasured mark = "–"
)

// target is one number that is to be reached.
type target struct {
	what  string
	limit float64
	// atLeast says that the limit is a lower one.
	atLeast bool
	write   func(float64) string
	// reach returns what was reached, NaN if it was not measured, and a remark or "".
	reach func(*results) (v float64, remark string)
	// doubt tells that what was reached can't be judged; nil: it always can.
	doubt func(*results) bool
}

// judge returns the target, what was reached, and whether that is enough.
func (t target) judge(rs *results) (limit, reached string, m mark) {
	sign := "≤ "
	if t.atLeast {
		sign = "≥ "
	}
	limit = sign + t.write(t.limit)
	v, remark := t.reach(rs)
	if math.IsNaN(v) {
		return limit, nothing, unmeasured
	}
	reached = t.write(v)
	if remark != "" {
		reached += " (" + remark + ")"
	}
	switch {
	case t.atLeast && v >= t.limit, !t.atLeast && v <= t.limit:
		m = met
	case t.doubt != nil && t.doubt(rs):
		m = unknown
	default:
		m = missed
		if t.write(v) == t.write(t.limit) { // it looks as if it were met
			reached += ", by a little"
		}
	}
	return limit, reached, m
}

// targets are section 9 of the design.
func targets() []target {
	var ts []target
	for _, fw := range []struct {
		name          string
		first, replay float64
	}{{"gin", 10, 5}, {"echo", 10, 5}, {"fiber", 8, 4}} {
		for _, way := range []struct {
			name, row string
			limit     float64
		}{{"first", "client-key-first", fw.first}, {"replay", "replay", fw.replay}} {
			ts = append(ts, target{
				what: fmt.Sprintf("%s, client key, %s: allocations added", fw.name, way.name), limit: way.limit, write: whole,
				reach: func(rs *results) (float64, string) {
					return difference(rs, "Matrix/"+fw.name+"/"+way.row+"/memory", "Matrix/"+fw.name+"/bare/none", "allocs/op"), ""
				},
			})
		}
	}
	for _, way := range []struct {
		name  string
		limit float64
	}{{"first", 0.8}, {"replay", 0.6}} {
		ts = append(ts, target{
			what: "fiber, client key, " + way.name + ": time added, against what Fiber's own middleware adds", limit: way.limit, write: ratio,
			reach: func(rs *results) (float64, string) {
				row := func(who string) *row { return rs.row("FiberPeer/" + who + "-" + way.name) }
				against := func(who string) float64 {
					return ofEachRound(func(x []float64) float64 { return (x[0] - x[2]) / (x[1] - x[2]) }, "ns/op",
						row(who), row("own"), rs.row("FiberPeer/bare"))
				}
				added := func(who string) string {
					return duration(difference(rs, "FiberPeer/"+who+"-"+way.name, "FiberPeer/bare", "ns/op"))
				}
				remark := added("ours") + " against " + added("own")
				if alike := against("ours-unchecked"); !math.IsNaN(alike) {
					remark += "; by the key alone, as Fiber's has it: " + ratio(alike)
				}
				return against("ours"), remark
			},
		})
	}
	ts = append(ts,
		target{what: "parameter key of a JSON body of 200 B: time, against jsontext and MD5", limit: 1, write: ratio,
			reach: quotient("Keys/json/200B/key", "Keys/json/200B/jsontext-md5", "ns/op", duration)},
		target{what: "parameter key of a JSON body of 200 B: allocations, the key's own included", limit: 1, write: whole,
			reach: of("Keys/json/200B/key", "allocs/op")},
		target{what: "binary body of 1 MiB: time, against its MD5", limit: 1.15, write: ratio,
			reach: quotient("Keys/binary/1MiB/key", "Keys/binary/1MiB/md5", "ns/op", duration)},
		target{what: "JSON body of 1 MiB: time, against its MD5", limit: 3, write: ratio,
			reach: quotient("Keys/json/1MiB/key", "Keys/json/1MiB/md5", "ns/op", duration)},
	)
	for _, fw := range []string{"nethttp", "gin", "echo", "fiber"} {
		guarded, bare := "Body/"+fw+"/binary/1MiB/guarded", "Body/"+fw+"/binary/1MiB/bare"
		ts = append(ts, target{
			// Less than a tenth more is what else a request takes.
			what: fw + ", binary body of 1 MiB: bytes allocated beyond the bare framework, against its size", limit: 1.1, write: ratio,
			reach: func(rs *results) (float64, string) {
				md5 := rs.row("Body/none/binary/1MiB/md5").median("ns/op")
				floor := rs.row("Body/none/binary/1MiB/read-md5").median("ns/op")
				remark := ""
				if time := difference(rs, guarded, bare, "ns/op") / md5; !math.IsNaN(time) {
					remark = "time added: " + ratio(time) + " its MD5; reading it into memory and its MD5 alone: " + ratio(floor/md5)
				}
				return difference(rs, guarded, bare, "B/op") / (1 << 20), remark
			},
		})
	}
	return append(ts,
		target{what: "Redis: round trips, first", limit: 2, write: whole, reach: of("RedisPeer/operation/store", "round-trips/op")},
		target{what: "Redis: round trips, replay", limit: 1, write: whole, reach: of("RedisPeer/replay/store", "round-trips/op")},
		target{what: "Redis, 64 parallel: operations, against rueidis sending the same", limit: 0.8, atLeast: true, write: ratio,
			reach: quotient("RedisPeer/operation/scripts", "RedisPeer/operation/store", "ns/op", duration)},
		target{what: "Redis, 64 parallel: replays, against rueidis sending the same", limit: 0.8, atLeast: true, write: ratio,
			reach: quotient("RedisPeer/replay/scripts", "RedisPeer/replay/store", "ns/op", duration)},
		target{what: "memstore, 1M records: bytes per record beyond key and response", limit: 250, write: size,
			reach: of("Memstore/1M/operation", "B/record")},
		target{what: "memstore, 1M records expiring: the longest Acquire", limit: 1e6, write: duration,
			reach: func(rs *results) (float64, string) {
				r, clock, unit := rs.row("Memstore/1M/expiry"), rs.row("Memstore/none/clock"), longest(rs)
				remark := ""
				if unit == "max-cpu-ns" {
					remark = "processor time; by the wall clock " + duration(r.median("max-ns")) + "; "
				}
				remark += "p99.9 " + duration(r.median("p99.9-ns")) + "; this machine alone, reading its clock: " + duration(clock.median(unit))
				return r.median(unit), remark
			},
			doubt: func(rs *results) bool { return rs.row("Memstore/none/clock").median(longest(rs)) > 1e6 }},
		target{what: "sign v1, verify: time", limit: 1200, write: duration, reach: besideHashes("Sign/v1")},
		target{what: "sign v1, verify: allocations", limit: 5, write: whole, reach: of("Sign/v1", "allocs/op")},
		target{what: "RFC 9421 (hmac-sha256), verify: time", limit: 4000, write: duration, reach: besideHashes("Sign/rfc9421-hmac")},
		target{what: "RFC 9421 (hmac-sha256), verify: allocations", limit: 40, write: whole, reach: of("Sign/rfc9421-hmac", "allocs/op")},
	)
}

// longest is the unit in which the longest Acquire is judged: its processor time where that was
// measured, for the wall clock goes on when the machine does something else meanwhile.
func longest(rs *results) string {
	if r := rs.row("Memstore/1M/expiry"); r != nil && len(r.values["max-cpu-ns"]) > 0 {
		return "max-cpu-ns"
	}
	return "max-ns"
}

// of reaches for one value of a row.
func of(name, unit string) func(*results) (float64, string) {
	return func(rs *results) (float64, string) { return rs.row(name).median(unit), "" }
}

// quotient reaches for how many times one row is another.
func quotient(name, by, unit string, write func(float64) string) func(*results) (float64, string) {
	return func(rs *results) (float64, string) {
		a, b := rs.row(name), rs.row(by)
		v := ofEachRound(func(x []float64) float64 { return x[0] / x[1] }, unit, a, b)
		return v, write(a.median(unit)) + " / " + write(b.median(unit))
	}
}

// ofEachRound is the median of what f makes of each round's values of the rows. Rounds are
// minutes apart, in which a machine that is shared may become faster or slower: what ran
// in the same one is compared. If the rows were not measured equally often, f gets their medians.
func ofEachRound(f func(values []float64) float64, unit string, rows ...*row) float64 {
	rounds := 0
	for i, r := range rows {
		n := 0
		if r != nil {
			n = len(r.values[unit])
		}
		if i > 0 && n != rounds {
			rounds = 0
			break
		}
		rounds = n
	}
	values := make([]float64, len(rows))
	if rounds == 0 {
		for i, r := range rows {
			values[i] = r.median(unit)
		}
		return f(values)
	}
	var all []float64
	for round := range rounds {
		for i, r := range rows {
			values[i] = r.values[unit][round]
		}
		all = append(all, f(values))
	}
	return median(all)
}

// besideHashes reaches for the time of a verification, beside the two hashes that it cannot do
// without on this machine.
func besideHashes(name string) func(*results) (float64, string) {
	return func(rs *results) (float64, string) {
		v, floor := rs.row(name).median("ns/op"), rs.row("Sign/floor").median("ns/op")
		if math.IsNaN(floor) {
			return v, ""
		}
		return v, "the two hashes alone: " + duration(floor)
	}
}

// difference is what one row has more than another.
func difference(rs *results, name, without, unit string) float64 {
	return rs.row(name).median(unit) - rs.row(without).median(unit)
}
