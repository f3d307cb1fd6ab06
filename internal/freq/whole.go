package freq

import "slices"

// estimate is a share, of which the variance is p(1-p) times its spread and, where a
// change was within, moves more.
type estimate struct{ share, spread, moves float64 }

func (e estimate) variance() float64 {
	return max(e.share*(1-e.share)*e.spread+e.moves, 0)
}

// partial is a part's estimate: its spread is that of what is its own, and of the means
// that it goes by, each as far as it does. Other parts go by the same ones.
type partial struct {
	estimate
	means [2]heed
}

// heed is how far a mean counts.
type heed struct {
	group int
	part  float64
}

// wholes estimates windows.
func (p *Pooled) wholes(own [][]float64) []estimate {
	if p.references != nil {
		return p.substituted(own)
	}
	a := newAbout(p, slices.Concat(own...))
	partials := a.partials()
	all := make([]estimate, len(own))
	const hidden = 2 // what chance may do to the window's own samples, and as much again that it hides
	for i, of := range p.parts {
		all[i] = a.whole(partials[of.from:of.to], a.n[of.from:of.to])
		if slices.Contains(p.drifting[of.from:of.to], true) {
			all[i].spread = max(all[i].spread, hidden/sum(a.n[of.from:of.to]))
		}
	}
	return all
}

// whole puts a window together. Each part counts by its samples.
func (a *about) whole(parts []partial, n []float64) (e estimate) {
	all := sum(n)
	if all == 0 {
		return e
	}
	n = evened(n)
	heeded := map[int]float64{}
	for i, p := range parts {
		of := n[i] / all
		e.share += of * p.share
		e.spread += of * of * p.spread
		e.moves += of * of * p.moves
		for _, h := range p.means {
			heeded[h.group] += of * h.part
		}
	}
	for i, p := range parts { // how much of the window each part was is known by samples
		e.moves += n[i] / all * (p.share - e.share) * (p.share - e.share) / all
	}
	for group, part := range heeded {
		if part > 0 {
			e.spread += part * part / a.groups[group].n
		}
	}
	e.spread = min(e.spread, 1/all)
	return e
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
