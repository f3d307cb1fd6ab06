package prune_test

import (
	"slices"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
)

// sampled is one row of a window of a test.
type sampled struct {
	process string
	tid     int
	n       int64
	calls   []profile.Location // leaf first
}

func named(functions ...string) (calls []profile.Location) {
	for _, f := range functions {
		calls = append(calls, profile.Location{Kind: profile.KindNative, Name: f})
	}
	return calls
}

func windowWith(rows ...sampled) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	for _, r := range rows {
		var stack []profile.LocationID
		for _, l := range r.calls {
			stack = append(stack, b.Location(l))
		}
		id := b.Thread(profile.Thread{PID: len(r.process), TID: r.tid, Process: r.process, Name: "worker"})
		b.Add(profile.Row{Stack: b.Stack(stack, profile.EndTooDeep), Thread: id, Context: b.Context(profile.Context{Endpoint: "/"}), N: r.n, Values: []int64{10 * r.n}})
	}
	return b.Window()
}

// told adds up what stands for threads that were pruned, by its leaf.
func told(w *profile.Window) map[string]int64 {
	all := map[string]int64{}
	for _, r := range w.Rows.All() {
		if s := w.Stacks[r.Stack]; prune.IsMarker(w.Locations[s.Locations[len(s.Locations)-1]]) {
			all[w.Locations[s.Locations[0]].Name] += r.N
		}
	}
	return all
}

// TestTold has a thread that does nearly everything, and others of which one does a
// little of a function, elsewhere: whether that stays told depends on how much it is of
// the function, and of all.
func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		has, lost int64 // of the function
		told      bool
	}{
		"0.7% of a large one": {9930, 70, true}, "0.4% of it": {9960, 40, false},
		"all of a small one": {0, 40, true}, "all of a smaller one": {0, 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := windowWith(sampled{"shop", 1, 100_000 - c.has - c.lost - 1, named("serve", "main")}, sampled{"shop", 1, c.has + 1, named("f", "main")},
				sampled{"shop", 2, c.lost, named("f", "other", "main")}, sampled{"shop", 3, 1, named("g", "other", "main")})
			prune.Window(w, 99, nil)
			want := map[string]int64{prune.Name: 1 + c.lost}
			if c.told {
				want = map[string]int64{prune.Name: 1, "f": c.lost}
			}
			if got := told(w); !same(got, want) {
				t.Errorf("%v is told, want %v", got, want)
			}
			for _, s := range w.Stacks {
				if cut := prune.IsMarker(w.Locations[s.Locations[len(s.Locations)-1]]); cut != (s.End == profile.EndComplete) {
					t.Errorf("a stack ended %v", s.End)
				}
			}
		})
	}
}

// TestNamesFoundLater prunes a window whose code has names as if it had none yet: a
// function longer than what counts as one is not told, nor is it with them.
func TestNamesFoundLater(t *testing.T) {
	code := func(offset uint64) []profile.Location {
		return append([]profile.Location{{Kind: profile.KindNative, BuildID: "b", Offset: offset}}, named("rest", "main")...)
	}
	rows := []sampled{{"shop", 1, 99_000, named("serve", "main")}}
	for i := range uint64(20) {
		rows = append(rows, sampled{"shop", 2, 10, code(i << 8)})
	}
	for _, known := range []bool{false, true} {
		w := windowWith(rows...)
		for i, l := range w.Locations {
			if known && l.BuildID != "" {
				w.Names[i] = []profile.Frame{{Function: "long"}}
			}
		}
		prune.Window(w, 99, nil)
		if got := told(w); !same(got, map[string]int64{prune.Name: 200}) {
			t.Errorf("names known: %v: %v is told", known, got)
		}
	}
}

// TestPrunedAmongOthers merges a process that was pruned with one that was not, and
// prunes both: the first stays as it is, and nothing is there twice.
func TestPrunedAmongOthers(t *testing.T) {
	one := func(process string) *profile.Window {
		return windowWith(sampled{process, 1, 990, named("serve", "main")}, sampled{process, 2, 6, named("f", "other", "main")}, sampled{process, 3, 1, named("small", "other", "main")})
	}
	before := one("shop")
	prune.Window(before, 99, nil)
	w, err := profile.Merge(before, one("cart-7"))
	if err != nil {
		t.Fatal(err)
	}
	prune.Window(w, 99, nil)
	if got, want := told(w), (map[string]int64{"f": 12, "small": 2}); !same(got, want) {
		t.Errorf("%v is told, want %v", got, want)
	}
	stacks, threads := map[string]bool{}, map[profile.Thread]bool{}
	for id := range w.Stacks {
		stacks[signature(w, profile.StackID(id))] = true
	}
	for _, thread := range w.Threads {
		threads[thread] = true
	}
	if len(stacks) != len(w.Stacks) || len(threads) != len(w.Threads) || len(threads) != 4 {
		t.Errorf("%d stacks of %d, threads %+v", len(stacks), len(w.Stacks), w.Threads)
	}
}

// TestContexts prunes rows with contexts, peers and exemplars: pruned rows keep them.
func TestContexts(t *testing.T) {
	w := windowWith(sampled{"shop", 1, 990, named("serve", "main")}, sampled{"shop", 2, 1, named("serve", "main")}, sampled{"shop", 3, 1, named("f", "main")})
	peer := profile.PeerID(len(w.Stacks)) + 1
	w.Stacks = append(w.Stacks, profile.Stack{Locations: w.Stacks[0].Locations[:1], End: profile.EndTooDeep})
	for i, r := range w.Rows.All() {
		w.Rows.SetPeer(i, peer)
		w.Exemplars = append(w.Exemplars, profile.Exemplar{Trace: "t", Stack: r.Stack, Thread: r.Thread, Context: r.Context, Value: 1})
	}
	prune.Window(w, 99, nil)
	pruned := 0
	for _, r := range w.Rows.All() {
		if w.Thread(r.Thread).Name == prune.Name {
			pruned++
		}
		if stack := w.Stacks[r.Peer-1]; w.Context(r.Context).Endpoint != "/" || len(stack.Locations) != 1 || stack.End != profile.EndTooDeep {
			t.Errorf("%+v of %+v, by %+v", r, w.Context(r.Context), stack)
		}
	}
	for _, e := range w.Exemplars {
		if !slices.ContainsFunc(w.Rows.Stack, func(s profile.StackID) bool { return s == e.Stack }) {
			t.Errorf("an exemplar of stack %d, which no row has", e.Stack)
		}
	}
	if pruned == 0 {
		t.Error("nothing was pruned")
	}
}

// TestWithoutValues weighs threads by their samples where values come to nothing, or are
// missing; groups with negative ones stay.
func TestWithoutValues(t *testing.T) {
	rows := []sampled{{"shop", 1, 990, named("serve", "main")}, {"shop", 2, 1, named("f", "main")}}
	for name, c := range map[string]struct {
		values []int64
		kept   int
	}{"nothing": {[]int64{0, 0}, 1}, "missing": {nil, 1}, "negative": {[]int64{10, -1}, 2}, "none of one": {[]int64{0, 10}, 2}, "more than samples": {[]int64{10, 5}, 2}} {
		w := windowWith(rows...)
		copy(w.Rows.Values, c.values)
		if c.values == nil {
			w.Rows.Types, w.Rows.Values, w.Rows.Squares = 0, nil, nil
		}
		prune.Window(w, 99, nil)
		if kept := len(slices.DeleteFunc(w.Threads, func(t profile.Thread) bool { return t.Name == prune.Name })); kept != c.kept {
			t.Errorf("%s: %d threads stay, want %d", name, kept, c.kept)
		}
	}
}
