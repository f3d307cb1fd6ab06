package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"strings"
	"testing"
)

// sampleChart has every style, both kinds of axis, and values that have no place.
func sampleChart() *Chart {
	return &Chart{Title: "Error against cost: 0.5% <of what> is profiled", X: Axis{"samples a second of CPU time (Hz)", true}, Y: Axis{"error, points", false}, Series: []Series{
		{Name: "candidates", Quiet: true, Points: []Point{{1, 5}, {20, 3}, {999, 0.5}, {0, 1}, {-1, 1}, {5, math.NaN()}}},
		{Name: "frontier", Style: Steps, Points: []Point{{1, 4}, {30, 2}, {400, 0.2}}},
		{Name: "wanted", Style: Dashes, Points: []Point{{1, 1}, {999, 1}}},
		{Name: "fit", Style: Line, Points: Sampled(1, 999, func(x float64) float64 { return 5 / math.Sqrt(x) })},
		{Points: []Point{{50, 4}}},
	}}
}

// TestSVG is well formed, whatever the words are, and shows what has a place.
func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(&b, sampleChart(), &Chart{Title: "empty & still there"}); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	dots := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
			dots++
		}
	}
	if dots != 3+1+1 { // of candidates, their name, and the last one
		t.Errorf("%d dots", dots)
	}
	for _, bad := range []string{"NaN", "Inf", "<of"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("it has %s", bad)
		}
	}
}

// TestPNG has the size of all charts, and every colour of theirs.
func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := PNG(&b, sampleChart(), sampleChart()); err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("ATYS_PLOT"); path != "" { // to look at it
		if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	i, err := png.Decode(&b)
	if err != nil || i.Bounds().Dx() != wide*density || i.Bounds().Dy() != 2*high*density {
		t.Fatalf("%v: %v", err, i.Bounds())
	}
	seen := map[color.Color]bool{}
	for y := range i.Bounds().Dy() {
		for x := range i.Bounds().Dx() {
			seen[color.RGBAModel.Convert(i.At(x, y))] = true
		}
	}
	for n, s := range inks()[:int(inkSeries)+4] {
		if !seen[colourOf(s.light)] {
			t.Errorf("colour %d, %s, is nowhere", n, s.light)
		}
	}
}

// TestLetters are all there, each unlike the others.
func TestLetters(t *testing.T) {
	all, seen := letters(), map[string]rune{}
	for r := rune(firstLetter); r <= lastLetter; r++ {
		text := strings.Join(all[r], "/")
		if other, ok := seen[text]; ok || len(all[r]) != letterHigh {
			t.Errorf("%q is like %q: %s", r, other, text)
		}
		seen[text] = r
	}
}

// TestTicks are round, few, and within what is shown.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis   Axis
		values []float64
	}{
		{Axis{}, []float64{0, 100}}, {Axis{}, []float64{80, 99.9}}, {Axis{}, []float64{-0.003, 0.0007}}, {Axis{}, []float64{5}}, {Axis{}, nil},
		{Axis{Log: true}, []float64{1, 999}}, {Axis{Log: true}, []float64{0.0002, 3e9}}, {Axis{Log: true}, []float64{7}},
	} {
		s := c.axis.scaleOf(c.values, 0, 100)
		ticks := s.ticks()
		if len(ticks) < 2 || len(ticks) > 15 {
			t.Errorf("%v: ticks %v", c.values, ticks)
		}
		for _, v := range append(ticks, c.values...) {
			if at := s.at(v); !(at >= -1e-6 && at <= 100+1e-6) {
				t.Errorf("%v: %g lies at %g", c.values, v, at)
			}
		}
	}
}
