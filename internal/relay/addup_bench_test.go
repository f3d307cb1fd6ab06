package relay

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
)

// BenchmarkAddUp adds up plain windows of 20 agents, half of whose 800 stacks all have.
func BenchmarkAddUp(b *testing.B) {
	var pushes []*push
	for agent := range 20 {
		w := profile.NewBuilder(profile.Head{Task: "t", Target: profile.Labels{"service": "shop", "instance": fmt.Sprint(agent)},
			Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
		for i := range int64(800) {
			function := fmt.Sprint("f", i)
			if i%2 == 0 {
				function = fmt.Sprint("f", i, " of ", agent)
			}
			w.Add(profile.Row{Stack: w.Stack([]profile.LocationID{w.Named(profile.Frame{Function: function})}, profile.EndComplete),
				N: 1, Values: []int64{100 * i}, Squares: []float64{0}})
		}
		batch := wire.NewBatch(func(profile.Hash) bool { return true })
		if err := batch.Add(wire.Seal(w.Window(), profile.Run{byte(agent)})); err != nil {
			b.Fatal(err)
		}
		pushes = append(pushes, pushed(batch))
	}
	b.ReportAllocs()
	for b.Loop() {
		s := newSums([]string{"service"}, true, nil, nil)
		for _, p := range pushes {
			if rest, _ := s.add(p); len(rest.GetWindows()) > 0 {
				b.Fatal("a window is not added up")
			}
		}
		if r, _, _ := s.request(); len(r.GetWindows()[0].GetRows().GetN()) != 400*21 {
			b.Fatalf("%d rows", len(r.GetWindows()[0].GetRows().GetN()))
		}
	}
}
