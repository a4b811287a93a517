package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
)

// chart compares series, group by group: as bars from zero, or, on a logarithmic axis, as dots.
type chart struct {
	file, title, description string
	axis                     string // what is measured
	groups, series           []string
	values                   [][]float64 // by series and group; NaN: not measured
	label                    func(float64) string
	log                      bool
	joined                   bool    // with a line through the dots of a series
	limit                    float64 // a line across bars; zero: none
}

// draw returns the charts for which there are results.
func draw(rs *results) []chart {
	var charts []chart
	add := func(c chart, unit string, measured func(series, group string) float64) {
		c.label = func(v float64) string { return value(v, unit) }
		for _, s := range c.series {
			var values []float64
			for _, g := range c.groups {
				values = append(values, measured(s, g))
			}
			c.values = append(c.values, values)
		}
		if c.highest() > 0 {
			charts = append(charts, c)
		}
	}
	add(chart{
		file: "cost-by-framework.svg", title: "What a guard adds to a request", axis: "time added, in µs",
		description: "Over the bare framework; JSON body of 200 bytes, store in the process, no network. Less is better.",
		groups:      []string{"gin", "echo", "echo5", "fiber", "fiber3", "nethttp"},
		series:      []string{"client-key-first", "replay", "parameter-key-first", "parameter-key-replay"},
	}, "", func(s, g string) float64 {
		return target{unit: "ns/op", row: "Matrix/" + g + "/" + s + "/memory", minus: "Matrix/" + g + "/bare/none"}.reach(rs) / 1000
	})
	add(chart{
		file: "cost-by-size.svg", title: "What a key made of the parameters costs", axis: "time per key", log: true, joined: true,
		description: "By the size of the body, and what it is compared with. Less is better.",
		groups:      []string{"200B", "4KiB", "64KiB", "1MiB"},
		series:      []string{"json/key", "form/key", "multipart/key", "binary/key", "json/jsontext-md5", "binary/md5"},
	}, "ns/op", func(s, g string) float64 {
		kind, way, _ := strings.Cut(s, "/")
		return rs.median("Keys/"+kind+"/"+g+"/"+way, "ns/op")
	})
	add(chart{
		file: "throughput.svg", title: "Requests per second over TCP", axis: "thousands of requests per second",
		description: "64 connections, one request in ten a replay; \"own\" is the framework's own middleware. More is better.",
		groups:      []string{"gin", "echo", "echo5", "fiber", "fiber3", "nethttp"}, series: []string{"bare", "memory", "redis", "own"},
	}, "", func(s, g string) float64 {
		return rs.median("Load/"+g+"/"+s+"/closed/connections=64/replays=10", "req/s") / 1000
	})
	add(chart{
		file: "latency.svg", title: "Latency over TCP, by the share of duplicates", axis: "latency", log: true,
		description: "Gin in an open loop at half of the highest throughput, counted from when each request was due. Less is better.",
		groups:      []string{"memory, 0 %", "memory, 10 %", "memory, 90 %", "redis2, 0 %", "redis2, 10 %", "redis2, 90 %"},
		series:      []string{"p50", "p99", "p99.9"},
	}, "p50-ns", func(s, g string) float64 {
		store, share, _ := strings.Cut(strings.TrimSuffix(g, " %"), ", ")
		return rs.median("Load/gin/"+store+"/open/connections=64/duplicates="+share, s+"-ns")
	})
	add(chart{
		file: "memory.svg", title: "Memory that a record takes", axis: "bytes per record", limit: recordLimit,
		description: "The store in the process, by the number of live records: bytes beyond key and " +
			"response. Dashed: the target. Less is better.",
		groups: []string{"1k", "100k", "1M", "5M"}, series: []string{"memstore"},
	}, "B/record", func(_, g string) float64 { return rs.median("Memstore/"+g+"/operation", "B/record") })
	return charts
}

// highest returns the highest value that was measured, or 0.
func (c chart) highest() float64 {
	highest := 0.0
	for _, v := range slices.Concat(c.values...) {
		if v > highest { // not NaN
			highest = v
		}
	}
	return highest
}

// palette are the colours of series. Each, and that of text, has a contrast of at least 3:1 (WCAG 2.2, 1.4.11)
// against white and against GitHub's dark background, #0d1117.
var palette = []string{"#1f83c4", "#d0700f", "#0d9276", "#b160b8", "#8a7a18", "#7f7f7f"}

// svg draws the chart, without a background.
func (c chart) svg() []byte {
	const width, height, left, right, top, bottom = 820.0, 420.0, 78.0, 16.0, 104.0, 44.0
	w := &strings.Builder{}
	text := func(x, y float64, anchor string, size int, s string) {
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="#76808b">`, x, y, anchor, size)
		_ = xml.EscapeText(w, []byte(s)) // to memory: there is no error
		w.WriteString("</text>\n")
	}
	line := func(y, opacity float64, dashes string) {
		fmt.Fprintf(w, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#76808b" stroke-opacity="%g" stroke-dasharray="%s"/>`+"\n",
			left, width-right, y, y, opacity, dashes)
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" `+
		`font-family="-apple-system,'Segoe UI','Noto Sans','DejaVu Sans',Helvetica,Arial,sans-serif">`+
		"\n<title>%s</title>\n", width, height, c.title)
	text(16, 26, "start", 17, c.title)
	text(16, 46, "start", 12, c.description)
	text(16, 68, "start", 12, c.axis)
	legend := left
	for i, s := range c.series {
		fmt.Fprintf(w, `<circle cx="%.1f" cy="84" r="5" fill="%s"/>`+"\n", legend, palette[i])
		text(legend+10, 88, "start", 12, s)
		legend += 30 + 7*float64(len(s))
	}

	low, step, ticks := c.scale()
	share := func(v float64) float64 { return v / (step * float64(ticks)) }
	if c.log {
		share = func(v float64) float64 { return math.Log10(v/low) / float64(ticks) }
	}
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*min(max(share(v), 0), 1) }
	for i := range ticks + 1 {
		v := step * float64(i)
		if c.log {
			v = low * math.Pow(10, float64(i))
		}
		line(y(v), 0.3, "")
		text(left-8, y(v)+4, "end", 12, c.label(v))
	}
	if c.limit > 0 {
		line(y(c.limit), 1, "6 4")
	}
	slot := (width - left - right) / float64(len(c.groups))
	bar := min(slot*0.86/float64(len(c.series)), 70)
	for g, group := range c.groups {
		text(left+slot*(float64(g)+0.5), height-bottom+20, "middle", 13, group)
	}
	for s, values := range c.values {
		var through []string
		for g, v := range values {
			if !(v > 0) {
				continue
			}
			x := left + slot*(float64(g)+0.5)
			through = append(through, fmt.Sprintf("%.1f,%.1f", x, y(v)))
			switch {
			case c.log:
				fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>`+"\n", x, y(v), palette[s])
				switch {
				case c.joined: // without a value: the lines are close
				case s%2 == 1:
					text(x-9, y(v)+4, "end", 11, c.label(v))
				default:
					text(x+9, y(v)+4, "start", 11, c.label(v))
				}
			default:
				x += bar * (float64(s) - float64(len(c.series)-1)/2)
				fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
					x-bar/2+1.5, y(v), bar-3, y(0)-y(v), palette[s])
				text(x, y(v)-5, "middle", 11, c.label(v))
			}
		}
		if c.joined {
			fmt.Fprintf(w, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(through, " "), palette[s])
		}
	}
	w.WriteString("</svg>\n")
	return []byte(w.String())
}

// scale returns where a logarithmic axis begins or the step of a linear one, which begins at zero, and the number of
// powers of ten or of steps up to the highest value.
func (c chart) scale() (low, step float64, ticks int) {
	highest := max(c.highest(), c.limit) * 1.05 // room for a label
	if c.log {
		low = math.Inf(1)
		for _, v := range slices.Concat(c.values...) {
			if v > 0 {
				low = min(low, v)
			}
		}
		low = math.Pow(10, math.Floor(math.Log10(low)))
		return low, 0, max(int(math.Ceil(math.Log10(highest/low))), 1)
	}
	step = math.Pow(10, math.Floor(math.Log10(highest)))
	if highest < 2.5*step {
		step /= 2
	}
	return 0, step, int(math.Ceil(highest / step))
}
