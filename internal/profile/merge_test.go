package profile_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

func random(seed uint64) *profile.Window { return profiletest.Random(rand.New(rand.NewPCG(seed, 0))) }

func merge(t testing.TB, windows ...*profile.Window) *profile.Window {
	t.Helper()
	w, err := profile.Merge(windows...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMergeLaws(t *testing.T) {
	for seed := range uint64(40) {
		a, b, c := random(3*seed), random(3*seed+1), random(3*seed+2)
		if seed%5 == 0 {
			a.Start = time.Time{} // one that does not know when it began
		}
		if seed%3 == 0 {
			a.Slot, b.Slot, c.Slot = time.Second, time.Second, time.Second
		}
		before := profiletest.Canonical(a)
		whole := merge(t, a, b, c)
		laws := []struct {
			name string
			same *profile.Window
		}{
			{"(a+b)+c", merge(t, merge(t, a, b), c)},
			{"a+(b+c)", merge(t, a, merge(t, b, c))},
			{"c+b+a", merge(t, c, b, a)},
			{"b+a+c", merge(t, b, a, c)},
		}
		for _, law := range laws {
			if diff := profiletest.Diff(whole, law.same); diff != "" {
				t.Fatalf("seed %d: a+b+c and %s differ:\n%s", seed, law.name, diff)
			}
		}
		if whole.N() != a.N()+b.N()+c.N() || whole.Total(0) != a.Total(0)+b.Total(0)+c.Total(0) {
			t.Fatalf("seed %d: totals are not the sums", seed)
		}
		if !slices.Equal(before, profiletest.Canonical(a)) {
			t.Fatalf("seed %d: merging changed its argument", seed)
		}
	}
}

// TestSlotsFollowTheClock adds up windows that were cut beside their edges, and pieces of
// one that was cut early: rows of one second stay together, and others apart.
func TestSlotsFollowTheClock(t *testing.T) {
	at := func(second, beside int, slots ...uint32) *profile.Window {
		start := time.Unix(int64(second), 0).Add(time.Duration(beside) * time.Millisecond)
		b := profile.NewBuilder(profile.Head{Start: start, Duration: time.Second, Slot: time.Second, Types: []profile.ValueType{profile.CPUTime(0)}})
		stack := b.Stack([]profile.LocationID{b.Location(profile.Location{Name: "f"})}, profile.EndComplete)
		for _, slot := range slots {
			b.Add(profile.Row{Stack: stack, Slot: slot, N: 1, Values: []int64{1}})
		}
		return b.Window()
	}
	for _, c := range []struct {
		windows []*profile.Window
		want    map[uint32]int64
	}{
		{[]*profile.Window{at(100, 3, 1, 2, 10), at(100, -2, 1, 10, 10)}, map[uint32]int64{1: 2, 2: 1, 10: 3}},
		{[]*profile.Window{at(106, 400, 1, 2), at(100, 1, 1, 7)}, map[uint32]int64{1: 1, 7: 2, 8: 1}},
		{[]*profile.Window{at(100, 0, 1), at(110, 0, 0)}, map[uint32]int64{1: 1, 0: 1}},
	} {
		got := map[uint32]int64{}
		merged := merge(t, c.windows...)
		for _, r := range merged.Rows.All() {
			got[r.Slot] += r.N
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("samples by slot %v, want %v", got, c.want)
		}
	}
	other := at(100, 0, 1)
	other.Slot = 2 * time.Second
	if w := merge(t, at(100, 0, 1), other); w.Slot != 0 || w.Rows.Len() != 1 || w.Rows.At(0).Slot != 0 {
		t.Errorf("slots of two lengths: %v, %+v", w.Slot, w.Rows)
	}
}

func TestMergeHeads(t *testing.T) {
	at := func(seconds, length int) *profile.Window {
		return &profile.Window{Head: profile.Head{Start: time.Unix(int64(seconds), 0), Duration: time.Duration(length) * time.Second}}
	}
	unknown := &profile.Window{Head: profile.Head{Duration: 7 * time.Second}}
	tests := []struct {
		name    string
		windows []*profile.Window
		start   time.Time
		length  time.Duration
	}{
		{"one after the other", []*profile.Window{at(10, 5), at(15, 5)}, time.Unix(10, 0), 10 * time.Second},
		{"with a gap", []*profile.Window{at(100, 5), at(10, 1)}, time.Unix(10, 0), 95 * time.Second},
		{"one inside the other", []*profile.Window{at(10, 50), at(15, 5)}, time.Unix(10, 0), 50 * time.Second},
		{"one of unknown start", []*profile.Window{unknown, at(10, 5)}, time.Unix(10, 0), 5 * time.Second},
		{"none known", []*profile.Window{unknown, {}}, time.Time{}, 7 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := merge(t, test.windows...)
			if !w.Start.Equal(test.start) || w.Duration != test.length {
				t.Errorf("got %s for %s, want %s for %s", w.Start, w.Duration, test.start, test.length)
			}
		})
	}

	a, b := random(1), random(2)
	a.Design, b.Design, a.Task, b.Task = profile.DesignThinned, profile.DesignCensus, "x", "y"
	a.ClockOffset, b.ClockOffset, a.ClockError, b.ClockError = -5, 3, 1, 1
	a.Types[0].Period, b.Types[0].Period = 1, 2
	a.Exact.Source, b.Exact.Source = "schedstat", "cgroup"
	a.Rate = profile.Rate{Hertz: 99, Policy: "atys", Reason: "steady", Why: "0.01", By: profile.ByServer}
	b.Rate = profile.Rate{Hertz: 99, Policy: "atys", Reason: "changed", Why: "0.3", By: profile.ByServer}
	w := merge(t, a, b)
	if want := (profile.Rate{Hertz: 99, Policy: "atys", By: profile.ByServer}); w.Rate != want {
		t.Errorf("a rate of %+v, want %+v", w.Rate, want)
	}
	if w.Design != profile.DesignUnknown || w.Task != "" || w.ClockOffset != 0 || w.ClockError != 5 || w.Types[0].Period != 0 || w.Exact.Source != "mixed" {
		t.Errorf("what differs must not stay: %+v", w.Head)
	}
	if a.Types[0].Period != 1 {
		t.Error("merging changed the period of its argument")
	}
}

func TestMergeMovesTimedSamples(t *testing.T) {
	window := func(start int64) *profile.Window {
		b := profile.NewBuilder(profile.Head{Start: time.Unix(start, 0), Duration: time.Second, Types: []profile.ValueType{{Kind: "cpu"}}})
		b.AddSample(profile.Sample{Time: time.Millisecond, Stack: b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "f"})}, 0)})
		return b.Window()
	}
	w := merge(t, window(20), window(10))
	if w.Samples[0].Time != 10*time.Second+time.Millisecond || w.Samples[1].Time != time.Millisecond {
		t.Errorf("samples at %s and %s", w.Samples[0].Time, w.Samples[1].Time)
	}
}

func TestMergeRefuses(t *testing.T) {
	a, b := random(1), random(2)
	b.Types = []profile.ValueType{{Kind: "wall", Unit: "nanoseconds"}}
	if _, err := profile.Merge(); err == nil {
		t.Error("merged no windows")
	}
	if _, err := profile.Merge(a, b); !errors.Is(err, profile.ErrDifferentTypes) {
		t.Errorf("merge different types: %v", err)
	}
}

// TestHeadsAreBounded tells so many losses and comments apart and no more, and
// loses no count.
func TestHeadsAreBounded(t *testing.T) {
	for name, reasons := range map[string]int{"details": 3, "reasons": 10_000} {
		var h profile.Head
		for i := range 10_000 {
			o := profile.Head{Losses: []profile.Loss{{Reason: profile.LossReason(fmt.Sprint("reason ", i%reasons)), Detail: fmt.Sprint(i), N: 1, Value: 2}}, Comments: []string{fmt.Sprint(i), "the same"}}
			h.Absorb(&o)
		}
		if len(h.Losses) > profile.MaxLosses || len(h.Losses) < profile.MaxLosses/2 || len(h.Comments) != profile.MaxComments || h.Comments[profile.MaxComments-1] != "there were more comments" {
			t.Errorf("%s: %d losses, %d comments", name, len(h.Losses), len(h.Comments))
		}
		var all profile.Loss
		for _, l := range h.Losses {
			all.N, all.Value = all.N+l.N, all.Value+l.Value
		}
		if all.N != 10_000 || all.Value != 20_000 {
			t.Errorf("%s: %+v in all", name, all)
		}
		if first := h.LossOf("reason 0"); reasons == 3 && first.N != 3334 {
			t.Errorf("%s: of the first reason %+v", name, first)
		}
	}
}
