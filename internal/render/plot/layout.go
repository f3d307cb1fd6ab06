package plot

import (
	"math"
	"strconv"
)

// Where things lie in a chart, in px.
const (
	wide, high               = 760.0, 320.0
	left, right, top, bottom = 72.0, 20.0, 58.0, 48.0
	lineHigh                 = 12.0 // of text
	tickRoom                 = 6.0
)

// place is where something lies, from the upper left.
type place struct{ x, y float64 }

// ink is a colour: those of text and lines, then those of series.
type ink int

const (
	inkText ink = iota
	inkQuiet
	inkGrid
	inkSeries
)

// swatch is a colour on white, and on black.
type swatch struct{ light, dark string }

// inks are of equal lightness, and can be told apart by who does not see some colours
// (Okabe and Ito, "Color Universal Design").
func inks() []swatch {
	return []swatch{{"#1c1c21", "#ececf0"}, {"#6c6c76", "#9a9ba6"}, {"#e4e4e8", "#33343b"},
		{"#0072b2", "#56b4e9"}, {"#d55e00", "#f0924a"}, {"#009e73", "#2fc79c"}, {"#cc79a7", "#dd9fc1"}, {"#8a6d00", "#e6c229"}, {"#a3122f", "#ff8095"}}
}

// align is what of a text lies at its place.
type align int

const (
	begin align = iota
	middle
	end
	upwards // its middle, and it is read from below
)

// canvas is what charts are drawn on.
type canvas interface {
	line(points []place, of ink, dashed bool)
	dot(at place, of ink, small bool)
	text(at place, text string, a align, of ink)
	width(text string) float64
}

// scale brings values of an axis into a range of px.
type scale struct {
	Axis
	low, high float64 // values, their logarithms where it is logarithmic
	from, to  float64 // px
}

// scaleOf has room for all values, and ends at round ones.
func (a Axis) scaleOf(values []float64, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if low > high {
		low, high = 1, 2
	}
	if a.Log {
		low, high = math.Floor(2*math.Log10(low)+1e-9)/2, math.Ceil(2*math.Log10(high)-1e-9)/2
	} else {
		step := stepOf(high - low)
		low, high = step*math.Floor(low/step+1e-9), step*math.Ceil(high/step-1e-9)
	}
	if low == high {
		low, high = low-0.5, high+0.5
	}
	return scale{a, low, high, from, to}
}

// at is where a value lies.
func (s *scale) at(v float64) float64 {
	if s.Log {
		v = math.Log10(v)
	}
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// stepOf is a round part of a range, some five of which make it up.
func stepOf(all float64) float64 {
	if !(all > 0) {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(all)))
	for _, part := range []float64{0.2, 0.5, 1} {
		if all/(part*size) <= 7 {
			return part * size
		}
	}
	return 2 * size
}

// ticks are round values of an axis.
func (s *scale) ticks() (values []float64) {
	if !s.Log {
		step := stepOf(s.high - s.low)
		for i := math.Ceil(s.low/step - 1e-9); i*step <= s.high+step*1e-9; i++ {
			values = append(values, i*step)
		}
		return values
	}
	digits := []float64{1, 2, 5}
	if s.high-s.low > 3 {
		digits = digits[:1]
	}
	for decade := math.Floor(s.low); decade <= s.high; decade++ {
		for _, digit := range digits {
			if at := decade + math.Log10(digit); at >= s.low-1e-9 && at <= s.high+1e-9 {
				values = append(values, digit*math.Pow(10, decade))
			}
		}
	}
	return values
}

func label(v float64) string {
	const digits = 6
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // 0.30000000000000004
	return strconv.FormatFloat(rounded+0, 'g', -1, 64)
}

// draw draws a chart whose upper left corner is so far down.
func (c *Chart) draw(on canvas, down float64) {
	var xs, ys []float64
	for i := range c.Series {
		for _, p := range c.shown(&c.Series[i]) {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	x, y := c.X.scaleOf(xs, left, wide-right), c.Y.scaleOf(ys, down+high-bottom, down+top)
	on.text(place{left, down + 24}, c.Title, begin, inkText)
	c.drawAxes(on, &x, &y)
	c.drawNames(on, down+44)
	for i := range c.Series {
		c.drawSeries(on, i, &x, &y)
	}
}

func (c *Chart) drawAxes(on canvas, x, y *scale) {
	for _, v := range y.ticks() {
		at := y.at(v)
		on.line([]place{{x.from, at}, {x.to, at}}, inkGrid, false)
		on.text(place{x.from - tickRoom, at + lineHigh/3}, label(v), end, inkQuiet)
	}
	for _, v := range x.ticks() {
		at := x.at(v)
		on.line([]place{{at, y.from}, {at, y.from + tickRoom/2}}, inkQuiet, false)
		on.text(place{at, y.from + tickRoom + lineHigh}, label(v), middle, inkQuiet)
	}
	on.line([]place{{x.from, y.from}, {x.to, y.from}}, inkQuiet, false)
	on.text(place{(x.from + x.to) / 2, y.from + 2*tickRoom + 2*lineHigh}, c.X.Label, middle, inkQuiet)
	on.text(place{lineHigh + tickRoom, (y.from + y.to) / 2}, c.Y.Label, upwards, inkQuiet)
}

// drawNames lists the series that have a name, beside each other.
func (c *Chart) drawNames(on canvas, y float64) {
	const sample, gap = 18.0, 16.0
	x := left
	for i := range c.Series {
		s := &c.Series[i]
		if s.Name == "" {
			continue
		}
		middle := y - lineHigh/3
		if s.Style == Dots {
			on.dot(place{x + sample/2, middle}, s.ink(i), s.Quiet)
		} else {
			on.line([]place{{x, middle}, {x + sample, middle}}, s.ink(i), s.Style == Dashes)
		}
		on.text(place{x + sample + tickRoom, y}, s.Name, begin, inkQuiet)
		x += sample + tickRoom + on.width(s.Name) + gap
	}
}

func (s *Series) ink(number int) ink {
	return inkSeries + ink(number%(len(inks())-int(inkSeries)))
}

func (c *Chart) drawSeries(on canvas, number int, x, y *scale) {
	s := &c.Series[number]
	var places []place
	for _, p := range c.shown(s) {
		at := place{x.at(p.X), y.at(p.Y)}
		if s.Style == Steps && len(places) > 0 {
			places = append(places, place{at.x, places[len(places)-1].y})
		}
		places = append(places, at)
	}
	if s.Style != Dots {
		on.line(places, s.ink(number), s.Style == Dashes)
		return
	}
	for _, at := range places {
		on.dot(at, s.ink(number), s.Quiet)
	}
}
