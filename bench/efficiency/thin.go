package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
)

// sieve keeps samples of a window at random, and adds up those that are left.
type sieve struct {
	below   uint64    // of 1<<32: a sample that draws a number below it is kept
	weight  float64   // of those kept
	squares float64   // of the weights
	hot     []float64 // weights by function of the workload, [0] those of none
	self    []float64 // weights by function that was running itself; nil: not wanted
}

// ready has it keep a part of the next window's samples.
func (s *sieve) ready(part float64) {
	s.below = uint64(min(part, 1) * (1 << 32))
	s.weight, s.squares = 0, 0
	clear(s.hot)
	clear(s.self)
}

func (s *sieve) keep(in sample) {
	weight := in.weight()
	s.weight += weight
	s.squares += weight * weight
	s.hot[in.hot()] += weight
	if s.self != nil {
		s.self[in.self()] += weight
	}
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
func (s *sieve) effective() float64 {
	if s.weight == 0 {
		return 0
	}
	return s.weight * s.weight / s.squares
}

// mostTold is of how many functions policies and estimates are told by name; they look
// at ten or so.
const mostTold = 100

// window is what a policy is told: effective samples by function that was running itself.
func (s *sieve) window(start time.Time, length time.Duration, hertz float64, names []string) freq.Window {
	w := freq.Window{Start: start, Length: length, Hertz: hertz}
	each := s.effective() / max(s.weight, 1)
	for i, weight := range s.self {
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
