package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// waiting is a window of what threads waited for.
func waiting(seed uint64, instance string, start time.Time) *profile.Window {
	w := Window(seed, "shop", instance, start)
	w.Types[0], w.Types[1] = profile.ValueType{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall}, profile.ValueType{Kind: "waits", Unit: "count"}
	return w
}

// mixed is windows of two instruments.
func mixed() (windows []*profile.Window) {
	for i := range uint64(12) {
		at := Epoch.Add(time.Duration(i) * 10 * time.Second)
		windows = append(windows, Window(400+i, "shop", fmt.Sprint("i", i%4), at), waiting(430+i, fmt.Sprint("i", i%4), at))
	}
	return windows
}

// testByKind adds values of several kinds up: together, and apart by kind.
func testByKind(t *testing.T, b *bench) {
	windows := mixed()
	b.put(t, windows...)
	for _, kinds := range [][]string{{"cpu", "off-cpu"}, {"cpu", "page-faults"}, {"off-cpu", "cpu", "waits"}} {
		want := map[profile.Hash]total{}
		q := always()
		q.Kinds = kinds
		measured := 0
		var whole profile.Head
		for _, w := range windows {
			if slices.ContainsFunc(w.Types, func(ty profile.ValueType) bool { return q.Measures(ty.Kind) }) {
				measured++
				whole.Exact.Add(w.Exact)
				whole.Watched += w.Watched
			}
		}
		for _, kind := range kinds {
			for h, of := range totals(kind, windows, func(*profile.Window, profile.Row) bool { return true }) {
				sum := want[h]
				sum.n, sum.value, sum.squares = sum.n+of.n, sum.value+of.value, sum.squares+of.squares
				want[h] = sum
			}
		}
		if b.settle != nil {
			b.settle(b.Store)
		}
		m, err := b.Merge(t.Context(), tenant, []store.Query{q}, store.Grouping{MaxInstances: 4})
		if err != nil || len(m.Columns) != 1 {
			t.Fatalf("%d columns, %v", len(m.Columns), err)
		}
		c := &m.Columns[0]
		compare(t, m, c, want, false)
		sums := map[string]profile.Sum{}
		for _, kind := range c.Kinds {
			sums[kind.Kind] = kind.Sum
		}
		for _, kind := range kinds {
			var sum total
			for _, of := range totals(kind, windows, func(*profile.Window, profile.Row) bool { return true }) {
				sum.n, sum.value = sum.n+of.n, sum.value+of.value
			}
			if got := sums[kind]; got.N != sum.n || got.Value != sum.value || len(c.Kinds) != len(kinds) {
				t.Errorf("%q of %q: %+v, want %+v", kind, kinds, got, sum)
			}
		}
		if c.Windows != measured || c.Head.Exact != whole.Exact || c.Head.Watched != whole.Watched || len(c.Head.Types) != len(kinds) || len(c.Instances) != 4 {
			t.Errorf("%q: %d windows, want %d; %+v, want %+v; %d instances", kinds, c.Windows, measured, c.Head, whole, len(c.Instances))
		}
		apart, err := b.Merge(t.Context(), tenant, []store.Query{q}, store.Grouping{By: []store.Dimension{store.ByKind}, MaxInstances: 4})
		if err != nil || len(apart.Columns) != len(kinds) || apart.Whole == nil || apart.Whole.Windows != measured || apart.Whole.Head.Exact != whole.Exact {
			t.Fatalf("%q by kind: %d columns, whole %+v, %v", kinds, len(apart.Columns), apart.Whole, err)
		}
		for i := range apart.Columns {
			c := &apart.Columns[i]
			compare(t, apart, c, totals(c.By[0], windows, func(*profile.Window, profile.Row) bool { return true }), false)
			if len(c.Instances) != 4 || len(c.Head.Types) != 1 || c.Head.Types[0].Kind != c.By[0] || len(c.Head.Losses) > 0 {
				t.Errorf("%q: %d instances, %+v", c.By, len(c.Instances), c.Head)
			}
		}
	}
}

// testSteps adds windows up by time.
func testSteps(t *testing.T, b *bench) {
	windows := mixed()
	for i, w := range windows {
		w.Start, w.Duration = w.Start.Add(time.Duration(i%5-2)*200*time.Millisecond), 10*time.Second
	}
	b.put(t, windows...)
	g := store.Grouping{By: []store.Dimension{store.ByLabel("instance")}, Start: Epoch.Add(30 * time.Second), Step: 20 * time.Second}
	m := b.merge(t, always(), "cpu", g)
	type column struct {
		start    int64
		instance string
	}
	var got, want []column
	for i := range m.Columns {
		c := &m.Columns[i]
		at := column{c.Start.UnixNano(), c.By[0]}
		got = append(got, at)
		compare(t, m, c, totals("cpu", windows, func(w *profile.Window, _ profile.Row) bool {
			return w.Target["instance"] == at.instance && g.StepOf(&w.Head).UnixNano() == at.start
		}), true)
	}
	for _, w := range windows {
		at := column{g.StepOf(&w.Head).UnixNano(), w.Target["instance"]}
		if w.TypeIndex("cpu") >= 0 && !slices.Contains(want, at) {
			want = append(want, at)
		}
	}
	if len(got) != len(want) || len(want) < 8 || !slices.IsSortedFunc(got, func(a, b column) int { return int(a.start - b.start) }) {
		t.Errorf("columns %v, want %v", got, want)
	}
}

// testChoosesKinds asks for windows that have values of some kinds.
func testChoosesKinds(t *testing.T, b *bench) {
	windows := []*profile.Window{Window(1, "shop", "one", Epoch), waiting(2, "two", Epoch)}
	b.put(t, windows...)
	q := always()
	same(t, b.scan(t, tenant, q), windows...)
	q.Kinds = []string{"waits", "nothing"}
	same(t, b.scan(t, tenant, q), windows[1])
	series, err := b.Series(t.Context(), tenant, q)
	if err != nil || len(series) != 1 || series[0]["instance"] != "two" {
		t.Errorf("series %v, %v", series, err)
	}
	types, err := b.Types(t.Context(), tenant, []store.Query{q})
	if err != nil || len(types) != 1 || types[0].Kind != "waits" {
		t.Errorf("types %v, %v", types, err)
	}
	q.Kinds = []string{"nothing"}
	if series, err = b.Series(t.Context(), tenant, q); err != nil || len(series) != 0 {
		t.Errorf("series %v, %v", series, err)
	}
}

// testKinds puts what two instruments of one task measured at the same time.
func testKinds(t *testing.T, b *bench) {
	cpu, waits := Window(1, "shop", "one", Epoch), Window(2, "shop", "one", Epoch)
	waits.Types[0], waits.Types[1] = profile.ValueType{Kind: "off-cpu", Unit: "nanoseconds", Base: profile.BaseWall}, profile.ValueType{Kind: "waits", Unit: "count"}
	b.put(t, cpu)
	b.put(t, waits)
	same(t, b.scan(t, tenant, always()), cpu, waits)
	types, err := b.Types(context.Background(), tenant, []store.Query{always()})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, ty := range types {
		kinds = append(kinds, ty.Kind)
	}
	if want := []string{"cpu", "off-cpu", "page-faults", "waits"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %q, want %q", kinds, want)
	}
	b.put(t, waits) // it comes again
	b.put(t, cpu)
	same(t, b.scan(t, tenant, always()), cpu, waits)
	for _, w := range []*profile.Window{cpu, waits} {
		m := b.merge(t, always(), w.Kind(), store.Grouping{})
		if len(m.Columns) != 1 || m.Columns[0].Head.Types[0] != w.Types[0] {
			t.Fatalf("%d columns of %q, %+v", len(m.Columns), w.Kind(), m.Columns)
		}
		compare(t, m, &m.Columns[0], totals(w.Kind(), []*profile.Window{w}, func(*profile.Window, profile.Row) bool { return true }), true)
	}
}
