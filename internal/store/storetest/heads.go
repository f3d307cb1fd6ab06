package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// testHeads reads the heads of windows, of which nothing is added up.
func testHeads(t *testing.T, b *bench) {
	windows := some(260)
	b.put(t, windows...)
	several := Added(profile.Run{9}, together(300, 3)...)
	if err := b.Put(context.Background(), tenant, store.Raw, several); err != nil {
		t.Fatal(err)
	}
	b.scan(t, tenant, always()) // so that all of it is seen
	q := always()
	q.Select = spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal, Value: "shop"}}
	line := func(labels profile.Labels, h *profile.Head, n int64, of int) string {
		return fmt.Sprintf("%s %s %v %v %v %d, of %d", labels, h.Task, h.Start.UTC(), h.Duration, h.Types, n, of)
	}
	sum, n := &several.Windows[0], int64(0)
	for _, count := range sum.Rows.N {
		n += count
	}
	for _, kinds := range [][]string{nil, {"cpu"}, {"page-faults", "cpu"}, {"page-faults"}, {"nothing"}} {
		q.Kinds = kinds
		var got, want []string
		err := b.Heads(context.Background(), tenant, []store.Query{q}, func(h store.Head) error {
			slices.SortFunc(h.Head.Types, byKind)
			got = append(got, line(h.Series, h.Head, h.N, h.Of))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		add := func(labels profile.Labels, head profile.Head, n int64, of int) {
			types := head.Types
			head.Types = nil
			for _, ty := range types {
				if q.Measures(ty.Kind) {
					head.Types = append(head.Types, ty)
				}
			}
			slices.SortFunc(head.Types, byKind)
			if len(head.Types) > 0 {
				want = append(want, line(labels, &head, n, of))
			}
		}
		for _, w := range windows {
			if w.Target[store.ServiceLabel] == "shop" {
				add(w.Target, w.Head, w.N(), 1)
			}
		}
		add(sum.Series, sum.Head, n, 3)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: heads\n%s\nwant\n%s", kinds, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	q.Kinds = nil
	enough, calls := errors.New("enough"), 0
	err := b.Heads(context.Background(), tenant, []store.Query{q}, func(store.Head) error {
		calls++
		return enough
	})
	if calls != 1 || !errors.Is(err, enough) {
		t.Errorf("after an error each was called %d times: %v", calls, err)
	}
}

func byKind(a, b profile.ValueType) int { return strings.Compare(a.Kind, b.Kind) }
