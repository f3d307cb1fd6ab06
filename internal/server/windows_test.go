package server

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
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
