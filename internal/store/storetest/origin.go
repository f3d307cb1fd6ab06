package storetest

import (
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testOrigin keeps the origin of windows, and says at each level of whose instances some were
// pushed.
func testOrigin(t *testing.T, b *bench) {
	windows := []*profile.Window{Window(1, "shop", "a", Epoch), Window(2, "shop", "b", Epoch), Window(3, "shop", "c", Epoch)}
	windows[0].Origin, windows[2].Origin = profile.OriginPushed, profile.OriginPushed
	b.put(t, windows...)
	b.roll(t)
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		q := always()
		q.Level = level
		pushed := 0
		for _, w := range b.scan(t, tenant, q) {
			if w.Origin == profile.OriginPushed {
				pushed++
			}
		}
		want := 2 // of three
		if level.Services() {
			want = 1 // of both value types one
		}
		m := b.merge(t, q, windows[0].Types[0].Kind, store.Grouping{})
		if got := m.Summary.Pushed; pushed < want || len(got.Instances) != want || got.More != level.Services() {
			t.Errorf("%v: %d windows of %v, %v were pushed, want those of %d instances", level, pushed, got.Instances, got.More, want)
		}
	}
}
