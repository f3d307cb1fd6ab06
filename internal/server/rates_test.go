package server

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestAskRates asks for what was decided before decisions were recorded: windows have it in
// words.
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

// TestAskRatesOfRecords asks for what was decided and recorded: the reasons are those of the
// records that were in force, whatever windows say in words.
func TestAskRatesOfRecords(t *testing.T) {
	const length = 10 * time.Second
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Now: func() time.Time { return noon.Add(time.Minute) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var records []profile.Record
	decide := func(task string, after time.Duration, hertz float64, reason freq.Reason, why string) {
		d := freq.Decided{Task: task, Service: "shop", Hertz: hertz, Policy: "atys", Reason: reason, Why: why, From: noon.Add(after - length), To: noon.Add(after)}
		r, err := d.Record()
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	decide("adapting", -time.Hour, 999, freq.Began, "the first window")
	decide("adapting", -2*time.Hour, 999, freq.Began, "an older one")
	decide("adapting", 0, 799, freq.Stays, "it stays")     // in force from the second window on
	decide("adapting", length, 999, freq.Changed, "moved") // never in force
	decide("other", -time.Minute, 999, freq.Began, "of another task")
	if err := kept.PutRecords(t.Context(), "default", records); err != nil {
		t.Fatal(err)
	}
	rate := func(hertz float64, reason freq.Reason, why, by string) profile.Rate {
		return profile.Rate{Hertz: hertz, Policy: "atys", Reason: string(reason), Why: why, By: by}
	}
	for i, one := range []profile.Rate{rate(999, freq.Began, "", profile.ByServer), rate(799, "", "in words", profile.ByServer), rate(20, freq.Stays, "over budget", profile.ByBudget), rate(500, freq.Few, "as it was", profile.ByServer)} {
		w := storetest.Window(uint64(i)+1, "shop", "one", noon.Add(time.Duration(i)*length))
		w.Task, w.Duration, w.Rate = "adapting", length, one
		b := wire.NewBatch(func(profile.Hash) bool { return false })
		if err := b.Add(wire.Seal(w, profile.Run{1})); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Push(t.Context(), b.Request()); err != nil {
			t.Fatal(err)
		}
	}
	kept.Settle()
	r, err := s.Rates(t.Context(), &atysv1.RatesRequest{Selection: &atysv1.Selection{Select: `{service="shop",instance="one"}`, Kind: "cpu", FromUnixNano: noon.UnixNano(), ToUnixNano: noon.Add(time.Hour).UnixNano()}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.GetDecided() {
		got = append(got, fmt.Sprintf("%g %s: %s", m.GetRate().GetHertz(), m.GetRate().GetReason(), m.GetRate().GetWhy()))
	}
	want := []string{fmt.Sprintf("999 %s: the first window", freq.Began), fmt.Sprintf("799 %s: it stays", freq.Stays), fmt.Sprintf("20 %s: over budget", freq.Stays), fmt.Sprintf("500 %s: as it was", freq.Few)}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
