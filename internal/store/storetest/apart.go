package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testApart tells instances apart, one of which is of two series, as long as they
// are few and all windows are of one.
func testApart(t *testing.T, b *bench) {
	var windows []*profile.Window
	for i := range uint64(24) {
		w := Window(800+i, "shop", fmt.Sprint("i", i%4), Epoch.Add(time.Duration(i)*time.Minute))
		if i%8 == 0 {
			w.Target["executable"] = "helper"
		}
		windows = append(windows, w)
	}
	b.put(t, windows...)
	raw := b.merge(t, always(), "cpu", store.Grouping{MaxInstances: 4})
	sameApart(t, raw, windows)
	for name, g := range map[string]store.Grouping{
		"nobody asks": {}, "too many": {MaxInstances: 3}, "by thread": {MaxInstances: 4, By: []store.Dimension{store.ByThread}},
	} {
		if c := b.merge(t, always(), "cpu", g).Columns[0]; c.Instances != nil {
			t.Errorf("%s: %d instances are told apart", name, len(c.Instances))
		}
	}
	m := b.merge(t, always(), "cpu", store.Grouping{MaxInstances: 1, By: []store.Dimension{store.ByLabel("instance")}})
	if len(m.Columns) != 4 || len(m.Columns[3].Instances) != 1 || len(m.Columns[3].Instances[0].Values) < len(m.Columns[3].Sums) {
		t.Errorf("of one instance each: %d columns, %d instances in the last", len(m.Columns), len(m.Columns[3].Instances))
	}
	b.roll(t)
	for _, level := range store.RolledUp() {
		q := always()
		q.Level = level
		m := b.merge(t, q, "cpu", store.Grouping{MaxInstances: 4})
		if !level.Services() {
			sameApart(t, m, windows)
		} else if m.Columns[0].Instances != nil {
			t.Errorf("%v: instances are told apart", level)
		}
	}
	b.added(t)
}

// added has a relay add some windows up: whose they are nobody knows.
func (b *bench) added(t *testing.T) {
	t.Helper()
	if err := b.Put(t.Context(), tenant, store.Raw, Added(profile.Run{9}, together(910, 3)...)); err != nil {
		t.Fatal(err)
	}
	b.roll(t)
	for _, level := range []store.Level{store.Raw, store.Series10m, store.Series1h} {
		q := always()
		q.Level = level
		if c := b.merge(t, q, "cpu", store.Grouping{MaxInstances: 4}).Columns[0]; c.Instances != nil {
			t.Errorf("%v: %d instances are told apart", level, len(c.Instances))
		}
	}
}

// sameApart holds what instances have against what was put.
func sameApart(t *testing.T, m *store.Merged, windows []*profile.Window) {
	t.Helper()
	names := map[string]bool{}
	for _, w := range windows {
		names[store.Instance(w.Target)] = true
	}
	c, hashes := &m.Columns[0], hashesOf(m.Forest)
	if len(c.Instances) != len(names) || !slices.IsSortedFunc(c.Instances, func(x, y store.OfInstance) int { return cmp.Compare(x.Name, y.Name) }) {
		t.Fatalf("%d instances, want %d: %q", len(c.Instances), len(names), slices.Collect(maps.Keys(names)))
	}
	for _, one := range c.Instances {
		want := totals("cpu", windows, func(w *profile.Window, _ profile.Row) bool { return store.Instance(w.Target) == one.Name })
		got := map[profile.Hash]int64{}
		for _, v := range one.Values {
			got[hashes[v.Call]] += v.Value
		}
		if len(got) != len(want) {
			t.Errorf("%q has %d stacks, want %d", one.Name, len(got), len(want))
		}
		for h, w := range want {
			if got[h] != w.value {
				t.Errorf("%q: %d of a stack, want %d", one.Name, got[h], w.value)
			}
		}
	}
}
