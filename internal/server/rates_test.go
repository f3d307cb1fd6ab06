package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestAskRates asks for what was decided.
func TestAskRates(t *testing.T) {
	const length = 10 * time.Second
	now := noon
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	decided := func(hertz float64, reason string) profile.Rate {
		return profile.Rate{Hertz: hertz, Policy: "atys", Reason: reason, Why: "so it was", By: profile.ByServer}
	}
	now = noon.Add(3 * length)
	for i, rate := range []profile.Rate{decided(999, "began"), decided(999, "began"), decided(799, "steady")} {
		w := storetest.Window(uint64(i)+1, "shop", "one", noon.Add(time.Duration(i)*length))
		w.Task, w.Duration, w.Rate = "adapting", length, rate
		b := wire.NewBatch(func(profile.Hash) bool { return false })
		if err := b.Add(wire.Seal(w, profile.Run{1})); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Push(t.Context(), b.Request()); err != nil {
			t.Fatal(err)
		}
	}
	kept.Settle()
	ask := &atysv1.RatesRequest{Selection: &atysv1.Selection{Select: `{service="shop"}`, Kind: "cpu", FromUnixNano: noon.UnixNano(), ToUnixNano: noon.Add(time.Hour).UnixNano()}}
	for all, want := range map[bool][]string{
		false: {"999 began 20s 2", "799 steady 10s 1"},
		true:  {"999 began 10s 1", "999 began 10s 1", "799 steady 10s 1"},
	} {
		ask.All = all
		r, err := s.Rates(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range r.GetDecided() {
			got = append(got, fmt.Sprintf("%g %s %v %d", m.GetRate().GetHertz(), m.GetRate().GetReason(), time.Duration(m.GetDurationNs()), m.GetWindows()))
			if m.GetRate().GetWhy() != "so it was" || m.GetTask() != "adapting" || m.GetService() != "shop" || m.GetInstances() != 1 || m.GetLowestHertz() != m.GetRate().GetHertz() {
				t.Errorf("%v", m)
			}
		}
		if !slices.Equal(got, want) || r.GetCoverage().GetWindows() != 3 {
			t.Errorf("all %v: %v, want %v", all, got, want)
		}
	}
}
