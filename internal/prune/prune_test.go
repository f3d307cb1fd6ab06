package prune_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/prune"
)

// random is a window of threads of some processes.
func random(seed uint64) *profile.Window {
	r := rand.New(rand.NewPCG(seed, 6))
	w := profiletest.Random(r)
	for i := range w.Threads {
		n := r.IntN(3)
		w.Threads[i].PID, w.Threads[i].Process = 7+n, []string{"shop", "cart", "shop"}[n]
	}
	return w
}

// pruned is one that was pruned.
func pruned(seed uint64, percent float64) *profile.Window {
	w := random(seed)
	prune.Window(w, percent, nil)
	return w
}

func level(seed uint64) float64 { return []float64{80, 90, 99, 99.9}[seed%4] }

// amount is what is added up of rows.
type amount struct {
	n, value, second int64
	squares          float64
}

// amounts adds a window up by something of its rows.
func amounts[K comparable](w *profile.Window, key func(profile.Row) K) map[K]amount {
	all := map[K]amount{}
	for _, r := range w.Rows.All() {
		a := all[key(r)]
		all[key(r)] = amount{a.n + r.N, a.value + r.Values[0], a.second + r.Values[1], a.squares + r.Squares[0]}
	}
	return all
}

// used adds up the exact times of a process's threads.
func used(w *profile.Window) map[int]time.Duration {
	all := map[int]time.Duration{}
	for _, t := range w.Threads {
		if t.Exact.CPU != 0 {
			all[t.PID] += t.Exact.CPU
		}
	}
	return all
}

// TestTotalsStay prunes random windows: whatever is added up without looking at
// stacks is what it was, and what was pruned is counted.
func TestTotalsStay(t *testing.T) {
	some := 0
	for seed := range uint64(2000) {
		w := random(seed)
		p := pruned(seed, level(seed))
		type when struct {
			pid  int
			slot uint32
		}
		of := func(w *profile.Window) map[when]amount {
			return amounts(w, func(r profile.Row) when { return when{w.Thread(r.Thread).PID, r.Slot} })
		}
		if got, want := of(p), of(w); !same(got, want) {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
		if got, want := used(p), used(w); !same(got, want) {
			t.Errorf("seed %d: used %v, want %v", seed, got, want)
		}
		if p.Exact != w.Exact || len(p.Samples) != len(w.Samples) {
			t.Errorf("seed %d: used %v, %d samples with times; want %v, %d", seed, p.Exact, len(p.Samples), w.Exact, len(w.Samples))
		}
		for i, s := range p.Samples {
			if was := w.Samples[i]; s.Time != was.Time || s.Weight != was.Weight || p.Thread(s.Thread).PID != w.Thread(was.Thread).PID {
				t.Errorf("seed %d: a sample is %+v, and was %+v", seed, s, was)
			}
		}
		if got, want := p.LossOf(profile.LossPruned).Value, prune.Sum(p, 0); got != want {
			t.Errorf("seed %d: %d counted as pruned, and %d are", seed, got, want)
		}
		if prune.Sum(p, 0) > 0 {
			some++
		}
	}
	if some < 100 {
		t.Errorf("only %d windows had anything to prune", some)
	}
}

func same[K, V comparable](a, b map[K]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// place is what rows are told apart by, but for their threads.
type place struct {
	pid   int
	slot  uint32
	stack string
}

func placed(w *profile.Window) map[place]amount {
	return amounts(w, func(r profile.Row) place { return place{w.Thread(r.Thread).PID, r.Slot, signature(w, r.Stack)} })
}

// signature is the same for stacks that are.
func signature(w *profile.Window, id profile.StackID) string {
	s := w.Stacks[id]
	all := fmt.Sprint(s.End)
	for _, l := range s.Locations {
		all += fmt.Sprint(w.Locations[l], w.Names[l])
	}
	return all
}

// TestWhatStays prunes random windows: samples of threads that stay are where they were,
// and those of the others where a thread that stays is on the same stack. The rest is on
// what stands for it, alone or below the leaf that it had.
func TestWhatStays(t *testing.T) {
	shared, cut := 0, 0
	for seed := range uint64(2000) {
		w, p := random(seed), pruned(seed, level(seed))
		if !slices.ContainsFunc(p.Threads, func(t profile.Thread) bool { return t.Name == prune.Name }) {
			continue
		}
		stays := map[string]bool{}
		for _, r := range p.Rows.All() {
			if p.Thread(r.Thread).Name != prune.Name {
				stays[signature(p, r.Stack)] = true
			}
			if r.Peer != 0 {
				stays[signature(p, profile.StackID(r.Peer-1))] = true
			}
		}
		before, after := placed(w), placed(p)
		for at, want := range before {
			if stays[at.stack] && after[at] != want {
				t.Errorf("seed %d: %v on a stack that stays, and was %v", seed, after[at], want)
			}
		}
		for _, r := range p.Rows.All() {
			stack := p.Stacks[r.Stack].Locations
			switch n := len(stack); {
			case p.Thread(r.Thread).Name != prune.Name:
			case stays[signature(p, r.Stack)]:
				shared++
			case n == 0 || n > 2 || !prune.IsMarker(p.Locations[stack[n-1]]):
				t.Errorf("seed %d: threads that were pruned are on %v", seed, signature(p, r.Stack))
			default:
				cut++
			}
		}
	}
	if shared < 100 || cut < 100 {
		t.Errorf("%d rows on stacks that stay, %d on those that were cut", shared, cut)
	}
}

// TestMostOff holds the share of each function to the bound that is told.
func TestMostOff(t *testing.T) {
	for seed := range uint64(400) {
		w := random(seed)
		p := pruned(seed, level(seed))
		before, after := shares(t, w), shares(t, p)
		for key, share := range before {
			if off := math.Abs(share - after[key]); off > prune.Share(p, 0)+1e-12 {
				t.Errorf("seed %d: %s is off by %g, and %g is the most", seed, key.Function, off, prune.Share(p, 0))
			}
		}
	}
}

func shares(t *testing.T, w *profile.Window) map[profile.FrameKey]float64 {
	t.Helper()
	tree, err := profile.NewTree(profile.TreeOptions{}, w)
	if err != nil {
		t.Fatal(err)
	}
	all := map[profile.FrameKey]float64{}
	for _, f := range tree.Functions() {
		all[f.Frame.Key()] = prune.Part(f.Total[0].Value, w.Total(0))
	}
	return all
}

// crowd is a window of threads of which few are at work for long, and the others do what
// those do or, one in five, something else.
func crowd(seed uint64) *profile.Window {
	r := rand.New(rand.NewPCG(seed, 8))
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	place := func(function int) profile.LocationID {
		if function%2 == 0 {
			return b.Named(profile.Frame{Function: fmt.Sprint("f", function)})
		}
		return b.Location(profile.Location{Kind: profile.KindNative, BuildID: "b", Offset: uint64(function)<<8 + r.Uint64N(256)})
	}
	for i := range 200 {
		id := b.Thread(profile.Thread{PID: 1, TID: i + 1, Process: "shop", Name: "worker"})
		for range 1 + 4000/(i+1)/(i+1) {
			function := int(60 * r.Float64() * r.Float64())
			if i > 20 && i%5 == 0 {
				function += 60
			}
			b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{place(function)}, profile.EndComplete), Thread: id, N: 1, Values: []int64{10}})
		}
	}
	return b.Window()
}

// functionsOf adds up a crowd's window by function.
func functionsOf(w *profile.Window) map[string]int64 {
	all := map[string]int64{}
	for _, r := range w.Rows.All() {
		l := w.Stacks[r.Stack].Locations[0]
		name := fmt.Sprint(w.Locations[l].Offset >> 8)
		if len(w.Names[l]) > 0 {
			name = w.Names[l][0].Function
		}
		all[name] += r.Values[0]
	}
	return all
}

// TestLargestFunctions prunes crowds: of each group what was asked for stays, of each of
// the largest functions too, and threads go all the same.
func TestLargestFunctions(t *testing.T) {
	for seed := range uint64(50) {
		percent := []float64{80, 90, 95, 98}[seed%4]
		before, p := functionsOf(crowd(seed)), crowd(seed)
		prune.Window(p, percent, nil)
		after := functionsOf(p)
		if prune.Share(p, 0) == 0 || prune.Share(p, 0) > 1-percent/100 {
			t.Errorf("seed %d: %g of all is pruned at %g%%", seed, prune.Share(p, 0), percent)
		}
		sizes := slices.Sorted(maps.Values(before))
		least := sizes[len(sizes)-50]
		for name, value := range before {
			if lost := value - after[name]; value >= least && float64(lost) > math.Round(float64(value)*(100-percent)/100) {
				t.Errorf("seed %d: %s loses %d of %d at %g%%", seed, name, lost, value, percent)
			}
		}
	}
}

// gone adds up what is of threads that were pruned.
func gone(w *profile.Window) (value int64) {
	for _, r := range w.Rows.All() {
		if w.Thread(r.Thread).Name == prune.Name {
			value += r.Values[0]
		}
	}
	return value
}

// TestAlike leaves windows as they are whose threads are alike, by their times or by
// their samples, or of whose rows hardly any would go, and prunes those of one that is
// not.
func TestAlike(t *testing.T) {
	var alike []thread
	for i := range 100 {
		alike = append(alike, thread{i + 1, 50, time.Second})
	}
	bySamples := slices.Clone(alike)
	for i := range bySamples {
		bySamples[i].cpu = 0
	}
	skewed := slices.Clone(alike)
	for i := range 50 {
		skewed[i].n, skewed[i].cpu = 1, time.Millisecond
	}
	var ofNoThread []thread
	for range 100 * len(skewed) {
		ofNoThread = append(ofNoThread, thread{0, 1, 0})
	}
	for name, c := range map[string]struct {
		threads []thread
		some    bool
	}{"by times": {alike, false}, "by samples": {bySamples, false}, "skewed": {skewed, true}, "skewed, among many": {append(ofNoThread, skewed...), false}} {
		w := windowOf(c.threads...)
		prune.Window(w, 98, nil)
		if got := gone(w) > 0; got != c.some {
			t.Errorf("%s: %d are pruned", name, gone(w))
		}
	}
}

// TestTwice prunes what was pruned: it stays as it is.
func TestTwice(t *testing.T) {
	for seed := range uint64(400) {
		once, twice := pruned(seed, 90), pruned(seed, 90)
		some := gone(once) != 0
		prune.Window(twice, 90, nil)
		if diff := profiletest.Diff(once, twice); diff != "" {
			t.Errorf("seed %d: a window pruned twice: %s", seed, diff)
		}
		prune.Window(twice, 99, nil)
		if diff := profiletest.Diff(once, twice); some && diff != "" {
			t.Errorf("seed %d: and at another level: %s", seed, diff)
		}
	}
}

// TestMerged merges pruned windows: what each counts is counted together.
func TestMerged(t *testing.T) {
	for seed := range uint64(200) {
		a, b := random(seed), random(seed+1000)
		whole, err := profile.Merge(a, b)
		if err != nil {
			t.Fatal(err)
		}
		left, right := pruned(seed, level(seed)), pruned(seed+1000, level(seed))
		merged, err := profile.Merge(left, right)
		if err != nil {
			t.Fatal(err)
		}
		if merged.N() != whole.N() || merged.Total(0) != whole.Total(0) || merged.Total(1) != whole.Total(1) || merged.Exact != whole.Exact {
			t.Errorf("seed %d: %d samples of %d", seed, merged.N(), whole.N())
		}
		if got, want := prune.Sum(merged, 0), prune.Sum(left, 0)+prune.Sum(right, 0); got != want || got != merged.LossOf(profile.LossPruned).Value {
			t.Errorf("seed %d: %d pruned, %d counted, want %d", seed, got, merged.LossOf(profile.LossPruned).Value, want)
		}
		if most := max(prune.Share(left, 0), prune.Share(right, 0)); prune.Share(merged, 0) > most+1e-12 {
			t.Errorf("seed %d: off by %g at most, and each by %g", seed, prune.Share(merged, 0), most)
		}
	}
}

// TestAnyOrder prunes a window whose rows and threads come in another order.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		w := random(seed)
		r := rand.New(rand.NewPCG(seed, 7))
		b := profile.NewBuilder(w.Head)
		order := r.Perm(w.Rows.Len())
		locations := make([]profile.LocationID, len(w.Locations))
		for i, l := range w.Locations {
			locations[i] = b.Location(l, w.Names[i]...)
		}
		threads := make([]profile.ThreadID, len(w.Threads)+1)
		for _, i := range r.Perm(len(w.Threads)) {
			threads[i+1] = b.Thread(w.Threads[i])
		}
		for _, i := range order {
			row := w.Rows.At(i)
			stack := w.Stacks[row.Stack]
			row.Stack, row.Thread = b.Stack(stack.Locations, stack.End), threads[row.Thread]
			row.Context = b.Context(w.Context(row.Context))
			if row.Peer != 0 {
				peer := w.Stacks[row.Peer-1]
				row.Peer = profile.PeerID(b.Stack(peer.Locations, peer.End)) + 1
			}
			b.Add(row)
		}
		shuffled := b.Window()
		w.Samples, w.Exemplars = nil, nil
		prune.Window(w, 80, nil)
		prune.Window(shuffled, 80, nil)
		if diff := profiletest.Diff(w, shuffled); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
}

// thread is one of a window of a test: so many samples, so much time.
type thread struct {
	tid int
	n   int64
	cpu time.Duration
}

// windowOf is a window of them, in which rows of no thread are in slots of their own.
func windowOf(threads ...thread) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	leaf := b.Named(profile.Frame{Function: "leaf"})
	for i, t := range threads {
		id := profile.ThreadID(0)
		if t.tid != 0 {
			id = b.Thread(profile.Thread{PID: 1, TID: t.tid, Process: "shop", Name: "worker", Exact: profile.Exact{CPU: t.cpu}})
		}
		if t.n != 0 {
			b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndComplete), Thread: id, Slot: slot(t, i), N: t.n, Values: []int64{10 * t.n}})
		}
	}
	return b.Window()
}

// slot is that of a row of a thread: none, or its own.
func slot(t thread, i int) uint32 {
	if t.tid != 0 {
		return 0
	}
	return uint32(i + 1)
}

// TestWho says which threads stay.
func TestWho(t *testing.T) {
	for name, c := range map[string]struct {
		threads []thread
		percent float64
		stay    []int // by their numbers
	}{
		"99 of 100":                      {[]thread{{1, 99, 0}, {2, 1, 0}}, 99, []int{1}},
		"98 of 100 are too few":          {[]thread{{1, 98, 0}, {2, 1, 0}, {3, 1, 0}}, 99, []int{1, 2}},
		"all":                            {[]thread{{1, 99, 0}, {2, 1, 0}}, 100, []int{1, 2}},
		"999 of 1000":                    {[]thread{{1, 999, 0}, {2, 1, 0}}, 99.9, []int{1}},
		"one thread":                     {[]thread{{1, 5, 0}}, 80, []int{1}},
		"one sample":                     {[]thread{{1, 1, 0}}, 80, []int{1}},
		"one sample each":                {[]thread{{5, 1, 0}, {4, 1, 0}, {3, 1, 0}, {2, 1, 0}, {1, 1, 0}}, 80, []int{1, 2, 3, 4}},
		"of equals those that used more": {[]thread{{1, 1, 7}, {2, 1, 9}, {3, 1, 8}, {4, 1, 3}, {5, 1, 5}}, 80, []int{1, 2, 3, 5}},
		"not sampled":                    {[]thread{{1, 99, 0}, {2, 1, 0}, {3, 0, 50}}, 99, []int{1, 3}},
		"none is sampled":                {[]thread{{1, 0, 10}, {2, 0, 50}}, 80, []int{1, 2}},
		"samples of no thread":           {[]thread{{0, 900, 0}, {1, 99, 0}, {2, 1, 0}}, 99, []int{1}},
		"no threads":                     {[]thread{{0, 900, 0}}, 80, nil},
		"nothing":                        {nil, 80, nil},
		"a difference":                   {[]thread{{1, 99, 0}, {2, -1, 0}}, 80, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := windowOf(c.threads...)
			p := windowOf(c.threads...)
			prune.Window(p, c.percent, nil)
			var stay []int
			for _, thread := range p.Threads {
				if thread.Name != prune.Name {
					stay = append(stay, thread.TID)
				}
			}
			slices.Sort(stay)
			if !slices.Equal(stay, c.stay) || p.N() != w.N() {
				t.Errorf("threads %v with %d samples, want %v with %d", stay, p.N(), c.stay, w.N())
			}
		})
	}
}

// TestGroups weighs processes by themselves, unless they are of one group.
func TestGroups(t *testing.T) {
	for name, c := range map[string]struct {
		groups []int
		pruned int64
	}{"by name": {nil, 1}, "together": {[]int{0, 0, 0}, 100}, "each": {[]int{0, 1, 2}, 0}} {
		b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
		stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "leaf"})}, profile.EndComplete)
		for i, process := range []string{"large", "small", "small"} {
			id := b.Thread(profile.Thread{PID: i + 1, TID: i + 1, Process: process, Name: process})
			b.Add(profile.Row{Stack: stack, Thread: id, N: 1, Values: []int64{[]int64{9900, 99, 1}[i]}})
		}
		w := b.Window()
		prune.Window(w, 99, c.groups)
		if got := gone(w); got != c.pruned {
			t.Errorf("%s: %d pruned, want %d", name, got, c.pruned)
		}
	}
}

// TestNothingElse leaves only what rows need in the dictionaries, and says what was
// done.
func TestNothingElse(t *testing.T) {
	for seed := range uint64(100) {
		p := pruned(seed, 80)
		if prune.Sum(p, 0) == 0 {
			continue
		}
		stacks, locations := map[profile.StackID]bool{}, map[profile.LocationID]bool{}
		for _, r := range p.Rows.All() {
			stacks[r.Stack] = true
			for _, l := range p.Stacks[r.Stack].Locations {
				locations[l] = true
			}
		}
		if len(stacks) != len(p.Stacks) || len(locations) != len(p.Locations) || len(p.Names) != len(p.Locations) {
			t.Errorf("seed %d: %d stacks of %d are used, %d locations of %d, with %d names", seed, len(stacks), len(p.Stacks), len(locations), len(p.Locations), len(p.Names))
		}
		i := slices.IndexFunc(p.Losses, func(l profile.Loss) bool { return l.Reason == profile.LossPruned })
		if i < 0 || p.Losses[i].N == 0 || p.Losses[i].Detail != "threads outside P80" {
			t.Errorf("seed %d: losses %+v", seed, p.Losses)
		}
	}
}
