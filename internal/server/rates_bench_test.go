package server

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
)

// BenchmarkDecide reads what a policy is told of a service of 280 instances: one window
// of ten seconds, as is done each time, and ten of them, as a server that starts does.
func BenchmarkDecide(b *testing.B) {
	kept := openAsked(b, b.TempDir())
	defer kept.Close()
	fillAsked(b, kept)
	asker := query.Asker{Store: kept, Tenant: auth.DefaultTenant}
	for _, count := range []int{1, 10} {
		b.Run(fmt.Sprintf("windows=%d", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				windows, err := asker.Told(b.Context(), query.Intervals{Task: "builtin", Service: "shop", First: noon, Length: 10 * time.Second, Count: count})
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
		rows, _, err := asker.Rates(b.Context(), query.Selection{Kinds: []string{spec.KindCPU}, From: noon, To: noon.Add(2 * time.Minute)}, true)
		if err != nil || len(rows) != 20*askedWindows {
			b.Fatalf("%d rows, %v", len(rows), err)
		}
	}
}
