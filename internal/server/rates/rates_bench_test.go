package rates

import (
	"fmt"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
)

// noting is a tenant whose profile records a service on a thousand agents, of twenty
// targets each.
func noting(b *testing.B) *deciding {
	d := decide(b, mem.New(1), b.TempDir(), noon)
	if _, err := d.own().Apply(b.Context(), &atysv1.ApplyRequest{Objects: []string{adapting}}); err != nil {
		b.Fatal(err)
	}
	for node := range 1000 {
		r := &atysv1.ReportRequest{Node: fmt.Sprint(node)}
		for i := range 20 {
			r.Targets = append(r.Targets, &atysv1.Target{Labels: map[string]string{"node": r.GetNode(), "service": fmt.Sprint("service-", (20*node+i)%100)}})
		}
		if node%5 == 0 {
			r.Targets[0].Labels["service"] = "shop"
		}
		if _, err := d.own().Report(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

// BenchmarkNote notes the windows of 200 instances, which is on the way of each push.
func BenchmarkNote(b *testing.B) {
	d := noting(b)
	*d.now = noon.Add(length)
	var windows []store.Window
	for i := range 200 {
		windows = append(windows, store.Window{Series: profile.Labels{"service": "shop", "node": fmt.Sprint(i), "instance": fmt.Sprint(i)},
			Head: profile.Head{Task: "adapting", Start: noon, Duration: length}})
	}
	for b.Loop() {
		d.rates().Note(windows)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(windows)), "ns/window")
}

// BenchmarkTellRates finds the 200 of a thousand agents that are to hear of a rate.
func BenchmarkTellRates(b *testing.B) {
	d := noting(b)
	for b.Loop() {
		d.own().fleet.RatesMoved(map[string][]string{"adapting": {"shop"}})
	}
}
