package freq

import "math"

// overdispersion is the extra-binomial variance D of windows of a program that does the
// same: a share p of a window of n samples has variance p(1-p)(1/n + D). One over D is the
// largest effective number of samples that a window can have for another. D is estimated by
// the method of moments, as between-study variances are (DerSimonian and Laird, Controlled
// Clinical Trials 7, 1986), with a normal prior.
type overdispersion struct {
	prior, priorDeviation float64
	weight, sum           float64 // of what was measured, by its precision
	least                 float64 // what differs by less is the same
}

// unknown is the prior before anything is known: shares of a half vary by one percent of
// the time, or less, or twice as much.
var unknown = priorOf(1.0/2500, 1)

// priorOf has no measurements yet. The deviation is relative to d.
func priorOf(d, deviation float64) overdispersion {
	return overdispersion{prior: d, priorDeviation: d * deviation}
}

// atLeast sets the smallest value that is estimated.
func (s overdispersion) atLeast(least float64) overdispersion {
	if s.least = least; s.prior < least {
		s.priorDeviation *= least / s.prior
		s.prior = least
	}
	return s
}

// ofOne is the prior of one function, if this is the estimate of them all.
func (s *overdispersion) ofOne() overdispersion {
	d, _ := s.value()
	return priorOf(d, 1).atLeast(s.least)
}

// value is the posterior mean of D, and deviation its standard deviation.
func (s *overdispersion) value() (d, deviation float64) {
	p := 1 / (s.priorDeviation * s.priorDeviation)
	return max((s.prior*p+s.sum)/(p+s.weight), s.least), 1 / math.Sqrt(p+s.weight)
}

// bounds are those of an 80% interval of D.
func (s *overdispersion) bounds() (low, high float64) {
	const quantile = 1.28
	d, deviation := s.value()
	return max(d-quantile*deviation, 0), d + quantile*deviation
}

// learn takes in how much more than chance a window differs from those before it,
// which are of the same stretch: by so many times, on so many degrees of freedom.
func (s *overdispersion) learn(times, freedom float64, window, before tally) {
	if !(freedom > 0) {
		return
	}
	d, _ := s.value()
	sampling := 1/window.n + 1/before.n
	both := 1 + before.squares/(before.n*before.n)
	found := (times - 1) * sampling / both
	deviation := (sampling/both + d) * math.Sqrt(2/freedom)
	s.weight += 1 / (deviation * deviation)
	s.sum += found / (deviation * deviation)
}

// learnFrom learns by how much functions differ, all of which count the same.
func (s *overdispersion) learnFrom(window, before tally) {
	c := compare(window, before)
	s.learn(c.g/c.freedom, c.freedom, window, before)
}

// overdispersions are two estimates. Statements about any function must hold for those that
// vary most in proportion, such as a compiler that is at work now and then; the precision
// of shares is decided by the large functions.
type overdispersions struct {
	any   overdispersion // all functions count the same
	large overdispersion // each counts by its variance
}

func (s *overdispersions) learn(window, before tally) {
	s.any.learnFrom(window, before)
	times, freedom := distance(window, before)
	s.large.learn(times, freedom, window, before)
}

// inherited is the prior of the next stretch: windows of one service vary alike.
func (s *overdispersions) inherited() overdispersions {
	half := func(s *overdispersion) overdispersion {
		d, _ := s.value()
		return priorOf(d, 0.5)
	}
	return overdispersions{half(&s.any), half(&s.large)}
}

// doubled is the same, where windows vary by more than the prior.
func (s *overdispersions) doubled() overdispersions {
	twice := func(s *overdispersion) overdispersion {
		d, _ := s.value()
		return priorOf(2*d, 1)
	}
	return overdispersions{twice(&s.any), twice(&s.large)}
}

func (s overdispersions) atLeast(least float64) overdispersions {
	return overdispersions{s.any.atLeast(least), s.large.atLeast(least)}
}

// distance compares two tallies by the sum of squared differences of shares, as a multiple
// of what sampling explains, with the effective degrees of freedom (Satterthwaite,
// Biometrics Bulletin 2, 1946).
func distance(a, b tally) (times, freedom float64) {
	if a.n == 0 || b.n == 0 {
		return 0, 0
	}
	var apart, chance, squares float64
	for i := range a.counts {
		p, q := a.counts[i]/a.n, b.counts[i]/b.n
		mean := (a.counts[i] + b.counts[i]) / (a.n + b.n)
		variance := mean * (1 - mean)
		apart += (p - q) * (p - q)
		chance += variance
		squares += variance * variance
	}
	if chance == 0 {
		return 0, 0
	}
	return apart / (chance * (1/a.n + 1/b.n)), chance * chance / squares
}

// tally is samples by cell, of one window or of many.
type tally struct {
	counts  []float64
	n       float64
	squares float64 // sum of the windows' n squared
}

func tallyOf(counts []float64) tally {
	t := tally{counts: counts}
	for _, x := range counts {
		t.n += x
	}
	t.squares = t.n * t.n
	return t
}

// add is for tallies that nobody else holds.
func (t *tally) add(o tally) {
	if o.counts == nil {
		return
	}
	if t.counts == nil {
		t.counts = make([]float64, len(o.counts))
	}
	for i, x := range o.counts {
		t.counts[i] += x
	}
	t.n += o.n
	t.squares += o.squares
}

func (t *tally) subtract(o tally) {
	for i, x := range o.counts {
		t.counts[i] = max(t.counts[i]-x, 0)
	}
	t.n -= o.n
	t.squares -= o.squares
}

// worth is the tally in samples of a program whose windows do not differ by themselves.
func (t tally) worth(d float64) tally {
	if t.n == 0 {
		return t
	}
	scale := 1 / (1 + d*t.squares/t.n)
	w := tally{counts: make([]float64, len(t.counts)), n: t.n * scale, squares: t.squares * scale * scale}
	for i, x := range t.counts {
		w.counts[i] = x * scale
	}
	return w
}

// comparison is how much two tallies differ: g, the statistic of a G-test, is chi-squared
// with that many degrees of freedom where they are of the same program.
type comparison struct{ g, freedom float64 }

// leastExpected is how many samples a cell is to have on either side: with fewer, g is
// not chi-squared, and the cell is counted with the rest.
const leastExpected = 5

// compare compares two tallies by the same cells, of which the last is the rest.
func compare(a, b tally) (c comparison) {
	if a.n == 0 || b.n == 0 {
		return c
	}
	n := a.n + b.n
	smaller := min(a.n, b.n) / n
	var restA, restB float64
	last := len(a.counts) - 1
	for i := range a.counts {
		x, y := a.counts[i], b.counts[i]
		if i == last || (x+y)*smaller < leastExpected {
			restA, restB = restA+x, restB+y
			continue
		}
		c.g += cellG(x, a.n, y, b.n)
		c.freedom++
	}
	if restA+restB > 0 {
		c.g += cellG(restA, a.n, restB, b.n)
		c.freedom++
	}
	c.freedom = max(c.freedom-1, 0)
	c.g = max(c.g, 0)
	return c
}

// cellG is one cell's part of the G statistic.
func cellG(x, n, y, m float64) (g float64) {
	share := (x + y) / (n + m)
	if x > 0 {
		g += 2 * x * math.Log(x/(n*share))
	}
	if y > 0 {
		g += 2 * y * math.Log(y/(m*share))
	}
	return g
}
