package selection

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

func TestOnly(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0), {Kind: "page-faults", Unit: "count"}}})
	stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "main"})}, profile.EndComplete)
	b.Add(profile.Row{Stack: stack, N: 2, Values: []int64{30, 4}, Squares: []float64{500}})
	w := b.Window()
	faults, err := Only(w, "page-faults")
	if err != nil {
		t.Fatal(err)
	}
	if got := Whole(faults); got != (profile.Sum{N: 2, Value: 4}) || len(faults.Types) != 1 || faults.Types[0].Kind != "page-faults" {
		t.Errorf("page faults: %+v of %v", got, faults.Types)
	}
	cpu, err := Only(w, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	if got := Whole(cpu); got != (profile.Sum{N: 2, Value: 30, Squares: 500}) {
		t.Errorf("cpu: %+v", got)
	}
	if got := Whole(w); got.Value != 30 || len(w.Rows.At(0).Values) != 2 {
		t.Errorf("the window given was changed: %+v", w.Rows)
	}
	if _, err = Only(w, "wall"); err == nil || err.Error() != `no value type "wall": there is "cpu" and "page-faults"` {
		t.Errorf("unknown type: %v", err)
	}
	if _, err = Only(&profile.Window{}, "wall"); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("no types: %v", err)
	}
}

func TestReverse(t *testing.T) {
	got := stacks(Reverse(parse(t, "main;serve;parse 3\nidle 1\n")))
	if want := map[string]int64{"parse;serve;main": 3, "idle": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Turned twice, a window is as it was; the note on missing frames turns with
// the stack and so becomes a frame.
func TestReverseTwice(t *testing.T) {
	for seed := range uint64(50) {
		w := profiletest.Random(rand.New(rand.NewPCG(seed, 0)))
		once := Reverse(w)
		if got, want := stacks(Reverse(once)), stacks(w); !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %v, want %v", seed, got, want)
		}
		for stack := range stacks(once) {
			for end := profile.EndTooDeep; end <= profile.EndStarting; end++ {
				if strings.Contains(stack, "["+end.String()+"];") {
					t.Fatalf("seed %d: the note on missing frames is not where they are missing: %q", seed, stack)
				}
			}
		}
		if once.Exact != w.Exact || Whole(once) != Whole(w) {
			t.Fatalf("seed %d: sums changed", seed)
		}
	}
}

func TestThreads(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}, Exact: profile.Exact{CPU: time.Hour},
		Losses: []profile.Loss{{Reason: profile.LossDropped, N: 3}}})
	stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "main"})}, profile.EndComplete)
	small := b.Thread(profile.Thread{TID: 1, Name: "small", Exact: profile.Exact{CPU: time.Second}})
	large := b.Thread(profile.Thread{TID: 2, Name: "large", Exact: profile.Exact{CPU: time.Minute}})
	b.Thread(profile.Thread{TID: 3, Name: "idle"})
	for id, n := range map[profile.ThreadID]int64{0: 1, small: 2, large: 4} {
		b.Add(profile.Row{Stack: stack, Thread: id, N: n, Values: []int64{n}})
	}
	got := Threads(b.Window())
	var names []string
	for _, part := range got {
		names = append(names, part.Thread.Name)
	}
	if !slices.Equal(names, []string{"large", "small", ""}) {
		t.Fatalf("order %q", names)
	}
	if w := got[0].Window; w.Exact.CPU != time.Minute || Whole(w).Value != 4 || len(w.Losses) != 0 {
		t.Errorf("large: exact %v, %+v, losses %v", w.Exact.CPU, Whole(w), w.Losses)
	}
}

func TestNameThreads(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}})
	stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "main"})}, profile.EndComplete)
	for i, id := range []profile.ThreadID{0, b.Thread(profile.Thread{PID: 7, TID: 8}), b.Thread(profile.Thread{PID: 7, TID: 7, Name: "go", Process: "shop"})} {
		b.Add(profile.Row{Stack: stack, Thread: id, Values: []int64{1 << i}})
	}
	w := b.Window()
	tree, err := profile.NewTree(profile.TreeOptions{Process: true, Thread: true}, NameThreads(w))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	tree.Walk(func(n *profile.Node, depth int) {
		if depth > 0 {
			got = append(got, strings.Repeat(" ", depth-1)+n.Frame.Function)
		}
	})
	want := []string{"shop", " go", "  main", "[process 7]", " [thread 8]", "  main", "[process unknown]", " [thread unknown]", "  main"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if w.Rows.At(0).Thread != 0 || w.Threads[0].Name != "" {
		t.Error("the window given was changed")
	}
}

// A bounded tree has the n largest nodes, its sums still add up, and what was
// cut is said.
func TestBound(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := profiletest.Random(rng)
		tree, err := profile.NewTree(profile.TreeOptions{}, w, w)
		if err != nil {
			t.Fatal(err)
		}
		all := nodes(tree)
		n := rng.IntN(len(all) + 2)
		whole := slices.Clone(tree.Root.Total)
		Bound(tree, n)
		if !slices.Equal(tree.Root.Total, whole) {
			t.Fatalf("seed %d: the whole changed", seed)
		}
		var kept []int64
		tree.Walk(func(node *profile.Node, depth int) {
			checkSums(t, node)
			if depth > 0 && !strings.HasSuffix(node.Frame.Function, " smaller]") {
				kept = append(kept, weight(node))
			}
		})
		slices.SortFunc(kept, func(a, b int64) int { return int(b - a) })
		want := all
		if n > 0 {
			want = all[:min(n, len(all))]
		}
		if !slices.Equal(kept, want) {
			t.Fatalf("seed %d: %d of %d nodes bounded to %d", seed, len(kept), len(all), n)
		}
	}
}

// nodes lists the weights of all nodes but the root, largest first.
func nodes(tree *profile.Tree) []int64 {
	var all []int64
	tree.Walk(func(n *profile.Node, depth int) {
		if depth > 0 {
			all = append(all, weight(n))
		}
	})
	slices.SortFunc(all, func(a, b int64) int { return int(b - a) })
	return all
}

func checkSums(t *testing.T, n *profile.Node) {
	t.Helper()
	for i, total := range n.Total {
		sum := n.Self[i].Value
		for _, c := range n.Children {
			sum += c.Total[i].Value
		}
		if sum != total.Value {
			t.Fatalf("%q: children and self make %d, total is %d", n.Frame.Function, sum, total.Value)
		}
	}
}

func TestTellApart(t *testing.T) {
	w := &profile.Window{Threads: []profile.Thread{
		{PID: 1, TID: 11, Process: "shop", Name: "worker"}, {PID: 1, TID: 12, Process: "shop", Name: "worker"},
		{PID: 1, TID: 13, Process: "shop", Name: "main"}, {PID: 2, TID: 21, Process: "shop", Name: "main"}, {PID: 3, TID: 31, Process: "cart", Name: "main"},
	}}
	for _, test := range []struct {
		processes, threads bool
		want               string
	}{
		{true, true, "shop (1)/worker (11) shop (1)/worker (12) shop (1)/main shop (2)/main cart/main"},
		{false, true, "shop/worker (11) shop/worker (12) shop/main shop/main cart/main"},
		{true, false, "shop (1)/worker shop (1)/worker shop (1)/main shop (2)/main cart/main"},
	} {
		var got []string
		for _, thread := range TellApart(w, test.processes, test.threads).Threads {
			got = append(got, thread.Process+"/"+thread.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("processes %v, threads %v:\n got %s\nwant %s", test.processes, test.threads, strings.Join(got, " "), test.want)
		}
	}
}
