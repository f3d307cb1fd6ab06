package query

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// cut is a window of an instance of the service shop, by its task t.
func cut(instance string, start, length time.Duration, hertz float64, stacks map[string]int64) written {
	h := head(0)
	h.Start, h.Duration, h.Rate.Hertz, h.Exact.CPU = noon.Add(start), length, hertz, length
	return written{profile.Labels{"service": "shop", "instance": instance}, h, "", stacks}
}

// TestTold has agents cut late, early, in two and at other rates: all of an interval
// is one window.
func TestTold(t *testing.T) {
	const s = time.Second
	kept := &shelf{windows: []written{
		cut("a", 20*time.Millisecond, 10*s, 100, map[string]int64{"main;serve": 60, "main;serve;parse": 40}),
		cut("bb", -400*time.Millisecond, 10*s, 50, map[string]int64{"main;serve": 50}), // its clock is behind
		cut("ccc", 0, 5*s, 30, map[string]int64{"main;gc": 5}),                         // in two, for want of memory
		cut("ccc", 5*s, 5*s, 30, map[string]int64{"main;gc": 5}),
		cut("d", 13*s, 7*s, 100, map[string]int64{"main": 7}), // it began within the second
		cut("a", -10*s, 10*s, 999, map[string]int64{"main;before": 1}),
		cut("a", 30*s, 10*s, 100, nil),
		cut("a", 40*s, 10*s, 999, map[string]int64{"main;after": 1}),
	}}
	got, err := Asker{Store: kept, Tenant: "x"}.Told(t.Context(), Intervals{Task: "t", Service: "shop", First: noon, Length: 10 * s, Count: 4})
	if err != nil {
		t.Fatal(err)
	}
	hertz := (100*10 + 50*10 + 30*10) / 30.0
	want := []freq.Window{
		{Start: noon, Length: 10 * s, Hertz: hertz, Functions: []freq.Function{{Name: "gc", N: 10}, {Name: "parse", N: 40}, {Name: "serve", N: 110}}},
		{Start: noon.Add(10 * s), Length: 10 * s, Hertz: 100, Functions: []freq.Function{{Name: "main", N: 7}}},
		{Start: noon.Add(30 * s), Length: 10 * s, Hertz: 100},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told is\n%v\nwant\n%v", got, want)
	}
}

// TestToldInEffectiveSamples has samples of two rates be in one window: those of the
// lower weigh more, and all are worth fewer.
func TestToldInEffectiveSamples(t *testing.T) {
	forest := &profile.Forest{Calls: []profile.Call{{Caller: -1, Place: -1}, {Caller: 0, Place: 0}, {Caller: 0, Place: 1}},
		Places: []profile.Place{{Names: []profile.Frame{{Function: "a"}}}, {Names: []profile.Frame{{Function: "b"}}}}}
	sum := func(call int, fast, slow int64) store.Sum {
		return store.Sum{Call: call, Sum: profile.Sum{N: fast + slow, Value: fast + 4*slow, Squares: float64(fast + 16*slow)}}
	}
	got := running(forest, []store.Sum{sum(1, 80, 20), sum(2, 20, 5)})
	// Weights 1 and 4: (100 + 100)^2 / (100 + 25 * 16) = 80 of 125, of which 4 in 5 are a's.
	if want := []freq.Function{{Name: "a", N: 64}, {Name: "b", N: 16}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
