package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
)

// sieve keeps samples of a window at random, and adds up those that are left.
type sieve struct {
	below uint64        // of 1<<32: a sample that draws a number below it is kept
	slot  time.Duration // length of a part
	parts []part
}

// part is what is left of a part of a window.
type part struct {
	weight  float64
	squares float64   // of the weights
	hot     []float64 // weights by function of the workload, [0] those of none
	self    []float64 // weights by function that was running itself; nil: not wanted
}

// newSieve is for windows in parts, by so many functions of the workload, and so many
// that run themselves.
func newSieve(window, slot time.Duration, hot, self int) *sieve {
	s := &sieve{slot: slot, parts: make([]part, (window+slot-1)/slot)}
	for i := range s.parts {
		s.parts[i].hot = make([]float64, hot+1)
		if self > 0 {
			s.parts[i].self = make([]float64, self)
		}
	}
	return s
}

// ready has it keep a part of the next window's samples.
func (s *sieve) ready(of float64) {
	s.below = uint64(min(of, 1) * (1 << 32))
	for i := range s.parts {
		p := &s.parts[i]
		p.weight, p.squares = 0, 0
		clear(p.hot)
		clear(p.self)
	}
}

func (s *sieve) keep(in sample) {
	p := &s.parts[in.at()/s.slot]
	weight := in.weight()
	p.weight += weight
	p.squares += weight * weight
	p.hot[in.hot()] += weight
	if p.self != nil {
		p.self[in.self()] += weight
	}
}

// whole is all that is left of the window.
func (s *sieve) whole() (whole part) {
	for i := range s.parts {
		p := &s.parts[i]
		whole.weight += p.weight
		whole.squares += p.squares
		whole.hot = plus(whole.hot, p.hot)
		whole.self = plus(whole.self, p.self)
	}
	return whole
}

// plus adds up; sums that are nil are as long as what is added.
func plus(sums, more []float64) []float64 {
	if sums == nil {
		return slices.Clone(more)
	}
	for i, x := range more {
		sums[i] += x
	}
	return sums
}

// thin pours samples into sieves. Each sample draws one number for all of them: what a
// slow rate keeps, a faster one has too, so that rates are compared on the same luck.
func thin(samples []sample, sieves []*sieve, r *rand.Rand) {
	order := slices.Clone(sieves)
	slices.SortFunc(order, func(a, b *sieve) int { return cmp.Compare(b.below, a.below) })
	for _, in := range samples {
		drawn := uint64(r.Uint32())
		for _, s := range order {
			if drawn >= s.below {
				break
			}
			s.keep(in)
		}
	}
}

// effective is how many equally weighted samples would be as sure as those kept (Kish).
func (p *part) effective() float64 {
	if p.weight == 0 {
		return 0
	}
	return p.weight * p.weight / p.squares
}

// share is that of a function of the workload.
func (p *part) share(function int) float64 {
	return p.hot[function+1] / max(p.weight, math.SmallestNonzeroFloat64)
}

// mostTold is of how many functions policies and estimates are told by name; they look
// at ten or so.
const mostTold = 100

// window is what a policy is told: effective samples by function that was running itself.
func (p *part) window(start time.Time, length time.Duration, hertz float64, names []string) freq.Window {
	w := freq.Window{Start: start, Length: length, Hertz: hertz}
	each := p.effective() / max(p.weight, 1)
	for i, weight := range p.self {
		if weight > 0 {
			w.Functions = append(w.Functions, freq.Function{Name: names[i], N: weight * each})
		}
	}
	slices.SortFunc(w.Functions, func(a, b freq.Function) int { return cmp.Compare(b.N, a.N) })
	if len(w.Functions) > mostTold {
		rest := freq.Function{Name: "[rest]"}
		for _, f := range w.Functions[mostTold:] {
			rest.N += f.N
		}
		w.Functions = append(slices.Clone(w.Functions[:mostTold]), rest)
	}
	return w
}
