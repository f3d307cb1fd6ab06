package disk

import (
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/storetest"
)

// TestClaimsOfGroup has commits of several tenants, each of which claims windows, be
// written as one: a window that comes by itself afterwards counts once for each.
func TestClaimsOfGroup(t *testing.T) {
	s := openOn(t, t.TempDir(), nil)
	defer s.Close()
	var windows []*profile.Window
	for i, instance := range []string{"one", "two"} {
		w := storetest.Window(uint64(i), "shop", instance, storetest.Epoch)
		w.Types = w.Types[:1]
		w.Rows = w.Rows.Only(0)
		windows = append(windows, w)
	}
	tenants := []string{"first", "second", "third"}
	var group []*commit
	for _, name := range tenants {
		r, err := s.resolver(name, storetest.Added(profile.Run{1}, windows...))
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.encode(store.Raw)
		r.shelf.putBack()
		r.shelf.db.release()
		if err != nil {
			t.Fatal(err)
		}
		group = append(group, c)
	}
	if _, err := s.write(group); err != nil {
		t.Fatal(err)
	}
	for _, name := range tenants {
		if err := s.Put(t.Context(), name, store.Raw, storetest.Batch(profile.Run{1}, windows[0])); err != nil {
			t.Fatal(err)
		}
		m, err := s.Merge(t.Context(), name, storetest.Of("cpu", everything()), store.Grouping{})
		if err != nil {
			t.Fatal(err)
		}
		if n := m.Columns[0].Windows; n != len(windows) {
			t.Errorf("tenant %q: %d windows count, want %d", name, n, len(windows))
		}
	}
}
