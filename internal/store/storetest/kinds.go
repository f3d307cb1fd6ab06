package storetest

import (
	"context"
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
