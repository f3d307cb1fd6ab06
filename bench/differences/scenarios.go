package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/stats"
)

// program is functions that call each other, with the share each has itself.
type program struct {
	calls  stats.Calls
	shares []float64
}

func newProgram(rng *rand.Rand) program {
	return program{stats.DrawCalls(rng, *functions), stats.DrawShares(rng, *functions)}
}

// with gives shares of which the last is so large, and the others what is left.
func (p program) with(last float64) []float64 {
	shares := slices.Clone(p.shares)
	n := len(shares) - 1
	for i := range n {
		shares[i] *= (1 - last) / (1 - p.shares[n])
	}
	shares[n] = last
	return shares
}

// sampled is what was sampled on each function itself.
type sampled struct {
	self  []stats.Sums
	whole stats.Sums
}

func (p program) compare(before, after sampled) ([]*stats.Comparison, stats.Family) {
	was, is := p.calls.Totals(before.self), p.calls.Totals(after.self)
	out := make([]*stats.Comparison, len(was))
	for i := range was {
		c := stats.Compare(stats.Side{Part: was[i], Whole: before.whole}, stats.Side{Part: is[i], Whole: after.whole})
		out[i] = &c
	}
	return out, stats.Judge(out)
}

// scenario is a way to sample the same program twice.
type scenario struct {
	name   string
	sample func(rng *rand.Rand, shares []float64) (before, after sampled)
}

var scenarios = []scenario{
	{"independent samples, 5,000 and 5,000", independent(5000, 5000)},
	{"independent samples, 300 and 20,000", independent(300, 20_000)},
	{"independent samples, 50 and 50", independent(50, 50)},
	{"random periods, 999 Hz, 3 s", designs(3*time.Second, stats.Randomised(999), stats.Randomised(999))},
	{"random periods, 99 Hz against 999 Hz, 5 s", designs(5*time.Second, stats.Randomised(99), stats.Randomised(999))},
	{"thinned to a fifth against 499 Hz, 5 s", designs(5*time.Second, stats.Design{Period: time.Millisecond, Keep: 0.2}, stats.Randomised(499))},
	{"rates that change, 999 and 50 Hz, other code at each", changing},
}

// chosen are those that -only has left.
func chosen() (all []scenario) {
	for _, s := range scenarios {
		if strings.Contains(s.name, *only) {
			all = append(all, s)
		}
	}
	return all
}

func independent(n, m int) func(*rand.Rand, []float64) (before, after sampled) {
	return func(rng *rand.Rand, shares []float64) (before, after sampled) {
		before.self, before.whole = stats.DrawSums(rng, shares, n)
		after.self, after.whole = stats.DrawSums(rng, shares, m)
		return before, after
	}
}

// span is how long a simulated program stays in a function: far less than
// between two samples, else what ran differs between two recordings by itself.
const span = 100 * time.Microsecond

// designs samples one run twice, so that what ran is the same.
func designs(length time.Duration, first, second stats.Design) func(*rand.Rand, []float64) (before, after sampled) {
	return func(rng *rand.Rand, shares []float64) (before, after sampled) {
		p := stats.Phases(rng, length, span, shares...)
		before.self, before.whole = p.Sample(first.Draw(rng, length), len(shares))
		after.self, after.whole = p.Sample(second.Draw(rng, length), len(shares))
		return before, after
	}
}

// changing has one half of the functions run while the rate is high, the other
// while it is low. Samples of the second weigh twenty times as much.
func changing(rng *rand.Rand, shares []float64) (before, after sampled) {
	half := len(shares) / 2
	for _, part := range []struct {
		shares []float64
		rate   stats.Design
	}{{shares[:half], stats.Randomised(999)}, {shares[half:], stats.Randomised(50)}} {
		length := time.Duration(sum(part.shares) * float64(6*time.Second))
		was, is := designs(length, part.rate, part.rate)(rng, part.shares)
		before, after = before.join(was), after.join(is)
	}
	return before, after
}

// last is the function that changes; nothing calls it, and it calls nothing.
func (s sampled) last() stats.Side {
	return stats.Side{Part: s.self[len(s.self)-1], Whole: s.whole}
}

func (s sampled) join(o sampled) sampled {
	return sampled{append(s.self, o.self...), s.whole.Plus(o.whole)}
}

func sum(shares []float64) (all float64) {
	for _, s := range shares {
		all += s
	}
	return all
}
