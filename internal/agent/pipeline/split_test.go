package pipeline

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
)

// TestNothingIsLostInSplitting merges the parts of random windows again: samples,
// values, squares, exact times of threads and idle time are what they were.
func TestNothingIsLostInSplitting(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := profiletest.Random(r)
		targets := make([]profile.Labels, len(w.Threads))
		var used int64
		for i, thread := range w.Threads {
			used += int64(thread.Exact.CPU)
			if service := []string{"shop", "cart", ""}[r.IntN(3)]; service != "" {
				targets[i] = profile.Labels{"service": service}
			}
		}
		parts := split(w, targets, profile.Labels{"node": "a"}, spec.ThreadsPattern)
		var n, value, exact int64
		var squares float64
		for _, p := range parts {
			n, value, exact = n+p.N(), value+p.Total(0), exact+int64(p.Exact.CPU)
			for _, row := range p.Rows.All() {
				squares += row.Squares[0]
			}
		}
		var want float64
		for _, row := range w.Rows.All() {
			want += row.Squares[0]
		}
		if n != w.N() || value != w.Total(0) || squares != want || exact != used {
			t.Fatalf("seed %d: %d samples of %d, value %d of %d, squares %g of %g, used %d of %d",
				seed, n, w.N(), value, w.Total(0), squares, want, exact, used)
		}
		merged, err := profile.Merge(parts...)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := peers(merged), peers(w); !maps.Equal(got, want) || len(merged.Exemplars) != len(w.Exemplars) {
			t.Errorf("seed %d: peers %v of %v, %d exemplars of %d", seed, got, want, len(merged.Exemplars), len(w.Exemplars))
		}
		if merged.Idle != w.Idle || merged.Watched != w.Watched {
			t.Errorf("seed %d: idle %v of %v, watched %v of %v", seed, merged.Idle, w.Idle, merged.Watched, w.Watched)
		}
	}
}

func TestSplit(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(100)}, Idle: 5, Watched: 9,
		Losses: []profile.Loss{{Reason: profile.LossDropped, N: 3, Value: 300}, {Reason: profile.LossTruncated, N: 99}, {Reason: profile.LossTargets, N: 2}}})
	one := b.Thread(profile.Thread{PID: 1, TID: 11, Process: "shop", Name: "http-1", Exact: profile.Exact{CPU: 70}})
	two := b.Thread(profile.Thread{PID: 1, TID: 12, Process: "shop", Name: "http-2", Exact: profile.Exact{CPU: 30}})
	other := b.Thread(profile.Thread{PID: 2, TID: 21, Process: "cart", Name: "cart"})
	leaf := b.Named(profile.Frame{Function: "leaf"})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndComplete), Thread: one, N: 1, Values: []int64{100}})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndComplete), Thread: two, N: 2, Values: []int64{200}})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndTooDeep), Thread: other, N: 4, Values: []int64{400}})
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndNoUser), N: 8, Values: []int64{800}})
	shop, cart, node := profile.Labels{"service": "shop"}, profile.Labels{"service": "cart"}, profile.Labels{"node": "a"}
	whole := b.Window()
	for mode, want := range map[spec.Threads]int{spec.ThreadsEach: 2, spec.ThreadsPattern: 1, spec.ThreadsNone: 0} {
		for _, p := range split(whole, []profile.Labels{shop, shop, cart}, node, mode) {
			if p.Target.String() == shop.String() && (len(p.Threads) != want || p.N() != 3 || p.Exact.CPU != 100) {
				t.Errorf("threads %s: %+v, %d samples, used %v", mode, p.Threads, p.N(), p.Exact.CPU)
			}
		}
	}
	parts := split(whole, []profile.Labels{shop, shop, cart}, node, spec.ThreadsPattern)
	if len(parts) != 3 {
		t.Fatalf("%d parts, want 3", len(parts))
	}
	byTarget := map[string]*profile.Window{}
	for _, p := range parts {
		byTarget[p.Target.String()] = p
	}
	p := byTarget[shop.String()]
	if p.Rows.Len() != 1 || p.N() != 3 || len(p.Threads) != 1 || p.Threads[0] != (profile.Thread{Process: "shop", Name: "http-#", Exact: profile.Exact{CPU: 100}}) || p.Exact.CPU != 100 {
		t.Errorf("threads of one pattern: %+v of threads %+v, used %v", p.Rows, p.Threads, p.Exact.CPU)
	}
	if got := byTarget[cart.String()].LossOf(profile.LossTruncated); got.N != 4 || got.Value != 400 {
		t.Errorf("truncated %+v, want the 4 samples that were", got)
	}
	p = byTarget[node.String()]
	if got := p.LossOf(profile.LossDropped); p.N() != 8 || got.N != 3 || p.LossOf(profile.LossTargets).N != 2 || p.Idle != 5 || p.Watched != 9 {
		t.Errorf("the machine itself: %d samples, %+v lost, idle %d of %d", p.N(), got, p.Idle, p.Watched)
	}
}

// Dropped samples are assigned to the targets that lack samples, so that a target does
// not report the same time as lost and as not sampled.
func TestSplitSharesLostSamples(t *testing.T) {
	for _, c := range []struct {
		name string
		lost int64
		want map[string]int64 // by service; "": the machine's
	}{
		{"as much as is missing", 40, map[string]int64{"shop": 30, "cart": 10}},
		{"less than is missing", 20, map[string]int64{"shop": 15, "cart": 5}},
		{"more than is missing", 60, map[string]int64{"shop": 30, "cart": 10, "": 20}},
	} {
		b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(1)},
			Losses: []profile.Loss{{Reason: profile.LossDropped, Detail: "full", N: c.lost, Value: c.lost}}})
		targets := []profile.Labels{{"service": "shop"}, {"service": "cart"}, {"service": "whole"}}
		for i, exact := range []time.Duration{130, 110, 100} {
			thread := b.Thread(profile.Thread{PID: i + 1, TID: i + 1, Exact: profile.Exact{CPU: exact}})
			b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: 100, Values: []int64{100}})
		}
		got := map[string]int64{}
		for _, p := range split(b.Window(), targets, profile.Labels{"node": "a"}, spec.ThreadsNone) {
			if lost := p.LossOf(profile.LossDropped).Value; lost > 0 {
				got[p.Target["service"]] = lost
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// peers counts samples by the innermost functions of the stack and of its peer.
func peers(w *profile.Window) map[[2]string]int64 {
	leaf := func(id profile.StackID) string {
		for _, l := range w.Stacks[id].Locations {
			return w.Frames(l)[0].Function
		}
		return ""
	}
	all := map[[2]string]int64{}
	for _, row := range w.Rows.All() {
		if row.Peer != 0 {
			all[[2]string{leaf(row.Stack), leaf(profile.StackID(row.Peer - 1))}] += row.N
		}
	}
	return all
}
