package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/refine"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// Rules are those that an engine is opened with: requests have the endpoint of their handler.
func Rules() refine.Rules {
	return refine.Rules{"requests": {func(frames []profile.Frame, c profile.Context) profile.Context {
		for _, f := range frames {
			if endpoint, ok := strings.CutPrefix(f.Function, "handle:"); ok {
				c.Endpoint = endpoint
			}
		}
		return c
	}}}
}

// handlers are places of code, and what they are called once that is known.
var handlers = map[profile.Location]profile.Frame{
	{Kind: profile.KindNative, BuildID: "b1d", Offset: 0x10}: {Function: "handle:/pay", Kind: profile.KindNative},
	{Kind: profile.KindNative, BuildID: "b1d", Offset: 0x20}: {Function: "handle:/list", Kind: profile.KindNative},
	{Kind: profile.KindNative, BuildID: "b1d", Offset: 0x30}: {Function: "idle", Kind: profile.KindNative},
}

// handled is a window of requests, as an agent ships it that can name code or cannot.
func handled(i int, named bool) *profile.Window {
	b := profile.NewBuilder(profile.Head{Task: "task", Start: Epoch.Add(time.Duration(i) * 10 * time.Second), Duration: 10 * time.Second,
		Target: profile.Labels{store.ServiceLabel: "shop", "instance": fmt.Sprint(i % 2)},
		Types:  []profile.ValueType{{Kind: "requests", Unit: "count", Period: 1, Base: profile.BaseNone}, {Kind: "sent", Unit: "count", Period: 1, Base: profile.BaseNone}}})
	leaf := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "1eaf", Offset: 1}, profile.Frame{Function: "leaf", Kind: profile.KindNative})
	waiting := b.Context(profile.Context{Reason: "io"})
	places := slices.SortedFunc(maps.Keys(handlers), func(x, y profile.Location) int { return int(x.Offset) - int(y.Offset) })
	for n, place := range places {
		name := profile.Unnamed(profile.KindNative, "/bin/shop", place.Offset)
		if named {
			name = handlers[place]
		}
		stack := b.Stack([]profile.LocationID{leaf, b.Location(place, name)}, profile.EndComplete)
		for context := range profile.ContextID(2) {
			value := int64(1 + i + 10*n + 100*int(context))
			b.Add(profile.Row{Stack: stack, Context: context * waiting, N: 1, Values: []int64{value, 2 * value}, Squares: []float64{float64(value * value), float64(4 * value * value)}})
		}
	}
	w := b.Window()
	w.Exemplars = []profile.Exemplar{{Trace: fmt.Sprint("t", i), Stack: 0, Context: 1, Value: 1}}
	if named {
		return refine.Window(w, Rules()["requests"]...)
	}
	return w
}

// testRefines stores windows whose code the agent names, and the same whose code is named
// later: before they are rolled up, or after. Answers by context are the same.
func testRefines(t *testing.T, b *bench) {
	put := func(tenant string, named bool) {
		var windows []*profile.Window
		for i := range 12 {
			windows = append(windows, handled(i, named))
		}
		if err := b.Put(t.Context(), tenant, store.Raw, Batch(profile.Run{1}, windows...)); err != nil {
			t.Fatal(err)
		}
	}
	name := func(tenant string) {
		var places []profile.Place
		for at, frame := range handlers {
			places = append(places, profile.Place{Hash: at.Hash(), Location: at, Names: []profile.Frame{frame}})
		}
		if err := b.Name(t.Context(), tenant, places); err != nil {
			t.Fatal(err)
		}
	}
	put("by agent", true)
	put("before", false)
	put("after", false)
	if b.settle != nil {
		b.settle(b.Store)
	}
	name("before")
	for _, tenant := range []string{"by agent", "before", "after"} {
		b.rollOf(t, tenant)
	}
	name("after")
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		for _, kind := range []string{"requests", "sent"} {
			q := always()
			q.Level = level
			want := b.byContext(t, "by agent", q, kind)
			if len(want) != 6 {
				t.Fatalf("%v: %v", level, want)
			}
			for _, tenant := range []string{"before", "after"} {
				if got := b.byContext(t, tenant, q, kind); !maps.Equal(got, want) {
					t.Errorf("%v of %s, named %s: %v, want %v", level, kind, tenant, got, want)
				}
			}
		}
		if level == store.Raw {
			continue
		}
		for _, tenant := range []string{"by agent", "before"} {
			q := always()
			q.Level = level
			for _, w := range b.scan(t, tenant, q) {
				for _, e := range w.Exemplars {
					if c := w.Context(e.Context); c != (profile.Context{Reason: "io", Endpoint: "/pay"}) {
						t.Errorf("%v, named %s: an exemplar of %+v", level, tenant, c)
					}
				}
			}
		}
	}
}

// byContext asks for values of a kind by context, and adds each context up by its stacks.
func (b *bench) byContext(t *testing.T, tenant string, q store.Query, kind string) map[string]string {
	t.Helper()
	all := map[string]string{}
	pay, err := spec.ParseSelector(`{endpoint="/pay"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range []spec.Selector{nil, pay} {
		m, err := b.Merge(t.Context(), tenant, Of(kind, q), store.Grouping{By: []store.Dimension{store.ByContext(store.ContextEndpoint), store.ByContext(store.ContextReason)}, Where: where})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Columns {
			sums := map[profile.Hash]profile.Sum{}
			for _, s := range c.Sums {
				sums[m.Forest.Calls[s.Call].Hash] = s.Sum
			}
			if where == nil {
				all[fmt.Sprint(c.By)] = fmt.Sprint(sums)
			} else if fmt.Sprint(sums) != all[fmt.Sprint(c.By)] || c.By[0] != "/pay" {
				t.Errorf("of %v alone, %v has %v", where, c.By, sums)
			}
		}
	}
	return all
}
