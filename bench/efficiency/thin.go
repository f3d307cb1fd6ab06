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

// rest is the name of time that is in none of the workload's functions.
const rest = "[rest]"

// window is what a policy or an estimate is told of weights by function: as many
// samples as equally weighted ones would be as sure.
func (s *sieve) window(start time.Time, length time.Duration, hertz float64, names []string, weights []float64) freq.Window {
	w := freq.Window{Start: start, Length: length, Hertz: hertz}
	if s.weight == 0 {
		return w
	}
	each := s.weight / s.squares // effective samples of a unit of weight, Kish's
	for i, weight := range weights {
		if weight > 0 {
			w.Functions = append(w.Functions, freq.Function{Name: names[i], N: weight * each})
		}
	}
	return w
}
