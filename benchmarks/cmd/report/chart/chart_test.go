package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const hostile = `<&>"'` + "\x00\xff ]]> é"

func label(v float64) string { return fmt.Sprintf("%g <u>", v) }

// wellFormed reads an SVG to its end, asserts that all coordinates are numbers within the
// picture, and returns its text and how often there is each element.
func wellFormed(t *testing.T, svg []byte) (text string, elements map[string]int) {
	t.Helper()
	elements = map[string]int{}
	var all strings.Builder
	var width, height float64
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "%s", svg)
		switch e := token.(type) {
		case xml.CharData:
			all.Write(e)
		case xml.StartElement:
			elements[e.Name.Local]++
			require.Equal(t, "http://www.w3.org/2000/svg", e.Name.Space)
			for _, a := range e.Attr {
				switch a.Name.Local {
				case "x", "x1", "x2", "cx", "y", "y1", "y2", "cy", "width", "height":
					v, err := strconv.ParseFloat(a.Value, 64)
					require.NoError(t, err, "%s of %s", a.Name.Local, e.Name.Local)
					if e.Name.Local == "svg" {
						if a.Name.Local == "width" {
							width = v
						} else {
							height = v
						}
					}
					limit := max(width, height)
					require.True(t, v >= 0 && v <= limit, "%s=%v of %s lies outside", a.Name.Local, v, e.Name.Local)
				}
			}
		}
	}
	return all.String(), elements
}

func TestChartsAreWellFormed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, svg := range map[string][]byte{
		"bars": Bars{Title: hostile, Description: hostile, Axis: hostile, Groups: []string{hostile, "b"}, Label: label,
			Series: []Series{{hostile, []float64{1, nan}}, {"s", []float64{-5, 3e9}}, {"short", nil}}}.SVG(),
		"no bars":  Bars{Label: label}.SVG(),
		"all nan":  Bars{Groups: []string{"a"}, Series: []Series{{"s", []float64{nan}}}, Label: label}.SVG(),
		"no lines": Lines{XLabel: label, YLabel: label}.SVG(),
		"linear": Lines{XLabel: label, YLabel: label, LinearY: true, Limit: 250, LimitName: hostile,
			Lines: []Line{{Name: hostile, Points: []Point{{1000, 200}, {0, 1}, {nan, 2}, {1e6, 100}}}}}.SVG(),
		"log": Lines{Title: hostile, XLabel: label, YLabel: label,
			Lines: []Line{{"a", []Point{{1, 1}, {10, 1e9}}, true}, {"b", []Point{{5, 1e9}}, false}, {Name: "none"}}}.SVG(),
		"one point": Lines{XLabel: label, YLabel: label, Lines: []Line{{Name: "a", Points: []Point{{7, 7}}}}}.SVG(),
		"no dots":   Dots{Label: label}.SVG(),
		"dots": Dots{Title: hostile, Panels: []string{hostile, "two"}, Groups: []string{"0 %", hostile}, Series: []string{"p50", "p99"},
			Values: [][][]float64{{{1, 2}, {0, nan}}, {{inf, 3}}}, Label: label}.SVG(),
	} {
		t.Run(name, func(t *testing.T) {
			text, elements := wellFormed(t, svg)
			assert.Equal(t, 1, elements["svg"])
			assert.Equal(t, 1, elements["title"])
			assert.NotContains(t, string(svg), "NaN\"")
			assert.NotContains(t, string(svg), "Inf\"")
			if strings.Contains(text, "]]>") {
				assert.Contains(t, text, `<&>"'`)
			}
		})
	}
}

func TestBarsAreAsHighAsTheirValues(t *testing.T) {
	svg := string(Bars{Groups: []string{"g"}, Series: []Series{{"a", []float64{5}}, {"b", []float64{10}}}, Label: label}.SVG())
	var heights []float64
	for _, line := range strings.Split(svg, "\n") {
		if rest, ok := strings.CutPrefix(line, "<rect "); ok && !strings.Contains(rest, `height="11"`) { // those of the legend
			_, rest, _ = strings.Cut(rest, `height="`)
			value, _, _ := strings.Cut(rest, `"`)
			h, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			heights = append(heights, h)
		}
	}
	require.Len(t, heights, 2)
	assert.InDelta(t, 2, heights[1]/heights[0], 0.01)
}

func TestAxes(t *testing.T) {
	assert.Equal(t, []float64{0, 2, 4, 6}, newLinear(5.1).ticks())
	assert.Equal(t, []float64{0, 1}, newLinear(0).ticks())
	assert.Equal(t, []float64{0, 1}, newLinear(math.NaN()).ticks())
	for _, v := range []float64{1e-9, 0.3, 1, 7, 9.99, 10, 12345, 1e18} {
		a := newLinear(v)
		assert.GreaterOrEqual(t, a.top, v*0.9999)
		assert.LessOrEqual(t, len(a.ticks()), 7, "%v", v)
		assert.GreaterOrEqual(t, len(a.ticks()), 3, "%v", v)
	}
	assert.Equal(t, []float64{10, 100, 1000}, newLog(11, 999).ticks())
	assert.Equal(t, []float64{100, 1000}, newLog(100).ticks())
	a := newLog(1, 100)
	assert.InDelta(t, 0.5, a.at(10), 1e-9)
	assert.Zero(t, a.at(0.1))
	assert.Equal(t, 1.0, a.at(1000))
}

// Contrast by WCAG 2.2 on white and on GitHub's dark background.
func TestColoursAreReadableOnWhiteAndOnDark(t *testing.T) {
	luminance := func(colour string) float64 {
		n, err := strconv.ParseUint(colour[1:], 16, 32)
		require.NoError(t, err)
		channel := func(v uint64) float64 {
			c := float64(v&0xff) / 255
			if c <= 0.04045 {
				return c / 12.92
			}
			return math.Pow((c+0.055)/1.055, 2.4)
		}
		return 0.2126*channel(n>>16) + 0.7152*channel(n>>8) + 0.0722*channel(n)
	}
	for _, colour := range append([]string{ink}, Palette...) {
		for _, background := range []string{"#ffffff", "#0d1117"} {
			a, b := luminance(colour), luminance(background)
			assert.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 3.0, "%s on %s", colour, background)
		}
	}
}
