package calibrate

import (
	"errors"
	"math"
	"testing"
)

// The paper's fits, of Specjbb2015 (5.3).
var (
	paperT    = Line{A: -1.0614, B: 114.44}
	paperMAPE = Log{A: 984.368, B: -0.001, C: 1.099}
)

// figure6 are the levels of the paper's Figure 6.
var figure6 = []float64{80, 85, 90, 95, 99, 99.9}

func pointsOf(at func(float64) float64) (points []Point) {
	for _, level := range figure6 {
		points = append(points, Point{level, at(level)})
	}
	return points
}

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

// TestFitsOfThePaper evaluates its formulas and fits them back.
func TestFitsOfThePaper(t *testing.T) {
	line, err := FitLine(pointsOf(paperT.At))
	if err != nil || !near(line.A, paperT.A, 1e-9) || !near(line.B, paperT.B, 1e-9) {
		t.Errorf("%+v, %v; want %+v", line, err, paperT)
	}
	log, err := FitLog(pointsOf(paperMAPE.At))
	if err != nil || !near(log.A, paperMAPE.A, 1e-4) || !near(log.B, paperMAPE.B, 1e-4) || !near(log.C, paperMAPE.C, 1e-4) {
		t.Errorf("%+v, %v; want %+v", log, err, paperMAPE)
	}
	if g := GoodnessOf(pointsOf(paperMAPE.At)[:4], log.At); g.All > 1e-6 || g.BelowP99 > 1e-6 {
		t.Errorf("off by %+v", g)
	}
	// "we can thus calculate p >= (e^(epsilon/984.368) - 1.099) / -0.001"
	for _, epsilon := range []float64{1, 5, 12} {
		want := (math.Exp(epsilon/984.368) - 1.099) / -0.001
		if got, ok := log.Solve(epsilon); !ok || !near(got, want, 1e-6) {
			t.Errorf("an error of %g allows P%g, %v; want P%g", epsilon, got, ok, want)
		}
	}
}

// TestFitLogShapes fits curves that bend little, much, either way, and not at all.
func TestFitLogShapes(t *testing.T) {
	for name, at := range map[string]func(float64) float64{
		"much":          Log{A: 2, B: -0.3, C: 30.5}.At,
		"the other way": Log{A: -5, B: 0.1, C: -7.9}.At,
		"a line":        func(p float64) float64 { return 0.7 * (100 - p) },
		"falling":       func(p float64) float64 { return 0.1*p - 3 },
		"constant":      func(float64) float64 { return 3 },
		"nothing":       func(float64) float64 { return 0 },
	} {
		points := pointsOf(at)
		log, err := FitLog(points)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, p := range points {
			if got := log.At(p.Level); !(math.Abs(got-p.Value) < 1e-3) {
				t.Errorf("%s: %+v is %g at P%g, want %g", name, log, got, p.Level, p.Value)
			}
		}
	}
}

// TestSolve allows the more pruning the larger the error may be, and none where all
// of it is too large.
func TestSolve(t *testing.T) {
	last := 101.0
	for epsilon := 0.0; epsilon < 25; epsilon += 0.25 {
		level, ok := paperMAPE.Solve(epsilon)
		if !ok || level > last || level < 80 {
			t.Errorf("an error of %g allows P%g, %v after P%g", epsilon, level, ok, last)
		}
		if ok && paperMAPE.At(level) > epsilon+1e-9 {
			t.Errorf("P%g is off by %g, more than %g", level, paperMAPE.At(level), epsilon)
		}
		last = level
	}
	if last != 80 {
		t.Errorf("an error above all allows P%g", last)
	}
	if level, ok := paperMAPE.Solve(-2); ok {
		t.Errorf("an error below all allows P%g", level)
	}
	if level, ok := (Log{A: 3, C: math.E}).Solve(2); ok {
		t.Errorf("a constant error above it allows P%g", level)
	}
}

func TestGoodnessLeavesZerosOut(t *testing.T) {
	points := []Point{{80, 10}, {90, 5}, {99, 1}, {99.9, 0}}
	g := GoodnessOf(points, func(level float64) float64 { return map[float64]float64{80: 11, 90: 5, 99: 2, 99.9: 1}[level] })
	if !near(g.All, 100*(0.1+0+1)/3, 1e-9) || !near(g.BelowP99, 5, 1e-9) {
		t.Errorf("%+v", g)
	}
	if g := GoodnessOf([]Point{{80, 0}}, paperMAPE.At); !math.IsNaN(g.All) {
		t.Errorf("of zeros it is %+v", g)
	}
}

func TestFewPoints(t *testing.T) {
	same := []Point{{80, 1}, {80, 2}, {80, 3}}
	if _, err := FitLine(same); !errors.Is(err, ErrFewPoints) {
		t.Errorf("a line: %v", err)
	}
	if _, err := FitLog(append(same, Point{90, 1})); !errors.Is(err, ErrFewPoints) {
		t.Errorf("a logarithm: %v", err)
	}
}

// TestAllowed proposes what the fit allows, unless the recording says otherwise.
func TestAllowed(t *testing.T) {
	off := pointsOf(paperMAPE.At)[:5]
	saved := pointsOf(paperT.At)
	for name, c := range map[string]struct {
		epsilon  float64
		measured float64 // where the fit says so
		level    float64
	}{
		"as the fit says": {5, 4.9, 94}, "off by more than the fit says": {5, 5.1, 95}, "as little as nothing": {0, 0, 99}, "more than all": {30, 20, 80}, "none": {-1, 0, 100},
	} {
		p, err := FitPruning(saved, off, c.epsilon)
		if err != nil {
			t.Fatal(err)
		}
		level, _, err := p.Allowed(func(float64) (float64, error) { return c.measured, nil })
		if err != nil || math.Abs(level-c.level) > 1e-9 {
			t.Errorf("%s: P%g, %v; want P%g", name, level, err, c.level)
		}
	}
	if p, err := FitPruning(nil, off, 1); err != nil || p.Time != (Line{}) {
		t.Errorf("without times: %+v, %v", p, err)
	}
	if _, err := FitPruning(saved[:1], off, 1); !errors.Is(err, ErrFewPoints) {
		t.Errorf("of one level: %v", err)
	}
}

// TestFitFailed refuses a fit that is off by what it describes.
func TestFitFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		fit  Goodness
		want bool
	}{
		{"a good one", Goodness{All: 12, BelowP99: 3}, false},
		{"one that is off where next to nothing is left out", Goodness{All: 400, BelowP99: 8}, false},
		{"that of a recording of 12 s", Goodness{All: 1012.82, BelowP99: 1012.82}, true},
		{"of zeros below P99", Goodness{All: 300, BelowP99: math.NaN()}, true},
		{"of zeros alone", Goodness{All: math.NaN(), BelowP99: math.NaN()}, false},
	} {
		if got := fitFailed(c.fit); got != c.want {
			t.Errorf("%s: failed: %v, want %v", c.name, got, c.want)
		}
	}
}
