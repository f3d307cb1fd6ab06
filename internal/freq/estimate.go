package freq

import "slices"

// estimate is a share p with its variance: p(1-p) times relVariance, which is one over the
// effective number of samples, and extra where a change was within.
type estimate struct{ share, relVariance, extra float64 }

func (e estimate) variance() float64 {
	return max(e.share*(1-e.share)*e.relVariance+e.extra, 0)
}

// partial is a piece's estimate. Its relVariance is its own, without that of the levels
// that contribute to it, because they contribute to other pieces too.
type partial struct {
	estimate
	contributions [2]contribution
}

// contribution is the weight of a piece's level, or of a group's mean, in an estimate.
type contribution struct {
	index  int
	weight float64
}

// addContribution adds to the weight of one.
func addContribution(all []contribution, index int, weight float64) []contribution {
	for i := range all {
		if all[i].index == index {
			all[i].weight += weight
			return all
		}
	}
	return append(all, contribution{index, weight})
}

// wholes estimates windows.
func (p *Pooled) wholes(own [][]float64) []estimate {
	if p.references != nil {
		return p.substituted(own)
	}
	f := newFunctionEstimator(p, slices.Concat(own...))
	all := make([]estimate, len(own))
	const hidden = 2 // what chance may do to the window's own samples, and as much again that it hides
	for from, to := 0, 0; from < len(p.pieces); from = to {
		window := p.pieces[from].window
		for to = from; to < len(p.pieces) && p.pieces[to].window == window; {
			to++
		}
		of := p.parts[window]
		all[window] = f.window(from, to)
		if slices.Contains(p.drifting[of.from:of.to], true) {
			all[window].relVariance = max(all[window].relVariance, hidden/sum(f.n[of.from:of.to]))
		}
	}
	return all
}

// window estimates a window from its pieces, weighted by their samples.
func (f *functionEstimator) window(from, to int) (e estimate) {
	partials, weights := make([]partial, 0, to-from), f.weights(from, to)
	var levels []contribution
	for i := from; i < to; i++ {
		p, of := f.estimate(i), weights[i-from]
		partials = append(partials, p)
		e.share += of * p.share
		e.relVariance += of * of * p.relVariance
		e.extra += of * of * p.extra
		for _, c := range p.contributions {
			levels = addContribution(levels, c.index, of*c.weight)
		}
	}
	all := 0.0
	for _, of := range f.pieces[from:to] {
		all += of.n
	}
	for i, p := range partials { // weights are estimated from samples, too
		e.extra += weights[i] * (p.share - e.share) * (p.share - e.share) / all
	}
	f.addLevels(&e, levels)
	e.share, e.relVariance = min(e.share, 1), min(e.relVariance, 1/all)
	return e
}

// weights are the parts of a window that each of its pieces is.
func (f *functionEstimator) weights(from, to int) []float64 {
	parts := f.parts[f.pieces[from].window]
	n := shrinkToMean(f.n[parts.from:parts.to])
	weights, all := make([]float64, to-from), 0.0
	for i, of := range f.pieces[from:to] {
		for _, part := range f.places[of.from:of.to] {
			weights[i] += n[part-parts.from]
		}
		all += weights[i]
	}
	for i := range weights {
		weights[i] /= all
	}
	return weights
}

// shrinkToMean shrinks the numbers of samples of equally long parts towards their mean by
// what chance alone makes of their differences: most programs use as much time in one
// second as in the next. The factor is the positive-part James-Stein estimator's, with the
// variance of counts (Efron and Morris, "Stein's estimation rule and its competitors",
// JASA 68, 1973). Parts without samples stay without: nothing is known of them.
func shrinkToMean(n []float64) []float64 {
	some := 0.0
	for _, x := range n {
		if x > 0 {
			some++
		}
	}
	mean, squares := sum(n)/some, 0.0
	for _, x := range n {
		if x > 0 {
			squares += (x - mean) * (x - mean)
		}
	}
	if some < 4 || squares == 0 {
		return n
	}
	factor := max(1-mean*(some-3)/squares, 0)
	all := make([]float64, len(n))
	for i, x := range n {
		if x > 0 {
			all[i] = mean + factor*(x-mean)
		}
	}
	return all
}

func sum(all []float64) (sum float64) {
	for _, x := range all {
		sum += x
	}
	return sum
}
