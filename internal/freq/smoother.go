package freq

import (
	"math"
	"slices"
)

// process models how a share moves about its mean while the program does the same: as a
// stationary first-order autoregression, AR(1).
type process struct {
	d      float64 // its variance, relative to p(1-p)
	length float64 // correlation length in windows; 0: windows are independent
}

// correlation is that of shares so many windows apart.
func (m process) correlation(windows int) float64 {
	switch {
	case windows == 0:
		return 1
	case m.length == 0:
		return 0
	}
	return math.Exp(-float64(windows) / m.length)
}

// observation is a share measured in a window, with the relative variance of its
// sampling error.
type observation struct {
	window       int
	share, noise float64
}

// level is the smoothed share at an observation. Its variance has three parts: relVariance
// and meanError squared are relative to p(1-p), and errors of the mean are common to all
// levels of one mean; extra is absolute.
type level struct{ share, relVariance, meanError, extra float64 }

// fit is what one process makes of observations.
type fit struct {
	levels        []level
	logLikelihood float64 // but for what all processes have in common
}

// filterState is the state of a Kalman filter whose mean is unknown: the estimated
// deviation if the mean were zero, how much that falls for each unit of the mean, and the
// relative variance of the estimate.
type filterState struct{ atZeroMean, perMean, relVariance float64 }

// smooth fits the process to observations in order of time: a Kalman filter forward, the
// Rauch-Tung-Striebel smoother backward, and generalized least squares for the mean, with
// the likelihood in which the mean is integrated out (Rauch, Tung and Striebel, "Maximum
// likelihood estimates of linear dynamic systems", AIAA Journal 3, 1965; de Jong, "The
// likelihood for a state space model", Biometrika 75, 1988).
func (m process) smooth(seen []observation, variance float64) fit {
	filtered, predicted := make([]filterState, len(seen)), make([]filterState, len(seen))
	var one, both, squares, logs float64
	for i, s := range seen {
		b := filterState{relVariance: m.d}
		if i > 0 {
			rho := m.correlation(s.window - seen[i-1].window)
			last := filtered[i-1]
			b = filterState{rho * last.atZeroMean, rho * last.perMean, rho*rho*last.relVariance + (1-rho*rho)*m.d}
		}
		predicted[i] = b
		innovation, design, total := s.share-b.atZeroMean, 1-b.perMean, b.relVariance+s.noise
		one += design * design / total
		both += design * innovation / total
		squares += innovation * innovation / total
		logs += math.Log(total)
		gain := b.relVariance / total
		filtered[i] = filterState{b.atZeroMean + gain*innovation, b.perMean + gain*design, b.relVariance * (1 - gain)}
	}
	mean, f := both/one, fit{levels: make([]level, len(seen))}
	if variance > 0 {
		f.logLikelihood = -(logs + math.Log(one) + (squares-both*both/one)/variance) / 2
	}
	for i := len(seen) - 1; i >= 0; i-- {
		b := &filtered[i]
		if i+1 < len(seen) {
			next, expected := filtered[i+1], predicted[i+1]
			gain := m.correlation(seen[i+1].window-seen[i].window) * b.relVariance / expected.relVariance
			b.atZeroMean += gain * (next.atZeroMean - expected.atZeroMean)
			b.perMean += gain * (next.perMean - expected.perMean)
			b.relVariance += gain * gain * (next.relVariance - expected.relVariance)
		}
		ofMean := 1 - b.perMean
		f.levels[i] = level{share: b.atZeroMean + ofMean*mean, relVariance: b.relVariance, meanError: ofMean / math.Sqrt(one)}
	}
	return f
}

// candidates are processes that may describe a function, with the logarithms of their
// prior weights.
type candidates struct {
	processes []process
	logPriors []float64
}

// candidatesAbout spreads candidates about the variance that all functions have: some
// functions have many times that, or a fraction of it.
func candidatesAbout(d, least float64) (all candidates) {
	const (
		step, times = 2, 4 // from one to the next; and standard deviation of the prior, as a factor
		most        = 1.0 / 16
		nothing     = 1e-9 // less than that is none
		rare        = 3    // prior odds of independent windows against each correlation length
	)
	for v := max(least, nothing); v < most; v *= step {
		off := math.Log(v/d) / math.Log(times)
		for _, length := range []float64{0, 3, 15} {
			logPrior := -off * off / 2
			if length > 0 {
				logPrior -= math.Log(rare)
			}
			all.processes = append(all.processes, process{v, length})
			all.logPriors = append(all.logPriors, logPrior)
		}
	}
	return all
}

// smooth averages the smoothed levels of all candidates, weighted by posterior
// (Bayesian model averaging: Hoeting et al., Statistical Science 14, 1999), and gives
// their mean variance d.
//
// Variances are averaged with other weights, which prefer processes of large variance (by
// its square) and independent windows: intervals then hold also for programs of which
// little was seen, and for those cut off at an extreme.
func (c candidates) smooth(seen []observation, variance float64) (levels []level, d float64) {
	fits := make([]fit, len(c.processes))
	weights := slices.Clone(c.logPriors)
	for i, m := range c.processes {
		fits[i] = m.smooth(seen, variance)
		weights[i] += fits[i].logLikelihood
	}
	const unsure = 30 // odds against correlation, for variances
	most := slices.Max(weights)
	cautious := make([]float64, len(weights))
	for i, m := range c.processes {
		weights[i] = math.Exp(weights[i] - most)
		cautious[i] = weights[i] * m.d * m.d
		if m.length > 0 {
			cautious[i] /= unsure
		}
	}
	weights, cautious = normal(weights), normal(cautious)
	levels = make([]level, len(seen))
	for i, f := range fits {
		d += weights[i] * c.processes[i].d
		for j, l := range f.levels {
			levels[j].share += weights[i] * l.share
			levels[j].relVariance += cautious[i] * l.relVariance
			levels[j].meanError += cautious[i] * l.meanError * l.meanError
		}
	}
	for j := range levels {
		l := &levels[j]
		l.meanError = math.Sqrt(l.meanError)
		for i, f := range fits {
			off := f.levels[j].share - l.share
			l.extra += weights[i] * off * off
		}
	}
	return levels, d
}
