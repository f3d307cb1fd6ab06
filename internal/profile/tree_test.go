package profile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
)

func tree(t testing.TB, o profile.TreeOptions, windows ...*profile.Window) *profile.Tree {
	t.Helper()
	tr, err := profile.NewTree(o, windows...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTreeTotals(t *testing.T) {
	for seed := range uint64(40) {
		a, b := random(2*seed), random(2*seed+1)
		for _, o := range []profile.TreeOptions{{}, {Process: true, Thread: true}} {
			tr := tree(t, o, a, b)
			for column, w := range []*profile.Window{a, b} {
				if got := tr.Root.Total[column]; got.N != w.N() || got.Value != w.Total(0) {
					t.Fatalf("seed %d %+v: column %d has %+v, the window %d and %d", seed, o, column, got, w.N(), w.Total(0))
				}
			}
			checkNode(t, tr.Root)
			checkFunctions(t, tr)
		}
	}
}

// checkNode: a node's total is its own value and its children's.
func checkNode(t *testing.T, n *profile.Node) {
	sum := slices.Clone(n.Self)
	for _, c := range n.Children {
		for i, s := range c.Total {
			sum[i].N += s.N
			sum[i].Value += s.Value
			sum[i].Squares += s.Squares
		}
		checkNode(t, c)
	}
	if !slices.Equal(sum, n.Total) {
		t.Fatalf("%q: total %+v, self and children %+v", n.Frame.Function, n.Total, sum)
	}
}

// checkFunctions: self values add up to all there is but stacks without frames;
// no total is larger than all there is, however often a function is on a stack.
func checkFunctions(t *testing.T, tr *profile.Tree) {
	for column := range tr.Columns {
		sum := tr.Root.Self[column].Value
		for _, f := range tr.Functions() {
			sum += f.Self[column].Value
			if f.Total[column].Value > tr.Root.Total[column].Value || f.Total[column].Value < f.Self[column].Value {
				t.Fatalf("%q: self %d, total %d of %d", f.Frame.Function, f.Self[column].Value, f.Total[column].Value, tr.Root.Total[column].Value)
			}
		}
		if sum != tr.Root.Total[column].Value {
			t.Fatalf("self values add up to %d of %d", sum, tr.Root.Total[column].Value)
		}
	}
}

// stacks builds a window of stacks like "main a a" (root first), each of one sample.
func stacks(kind profile.Kind, lines ...string) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	for i, line := range lines {
		var ids []profile.LocationID
		for _, name := range strings.Fields(line) {
			ids = append(ids, b.Named(profile.Frame{Function: name, Kind: kind, Line: i}))
		}
		slices.Reverse(ids)
		b.Add(profile.Row{Stack: b.Stack(ids, profile.EndComplete), N: 1, Values: []int64{10}, Squares: []float64{100}})
	}
	return b.Window()
}

func TestFunctionsCountRecursionOnce(t *testing.T) {
	tr := tree(t, profile.TreeOptions{}, stacks(profile.KindNative, "main a b a b a", "main a", "main b a"))
	got := map[string]string{}
	for _, f := range tr.Functions() {
		got[f.Frame.Function] = fmt.Sprintf("%d/%d/%g", f.Self[0].N, f.Total[0].N, f.Total[0].Squares)
	}
	want := map[string]string{"main": "0/3/300", "a": "3/3/300", "b": "0/2/200"}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: self/total/squares %s, want %s", name, got[name], w)
		}
	}
}

func TestTreeShape(t *testing.T) {
	show := func(tr *profile.Tree) string {
		var b strings.Builder
		tr.Walk(func(n *profile.Node, depth int) {
			if depth > 0 {
				fmt.Fprintf(&b, "%s%s:%d ", strings.Repeat(">", depth-1), n.Frame.Function, n.Total[0].N)
			}
		})
		return strings.TrimSpace(b.String())
	}
	w := stacks(profile.KindNative, "main a", "main b a", "main b a")
	if got, want := show(tree(t, profile.TreeOptions{}, w)), "main:3 >b:2 >>a:2 >a:1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := profile.NewTree(profile.TreeOptions{}, &profile.Window{}); err == nil {
		t.Error("a window without value types has a tree")
	}
	if empty := tree(t, profile.TreeOptions{}); len(empty.Functions()) != 0 {
		t.Error("a tree of nothing has functions")
	}
}

// The order of a window's rows must not show.
func TestTreeDoesNotDependOnOrder(t *testing.T) {
	for seed := range uint64(25) {
		a, b := random(2*seed), random(2*seed+1)
		names := func(w *profile.Window) (out []string) {
			tr := tree(t, profile.TreeOptions{}, w)
			tr.Walk(func(n *profile.Node, depth int) { out = append(out, fmt.Sprint(depth, n.Frame.Key(), n.Total)) })
			for _, f := range tr.Functions() {
				out = append(out, fmt.Sprint(f.Frame.Key(), f.Self, f.Total))
			}
			return out
		}
		left, right := names(merge(t, a, b)), names(merge(t, b, a))
		for i, l := range left {
			if l != right[i] {
				t.Fatalf("seed %d: trees differ at line %d: %s and %s", seed, i, l, right[i])
			}
		}
	}
}

func TestThreadsAndTruncationLead(t *testing.T) {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}})
	leaf := b.Named(profile.Frame{Function: "f"})
	thread := b.Thread(profile.Thread{PID: 1, TID: 2, Process: "shop", Name: "http-12"})
	b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf}, profile.EndNoUnwind), Thread: thread, N: 1, Values: []int64{1}})
	var got []string
	tree(t, profile.TreeOptions{Process: true, Thread: true}, b.Window()).Walk(func(n *profile.Node, depth int) {
		if depth > 0 {
			got = append(got, n.Frame.Function)
		}
	})
	if want := []string{"shop", "http-12", "[no unwind information]", "f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func BenchmarkTree(b *testing.B) {
	var lines []string
	for i := range 20000 {
		lines = append(lines, fmt.Sprintf("main serve h%d x%d y%d z%d", i%7, i%113, i%1009, i))
	}
	w := stacks(profile.KindNative, lines...)
	for b.Loop() {
		tree(b, profile.TreeOptions{}, w)
	}
}
