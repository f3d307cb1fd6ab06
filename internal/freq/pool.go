package freq

import (
	"math"

	"atys.dev/atys/internal/stats"
)

// Pooled is what windows say of each other: those of one stretch, and of stretches in
// which the program did the same, are estimates of one mean, from which each differs
// as little as is known of them all.
type Pooled struct {
	Estimates []Estimate // of each window
	groups    []group
}

// Estimate is how a window's shares are had: from its own, and from groups' means.
type Estimate struct {
	Own     float64 // weight of its own share; those of Of are the rest
	Of      []Part
	Spread  float64 // of a share p the variance is p(1-p) times this,
	Moves   float64 // and, where a change was within the window, the squared difference of its two means times this
	Final   bool    // what comes later changes it little
	Stretch int     // its number; windows in which a change was have one of their own
}

// Part is a group's weight in an estimate.
type Part struct {
	Group  int
	Weight float64
}

// group is windows of one phase.
type group struct {
	windows []int
	worth   []float64 // of each, in samples
	n       float64   // the sum
	tally   tally     // the same by cell
}

func (g *group) mean(shares []float64) (mean float64) {
	for i, w := range g.windows {
		mean += shares[w] * g.worth[i] / g.n
	}
	return mean
}

// Shares are the best estimates of a function's share of each window, and their
// standard deviations, by what it was in each window's own samples. It may be any
// function, and its time with or without what it calls.
func (p *Pooled) Shares(own []float64) (shares, deviations []float64) {
	means := make([]float64, len(p.groups))
	for i := range p.groups {
		means[i] = p.groups[i].mean(own)
	}
	shares, deviations = make([]float64, len(own)), make([]float64, len(own))
	for i, e := range p.Estimates {
		share := e.Own * own[i]
		for _, part := range e.Of {
			share += part.Weight * means[part.Group]
		}
		variance := share * (1 - share) * e.Spread
		if e.Moves > 0 {
			apart := means[e.Of[0].Group] - means[e.Of[1].Group]
			variance += apart * apart * e.Moves
		}
		shares[i], deviations[i] = share, math.Sqrt(max(variance, 0))
	}
	return shares, deviations
}

// Pool pools windows, one after the other, of one service. Those without samples
// have an estimate of nothing.
func Pool(windows []Window, o Options) *Pooled {
	if o.Fill(); o.Width == 0 { // of a policy that has none
		o.Width = DefaultWidth
	}
	b := pooling{options: o, windows: windows}
	b.read()
	for range 2 { // how much windows differ is known once it is known which are of one stretch
		b.segments = b.cut()
		b.learn()
	}
	b.segments = b.cut()
	b.group()
	b.findMixed()
	return b.estimate()
}

// estimate says how each window's shares are had.
func (b *pooling) estimate() *Pooled {
	b.leaveMixedOut()
	p := &Pooled{Estimates: make([]Estimate, len(b.windows)), groups: b.groups}
	d, _ := b.spread.value()
	_, most := b.spread.bounds()
	for number, s := range b.segments {
		for j := s.from; j < s.to; j++ {
			e := &p.Estimates[b.places[j]]
			n := b.tallies[j].n
			e.Stretch = number
			e.Own = n * d / (1 + n*d)
			of := 1 - e.Own
			e.Final = number+1 < len(b.segments) || b.settled(s)
			if m, ok := b.mixed[j]; ok {
				e.Of = []Part{{m.before, of * m.part}, {m.after, of * (1 - m.part)}}
				e.Moves = of * of * m.variance
			} else {
				e.Of = []Part{{s.group, of}}
			}
			e.Spread = b.variance(n, most, e.Of)
		}
	}
	return p
}

// variance is that of a window's estimate, in p(1-p), if windows differ by as much as
// cannot be excluded: drift that nobody would have found is within it.
func (b *pooling) variance(n, d float64, of []Part) float64 {
	if len(of) == 1 && len(b.groups[of[0].Group].windows) == 1 {
		return 1 / n
	}
	own := d / (1 + n*d)
	for _, part := range of {
		own += part.Weight * part.Weight / max(b.groups[part.Group].n, 1)
	}
	return min(own, 1/n)
}

// settled tells whether enough is known of the last stretch.
func (b *pooling) settled(s segment) bool {
	g := &b.groups[s.group]
	_, most := b.spread.bounds()
	need := neededFor(g.tally, b.options.Width)
	return g.n >= need && 1/most >= need
}

// Intervals are the same estimates with 95% intervals, which take in what may have
// changed without being found.
func (p *Pooled) Intervals(own []float64) []stats.Interval {
	shares, deviations := p.Shares(own)
	all := make([]stats.Interval, len(own))
	for i, share := range shares {
		n := 0.0
		if e := p.Estimates[i]; e.Spread > 0 {
			n = 1 / e.Spread
		}
		if variance := share * (1 - share); variance > 0 && deviations[i] > 0 {
			n = min(n, variance/(deviations[i]*deviations[i]))
		}
		all[i] = stats.Proportion(share*n, n)
	}
	return all
}
