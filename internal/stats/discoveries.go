package stats

import (
	"cmp"
	"slices"
)

// FalseDiscoveries is which part of what is called significant may be chance,
// in the mean. Where nothing changed at all it is how often anything is.
const FalseDiscoveries = 0.05

// Family is what Judge found of comparisons that were made together.
type Family struct {
	Compared int
	Tested   int // could have been found
	Found    int // significant
	// Level is the P at which one more would have been.
	Level float64
}

// Widen is by how much an interval of 95% has to be widened for it to tell what
// is significant at Level: for who has intervals and no P.
func (f Family) Widen() float64 { return normalTail(f.Level/2) / z }

// Judge adjusts comparisons that were made together, such as all functions of
// two profiles: of a thousand, fifty have P below 0.05 although nothing changed.
//
// It is the procedure of Benjamini and Hochberg (1995) over those that could be
// found at all (Tarone 1990, Gilbert 2005): a function with three samples cannot
// be significant among a thousand, and would only make the others less so.
// Which those are depends on how many samples a function has on both sides
// together, and P is of how these fall on the two, so leaving them out is no
// choice among results.
//
// Benjamini and Hochberg's is proven for independent tests, and for those that
// depend positively on each other (PRDS; Benjamini and Yekutieli 2001), as a
// function and its callers do, whose samples it shares. It is not proven for
// tests of both directions, nor for functions that take samples from each other:
// what is proven then allows up to ln(tested) times as many (Benjamini and
// Yekutieli), and by a factor that does not grow with their number where
// dependence is negative (Chi, Ramdas and Wang, arXiv 2212.09706). Simulated it
// holds: TestNoChangeIsFound, and bench/differences for larger trees. A function that stands in the list many times, with the same samples,
// adds to the tested and takes away some power, not more.
func Judge(comparisons []*Comparison) Family {
	f := Family{Compared: len(comparisons)}
	tested := testable(comparisons)
	slices.SortStableFunc(tested, func(a, b *Comparison) int { return cmp.Compare(a.P, b.P) })
	f.Tested = len(tested)
	least := 1.0
	for i := len(tested) - 1; i >= 0; i-- {
		c := tested[i]
		least = min(least, c.P*float64(f.Tested)/float64(i+1))
		c.Tested, c.Adjusted = true, least
		if c.Significant() {
			f.Found++
		}
	}
	f.Level = FalseDiscoveries * float64(max(f.Found, 1)) / float64(max(f.Tested, 1))
	return f
}

// testable are the comparisons whose P could be as low as the least level at
// which any of them is tested: the fewest k of which no more than k can be below
// FalseDiscoveries/k.
func testable(comparisons []*Comparison) []*Comparison {
	sorted := slices.SortedFunc(slices.Values(comparisons), func(a, b *Comparison) int { return cmp.Compare(a.least, b.least) })
	for k := 1; ; k++ {
		level := FalseDiscoveries / float64(k)
		n, _ := slices.BinarySearchFunc(sorted, level, func(c *Comparison, level float64) int {
			if c.least <= level {
				return -1
			}
			return 1
		})
		if n <= k {
			return sorted[:n]
		}
	}
}
