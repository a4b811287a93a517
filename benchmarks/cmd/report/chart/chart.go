// Package chart draws charts as SVG: bars in groups, lines over a logarithmic axis, and ranges
// of dots. It knows what the report needs and no more.
//
// The charts have no background, and colours of middling lightness, so that they are readable
// on white as well as on black. The colours are told apart without red and green, and every
// series is named where it is drawn and marked by a shape of its own.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Palette are the colours of series in turn. Against white and against GitHub's dark
// background (#0d1117) each has a contrast of at least 3:1, as WCAG 2.2, 1.4.11, wants it.
var Palette = []string{"#1f83c4", "#d0700f", "#0d9276", "#b160b8", "#8a7a18", "#7f7f7f"}

const (
	ink     = "#76808b" // text and axes
	inkSoft = "#76808b" // grid lines, drawn faintly
	font    = `font-family="-apple-system,'Segoe UI','Noto Sans','DejaVu Sans',Helvetica,Arial,sans-serif"`
)

// canvas collects SVG elements.
type canvas struct {
	bytes.Buffer
	width, height float64
}

func newCanvas(width, height float64, title, description string) *canvas {
	c := &canvas{width: width, height: height}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" %s>`+"\n",
		num(width), num(height), num(width), num(height), font)
	fmt.Fprintf(c, "<title>%s</title>\n<desc>%s</desc>\n", escape(title), escape(description))
	c.text(16, 28, "start", 17, 600, ink, title)
	c.text(16, 48, "start", 12, 400, ink, description)
	return c
}

func (c *canvas) done() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

func (c *canvas) text(x, y float64, anchor string, size, weight int, colour, s string) {
	fmt.Fprintf(c, `<text x="%s" y="%s" text-anchor="%s" font-size="%d" font-weight="%d" fill="%s">%s</text>`+"\n",
		num(x), num(y), anchor, size, weight, colour, escape(s))
}

// upright writes along a vertical axis.
func (c *canvas) upright(x, y float64, s string) {
	fmt.Fprintf(c, `<text transform="translate(%s %s) rotate(-90)" text-anchor="middle" font-size="12" fill="%s">%s</text>`+"\n",
		num(x), num(y), ink, escape(s))
}

func (c *canvas) line(x1, y1, x2, y2, width, opacity float64, colour string, dashes string) {
	if dashes != "" {
		dashes = fmt.Sprintf(` stroke-dasharray="%s"`, dashes)
	}
	fmt.Fprintf(c, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s" stroke-opacity="%s"%s/>`+"\n",
		num(x1), num(y1), num(x2), num(y2), colour, num(width), num(opacity), dashes)
}

func (c *canvas) rect(x, y, width, height float64, colour string) {
	fmt.Fprintf(c, `<rect x="%s" y="%s" width="%s" height="%s" rx="2" fill="%s"/>`+"\n", num(x), num(y), num(width), num(height), colour)
}

// mark draws the shape of series i: a circle, a square, a diamond, a triangle.
func (c *canvas) mark(i int, x, y float64, colour string) {
	const r = 4.5
	switch i % 4 {
	case 0:
		fmt.Fprintf(c, `<circle cx="%s" cy="%s" r="%s" fill="%s"/>`+"\n", num(x), num(y), num(r), colour)
	case 1:
		fmt.Fprintf(c, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n", num(x-r+.5), num(y-r+.5), num(2*r-1), num(2*r-1), colour)
	case 2:
		c.polygon(colour, x, y-r-1, x+r+1, y, x, y+r+1, x-r-1, y)
	default:
		c.polygon(colour, x, y-r-.5, x+r+.5, y+r-.5, x-r-.5, y+r-.5)
	}
}

func (c *canvas) polygon(colour string, xy ...float64) {
	points := make([]string, 0, len(xy)/2)
	for i := 0; i+1 < len(xy); i += 2 {
		points = append(points, num(xy[i])+","+num(xy[i+1]))
	}
	fmt.Fprintf(c, `<polygon points="%s" fill="%s"/>`+"\n", strings.Join(points, " "), colour)
}

func (c *canvas) polyline(colour string, dashes string, xy ...float64) {
	points := make([]string, 0, len(xy)/2)
	for i := 0; i+1 < len(xy); i += 2 {
		points = append(points, num(xy[i])+","+num(xy[i+1]))
	}
	if dashes != "" {
		dashes = fmt.Sprintf(` stroke-dasharray="%s"`, dashes)
	}
	fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.2" stroke-linejoin="round"%s/>`+"\n",
		strings.Join(points, " "), colour, dashes)
}

// legend names series in a row.
func (c *canvas) legend(x, y float64, names []string, marks bool) {
	for i, name := range names {
		colour := Palette[i%len(Palette)]
		if marks {
			c.mark(i, x+5, y-4, colour)
		} else {
			c.rect(x, y-10, 11, 11, colour)
		}
		c.text(x+17, y, "start", 12, 400, ink, name)
		x += 17 + textWidth(name, 12) + 18
	}
}

// textWidth estimates how wide a text is, generously.
func textWidth(s string, size float64) float64 {
	return float64(len([]rune(s))) * size * 0.6
}

func escape(s string) string {
	var b strings.Builder
	// It writes to memory: there is no error.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// num writes a coordinate. What is no number is zero: a chart must not become unreadable
// for one value.
func num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// linear is an axis from zero with round steps.
type linear struct{ step, top float64 }

// newLinear returns an axis on which highest has room, with three to six steps.
func newLinear(highest float64) linear {
	if !(highest > 0) || math.IsInf(highest, 1) {
		return linear{1, 1}
	}
	rough := highest / 4
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	step := 10 * power
	for _, s := range []float64{1, 2, 2.5, 5} {
		if s*power >= rough {
			step = s * power
			break
		}
	}
	return linear{step, step * math.Ceil(highest/step)}
}

func (a linear) ticks() []float64 {
	var t []float64
	for i := 0; float64(i)*a.step <= a.top*1.0001; i++ {
		t = append(t, float64(i)*a.step)
	}
	return t
}

// logarithmic is an axis between two powers of a base.
type logarithmic struct{ low, high float64 }

// newLog returns an axis between the powers of ten around the values that are more than zero.
func newLog(values ...float64) logarithmic {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 1) {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		return logarithmic{1, 10}
	}
	a := logarithmic{math.Pow(10, math.Floor(math.Log10(low)+1e-9)), math.Pow(10, math.Ceil(math.Log10(high)-1e-9))}
	if a.low >= a.high {
		a.high = a.low * 10
	}
	return a
}

// at returns where v lies, from 0 to 1.
func (a logarithmic) at(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(max(math.Log(v/a.low)/math.Log(a.high/a.low), 0), 1)
}

func (a logarithmic) ticks() []float64 {
	var t []float64
	for v := a.low; v <= a.high*1.0001; v *= 10 {
		t = append(t, v)
	}
	return t
}
