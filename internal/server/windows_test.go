package server

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

func TestWindows(t *testing.T) {
	ctx := context.Background()
	kept := mem.New(1)
	s, err := New(Options{Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var windows []*profile.Window
	for i := range uint64(5) {
		windows = append(windows, storetest.Window(i, "shop", "one", begin.Add(time.Duration(i)*time.Second)))
	}
	if err := kept.Put(ctx, "default", store.Raw, storetest.Batch(profile.Run{7}, windows...)); err != nil {
		t.Fatal(err)
	}
	kept.Settle()
	about := &atysv1.Selection{Select: `{service="shop"}`, Kind: "cpu", FromUnixNano: begin.UnixNano(), ToUnixNano: begin.Add(time.Minute).UnixNano()}
	for limit, want := range map[uint32]int{0: 5, 3: 3, 5: 5} {
		r, err := s.Windows(ctx, &atysv1.WindowsRequest{Selection: about, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.GetWindows()) != want || r.GetMore() != (want < 5) {
			t.Fatalf("limit %d: %d windows, more %v", limit, len(r.GetWindows()), r.GetMore())
		}
		for i, m := range r.GetWindows() {
			w := windows[i]
			if m.GetStartUnixNano() != w.Start.UnixNano() || m.GetN() != w.N() || m.GetValue() != w.Total(0) || int(m.GetStacks()) != len(w.Stacks) ||
				m.GetLabels()["instance"] != "one" || m.GetExact().GetCpuNs() != int64(w.Exact.CPU) || len(m.GetLosses()) != len(w.Losses) || m.GetRun()[0] != 7 {
				t.Errorf("window %d is %v", i, m)
			}
		}
	}
	if _, err := s.Windows(ctx, &atysv1.WindowsRequest{Selection: about, Limit: mostWindows + 1}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("too many at once: %v", err)
	}
	about.Kind = "nothing"
	if r, err := s.Windows(ctx, &atysv1.WindowsRequest{Selection: about}); err != nil || len(r.GetWindows()) != 0 {
		t.Errorf("of a kind that nobody measured: %v, %v", r, err)
	}
}

// TestClocksAreSetRight takes windows of an agent whose clock is an hour ahead, or
// a day behind: they lie where they were, whenever they come again.
func TestClocksAreSetRight(t *testing.T) {
	ctx := context.Background()
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Retention: upkeep.Retention{store.Raw: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	var windows []*profile.Window
	for i, offset := range []time.Duration{5 * time.Hour, -24 * time.Hour, 300 * time.Millisecond} {
		w := storetest.Window(uint64(i), "shop", "one", now.Add(-time.Duration(i+1)*time.Minute+offset.Round(time.Second)))
		w.Duration, w.ClockOffset, w.ClockError = 10*time.Second, offset, time.Millisecond
		w.Instances = profile.Instances{Recorded: 3, Eligible: 7}
		windows = append(windows, w)
	}
	for range 2 {
		b := wire.NewBatch(func(profile.Hash) bool { return false })
		for _, w := range windows {
			if err := b.Add(wire.Seal(w, profile.Run{7})); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Push(ctx, b.Request()); err != nil {
			t.Fatal(err)
		}
	}
	kept.Settle()
	r, err := s.Windows(ctx, &atysv1.WindowsRequest{Selection: &atysv1.Selection{Kind: "cpu", FromUnixNano: now.Add(-time.Hour).UnixNano(), ToUnixNano: now.UnixNano()}})
	if err != nil || len(r.GetWindows()) != 3 {
		t.Fatalf("%v, %v", r, err)
	}
	for i, m := range r.GetWindows() { // the oldest first
		want := now.Add(-time.Duration(3-i) * time.Minute)
		if m.GetStartUnixNano() != want.UnixNano() || time.Duration(m.GetClockOffsetNs()).Abs() > time.Second || m.GetInstances().GetEligible() != 7 {
			t.Errorf("window %d begins at %v, want %v: %v", i, time.Unix(0, m.GetStartUnixNano()), want, m)
		}
	}
}
