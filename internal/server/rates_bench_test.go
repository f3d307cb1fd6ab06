package server

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/wire/atysv1"
)

// BenchmarkDecide reads what a policy is told of a service of 280 instances: one window
// of ten seconds, as is done each time, and ten of them, as a server that starts does.
func BenchmarkDecide(b *testing.B) {
	kept := openAsked(b, b.TempDir())
	defer kept.Close()
	fillAsked(b, kept)
	asker := query.Asker{Store: kept, Tenant: auth.DefaultTenant}
	for _, count := range []int{1, replayAtOnce} {
		b.Run(fmt.Sprintf("windows=%d", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				windows, err := asker.Told(b.Context(), query.Intervals{Task: "builtin", Service: "shop", First: noon, Length: length, Count: count})
				if err != nil || len(windows) != count {
					b.Fatalf("%d windows, %v", len(windows), err)
				}
			}
		})
	}
}

// BenchmarkAskRates reads how often all services were sampled in two minutes: 12,000
// windows of a thousand instances.
func BenchmarkAskRates(b *testing.B) {
	kept := openAsked(b, b.TempDir())
	defer kept.Close()
	fillAsked(b, kept)
	asker := query.Asker{Store: kept, Tenant: auth.DefaultTenant, Now: func() time.Time { return noon.Add(2 * time.Minute) }}
	for b.Loop() {
		rows, _, err := asker.Rates(b.Context(), query.Selection{Kind: kind, From: noon, To: noon.Add(2 * time.Minute)}, true)
		if err != nil || len(rows) != 20*askedWindows {
			b.Fatalf("%d rows, %v", len(rows), err)
		}
	}
}

// noting is a tenant whose profile records a service on a thousand agents, of twenty
// targets each.
func noting(b *testing.B) *fleet {
	s, err := New(Options{Store: mem.New(1), Now: func() time.Time { return noon }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	if _, err := s.Apply(b.Context(), &atysv1.ApplyRequest{Objects: []string{adapting}}); err != nil {
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
		if _, err := s.Report(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	f, err := s.fleet(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkNote notes the windows of 200 instances, which is on the way of each push.
func BenchmarkNote(b *testing.B) {
	f := noting(b)
	var windows []store.Window
	for i := range 200 {
		windows = append(windows, store.Window{Series: profile.Labels{"service": "shop", "node": fmt.Sprint(i), "instance": fmt.Sprint(i)},
			Head: profile.Head{Task: "adapting", Start: noon, Duration: length}})
	}
	for b.Loop() {
		f.rates.note(windows, noon.Add(length))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(windows)), "ns/window")
}

// BenchmarkTellRates finds the 200 of a thousand agents that are to hear of a rate.
func BenchmarkTellRates(b *testing.B) {
	f := noting(b)
	for b.Loop() {
		f.tellRates([]courseKey{{"adapting", "shop"}})
	}
}
