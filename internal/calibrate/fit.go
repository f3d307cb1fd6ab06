package calibrate

import (
	"errors"
	"math"

	"atys.dev/atys/internal/prune"
)

// Point is what pruning to one level was measured to do: by how many percent shares
// are off, or how many percent of the time are saved.
type Point struct{ Level, Value float64 }

// ErrFewPoints says that a curve could be laid through points in many ways.
var ErrFewPoints = errors.New("too few levels of pruning were measured")

// Line is A*p + B: the paper's model of the time that is saved.
type Line struct{ A, B float64 }

// At is its value at a level.
func (l Line) At(level float64) float64 { return l.A*level + l.B }

// FitLine fits a line by least squares.
func FitLine(points []Point) (Line, error) {
	if levels(points) < 2 {
		return Line{}, ErrFewPoints
	}
	base, slope, _ := regress(points, func(level float64) float64 { return level })
	return Line{A: slope, B: base}, nil
}

// Log is A*log(B*p + C): the paper's model of the error.
type Log struct{ A, B, C float64 }

// At is its value at a level.
func (l Log) At(level float64) float64 { return l.A * math.Log(l.B*level+l.C) }

// Solve is the lowest level, which prunes most, at which an error is not exceeded;
// none if it is at all of them.
func (l Log) Solve(epsilon float64) (level float64, ok bool) {
	switch {
	case l.At(prune.MinLevel) <= epsilon:
		return prune.MinLevel, true
	case !(l.At(prune.MaxLevel) <= epsilon): // nor is NaN
		return 0, false
	}
	return (math.Exp(epsilon/l.A) - l.C) / l.B, true
}

// FitLog fits a logarithm by least squares: of its three parameters one says how much
// it bends, and is searched for; given that, the others are those of a line.
func FitLog(points []Point) (Log, error) {
	if levels(points) < 3 {
		return Log{}, ErrFewPoints
	}
	const least, most, step = -4.0, 10.0, 0.05
	bend, squares := 0.0, math.Inf(1)
	for at := least; at <= most; at += step {
		if s := squaresAt(points, at); s < squares {
			bend, squares = at, s
		}
	}
	return logOf(points, narrow(func(at float64) float64 { return squaresAt(points, at) }, bend-step, bend+step)), nil
}

// span is how many levels there are to choose from.
const span = prune.MaxLevel - prune.MinLevel

// bent is 0 at the highest level and 1 at the lowest, in between a logarithm that is
// above a straight line where it bends, and on it where bend is 0:
// log(1 + (e^bend-1)*d) / bend, d being the part of all levels that are above.
func bent(bend float64) func(level float64) float64 {
	return func(level float64) float64 {
		above := (prune.MaxLevel - level) / span
		if math.Abs(bend) < 1e-9 {
			return above
		}
		return math.Log1p(math.Expm1(bend)*above) / bend
	}
}

func squaresAt(points []Point, bend float64) float64 {
	_, _, squares := regress(points, bent(bend))
	return squares
}

// logOf writes the curve of one bend as the paper does.
func logOf(points []Point, bend float64) Log {
	const straight, mostExponent = 1e-4, 600
	if math.Abs(bend) < straight { // a line has no such form, but nearly
		bend = math.Copysign(straight, bend)
	}
	base, rise, _ := regress(points, bent(bend))
	if !(math.Abs(base*bend) < mostExponent*math.Abs(rise)) { // it rises by nothing
		return Log{A: base, C: math.E}
	}
	scale, growth := math.Exp(base*bend/rise), math.Expm1(bend)/span
	return Log{A: rise / bend, B: -growth * scale, C: scale * (1 + prune.MaxLevel*growth)}
}

// regress fits base + slope*x by least squares, and tells what is left of them.
func regress(points []Point, x func(level float64) float64) (base, slope, squares float64) {
	n := float64(len(points))
	var meanX, meanY float64
	for _, p := range points {
		meanX, meanY = meanX+x(p.Level)/n, meanY+p.Value/n
	}
	var xx, xy float64
	for _, p := range points {
		dx := x(p.Level) - meanX
		xx, xy = xx+dx*dx, xy+dx*(p.Value-meanY)
	}
	slope = xy / xx
	base = meanY - slope*meanX
	for _, p := range points {
		off := p.Value - base - slope*x(p.Level)
		squares += off * off
	}
	return base, slope, squares
}

// narrow finds where a function that has one valley between two places is least, by
// the golden section.
func narrow(f func(float64) float64, low, high float64) float64 {
	const rounds = 60
	golden := (math.Sqrt(5) - 1) / 2
	a, b := high-golden*(high-low), low+golden*(high-low)
	atA, atB := f(a), f(b)
	for range rounds {
		if atA < atB {
			high, b, atB = b, a, atA
			a = high - golden*(high-low)
			atA = f(a)
		} else {
			low, a, atA = a, b, atB
			b = low + golden*(high-low)
			atB = f(b)
		}
	}
	return (low + high) / 2
}

func levels(points []Point) int {
	distinct := map[float64]bool{}
	for _, p := range points {
		distinct[p.Level] = true
	}
	return len(distinct)
}

// Goodness is by how many percent a fit is off what was measured, in the mean (MAPE),
// as the paper tells it: NaN where nothing was measured but zeros.
type Goodness struct {
	All      float64
	BelowP99 float64 // of the levels below, since errors near nothing are large parts of it
}

// GoodnessOf compares a fit with its points.
func GoodnessOf(points []Point, at func(level float64) float64) Goodness {
	var below []Point
	for _, p := range points {
		if p.Level < 99 {
			below = append(below, p)
		}
	}
	return Goodness{All: meanOff(points, at), BelowP99: meanOff(below, at)}
}

func meanOff(points []Point, at func(level float64) float64) float64 {
	sum, n := 0.0, 0.0
	for _, p := range points {
		if p.Value != 0 {
			sum, n = sum+math.Abs(at(p.Level)/p.Value-1), n+1
		}
	}
	return 100 * sum / n
}

// Pruning is what the fits say of a service.
type Pruning struct {
	Saved      []Point // percent of the time, as measured; none: it was not
	Time       Line
	TimeFit    Goodness
	Off        []Point // MAPE of the largest functions, in percent, as measured
	Error      Log
	ErrorFit   Goodness
	Epsilon    float64 // percent, that MAPE may be
	Level      float64 // the lowest that the fit allows
	Achievable bool    // there is one
}

// FitPruning fits what was measured, and solves for the most pruning that an error allows.
func FitPruning(saved, off []Point, epsilon float64) (p *Pruning, err error) {
	p = &Pruning{Saved: saved, Off: off, Epsilon: epsilon}
	if len(saved) > 0 {
		if p.Time, err = FitLine(saved); err != nil {
			return nil, err
		}
		p.TimeFit = GoodnessOf(saved, p.Time.At)
	}
	if p.Error, err = FitLog(off); err != nil {
		return nil, err
	}
	p.ErrorFit = GoodnessOf(off, p.Error.At)
	p.Level, p.Achievable = p.Error.Solve(epsilon)
	return p, nil
}

// Allowed is the level to prune to, in tenths of a percent: what the fit allows, or,
// where the recording is off by more there than it may be, the lowest level that was
// measured and is not; 100 is not to prune. measure tells by how many percent shares
// are off at a level.
func (p *Pruning) Allowed(measure func(level float64) (off float64, err error)) (level, off float64, err error) {
	if p.Achievable {
		const tenths = 10
		level = math.Ceil(p.Level*tenths-1e-9) / tenths
		if off, err = measure(level); err != nil || off <= p.Epsilon {
			return level, off, err
		}
	}
	level, off = prune.MaxLevel, 0
	for _, point := range p.Off {
		if point.Value <= p.Epsilon && point.Level < level {
			level, off = point.Level, point.Value
		}
	}
	return level, off, nil
}
