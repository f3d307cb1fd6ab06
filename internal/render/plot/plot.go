// Package plot draws small charts of points and lines, as SVG and as PNG.
//
//	what is to be seen (plot.go) -> where it lies, with axes (layout.go)
//	   -> lines, dots and text on a canvas: SVG (svg.go), or pixels (png.go, letters.go)
package plot

import "math"

// Chart is what is to be seen.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis is one direction. Of a logarithmic one, values that are not above 0 are left out.
type Axis struct {
	Label string
	Log   bool
}

// Series is points that belong together, of one colour.
type Series struct {
	Name   string // of its kind; empty: it is not listed
	Style  Style
	Quiet  bool // it stands back
	Points []Point
}

// Style is how points are drawn.
type Style int

// The styles.
const (
	Dots Style = iota
	Line
	Dashes
	Steps // a line that stays at a value up to the next point
)

// Point is where something lies.
type Point struct{ X, Y float64 }

// Sampled is a curve as points that lie close to each other.
func Sampled(from, to float64, at func(x float64) float64) (points []Point) {
	const many = 200
	for i := range many + 1 {
		x := from + (to-from)*float64(i)/many
		points = append(points, Point{x, at(x)})
	}
	return points
}

// shown are the points of a series that have a place.
func (c *Chart) shown(s *Series) (points []Point) {
	for _, p := range s.Points {
		if c.X.has(p.X) && c.Y.has(p.Y) {
			points = append(points, p)
		}
	}
	return points
}

func (a Axis) has(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0) }
