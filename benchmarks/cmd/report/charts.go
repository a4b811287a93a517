package main

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/benchmarks/cmd/report/chart"
)

// drawing is a chart as a file.
type drawing struct {
	file, title string
	svg         []byte
}

// draw makes the charts for which there are results.
func draw(rs *results) []drawing {
	var ds []drawing
	for _, chartOf := range []func(*results) (drawing, bool){costByFramework, costBySize, latencies, memory} {
		if d, ok := chartOf(rs); ok {
			ds = append(ds, d)
		}
	}
	return ds
}

// costByFramework draws what a guard adds to each framework, with the store in the process.
func costByFramework(rs *results) (drawing, bool) {
	names := map[string]string{
		"client-key-first": "client key, first", "replay": "client key, replay",
		"parameter-key-first": "parameter key, first", "parameter-key-replay": "parameter key, replay",
	}
	var groups, variants []string
	for _, r := range rs.rows {
		path := r.path()
		if path[0] != "Matrix" || len(path) != 4 || path[3] != "memory" || names[path[2]] == "" {
			continue
		}
		if !slices.Contains(groups, path[1]) {
			groups = append(groups, path[1])
		}
		if !slices.Contains(variants, path[2]) {
			variants = append(variants, path[2])
		}
	}
	var series []chart.Series
	for _, v := range variants {
		s := chart.Series{Name: names[v]}
		for _, g := range groups {
			s.Values = append(s.Values, difference(rs, "Matrix/"+g+"/"+v+"/memory", "Matrix/"+g+"/bare/none", "ns/op")/1000)
		}
		series = append(series, s)
	}
	const title = "What a guard adds to a request"
	return drawing{"cost-by-framework.svg", title, chart.Bars{
		Title: title, Description: "Over the bare framework; JSON body of 200 bytes, store in the process, no network. Less is better.",
		Axis: "time added (µs)", Groups: groups, Series: series, Label: short,
	}.SVG()}, len(series) > 0
}

// short writes a number with at most two digits after the point.
func short(v float64) string {
	digits := 2
	if math.Abs(v) >= 10 {
		digits = 0
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// costBySize draws what a key of the parameters costs.
func costBySize(rs *results) (drawing, bool) {
	var lines []chart.Line
	add := func(name, kind, what string, reference bool) {
		l := chart.Line{Name: name, Reference: reference}
		for _, r := range rs.rows {
			path := r.path()
			if path[0] == "Keys" && len(path) == 4 && path[1] == kind && path[3] == what {
				l.Points = append(l.Points, chart.Point{X: amount(path[2]), Y: r.median("ns/op")})
			}
		}
		if len(l.Points) > 0 {
			lines = append(lines, l)
		}
	}
	add("key, JSON", "json", "key", false)
	add("key, form", "form", "key", false)
	add("key, multipart", "multipart", "key", false)
	add("key, binary", "binary", "key", false)
	add("jsontext + MD5", "json", "jsontext-md5", true)
	add("MD5 alone", "binary", "md5", true)
	const title = "What a key made of the parameters costs"
	return drawing{"cost-by-size.svg", title, chart.Lines{
		Title: title, Description: "By the size of the body; dashed: what it is compared with. Less is better.",
		XAxis: "size of the body", YAxis: "time per key", Lines: lines, XLabel: size, YLabel: duration,
	}.SVG()}, len(lines) > 0
}

// latencies draws the percentiles of the open loop, by the share of duplicates.
func latencies(rs *results) (drawing, bool) {
	d := chart.Dots{
		Axis: "latency", GroupAxis: "duplicates", Label: duration,
		Series: []string{"p50", "p99", "p99.9"},
	}
	var framework string
	for _, r := range rs.rows {
		c, ok := cellOf(r)
		if !ok || !c.open {
			continue
		}
		if framework == "" {
			framework = c.framework
		}
		if c.framework != framework {
			continue
		}
		if !slices.Contains(d.Panels, c.store) {
			d.Panels = append(d.Panels, c.store)
		}
		if !slices.Contains(d.Groups, c.duplicates+" %") {
			d.Groups = append(d.Groups, c.duplicates+" %")
		}
	}
	for p, panel := range d.Panels {
		d.Values = append(d.Values, nil)
		for _, g := range d.Groups {
			r := rs.row(loadName(framework, panel, true, strings.TrimSuffix(g, " %")))
			at := make([]float64, len(d.Series))
			for i, unit := range d.Series {
				if v := r.median(unit + "-ns"); v > 0 {
					at[i] = v
				}
			}
			d.Values[p] = append(d.Values[p], at)
		}
	}
	for i, panel := range d.Panels {
		d.Panels[i] = storeNames[panel]
	}
	d.Title = "Latency over TCP, by the share of duplicates"
	d.Description = "Open loop at half of the highest throughput, on " + framework + ", counted from when each request was due. Less is better."
	return drawing{"latency.svg", d.Title, d.SVG()}, len(d.Panels) > 0
}

// memory draws what a record takes, by how many there are.
func memory(rs *results) (drawing, bool) {
	l := chart.Line{Name: "memstore"}
	for _, r := range rs.rows {
		path := r.path()
		if path[0] != "Memstore" || len(path) < 2 || len(r.values["B/record"]) == 0 {
			continue
		}
		l.Points = append(l.Points, chart.Point{X: amount(path[1]), Y: r.median("B/record")})
	}
	const title = "Memory that a record takes"
	return drawing{"memory.svg", title, chart.Lines{
		Title: title, Description: "The store in the process: bytes per record beyond its key and response. Less is better.",
		XAxis: "live records", YAxis: "bytes per record", Lines: []chart.Line{l}, LinearY: true,
		Limit: 250, LimitName: "target: at most 250 B", XLabel: count, YLabel: short,
	}.SVG()}, len(l.Points) > 0
}

var amounts = regexp.MustCompile(`^(\d+(?:\.\d+)?)(k|M|G|B|KiB|MiB|GiB)?$`)

// amount reads a number as benchmarks are named after it: 1k, 5M, 200B, 4KiB. It returns 0 if
// it is none.
func amount(s string) float64 {
	m := amounts.FindStringSubmatch(s)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	return v * map[string]float64{"": 1, "B": 1, "k": 1e3, "M": 1e6, "G": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]
}
