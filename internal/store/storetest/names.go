package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// ofPlace is a window of one sample, at a place that is called so.
func ofPlace(place profile.Location, names ...profile.Frame) *profile.Window {
	p := profile.NewBuilder(profile.Head{Task: "task", Start: Epoch, Duration: time.Second, Target: profile.Labels{store.ServiceLabel: "shop"},
		Types: []profile.ValueType{profile.CPUTime(1)}})
	p.Add(profile.Row{Stack: p.Stack([]profile.LocationID{p.Location(place, names...)}, profile.EndComplete), N: 1, Values: []int64{1}, Squares: []float64{1}})
	return p.Window()
}

// testBetterNames has a stack explained by who has no names for it, then by who has.
func testBetterNames(t *testing.T, b *bench) {
	place := profile.Location{Kind: profile.KindNative, BuildID: "b1d", Offset: 0x10}
	named := profile.Frame{Function: "named", Kind: profile.KindNative}
	b.put(t, ofPlace(place, profile.Unnamed(profile.KindNative, "/bin/shop", 0x10)))
	b.put(t, ofPlace(place, named))
	if got := b.scan(t, tenant, always()); len(got) != 1 || !slices.Equal(got[0].Names[0], []profile.Frame{named}) {
		t.Errorf("it is named %+v", got)
	}
}

func testLateNames(t *testing.T, b *bench) {
	place := profile.Location{Kind: profile.KindNative, BuildID: "b1d", Offset: 0x10}
	w := ofPlace(place, profile.Unnamed(profile.KindNative, "/bin/shop", 0x10))
	b.put(t, w)
	if missing, err := b.Unnamed(context.Background(), tenant); err != nil || len(missing) != 1 || missing[0].Location != place {
		t.Errorf("%v: without names are %+v", err, missing)
	}
	names := []profile.Frame{{Function: "late", File: "late.c", Line: 7, Kind: profile.KindNative}}
	if err := b.Name(context.Background(), tenant, []profile.Place{{Hash: place.Hash(), Location: place, Names: names}}); err != nil {
		t.Fatal(err)
	}
	if missing, err := b.Unnamed(context.Background(), tenant); err != nil || len(missing) != 0 {
		t.Errorf("%v: after all was named %+v have none", err, missing)
	}
	b.put(t, w) // who still has no name takes none away
	got := b.scan(t, tenant, always())
	if len(got) != 1 || !slices.Equal(got[0].Names[0], names) {
		t.Fatalf("an old window is named %+v", got)
	}
	m := b.merge(t, always(), "cpu", store.Grouping{})
	if len(m.Forest.Places) != 1 || !slices.Equal(m.Forest.Places[0].Names, names) {
		t.Errorf("a merge is named %+v", m.Forest.Places)
	}
}
