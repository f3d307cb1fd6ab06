package calibrate

import (
	"cmp"
	"math"
	"slices"
)

// Frontier are the results that no other one is better than in cost and error, the
// cheapest first.
func Frontier(results []Result) (best []Result) {
	least := math.Inf(1)
	for _, r := range cheapestFirst(results) {
		if r.Error < least {
			best, least = append(best, r), r.Error
		}
	}
	return best
}

// Choose is the cheapest result whose error is at most the wanted one. If there is
// none, it is the one of the least error, and not met.
func Choose(results []Result, within float64) (chosen Result, met bool) {
	best := Frontier(results)
	for _, r := range best {
		if r.Error <= within {
			return r, true
		}
	}
	return best[len(best)-1], false
}

func cheapestFirst(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Or(cmp.Compare(a.Hertz, b.Hertz), cmp.Compare(a.Error, b.Error)) })
}
