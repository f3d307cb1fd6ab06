package freq

import (
	"math"

	"atys.dev/atys/internal/stats"
)

// Pooled is what windows say of each other: those of one stretch, and of stretches in
// which a function had the same share, are estimates of one mean, from which each
// differs as little as is known of them all.
type Pooled struct {
	Estimates []Estimate // of each window

	n        []float64 // samples of each window
	spread   spread    // of all functions
	segments []segment
	places   []int // of the windows that segments are of, in all
	mixed    map[int]mixture

	references []int // the window that stands for each, instead: see Substitute
}

// Estimate is what is known of a window beside its shares.
type Estimate struct {
	Final   bool // what comes later changes it little
	Stretch int  // its number; windows in which a change was may have one of their own
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
	p := &Pooled{Estimates: make([]Estimate, len(windows)), spread: b.spread, segments: b.segments, places: b.places, mixed: b.mixed}
	for i := range windows {
		p.n = append(p.n, windows[i].N())
	}
	for number, s := range b.segments {
		final := number+1 < len(b.segments) || b.settled(s)
		for _, place := range b.places[s.from:s.to] {
			p.Estimates[place] = Estimate{Final: final, Stretch: number}
		}
	}
	return p
}

// settled tells whether enough is known of the last stretch.
func (b *pooling) settled(s segment) bool {
	known := b.groups[s.group].tally
	_, most := b.spread.bounds()
	need := neededFor(known, b.options.Width)
	return known.n >= need && 1/most >= need
}

// Shares are the best estimates of a function's share of each window, and their
// standard deviations, by what it was in each window's own samples. It may be any
// function, and its time with or without what it calls.
func (p *Pooled) Shares(own []float64) (shares, deviations []float64) {
	estimates := p.about(own)
	shares, deviations = make([]float64, len(own)), make([]float64, len(own))
	for i, e := range estimates {
		shares[i], deviations[i] = e.share, math.Sqrt(e.variance())
	}
	return shares, deviations
}

// Intervals are the same estimates with 95% intervals, which take in what may have
// changed without being found.
func (p *Pooled) Intervals(own []float64) []stats.Interval {
	all := make([]stats.Interval, len(own))
	for i, e := range p.about(own) {
		n := 0.0
		if e.spread > 0 {
			n = 1 / e.spread
		}
		if variance := e.variance(); e.moves > 0 && variance > 0 {
			n = min(n, e.share*(1-e.share)/variance)
		}
		all[i] = stats.Proportion(e.share*n, n)
	}
	return all
}

// estimate is a share, of which the variance is p(1-p) times its spread and, where a
// change was within the window, moves more.
type estimate struct{ share, spread, moves float64 }

func (e estimate) variance() float64 {
	return max(e.share*(1-e.share)*e.spread+e.moves, 0)
}
