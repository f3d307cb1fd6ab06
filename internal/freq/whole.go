package freq

import "slices"

// estimate is a share, of which the variance is p(1-p) times its spread and, where a
// change was within, moves more.
type estimate struct{ share, spread, moves float64 }

func (e estimate) variance() float64 {
	return max(e.share*(1-e.share)*e.spread+e.moves, 0)
}

// partial is a piece's estimate: its spread is what is its own, beside that of the levels
// that it goes by, each as far as it does. Other pieces go by the same ones.
type partial struct {
	estimate
	heeds [2]heed
}

// heed is how far something counts, by its number: a piece's level, a group's mean.
type heed struct {
	of   int
	part float64
}

// heeded adds to how far one does.
func heeded(all []heed, of int, part float64) []heed {
	for i := range all {
		if all[i].of == of {
			all[i].part += part
			return all
		}
	}
	return append(all, heed{of, part})
}

// wholes estimates windows.
func (p *Pooled) wholes(own [][]float64) []estimate {
	if p.references != nil {
		return p.substituted(own)
	}
	a := newAbout(p, slices.Concat(own...))
	all := make([]estimate, len(own))
	const hidden = 2 // what chance may do to the window's own samples, and as much again that it hides
	for from, to := 0, 0; from < len(p.pieces); from = to {
		window := p.pieces[from].window
		for to = from; to < len(p.pieces) && p.pieces[to].window == window; {
			to++
		}
		of := p.parts[window]
		all[window] = a.whole(from, to)
		if slices.Contains(p.drifting[of.from:of.to], true) {
			all[window].spread = max(all[window].spread, hidden/sum(a.n[of.from:of.to]))
		}
	}
	return all
}

// whole puts a window together. Each piece counts by its samples.
func (a *about) whole(from, to int) (e estimate) {
	partials, weights := make([]partial, 0, to-from), a.weights(from, to)
	var heeds []heed
	for i := from; i < to; i++ {
		p, of := a.estimate(i), weights[i-from]
		partials = append(partials, p)
		e.share += of * p.share
		e.spread += of * of * p.spread
		e.moves += of * of * p.moves
		for _, h := range p.heeds {
			heeds = heeded(heeds, h.of, of*h.part)
		}
	}
	all := 0.0
	for _, of := range a.pieces[from:to] {
		all += of.n
	}
	for i, p := range partials { // how much of the window each piece was is known by samples
		e.moves += weights[i] * (p.share - e.share) * (p.share - e.share) / all
	}
	a.addLevels(&e, heeds)
	e.share, e.spread = min(e.share, 1), min(e.spread, 1/all)
	return e
}

// weights are how much of a window each of its pieces is.
func (a *about) weights(from, to int) []float64 {
	parts := a.parts[a.pieces[from].window]
	n := evened(a.n[parts.from:parts.to])
	weights, all := make([]float64, to-from), 0.0
	for i, of := range a.pieces[from:to] {
		for _, part := range a.places[of.from:of.to] {
			weights[i] += n[part-parts.from]
		}
		all += weights[i]
	}
	for i := range weights {
		weights[i] /= all
	}
	return weights
}

// evened are samples of parts of one length, less what chance alone has them differ by:
// most programs use as much time in one second as in the next. What is left of how they
// differ is what their variance has beyond that of counts (James and Stein). Parts
// without samples stay without: nothing is known of them.
func evened(n []float64) []float64 {
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
	real := max(1-mean*(some-3)/squares, 0)
	all := make([]float64, len(n))
	for i, x := range n {
		if x > 0 {
			all[i] = mean + real*(x-mean)
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
