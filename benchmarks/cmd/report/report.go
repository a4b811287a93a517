package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// table is what the report says about a benchmark function.
type table struct {
	name, about string
	// compared are the rows that have a ratio, and base is what each is divided by, as a regular expression and its
	// replacement. The ratio is of times, or of what unit names.
	compared, base, unit string
}

var tables = []table{
	{"Matrix",
		"One request after the other, without a network: a JSON body of 200 bytes, answered with 201. The ratio is to the bare framework.",
		`^Matrix/(\w+)/[^b].*`, "Matrix/$1/bare/none", ""},
	{"FiberPeer",
		"A guard on Fiber beside Fiber's own idempotency middleware, each with its in-process store. The ratio is to Fiber's own.",
		`^FiberPeer/ours.*-(\w+)`, "FiberPeer/own-$1", ""},
	{"Fiber3Peer", "The same on Fiber v3, beside its own middleware.",
		`^Fiber3Peer/ours.*-(\w+)`, "Fiber3Peer/own-$1", ""},
	{"RedisPeer", "64 goroutines on one Redis: a whole operation (claim and result) and a replay. The ratio is to rueidis with plain " +
		"commands, which compare no owner; \"scripts\" is rueidis sending what the store sends.",
		`^RedisPeer/(\w+)/[^c].*|^RedisPeer/(\w+)/cached`, "RedisPeer/$1$2/commands", ""},
	{"RedisClients", "The same on a Valkey that compares by itself, by client. The ratio of rueidis is to plain commands, that of " +
		"go-redis to go-redis sending what the store sends.",
		`^RedisClients/(\w+/(?:rueidis|go-redis))$`, "RedisClients/$1-bare", ""},
	{"Keys", "The key of a request made of its parameters, by kind and size of the body, and jsontext's canonical form. The " +
		"ratio is to the MD5 of the same bytes.",
		`^Keys/(\w+/\w+)/(?:key|jsontext.*)`, "Keys/$1/md5", ""},
	{"Body", "A request whose handler reads the whole body, and whose key is made of it. The ratio is to the bare framework; \"none\" is " +
		"the MD5 of the same bytes, alone and after they were read into memory of their own.",
		`^Body/(.*)/guarded`, "Body/$1/bare", ""},
	{"Sign", "Verifying a signed message with a body of 200 bytes, without the store of nonces. The ratio is to " +
		"the two hashes that v1 can't do without.",
		`^Sign/[^f].*`, "Sign/floor", ""},
	{"Token", "Issuing a one-shot token, and using it on net/http with the store in memory, beside the same request with a client key.",
		"", "", ""},
	{"Memstore", "The store in the process, by how many records it holds. B/record is beyond key and response; the percentiles are of " +
		"single calls of Acquire, by the wall clock, and max-cpu is the most processor time that one took.", "", "", ""},
	{"Wait",
		"From the end of a run until all duplicates that wait for it are answered, each with 4 KiB: how often the store is looked at and " +
			"watched for them, and on Redis the round trips (one is the run's own) and what it sends.", "", "", ""},
	{"Do", "An operation that is not HTTP.", "", "", ""},
	{"Step", "The same with so many steps, each with a result of 100 bytes, or with a derived key: on Redis also the round " +
		"trips and what it receives.", "", "", ""},
	{"Observers", "A first call of a task and its replay, which are five events, by who is told of them.",
		`^Observers/(?:nothing|promidem|otelidem)`, "Observers/nobody", ""},
	{"Seal", "What core.Config.Seal adds to a request on net/http, with the store in memory. The ratio is to the same without it.",
		`^Seal/(.*)/sealed`, "Seal/$1/plain", ""},
	{"Client",
		"A RoundTrip with a body of 200 bytes through idemclient.Transport, without a network and over TCP. The ratio is to the bare one.",
		`^Client/(tcp-)?(?:passed|safe|keyed.*)`, "Client/${1}bare", ""},
	{"Query", "A handler that asks PostgreSQL a question of a millisecond, with a guard and without. The ratio is to the bare framework.",
		`^Query/(\w+)/[^b].*`, "Query/$1/bare/none", ""},
	{"Consumer", "A consumer of distinct messages from RabbitMQ, whose function does nothing. The ratio is to a " +
		"bare one that acknowledges each message.",
		`^Consumer/(\w+)/[^b].*`, "Consumer/$1/bare", "msg/s"},
	{"Load", "Over TCP: a service in a process of its own with half of the cores, or two behind one Redis, and connections that stay " +
		"open, from a client on the same machine. In a closed loop each connection sends when it has its answer; in an open one requests " +
		"are due at a fixed rate, half of what the closed loop reached, and latency counts from when they were due. A replay asks " +
		"again for an operation that has been answered, a duplicate for any, both for one of the latest 1024. \"own\" is the framework's " +
		"own middleware. Each run has asserted that every operation was carried out exactly once, and before it was timed that " +
		"each connection is answered as it should be. service-cpu is the processor time of the services for a request, and cores are " +
		"how many either side has kept busy. A client costs about as much as bare Fiber does: where the service does not fill what it " +
		"has, its rate is bounded by the client, by Redis or by others on the machine, and service-cpu is what to compare. The ratio of " +
		"a closed loop is to the one without a guard.",
		`^Load/(\w+)/(?:memory|unchecked|redis2?|own)/closed/connections=(\d+)/.*`, "Load/$1/bare/closed/connections=$2/replays=10",
		"req/s"},
	{"Standing", "The same on net/http, without duplicates, while a million or five million finished records stand in memory.", "", "",
		"req/s"},
}

// target is a number that is to be reached: of a row's unit, less that of the row minus, divided by the same of the
// row over; minus and over may be empty.
type target struct {
	what             string
	limit            float64
	atLeast          bool // the limit is a lower one
	unit             string
	row, over, minus string
}

// targets returns the numbers that are to be reached.
func targets() []target {
	var ts []target
	for _, fw := range []struct {
		name          string
		first, replay float64
	}{{"gin", 7, 3}, {"echo", 8, 4}, {"echo5", 7, 3}, {"fiber", 4, 2}, {"fiber3", 4, 2}} {
		ts = append(ts,
			target{what: fw.name + ", client key, first: allocations added", limit: fw.first, unit: "allocs/op", row: "Matrix/" + fw.name +
				"/client-key-first/memory", minus: "Matrix/" + fw.name + "/bare/none"},
			target{what: fw.name + ", client key, replay: allocations added", limit: fw.replay, unit: "allocs/op",
				row: "Matrix/" + fw.name + "/replay/memory", minus: "Matrix/" + fw.name + "/bare/none"})
	}
	for _, fw := range []string{"fiber", "fiber3"} {
		const way = "/closed/connections=64/replays=10"
		ts = append(ts,
			target{what: fw + " over TCP, by the key alone: rate, against Fiber's own middleware", limit: 0.9, atLeast: true, unit: "req/s",
				row: "Load/" + fw + "/unchecked" + way, over: "Load/" + fw + "/own" + way},
			target{what: fw + " over TCP: rate, against Fiber's own middleware", limit: 0.8, atLeast: true, unit: "req/s",
				row: "Load/" + fw + "/memory" + way, over: "Load/" + fw + "/own" + way})
	}
	ts = append(ts, target{what: "over TCP, 5M records standing: p99 of a first request, against none standing", limit: 1.2, unit: "p99-ns",
		row:  "Standing/nethttp/memory+5000000/open/connections=64/replays=0",
		over: "Standing/nethttp/memory/open/connections=64/replays=0"})
	const peer = ": time added, against what Fiber's own middleware adds"
	for _, fw := range []struct{ name, table string }{{"fiber", "FiberPeer/"}, {"fiber3", "Fiber3Peer/"}} {
		ts = append(ts,
			target{what: fw.name + ", first" + peer, limit: 1.5, unit: "ns/op", row: fw.table + "ours-first",
				over: fw.table + "own-first", minus: fw.table + "bare"},
			target{what: fw.name + ", replay" + peer, limit: 1.2, unit: "ns/op", row: fw.table + "ours-replay",
				over: fw.table + "own-replay", minus: fw.table + "bare"},
			target{what: fw.name + ", first, by the key alone" + peer, limit: 1, unit: "ns/op", row: fw.table + "ours-unchecked-first",
				over: fw.table + "own-first", minus: fw.table + "bare"},
			target{what: fw.name + ", replay, by the key alone" + peer, limit: 1, unit: "ns/op", row: fw.table + "ours-unchecked-replay",
				over: fw.table + "own-replay", minus: fw.table + "bare"})
	}
	ts = append(ts,
		target{what: "parameter key of a JSON body of 200 B: time, against jsontext and MD5", limit: 0.5, unit: "ns/op",
			row: "Keys/json/200B/key", over: "Keys/json/200B/jsontext-md5"},
		target{what: "parameter key of a JSON body of 200 B: allocations, the key's own included", limit: 1,
			unit: "allocs/op", row: "Keys/json/200B/key"},
		target{what: "binary body of 1 MiB: time, against its MD5", limit: 1.1, unit: "ns/op",
			row: "Keys/binary/1MiB/key", over: "Keys/binary/1MiB/md5"},
		target{what: "JSON body of 1 MiB: time, against jsontext and MD5", limit: 0.6, unit: "ns/op",
			row: "Keys/json/1MiB/key", over: "Keys/json/1MiB/jsontext-md5"})
	for _, fw := range []string{"nethttp", "gin", "echo", "echo5", "fiber", "fiber3"} {
		// a copy, and what else a request takes
		ts = append(ts, target{what: fw + ", binary body of 1 MiB: bytes allocated beyond the bare framework", limit: 1.1 * (1 << 20),
			unit: "B/op", row: "Body/" + fw + "/binary/1MiB/guarded", minus: "Body/" + fw + "/binary/1MiB/bare"})
	}
	return append(ts,
		target{what: "Redis: round trips, first", limit: 2, unit: "round-trips/op", row: "RedisPeer/operation/store"},
		target{what: "Redis: round trips, replay", limit: 1, unit: "round-trips/op", row: "RedisPeer/replay/store"},
		target{what: "Redis, 64 parallel: rate of first requests, against plain commands", limit: 0.8, atLeast: true, unit: "ns/op",
			row: "RedisPeer/operation/commands", over: "RedisPeer/operation/store"},
		target{what: "Redis, 64 parallel: rate of replays, against plain commands", limit: 1.2, atLeast: true, unit: "ns/op",
			row: "RedisPeer/replay/commands", over: "RedisPeer/replay/store"},
		target{what: "Valkey, 64 parallel: rate of first requests, against plain commands", limit: 0.9, atLeast: true, unit: "ns/op",
			row: "RedisClients/first/rueidis-bare", over: "RedisClients/first/rueidis"},
		target{what: "Valkey, 64 parallel: rate of replays, against plain commands", limit: 1.2, atLeast: true, unit: "ns/op",
			row: "RedisClients/replay/rueidis-bare", over: "RedisClients/replay/rueidis"},
		target{what: "go-redis, 64 parallel: time of first requests, against the same commands without the store", limit: 1.2,
			unit: "ns/op", row: "RedisClients/first/go-redis", over: "RedisClients/first/go-redis-bare"},
		target{what: "Valkey: the server's time for an operation, against the same plain commands", limit: 1.25, unit: "server-time-ratio",
			row: "RedisServerTime/valkey"},
		target{what: "memstore, 1M records: bytes per record beyond key and response", limit: recordLimit,
			unit: "B/record", row: "Memstore/1M/operation"},
		target{what: "memstore, 5M records: bytes per record beyond key and response", limit: recordLimit,
			unit: "B/record", row: "Memstore/5M/operation"},
		target{what: "memstore, 1M records expiring: the longest Acquire, in processor time", limit: 1e6,
			unit: "max-cpu-ns", row: "Memstore/1M/expiry"},
		target{what: "memstore, 5M records expiring: the longest Acquire, in processor time", limit: 1e6,
			unit: "max-cpu-ns", row: "Memstore/5M/expiry"},
		target{what: "sign v1, verify: time, against a check written by hand", limit: 1, unit: "ns/op", row: "Sign/v1",
			over: "Sign/v1-by-hand"},
		target{what: "sign v1, verify: allocations", limit: 1, unit: "allocs/op", row: "Sign/v1"},
		target{what: "RFC 9421 (hmac-sha256), verify: time, against a check written by hand", limit: 2, unit: "ns/op",
			row: "Sign/rfc9421-hmac", over: "Sign/rfc9421-hmac-by-hand"},
		target{what: "RFC 9421 (hmac-sha256), verify: allocations", limit: 3, unit: "allocs/op", row: "Sign/rfc9421-hmac"},
		target{what: "consumer of a quorum queue, memory: rate, against a bare one", limit: 0.9, atLeast: true, unit: "msg/s",
			row: "Consumer/quorum/memory", over: "Consumer/quorum/bare"},
		target{what: "consumer of a quorum queue, Redis: rate, against a bare one", limit: 0.5, atLeast: true, unit: "msg/s",
			row: "Consumer/quorum/redis", over: "Consumer/quorum/bare"},
		target{what: "consumer of a classic queue, memory: rate, against a bare one", limit: 0.9, atLeast: true, unit: "msg/s",
			row: "Consumer/classic/memory", over: "Consumer/classic/bare"},
		target{what: "consumer of a classic queue, Redis: rate, against a bare one", limit: 0.5, atLeast: true, unit: "msg/s",
			row: "Consumer/classic/redis", over: "Consumer/classic/bare"})
}

// recordLimit is how many bytes a record in the process may take beyond its key and response.
const recordLimit = 220

// reach returns what was reached, NaN if it was not measured: the median of what each round gives. What ran in
// the same round is compared, for a shared machine is faster at one time than at another.
func (t target) reach(rs *results) float64 {
	a, b, base := rs.all(t.row, t.unit), rs.all(t.over, t.unit), rs.all(t.minus, t.unit)
	var reached []float64
	for i, v := range a {
		if t.minus != "" {
			if i >= len(base) {
				break
			}
			v -= base[i]
		}
		if t.over != "" {
			if i >= len(b) {
				break
			}
			by := b[i]
			if t.minus != "" {
				by -= base[i]
			}
			v /= by
		}
		reached = append(reached, v)
	}
	return median(reached)
}

// judge returns the limit, what was reached, and a mark.
func (t target) judge(rs *results) (limit, reached, mark string) {
	show := func(v float64) string { return value(v, t.unit) }
	if t.over != "" || strings.HasSuffix(t.unit, "-ratio") {
		show = ratio
	}
	limit = "≤ " + show(t.limit)
	if t.atLeast {
		limit = "≥ " + show(t.limit)
	}
	v := t.reach(rs)
	switch {
	case math.IsNaN(v):
		mark = "–"
	case t.atLeast && v >= t.limit, !t.atLeast && v <= t.limit:
		mark = "✅"
	default:
		mark = "❌"
	}
	return limit, show(v), mark
}

// markdown writes the report. It is made of the results alone, so that it can be made again.
func markdown(rs *results, charts []chart) string {
	w, c := &strings.Builder{}, rs.config
	fmt.Fprintf(w, "# Results\n\nWritten by `make bench`; do not edit. %s, %s cores, %s %s/%s, %s.\n", cmp.Or(c["cpu"], "unknown CPU"),
		c["cores"], c["goversion"], c["goos"], c["goarch"], c["date"])
	w.WriteString(
		"Medians of all rounds; ± is how far the furthest run is from the median. Absolute times are this machine's, and others may have " +
			"used it at the same time: compare within a table.\n\n")
	w.WriteString("## Targets\n\n✅ met, ❌ missed, – not measured.\n\n")
	lines := [][]string{{"what", "target", "reached", ""}}
	for _, t := range targets() {
		limit, reached, mark := t.judge(rs)
		lines = append(lines, []string{t.what, limit, reached, mark})
	}
	writeTable(w, lines)
	for _, c := range charts {
		fmt.Fprintf(w, "![%s](charts/%s)\n\n", c.title, c.file)
	}
	for _, t := range tables {
		t.write(w, rs)
	}
	return strings.TrimRight(w.String(), "\n") + "\n"
}

// write writes the table, if it has rows. A long one is folded.
func (t table) write(w *strings.Builder, rs *results) {
	var rows []*row
	units := []string{"ns/op", "B/op", "allocs/op"} // the others come behind them
	for _, r := range rs.rows {
		if r.name == t.name || strings.HasPrefix(r.name, t.name+"/") {
			rows = append(rows, r)
			units = append(units, r.units...)
		}
	}
	if len(rows) == 0 {
		return
	}
	seen := map[string]bool{}
	units = slices.DeleteFunc(units, func(u string) bool {
		again := seen[u]
		seen[u] = true
		return again || !slices.ContainsFunc(rows, func(r *row) bool { return r.values[u] != nil })
	})
	short := strings.NewReplacer("ns/op", "time", "B/op", "bytes", "allocs/op", "allocations", "-ns", "")
	head := []string{""}
	for _, u := range units {
		head = append(head, short.Replace(u))
	}
	lines := [][]string{append(head, "ratio")}
	compared := regexp.MustCompile(t.compared)
	for _, r := range rows {
		line := []string{strings.Join(strings.Split(r.name, "/")[1:], ", ")}
		for _, u := range units {
			cell, m := value(median(r.values[u]), u), median(r.values[u])
			if u == "ns/op" && len(r.values[u]) > 1 {
				furthest := max(slices.Max(r.values[u])-m, m-slices.Min(r.values[u]))
				cell += fmt.Sprintf(" ±%.0f %%", 100*furthest/m)
			}
			line = append(line, cell)
		}
		against := math.NaN()
		if t.compared != "" && compared.MatchString(r.name) {
			against = target{unit: cmp.Or(t.unit, "ns/op"), row: r.name, over: compared.ReplaceAllString(r.name, t.base)}.reach(rs)
		}
		lines = append(lines, append(line, ratio(against)))
	}
	fmt.Fprintf(w, "## %s\n\n%s\n\n", t.name, t.about)
	if len(rows) > 60 {
		fmt.Fprintf(w, "<details><summary>All %d rows</summary>\n\n", len(rows))
		defer w.WriteString("</details>\n\n")
	}
	writeTable(w, lines)
}

// writeTable writes a Markdown table: the head, and below it the rows. The first column is text, the others are numbers.
func writeTable(w *strings.Builder, lines [][]string) {
	for i, cells := range lines {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			w.WriteString("| --- |" + strings.Repeat(" --: |", len(cells)-1) + "\n")
		}
	}
	w.WriteString("\n")
}
