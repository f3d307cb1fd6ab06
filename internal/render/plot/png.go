package plot

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
)

// density is how many pixels a px has: what is printed, or shown on a good screen,
// shows them.
const density = 2

// PNG writes charts below each other.
func PNG(w io.Writer, charts ...*Chart) error {
	c := &pixels{image.NewRGBA(image.Rect(0, 0, wide*density, len(charts)*high*density)), letters()}
	draw.Draw(c.image, c.image.Bounds(), image.White, image.Point{}, draw.Src)
	for i, chart := range charts {
		chart.draw(c, float64(i)*high)
	}
	return png.Encode(w, c.image)
}

// pixels is a canvas of them. All on it is strokes with round ends.
type pixels struct {
	image   *image.RGBA
	letters map[rune]letter
}

// stroke goes from one place to another. How much of a pixel it covers is told by how
// far its middle is away.
func (c *pixels) stroke(from, to place, width float64, of ink) {
	a, b := place{from.x * density, from.y * density}, place{to.x * density, to.y * density}
	reach := width*density/2 + 0.5
	area := image.Rect(int(min(a.x, b.x)-reach), int(min(a.y, b.y)-reach), int(max(a.x, b.x)+reach)+1, int(max(a.y, b.y)+reach)+1).Intersect(c.image.Bounds())
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c.cover(x, y, reach-away(place{float64(x) + 0.5, float64(y) + 0.5}, a, b), of)
		}
	}
}

// away is how far a place is from the nearest one between two others.
func away(p, a, b place) float64 {
	dx, dy := b.x-a.x, b.y-a.y
	part := 0.0
	if length := dx*dx + dy*dy; length > 0 {
		part = min(max(((p.x-a.x)*dx+(p.y-a.y)*dy)/length, 0), 1)
	}
	return math.Hypot(p.x-a.x-part*dx, p.y-a.y-part*dy)
}

// cover mixes a colour into a pixel, of which some part is covered.
func (c *pixels) cover(x, y int, part float64, of ink) {
	if part <= 0 {
		return
	}
	part = min(part, 1)
	below, above := c.image.RGBAAt(x, y), colourOf(inks()[of].light)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + part*(float64(b)-float64(a)))) }
	c.image.SetRGBA(x, y, color.RGBA{mix(below.R, above.R), mix(below.G, above.G), mix(below.B, above.B), 255})
}

// colourOf reads #rrggbb.
func colourOf(hex string) (c color.RGBA) {
	c.A = 255
	_, _ = fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B) // inks are written so
	return c
}

const strokeWide = 1.5

func (c *pixels) line(points []place, of ink, dashed bool) {
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		if !dashed {
			c.stroke(a, b, strokeWide, of)
			continue
		}
		c.dashes(a, b, of)
	}
}

func (c *pixels) dashes(a, b place, of ink) {
	const dash, gap = 6.0, 4.0
	length := math.Hypot(b.x-a.x, b.y-a.y)
	at := func(d float64) place { return place{a.x + (b.x-a.x)*d/length, a.y + (b.y-a.y)*d/length} }
	for d := 0.0; d < length; d += dash + gap {
		c.stroke(at(d), at(min(d+dash, length)), strokeWide, of)
	}
}

func (c *pixels) dot(at place, of ink, small bool) { c.stroke(at, at, 2*radius(small), of) }

// How letters are drawn: dots that are neighbours are joined by strokes.
const (
	dotApart   = 1.3 // px
	letterGap  = 1.0 // dots
	letterWith = 1.2 // px that strokes are wide
)

func (c *pixels) letter(r rune) letter {
	if l, ok := c.letters[r]; ok {
		return l
	}
	return c.letters['?']
}

func (c *pixels) width(text string) (px float64) {
	for _, r := range text {
		px += (float64(c.letter(r).wide()) + letterGap) * dotApart
	}
	return px
}

func (c *pixels) text(at place, text string, a align, of ink) {
	along := map[align]float64{middle: -0.5, end: -1, upwards: -0.5}[a] * c.width(text)
	put := func(x, y float64) place { // along the line, and above it
		if a == upwards {
			return place{at.x - y, at.y - along - x}
		}
		return place{at.x + along + x, at.y - y}
	}
	x := 0.0
	for _, r := range text {
		l := c.letter(r)
		for row := range l {
			for column := range l.wide() {
				c.joined(l, column, row, x, put, of)
			}
		}
		x += (float64(l.wide()) + letterGap) * dotApart
	}
}

// joined draws a dot of a letter, and its strokes to the neighbours behind it; to those
// across, where no other way leads there.
func (c *pixels) joined(l letter, column, row int, x float64, put func(x, y float64) place, of ink) {
	if !l.dot(column, row) {
		return
	}
	at := func(column, row int) place {
		return put(x+float64(column)*dotApart, float64(letterBase-1-row)*dotApart)
	}
	from, alone := at(column, row), true
	for _, d := range [][2]int{{1, 0}, {0, 1}, {1, 1}, {-1, 1}} {
		across := d[0] != 0 && d[1] != 0
		if !l.dot(column+d[0], row+d[1]) || across && (l.dot(column+d[0], row) || l.dot(column, row+d[1])) {
			continue
		}
		c.stroke(from, at(column+d[0], row+d[1]), letterWith, of)
		alone = false
	}
	if alone {
		c.stroke(from, from, letterWith, of)
	}
}
