package storetest

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testSlots adds windows up by when rows were sampled; some do not tell.
func testSlots(t *testing.T, b *bench) {
	windows := some(680)
	slots := store.Slots{Start: Epoch.Add(-time.Hour), Period: 10 * time.Minute, Parts: 60}
	seen := map[string]bool{}
	for i, w := range windows {
		switch w.Slot = time.Second; i % 3 {
		case 0:
			w.Slot = 0
		case 1:
			w.Slot = time.Minute // longer than a part
		}
		for j, row := range w.Rows.All() {
			if w.Slot == 0 {
				w.Rows.SetSlot(j, 0)
				row.Slot = 0
			}
			seen[slots.Part(&w.Head, row.Slot)] = true
		}
	}
	if len(seen) < 3 {
		t.Fatalf("only slots %v", seen)
	}
	b.put(t, windows...)
	for _, kind := range []string{"cpu", "page-faults"} {
		m := b.merge(t, always(), kind, store.Grouping{By: []store.Dimension{store.BySlot}, Slots: slots})
		if m.Whole == nil || m.Whole.Windows != len(windows) || len(m.Columns) != len(seen) {
			t.Fatalf("%s: %d columns, windows of all slots: %+v, want %d and %d", kind, len(m.Columns), m.Whole, len(seen), len(windows))
		}
		for i := range m.Columns {
			c := &m.Columns[i]
			compare(t, m, c, totals(kind, windows, func(w *profile.Window, r profile.Row) bool { return slots.Part(&w.Head, r.Slot) == c.By[0] }), kind == "cpu")
		}
	}
	m := b.merge(t, always(), "cpu", store.Grouping{By: []store.Dimension{store.ByThread, store.BySlot}, Slots: slots})
	for i := range m.Columns {
		c := &m.Columns[i]
		compare(t, m, c, totals("cpu", windows, func(w *profile.Window, r profile.Row) bool {
			return w.Thread(r.Thread).Name == c.By[0] && slots.Part(&w.Head, r.Slot) == c.By[1]
		}), true)
	}
}
