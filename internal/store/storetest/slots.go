package storetest

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testSlots adds windows up by when rows were sampled; some do not tell.
func testSlots(t *testing.T, b *bench) {
	windows := some(680)
	name := func(h *profile.Head, slot uint32) string { return fmt.Sprint(slot, " of ", h.Slot) }
	seen := map[string]bool{}
	for i, w := range windows {
		if w.Slot = time.Second; i%3 == 0 {
			w.Slot = 0
		}
		for j, row := range w.Rows.All() {
			if w.Slot == 0 {
				w.Rows.SetSlot(j, 0)
				row.Slot = 0
			}
			seen[name(&w.Head, row.Slot)] = true
		}
	}
	b.put(t, windows...)
	for _, kind := range []string{"cpu", "page-faults"} {
		m := b.merge(t, always(), kind, store.Grouping{Slot: name})
		if m.Whole == nil || m.Whole.Windows != len(windows) || len(m.Columns) != len(seen) {
			t.Fatalf("%s: %d columns, windows of all slots: %+v, want %d and %d", kind, len(m.Columns), m.Whole, len(seen), len(windows))
		}
		for i := range m.Columns {
			c := &m.Columns[i]
			compare(t, m, c, totals(kind, windows, func(w *profile.Window, r profile.Row) bool { return name(&w.Head, r.Slot) == c.Key }), kind == "cpu")
		}
	}
}
