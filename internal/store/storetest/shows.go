package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testShows looks at windows, of which nothing is added up.
func testShows(t *testing.T, b *bench) {
	windows := some(260)
	b.put(t, windows...)
	several := Added(profile.Run{9}, together(300, 3)...)
	if err := b.Put(context.Background(), tenant, store.Raw, several); err != nil {
		t.Fatal(err)
	}
	b.scan(t, tenant, always()) // so that all of it is seen
	q := always()
	q.Service = "shop"
	var mu sync.Mutex
	var got, want []string
	line := func(labels profile.Labels, h *profile.Head, n int64, of int) string {
		return fmt.Sprintf("%s %s %v %v %d, of %d", labels, h.Task, h.Start.UTC(), h.Duration, n, of)
	}
	m, err := b.Merge(context.Background(), tenant, []store.Query{q}, "cpu", store.Grouping{Look: func(labels profile.Labels, h *profile.Head, n int64, of int) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, line(labels, h, n, of))
	}})
	if err != nil || len(m.Columns) != 0 {
		t.Fatalf("%d columns, %v", len(m.Columns), err)
	}
	for _, w := range windows {
		if w.Target[store.ServiceLabel] == "shop" && w.TypeIndex("cpu") >= 0 {
			want = append(want, line(w.Target, &w.Head, w.N(), 1))
		}
	}
	sum, n := &several.Windows[0], int64(0)
	for _, count := range sum.Rows.N {
		n += count
	}
	want = append(want, line(sum.Series, &sum.Head, n, 3))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("shown are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
