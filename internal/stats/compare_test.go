package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The oracle is SciPy 1.17.1, for x of n against y of m:
//
//	h = hypergeom(n+m, x+y, n); e = h.pmf(x)/2
//	p = min(1, 2*min(h.cdf(x-1)+e, h.sf(x)+e))
//	least = min(1, h.pmf(max(0, x+y-m)), h.pmf(min(x+y, n)))
func TestCountsAgainstOracle(t *testing.T) {
	for _, o := range []struct{ x, n, y, m, p, least float64 }{
		{0, 100, 0, 100, 1, 1},
		{3, 1000, 11, 1000, 0.0345797991, 5.83022373e-05},
		{0, 1000, 9, 1000, 0.00191813579, 0.00191813579},
		{50, 1000, 80, 1000, 0.00653375402, 8.27380243e-42},
		{700, 1000, 600, 1000, 2.74975084e-06, 1.25259768e-297},
		{5, 200, 300, 10000, 0.725901381, 0},
		{1, 50, 4000, 100000, 0.53044014, 9.31901529e-71},
		{990, 1000, 950, 1000, 6.36826728e-08, 3.48339355e-19},
		{12345, 100000, 12999, 100000, 1.1018206e-05, 0},
		{100, 100, 100, 100, 1, 1},
		{2, 7, 9, 9, 0.00480769231, 0.00480769231},
	} {
		x, y := Counts{o.x, o.n}, Counts{o.y, o.m}
		for range 2 {
			p, least := x.against(y)
			if math.Abs(p-o.p) > 1e-6*o.p || math.Abs(least-o.least) > 1e-6*o.least+1e-300 {
				t.Errorf("%v against %v: %.9g, at least %.9g; want %.9g, %.9g", x, y, p, least, o.p, o.least)
			}
			x, y = y, x
		}
	}
}

// What is as good as normal goes on where the sum ended.
func TestCountsAgainstMany(t *testing.T) {
	below, _ := Counts{normalAbove, 1e6}.against(Counts{normalAbove * 1.02, 1e6})
	above, _ := Counts{normalAbove + 1, 1e6}.against(Counts{normalAbove*1.02 + 1, 1e6})
	if math.Abs(above/below-1) > 0.05 {
		t.Errorf("P %v, and of one more hit each %v", below, above)
	}
}

// Between whole counts P goes evenly from one to the next, and whatever is asked
// it is a probability.
func FuzzCountsAgainst(f *testing.F) {
	f.Add(3.2, 100.5, 7.9, 220.0)
	f.Add(0.3, 1.0, 0.0, 1e6)
	f.Add(1e5, 1e5, 0.0, 3.0)
	f.Fuzz(func(t *testing.T, x, n, y, m float64) {
		if !(0 <= x && x <= n && n >= 1 && 0 <= y && y <= m && m >= 1 && n+m < 1e7) {
			return
		}
		p, least := Counts{x, n}.against(Counts{y, m})
		q, _ := Counts{y, m}.against(Counts{x, n})
		if !(0 <= p && p <= 1 && 0 <= least && least <= p) || math.Abs(p-q) > 1e-6 {
			t.Errorf("%v of %v against %v of %v: P %v (turned round: %v), at least %v", x, n, y, m, p, q, least)
		}
	})
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after Side
		difference, p float64
	}{
		{"the same", Side{Part: equal(30, 2), Whole: equal(100, 2)}, Side{Part: equal(30, 5), Whole: equal(100, 5)}, 0, 1},
		{"weights are not samples", Side{Part: equal(3, 9), Whole: equal(1000, 9)}, Side{Part: equal(11, 1), Whole: equal(1000, 1)}, 0.008, 0.034579},
		{"nothing before", Side{}, Side{Part: equal(3, 9), Whole: equal(10, 9)}, 0.3, 1},
		{"counted, the same", Side{equal(30, 1), equal(90, 1), true}, Side{equal(10, 1), equal(30, 1), true}, 0, 1},
		{"counted, another", Side{equal(30, 1), equal(90, 1), true}, Side{equal(11, 1), equal(30, 1), true}, 11.0/30 - 1.0/3, 0},
		// 11 or more of 1000 where 0.3% are: scipy.stats.binom, as above.
		{"counted before", Side{equal(3, 1), equal(1000, 1), true}, Side{Part: equal(11, 1), Whole: equal(1000, 1)}, 0.008, 0.000352677},
	} {
		got := Compare(c.before, c.after)
		if math.Abs(got.Difference.Value-c.difference) > 1e-12 || math.Abs(got.P-c.p) > 1e-3*c.p {
			t.Errorf("%s: %v, P %v; want %v, P %v", c.name, got.Difference, got.P, c.difference, c.p)
		}
	}
}

// A function that runs only at the low rate has few, heavy samples: two more of
// them on one side are nothing, although of light ones they were much.
func TestCompareHeavySamples(t *testing.T) {
	whole := equal(10_000, 1).Plus(equal(100, 100))
	got := Compare(Side{Whole: whole}, Side{Part: equal(2, 100), Whole: whole})
	if got.P < 0.2 {
		t.Errorf("none and two heavy samples: P %v", got.P)
	}
}

// sides is what was sampled of each function, and in all.
type sides struct {
	parts []Sums
	whole Sums
}

// sampleTwice gives two ways of sampling what ran in phases of 200 us.
func sampleTwice(rng *rand.Rand, shares []float64, first, second Design, length time.Duration) (before, after sides) {
	p := Phases(rng, length, 200*time.Microsecond, shares...)
	before.parts, before.whole = p.Sample(first.Draw(rng, length), len(shares))
	after.parts, after.whole = p.Sample(second.Draw(rng, length), len(shares))
	return before, after
}

func independent(n, m int) func(*rand.Rand, []float64) (sides, sides) {
	return func(rng *rand.Rand, shares []float64) (before, after sides) {
		before.parts, before.whole = DrawSums(rng, shares, n)
		after.parts, after.whole = DrawSums(rng, shares, m)
		return before, after
	}
}

// TestNoChangeIsFound compares samples of one program with others of it: how
// often is anything called significant? The bar is 6.5% of 1,000; more rounds
// and larger trees are in bench/differences.
func TestNoChangeIsFound(t *testing.T) {
	const functions = 60
	for _, c := range []struct {
		name   string
		rounds int
		pair   func(*rand.Rand, []float64) (before, after sides)
	}{
		{"as many", 600, independent(2000, 2000)},
		{"ten times as many", 600, independent(300, 3000)},
		{"few", 1000, independent(40, 60)},
		{"random periods", 300, func(rng *rand.Rand, shares []float64) (before, after sides) {
			return sampleTwice(rng, shares, Randomised(999), Randomised(999), time.Second)
		}},
		{"thinned", 300, func(rng *rand.Rand, shares []float64) (before, after sides) {
			return sampleTwice(rng, shares, Randomised(299), Design{Period: time.Millisecond, Keep: 0.3}, 2*time.Second)
		}},
		{"rates changed", 300, func(rng *rand.Rand, shares []float64) (before, after sides) {
			before, after = sampleTwice(rng, shares[:functions/2], Randomised(999), Randomised(999), time.Second)
			more, late := sampleTwice(rng, shares[functions/2:], Randomised(50), Randomised(50), time.Second)
			return before.join(more), after.join(late)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(15, 16))
			found, tested := 0, 0
			for range c.rounds {
				shares, calls := DrawShares(rng, functions), DrawCalls(rng, functions)
				before, after := c.pair(rng, shares)
				_, family := compareAll(calls, before, after)
				tested += family.Tested
				if family.Found > 0 {
					found++
				}
			}
			rate := MidP(float64(found), float64(c.rounds))
			if rate.Low > 0.065 {
				t.Errorf("%d of %d found something", found, c.rounds)
			}
			t.Logf("%.1f%% (%.1f to %.1f) found something, of %.1f tested", 100*rate.Value, 100*rate.Low, 100*rate.High, float64(tested)/float64(c.rounds))
		})
	}
}

// join has functions of another part of the program follow.
func (s sides) join(o sides) sides {
	return sides{append(s.parts[:len(s.parts):len(s.parts)], o.parts...), s.whole.Plus(o.whole)}
}

func compareAll(calls Calls, before, after sides) ([]*Comparison, Family) {
	was, is := calls.Totals(before.parts), calls.Totals(after.parts)
	all := make([]*Comparison, len(was))
	for i := range was {
		c := Compare(Side{Part: was[i], Whole: before.whole}, Side{Part: is[i], Whole: after.whole})
		all[i] = &c
	}
	return all, Judge(all)
}
