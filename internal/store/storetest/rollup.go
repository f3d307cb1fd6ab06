package storetest

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
)

// roll adds up all that is stale, until nothing is.
func (b *bench) roll(t *testing.T) {
	t.Helper()
	b.rollOf(t, tenant)
}

func (b *bench) rollOf(t *testing.T, tenant string) {
	t.Helper()
	for range 10 {
		stale := b.staleOf(t, tenant)
		if len(stale) == 0 {
			return
		}
		for _, step := range stale {
			if err := b.Roll(context.Background(), tenant, step); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("something is always stale")
}

func (b *bench) stale(t *testing.T) []store.Step {
	t.Helper()
	return b.staleOf(t, tenant)
}

func (b *bench) staleOf(t *testing.T, tenant string) []store.Step {
	t.Helper()
	if b.settle != nil {
		b.settle(b.Store)
	}
	stale, err := b.Stale(context.Background(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return stale
}

// sameAtAllLevels asks each level for all of a kind, against the raw windows.
func (b *bench) sameAtAllLevels(t *testing.T, windows []*profile.Window, kind string) {
	t.Helper()
	raw := b.merge(t, always(), kind, store.Grouping{})
	groups := map[profile.Hash]store.Sum{}
	for i, h := range hashesOf(raw.Forest) {
		for _, s := range raw.Columns[0].Sums {
			if s.Call == i {
				groups[h] = s
			}
		}
	}
	for _, level := range store.RolledUp() {
		q := always()
		q.Level = level
		m := b.merge(t, q, kind, store.Grouping{})
		if len(m.Columns) != 1 {
			t.Fatalf("level %d, %s: %d columns", level, kind, len(m.Columns))
		}
		c := &m.Columns[0]
		compare(t, m, c, totals(kind, windows, func(*profile.Window, profile.Row) bool { return true }), false)
		hashes := hashesOf(m.Forest)
		for _, s := range c.Sums {
			want := groups[hashes[s.Call]]
			if s.Groups != want.Groups || math.Abs(s.Squares-want.Squares) > want.Squares/4 {
				t.Errorf("level %d, %s: groups %v, squares %g; want %v, %g", level, kind, s.Groups, s.Squares, want.Groups, want.Squares)
			}
		}
		h, w := c.Head, raw.Columns[0].Head
		if c.Windows != raw.Columns[0].Windows || h.Exact != w.Exact || h.Idle != w.Idle || h.Watched != w.Watched || h.Cost != w.Cost || h.Task != w.Task {
			t.Errorf("level %d, %s: head %+v of %d windows, want %+v of %d", level, kind, h, c.Windows, w, raw.Columns[0].Windows)
		}
		for _, reason := range []profile.LossReason{profile.LossDropped, profile.LossTruncated, profile.LossPruned} {
			if h.LossOf(reason) != w.LossOf(reason) {
				t.Errorf("level %d, %s: %s %+v, want %+v", level, kind, reason, h.LossOf(reason), w.LossOf(reason))
			}
		}
	}
}

func testRollsUp(t *testing.T, b *bench) {
	windows := some(1000)
	for i := range uint64(30) { // several in each minute, of several instances, some of them pruned
		w := Window(1100+i, "shop", []string{"one", "two", "three"}[i%3], Epoch.Add(time.Duration(1+i/3*10)*time.Second))
		if i%2 == 0 {
			prune.Window(w, 90, nil)
		}
		windows = append(windows, w)
	}
	b.put(t, windows...)
	b.roll(t)
	for _, kind := range []string{"cpu", "page-faults"} {
		b.sameAtAllLevels(t, windows, kind)
	}

	late := Window(1200, "shop", "four", Epoch.Add(7*time.Second))
	b.put(t, late)
	stale := b.stale(t)
	slices.SortFunc(stale, func(a, b store.Step) int { return int(a.Level) - int(b.Level) })
	if want := store.Steps(late.Start); !slices.Equal(stale, want) {
		t.Fatalf("after a late window these are stale: %v, want %v", stale, want)
	}
	b.roll(t)
	b.sameAtAllLevels(t, append(windows, late), "cpu")

	series, err := b.Series(context.Background(), tenant, store.Query{Level: store.Service1h, From: Epoch.Add(-time.Hour), To: Epoch.Add(time.Hour)})
	if err != nil || len(series) != 2 || len(series[0]) != 1 || series[1][store.ServiceLabel] != "shop" {
		t.Errorf("services have the series %v, %v", series, err)
	}
	if tenants, err := b.Tenants(context.Background()); err != nil || !slices.Equal(tenants, []string{tenant}) {
		t.Errorf("tenants %q, %v", tenants, err)
	}
}

// testRollsInOrder has something late come after it was chosen what is added up: a
// step waits for those below it, and lacks nothing in the end.
func testRollsInOrder(t *testing.T, b *bench) {
	windows := []*profile.Window{Window(1500, "shop", "one", Epoch), Window(1501, "shop", "two", Epoch.Add(time.Minute))}
	b.put(t, windows...)
	b.roll(t)
	for i, level := range store.RolledUp() {
		late := Window(1510+uint64(i), "shop", "late", Epoch.Add(time.Duration(i)*time.Second))
		b.put(t, late)
		windows = append(windows, late)
		want := b.stale(t)
		if level.Below() == store.Raw {
			continue
		}
		for _, step := range stepsOf(level) {
			if err := b.Roll(context.Background(), tenant, step); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.stale(t); !slices.Equal(got, want) {
			t.Errorf("%v was added up before what is below it: stale are %v, want %v", level, got, want)
		}
		b.roll(t)
		b.sameAtAllLevels(t, windows, "cpu")
	}
}

// testKeepsRolled drops what was added up, and lets something late come after.
func testKeepsRolled(t *testing.T, b *bench) {
	windows := some(1300)
	b.put(t, windows...)
	b.roll(t)
	hour := store.Query{Level: store.Service1h, From: Epoch.Truncate(time.Hour), To: Epoch.Truncate(time.Hour).Add(time.Hour)}
	before := b.merge(t, hour, "cpu", store.Grouping{})
	midnight := hour.To // the day's last hour
	for _, level := range []store.Level{store.Raw, store.Service1m, store.Service10m} {
		if err := b.Drop(context.Background(), tenant, level, midnight); err != nil {
			t.Fatal(err)
		}
	}
	b.put(t, Window(1400, "shop", "late", Epoch))
	b.roll(t)
	after := b.merge(t, hour, "cpu", store.Grouping{})
	if len(before.Columns) != 1 || len(after.Columns) != 1 || before.Columns[0].Windows != after.Columns[0].Windows {
		t.Errorf("what was dropped has changed what it was added up to: %d columns before, %d after", len(before.Columns), len(after.Columns))
	}
}
