package prune

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFew compares what is told of times without sorting them with what is so.
func TestFew(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	said := map[bool]int{}
	for range 20_000 {
		times, most, idle := make([]int64, fewThreads+r.IntN(100)), []int64{2, 10, 1000}[r.IntN(3)], r.IntN(3)
		for i := range times {
			if times[i] = 1 + r.Int64N(most); r.IntN(20) < idle {
				times[i] = 1
			}
		}
		percent := []float64{80, 90, 95, 99}[r.IntN(4)]
		g := &group{}
		for i, time := range times {
			g.threads, g.total = append(g.threads, weighed{i, time}), g.total+time
		}
		slices.SortFunc(g.threads, func(a, b weighed) int { return int(b.weight - a.weight) })
		want := len(g.outside(percent))*fewThreads < len(times)
		if got := few(slices.Clone(times), percent); got != want {
			t.Fatalf("few of %v are beyond P%g: %v", times, percent, got)
		}
		said[want]++
	}
	if said[false] < 1000 || said[true] < 1000 {
		t.Errorf("few are beyond: %v", said)
	}
}
