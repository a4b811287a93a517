package chart

import (
	"cmp"
	"math"
	"slices"
)

// Series is a row of values under a name. A value that is not there is NaN.
type Series struct {
	Name   string
	Values []float64
}

// Bars are groups of bars: one group for each name in Groups, with a bar for each series.
type Bars struct {
	Title, Description string
	Axis               string // what is measured, with its unit
	Groups             []string
	Series             []Series // with a value for each group
	Label              func(float64) string
}

// SVG draws the chart.
func (b Bars) SVG() []byte {
	const width, height, left, right, top, bottom = 760, 400, 70, 20, 100, 50
	c := newCanvas(width, height, b.Title, b.Description)
	var names []string
	highest := 0.0
	for _, s := range b.Series {
		names = append(names, s.Name)
		for _, v := range s.Values {
			if v > highest {
				highest = v
			}
		}
	}
	c.legend(left, 76, names, false)
	axis := newLinear(highest)
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*max(v, 0)/axis.top }
	for _, t := range axis.ticks() {
		c.line(left, y(t), width-right, y(t), 1, 0.25, inkSoft, "")
		c.text(left-8, y(t)+4, "end", 12, 400, ink, b.Label(t))
	}
	c.upright(20, (top+height-bottom)/2, b.Axis)

	slot := (width - left - right) / float64(max(len(b.Groups), 1))
	bar := min(slot*0.86/float64(max(len(b.Series), 1)), 70)
	for g, name := range b.Groups {
		middle := left + slot*(float64(g)+0.5)
		c.text(middle, height-bottom+20, "middle", 13, 600, ink, name)
		x := middle - bar*float64(len(b.Series))/2
		for i, s := range b.Series {
			if g < len(s.Values) && s.Values[g] == s.Values[g] { // not NaN
				v := s.Values[g]
				c.rect(x+1.5, y(v), bar-3, y(0)-y(v), Palette[i%len(Palette)])
				c.text(x+bar/2, y(v)-5, "middle", 11, 400, ink, b.Label(v))
			}
			x += bar
		}
	}
	c.line(left, y(0), width-right, y(0), 1.2, 0.9, ink, "")
	return c.done()
}

// Dots are panels side by side. In each one, groups have a dot for each series, on one
// logarithmic axis for all panels.
type Dots struct {
	Title, Description string
	Axis               string   // what is measured, with its unit
	GroupAxis          string   // what the groups are
	Panels             []string // names
	Groups             []string
	Series             []string
	// Values are by panel, group and series. One that is not there is zero.
	Values [][][]float64
	Label  func(float64) string
}

// SVG draws the chart.
func (d Dots) SVG() []byte {
	const left, right, top, bottom, height = 78, 16, 128, 62, 430
	panel := max(170.0, min(330.0, 820/float64(max(len(d.Panels), 1))))
	width := left + right + panel*float64(len(d.Panels))
	c := newCanvas(width, height, d.Title, d.Description)
	c.legend(left, 76, d.Series, true)
	var all []float64
	for _, p := range d.Values {
		all = append(all, slices.Concat(p...)...)
	}
	axis := newLog(all...)
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*axis.at(v) }
	for _, t := range axis.ticks() {
		c.line(left, y(t), width-right, y(t), 1, 0.25, inkSoft, "")
		c.text(left-8, y(t)+4, "end", 12, 400, ink, d.Label(t))
	}
	c.upright(18, (top+height-bottom)/2, d.Axis)
	for p, name := range d.Panels {
		x0 := left + panel*float64(p)
		c.text(x0+panel/2, top-18, "middle", 13, 600, ink, name)
		c.text(x0+panel/2, height-12, "middle", 12, 400, ink, d.GroupAxis)
		if p > 0 {
			c.line(x0, top-8, x0, height-bottom, 1, 0.25, inkSoft, "")
		}
		slot := (panel - 16) / float64(max(len(d.Groups), 1))
		for g, group := range d.Groups {
			x := x0 + slot*(float64(g)+0.5) - 6
			c.text(x, height-bottom+20, "middle", 12, 400, ink, group)
			if p >= len(d.Values) || g >= len(d.Values[p]) {
				continue
			}
			values := d.Values[p][g]
			there := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) })
			if len(there) == 0 {
				continue
			}
			c.line(x, y(slices.Min(there)), x, y(slices.Max(there)), 2, 0.5, ink, "")
			order := make([]int, 0, len(values))
			for i, v := range values {
				if v > 0 {
					c.mark(i, x, y(v), Palette[i%len(Palette)])
					order = append(order, i)
				}
			}
			// From the bottom up; labels that would overlap move apart.
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
			above := math.Inf(1)
			for _, i := range order {
				above = min(y(values[i]), above-13)
				c.text(x+9, above+4, "start", 11, 400, ink, d.Label(values[i]))
			}
		}
	}
	c.line(left, height-bottom, width-right, height-bottom, 1.2, 0.9, ink, "")
	return c.done()
}
