package freq

import (
	"math"

	"atys.dev/atys/internal/stats"
)

// Pooled is what windows say of each other: those of one stretch, and of stretches in
// which a function had the same share, vary about one mean. Each is estimated by its own
// samples, by those near it, and by that mean (smoother.go).
//
// A window may be known in parts. Each is pooled by itself, and the window is what its
// parts are: a change then leaves one part that is two things at once, not a window.
type Pooled struct {
	Estimates []Estimate // of each window

	parts    []span    // of each window, in n
	n        []float64 // samples of each part
	segments []segment
	places   []int // of the parts that segments are of, in all
	mixed    map[int]mixture
	drifting []bool // of each part

	pieces         []piece
	seen           [][]int        // those of each segment in which no change was, as far as is known
	slots, windows overdispersion // of parts in a window, and of windows in a stretch: of all functions

	references []int // the window that stands for each, instead: see Substitute
}

// span is [from, to).
type span struct{ from, to int }

// Estimate is what is known of a window beside its shares.
type Estimate struct {
	Final   bool // what comes later changes it little
	Stretch int  // its number, that of the last part; parts in which a change was may have one of their own
}

// Pool pools windows, one after the other, of one service. Those without samples
// have an estimate of nothing.
func Pool(windows []Window, o Options) *Pooled {
	if o.Fill(); !(o.Width > 0) { // of a policy that has none
		o.Width = DefaultWidth
	}
	p := &Pooled{Estimates: make([]Estimate, len(windows))}
	b := pooling{options: o}
	b.windows, p.parts = apart(windows)
	b.read()
	for range 2 { // how much windows differ is known once it is known which are of one stretch
		b.segments = b.cut()
		b.learn()
	}
	b.segments = b.cut()
	b.group()
	b.findMixed()
	p.segments, p.places, p.mixed = b.segments, b.places, b.mixed
	p.learn(&b, times(windows))
	p.drifting = b.drifting(p.parts)
	for i := range b.windows {
		p.n = append(p.n, b.windows[i].N())
	}
	p.tell(b.estimates())
	return p
}

// apart gives the parts of windows, one after the other; one that is not known in parts
// is one.
func apart(windows []Window) (all []Window, parts []span) {
	for _, w := range windows {
		from := len(all)
		if all = append(all, w.Parts...); len(w.Parts) == 0 {
			all = append(all, w)
		}
		parts = append(parts, span{from, len(all)})
	}
	return all, parts
}

// estimates are those of parts.
func (b *pooling) estimates() []Estimate {
	all := make([]Estimate, len(b.windows))
	for number, s := range b.segments {
		final := number+1 < len(b.segments) || b.settled(s)
		for _, place := range b.places[s.from:s.to] {
			all[place] = Estimate{Final: final, Stretch: number}
		}
	}
	return all
}

// tell has each window be as final as its parts, and of the stretch of the last one.
func (p *Pooled) tell(parts []Estimate) {
	for i, of := range p.parts {
		e := &p.Estimates[i]
		for j := of.from; j < of.to; j++ {
			if p.n[j] > 0 {
				*e = parts[j]
			}
		}
	}
}

// settled tells whether enough is known of the last stretch.
func (b *pooling) settled(s segment) bool {
	known := b.groups[s.group].tally
	_, most := b.spread.bounds()
	need := neededFor(known, b.options.Width)
	return known.n >= need && 1/most >= need
}

// Shares are the best estimates of a function's share of each window, and their
// standard deviations, by what it was in each part's own samples. It may be any
// function, and its time with or without what it calls.
func (p *Pooled) Shares(own [][]float64) (shares, deviations []float64) {
	estimates := p.wholes(own)
	shares, deviations = make([]float64, len(own)), make([]float64, len(own))
	for i, e := range estimates {
		shares[i], deviations[i] = e.share, math.Sqrt(e.variance())
	}
	return shares, deviations
}

// rounding is less than any variance is.
const rounding = 1e-20

// Intervals are the same estimates with 95% intervals, which take in what may have
// changed without being found.
func (p *Pooled) Intervals(own [][]float64) []stats.Interval {
	all := make([]stats.Interval, len(own))
	for i, e := range p.wholes(own) {
		n := 0.0
		if e.relVariance > 0 {
			n = 1 / e.relVariance
		}
		if alone := e.share * (1 - e.share); e.extra > rounding {
			n = min(n, alone/(alone*e.relVariance+e.extra))
		}
		all[i] = stats.Proportion(e.share*n, n)
	}
	return all
}
