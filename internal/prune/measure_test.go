package prune_test

import (
	"math"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
)

func TestSkew(t *testing.T) {
	w := windowOf(thread{1, 5, 0}, thread{2, 90, 0}, thread{3, 0, 40}, thread{4, 4, 0}, thread{5, 1, 0}, thread{0, 900, 0})
	s := prune.SkewOf(w)
	if s.N != 100 || s.Sampled != 4 || len(s.Threads) != 5 || s.Threads[0].Thread.TID != 2 || s.Threads[0].Share != 0.9 {
		t.Errorf("%+v", s)
	}
	for percent, want := range map[float64]int{50: 1, 90: 1, 90.5: 2, 95: 2, 99: 3, 99.9: 4, 100: 4} {
		if got := s.Making(percent); got != want {
			t.Errorf("%d threads make %g%%, want %d", got, percent, want)
		}
	}
	prune.Window(w, 95, nil)
	if got := prune.Kept(w); got != 2 {
		t.Errorf("%d threads are kept, want 2", got)
	}
	if s := prune.SkewOf(windowOf()); len(s.Threads) != 0 || s.Making(90) != 0 {
		t.Errorf("nothing has %+v", s)
	}
}

// TestMAPE compares shares: a of 60 has lost a tenth of it, b of 40 half, c is gone.
func TestMAPE(t *testing.T) {
	full := ranking(t, map[string]int64{"a": 600, "b": 300, "c": 100})
	pruned := ranking(t, map[string]int64{"a": 540, "b": 150, prune.Name: 310})
	for n, want := range map[int]float64{1: 0.1, 2: 0.3, 3: 1.6 / 3, 50: 1.6 / 3} {
		if got := full.MAPE(pruned, n); math.Abs(got-want) > 1e-12 {
			t.Errorf("the largest %d are off by %g, want %g", n, got, want)
		}
	}
	if got := full.MAPE(full, 3); got != 0 {
		t.Errorf("off from itself by %g", got)
	}
	if got := ranking(t, nil).MAPE(full, 5); !math.IsNaN(got) {
		t.Errorf("nothing is off by %g", got)
	}
}

func ranking(t *testing.T, functions map[string]int64) *prune.Ranking {
	t.Helper()
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	for name, value := range functions {
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: name})}, profile.EndComplete), N: 1, Values: []int64{value}})
	}
	r, err := prune.Rank(b.Window(), false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
