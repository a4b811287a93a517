package chart

import (
	"cmp"
	"slices"
)

// Point is a value of a line. Points with an X or a Y that is not more than zero can't be drawn on a
// logarithmic axis and are left out.
type Point struct{ X, Y float64 }

// Line is a series of points under a name, in the order of X.
type Line struct {
	Name   string
	Points []Point
	// Reference says that it is not ours but what we compare with: it is dashed.
	Reference bool
}

// Lines are lines over a logarithmic X axis. Each line is named at its right end.
type Lines struct {
	Title, Description string
	XAxis, YAxis       string // with their units
	Lines              []Line
	LinearY            bool // the Y axis is linear from zero
	// Limit is drawn as a horizontal line, with LimitName, if it is more than zero.
	Limit     float64
	LimitName string
	// XLabel and YLabel write values at the axes. At X there is a mark for each value that a
	// line has.
	XLabel, YLabel func(float64) string
}

// SVG draws the chart.
func (l Lines) SVG() []byte {
	const width, height, left, top, bottom = 760, 430, 78, 72, 62
	right := 40.0
	var xs, ys []float64
	for _, line := range l.Lines {
		right = max(right, textWidth(line.Name, 13)+28)
		for _, p := range line.Points {
			if p.X > 0 && p.Y > 0 {
				xs, ys = append(xs, p.X), append(ys, p.Y)
			}
		}
	}
	c := newCanvas(width, height, l.Title, l.Description)
	slices.Sort(xs)
	xs = slices.Compact(xs)
	first, last := 1.0, 10.0
	if len(xs) > 0 {
		first, last = xs[0], xs[len(xs)-1]
	}
	if first == last {
		first, last = first/2, last*2
	}
	xAxis := logarithmic{first, last}
	x := func(v float64) float64 { return left + 14 + (width-left-14-right)*xAxis.at(v) }
	for _, v := range xs {
		c.line(x(v), top, x(v), height-bottom, 1, 0.15, inkSoft, "")
		c.text(x(v), height-bottom+20, "middle", 12, 400, ink, l.XLabel(v))
	}
	c.text((left+width-right)/2, height-14, "middle", 12, 400, ink, l.XAxis)

	var ticks []float64
	var share func(float64) float64
	if l.LinearY {
		axis := newLinear(max(slices.Max(append(ys, 0)), l.Limit) * 1.08)
		ticks, share = axis.ticks(), func(v float64) float64 { return v / axis.top }
	} else {
		axis := newLog(ys...)
		ticks, share = axis.ticks(), axis.at
	}
	y := func(v float64) float64 { return height - bottom - (height-top-bottom)*share(v) }
	for _, t := range ticks {
		c.line(left, y(t), width-right, y(t), 1, 0.25, inkSoft, "")
		c.text(left-8, y(t)+4, "end", 12, 400, ink, l.YLabel(t))
	}
	c.upright(18, (top+height-bottom)/2, l.YAxis)
	if l.Limit > 0 {
		c.line(left, y(l.Limit), width-right, y(l.Limit), 1.6, 1, ink, "6 4")
		c.text(left+8, y(l.Limit)-6, "start", 12, 600, ink, l.LimitName)
	}

	type end struct {
		y      float64
		name   string
		colour string
	}
	var ends []end
	for i, line := range l.Lines {
		colour := Palette[i%len(Palette)]
		var xy []float64
		for _, p := range line.Points {
			if p.X > 0 && p.Y > 0 {
				xy = append(xy, x(p.X), y(p.Y))
			}
		}
		if len(xy) == 0 {
			continue
		}
		dashes := ""
		if line.Reference {
			dashes = "5 4"
		}
		c.polyline(colour, dashes, xy...)
		for j := 0; j < len(xy); j += 2 {
			c.mark(i, xy[j], xy[j+1], colour)
			if l.LinearY {
				c.text(xy[j], xy[j+1]-10, "middle", 11, 400, ink, l.YLabel(line.Points[j/2].Y))
			}
		}
		ends = append(ends, end{xy[len(xy)-1], line.Name, colour})
	}
	// Names that would overlap move apart.
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.y, b.y) })
	for i := range ends {
		if i > 0 {
			ends[i].y = max(ends[i].y, ends[i-1].y+15)
		}
		c.text(width-right+12, ends[i].y+4, "start", 12, 600, ends[i].colour, ends[i].name)
	}
	c.line(left, height-bottom, width-right, height-bottom, 1.2, 0.9, ink, "")
	return c.done()
}
