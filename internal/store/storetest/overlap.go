package storetest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Added is windows of one second as a relay adds them up: one window of their
// service, that contains them.
func Added(run profile.Run, windows ...*profile.Window) *store.Batch {
	b := Batch(run, windows...)
	sum := store.Window{Series: profile.Labels{store.ServiceLabel: windows[0].Target[store.ServiceLabel]}, Head: b.Windows[0].Head,
		Run: added(run), Scales: []int64{1}, Of: len(windows)}
	sum.Head.Types = slices.Clone(sum.Head.Types[:1]) // goroutines of a test share the windows
	sum.Head.Losses, sum.Head.Comments = slices.Clone(sum.Head.Losses), slices.Clone(sum.Head.Comments)
	sum.Rows.Types = 1
	rows := map[profile.StackID]int{}
	for i, w := range b.Windows {
		if i > 0 {
			sum.Head.Absorb(&w.Head)
		}
		sum.Contains = append(sum.Contains, store.Part{Series: w.Series, Run: w.Run})
		of := w.Rows.Only(0)
		for _, row := range of.All() {
			at, ok := rows[row.Stack]
			if !ok {
				at = len(rows)
				rows[row.Stack] = at
				sum.Rows.Append(profile.Row{Stack: row.Stack, Values: []int64{0}})
				sum.Groups = append(sum.Groups, make([]int64, store.Groups)...)
			}
			sum.Rows.AddTo(at, row, 1)
			sum.Groups[at*store.Groups+store.Group(w.Series)] += row.Values[0]
		}
	}
	for i := range sum.Contains {
		sum.Contains[i].After = b.Windows[i].Head.Start.Sub(sum.Head.Start)
	}
	b.Windows = []store.Window{sum}
	return b
}

// added is the run of windows that were added up: another one than theirs.
func added(run profile.Run) profile.Run {
	run[len(run)-1] = 0xff
	return run
}

// together gives windows of one kind of a service that begin within a second, the
// last first, each of an instance of its own.
func together(first uint64, instances int) (windows []*profile.Window) {
	for i := range instances {
		w := Window(first+uint64(i), "shop", string(rune('a'+i)), Epoch.Add(time.Duration(instances-i)*time.Millisecond))
		w.Types = w.Types[:1]
		w.Rows = w.Rows.Only(0)
		windows = append(windows, w)
	}
	return windows
}

// testOverlap puts windows by themselves and added up, in both orders: each
// counts once.
func testOverlap(t *testing.T, b *bench) {
	windows := together(700, 6)
	put := func(batch *store.Batch) error { return b.Put(context.Background(), tenant, store.Raw, batch) }
	taken := func(what string, batch *store.Batch) {
		t.Helper()
		if err := put(batch); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	overlaps := func(what string, batch *store.Batch, parts ...int) {
		t.Helper()
		var overlap *store.OverlapError
		if err := put(batch); !errors.As(err, &overlap) || !slices.Equal(overlap.Parts[0], parts) {
			t.Errorf("%s: %v, want an overlap of %v", what, err, parts)
		}
	}
	counts := func(what string, want ...*profile.Window) {
		t.Helper()
		m := b.merge(t, always(), "cpu", store.Grouping{})
		if len(m.Columns) != 1 || m.Columns[0].Windows != len(want) {
			t.Fatalf("%s: %d columns, of %v windows", what, len(m.Columns), m.Columns)
		}
		compare(t, m, &m.Columns[0], totals("cpu", want, func(*profile.Window, profile.Row) bool { return true }), true)
	}
	first, second := profile.Run{1}, profile.Run{2}
	taken("two added up", Added(first, windows[:2]...))
	counts("two added up", windows[:2]...)
	taken("the same again", Added(first, windows[:2]...))
	for _, w := range windows[:2] {
		taken("one of them alone", Batch(first, w))
		counts("one of them alone", windows[:2]...)
	}
	overlapping := Added(first, windows[1], windows[2])
	overlapping.Windows[0].Run = profile.Run{3}
	overlaps("one of them with another", overlapping, 0)
	counts("an overlap", windows[:2]...)
	taken("a third alone", Batch(first, windows[2]))
	overlaps("it added up", Added(first, windows[2], windows[3]), 0)
	taken("another life's", Batch(second, windows[0]))
	counts("all", windows[0], windows[1], windows[2], windows[0])
	b.roll(t)
	b.sameAtAllLevels(t, []*profile.Window{windows[0], windows[1], windows[2], windows[0]}, "cpu")
	if err := b.Drop(context.Background(), tenant, store.Raw, Epoch.AddDate(0, 0, 2)); err != nil {
		t.Fatal(err)
	}
	taken("after its day was dropped", Batch(first, windows[0]))
	counts("after its day was dropped", windows[0])
}

// joined is batches under one table, without what explains it.
func joined(batches ...*store.Batch) *store.Batch {
	all := &store.Batch{}
	for _, b := range batches {
		first := profile.StackID(len(all.Stacks))
		all.Stacks = append(all.Stacks, b.Stacks...)
		for _, w := range b.Windows {
			w.Rows.Stack = slices.Clone(w.Rows.Stack)
			for i := range w.Rows.Stack {
				w.Rows.Stack[i] += first
			}
			all.Windows = append(all.Windows, w)
		}
	}
	return all
}

// testOverlapInBatch has windows of one batch contain the same one, and a window be
// beside one that contains it: each counts once.
func testOverlapInBatch(t *testing.T, b *bench) {
	run, windows := profile.Run{1}, together(900, 4)
	sum := func(number byte, windows ...*profile.Window) *store.Batch {
		s := Added(run, windows...)
		s.Windows[0].Run = profile.Run{2, number}
		return s
	}
	put := func(batch *store.Batch) error {
		batch.Forest = Batch(run, windows...).Forest
		return b.Put(context.Background(), tenant, store.Raw, batch)
	}
	first, second, third := sum(1, windows[:2]...), sum(2, windows[1:3]...), sum(3, windows[1], windows[3])
	var overlap *store.OverlapError
	if err := put(joined(first, second, third)); !errors.As(err, &overlap) ||
		!maps.EqualFunc(overlap.Parts, map[int][]int{1: {0}, 2: {0}}, slices.Equal) {
		t.Errorf("three that contain one: %v, want overlaps of the second and the third", err)
	}
	if err := put(joined(Batch(run, windows[0]), first, sum(4, windows[2:]...), Batch(run, windows[3]), sum(4, windows[2:]...))); err != nil {
		t.Errorf("some beside what contains them, and one twice: %v", err)
	}
	m := b.merge(t, always(), "cpu", store.Grouping{})
	if len(m.Columns) != 1 || m.Columns[0].Windows != len(windows) {
		t.Fatalf("%d columns, of %v windows, want %d", len(m.Columns), m.Columns[0].Windows, len(windows))
	}
	compare(t, m, &m.Columns[0], totals("cpu", windows, func(*profile.Window, profile.Row) bool { return true }), true)
}

// testOverlapAtOnce has many put windows by themselves and added up at random, at
// once, and again without what they are told is there: each counts once.
func testOverlapAtOnce(t *testing.T, b *bench) {
	windows := together(800, 20)
	run := profile.Run{1}
	var putters sync.WaitGroup
	for i := range 30 {
		r := rand.New(rand.NewPCG(uint64(i), 5))
		var some []*profile.Window
		for _, at := range r.Perm(len(windows))[:1+r.IntN(6)] {
			some = append(some, windows[at])
		}
		putters.Go(func() {
			for attempt := 0; len(some) > 0; attempt++ {
				batch := Batch(run, some...)
				if i%3 > 0 {
					batch = Added(run, some...)
					batch.Windows[0].Run = profile.Run{2, byte(i), byte(attempt)}
				}
				err := b.Put(context.Background(), tenant, store.Raw, batch)
				var overlap *store.OverlapError
				if err == nil {
					return
				}
				if !errors.As(err, &overlap) {
					t.Error(err)
					return
				}
				for _, part := range slices.Backward(overlap.Parts[0]) {
					some = slices.Delete(some, part, part+1)
				}
			}
		})
	}
	putters.Wait()
	for _, w := range windows { // those that nobody took
		if err := b.Put(context.Background(), tenant, store.Raw, Batch(run, w)); err != nil {
			t.Fatal(err)
		}
	}
	m := b.merge(t, always(), "cpu", store.Grouping{})
	if len(m.Columns) != 1 || m.Columns[0].Windows != len(windows) {
		t.Fatalf("%d columns, of %v windows, want %d", len(m.Columns), m.Columns[0].Windows, len(windows))
	}
	compare(t, m, &m.Columns[0], totals("cpu", windows, func(*profile.Window, profile.Row) bool { return true }), true)
}
