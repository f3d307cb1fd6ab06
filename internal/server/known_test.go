package server

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestSilentAgents has an agent report for a while and send windows later, then
// neither; and asks the server, and another one that was begun since.
func TestSilentAgents(t *testing.T) {
	kept, now := mem.New(1), noon
	begin := func() *Server {
		s, err := New(Options{Store: kept, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := begin()
	report := &atysv1.ReportRequest{Node: "n", Targets: []*atysv1.Target{{Labels: map[string]string{"service": "shop", "node": "n"}}},
		Tasks: []*atysv1.TaskState{{Id: "builtin", Phase: "running"}, {Id: "gone", Phase: "running"}}}
	attends := make(chan struct{}, 100)
	go func() { // ends with the test's context
		_ = s.AttendTo(t.Context(), &atysv1.AttendRequest{Node: "n"}, func(*atysv1.Orders) error { attends <- struct{}{}; return nil })
	}()
	<-attends
	heard := func(after time.Duration) {
		t.Helper()
		now = noon.Add(after)
		if _, err := s.Report(t.Context(), report); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(s *Server, service string) string {
		t.Helper()
		r, err := s.Top(t.Context(), &atysv1.TopRequest{Selection: &atysv1.Selection{Select: `{service="` + service + `"}`, Kind: "cpu",
			FromUnixNano: noon.Add(-time.Hour).UnixNano(), ToUnixNano: now.UnixNano()}})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, n := range r.GetCoverage().GetNodes() {
			text += fmt.Sprintf("%s/%s %v", n.GetNode(), n.GetTask(), time.Duration(n.GetWatchedNs()))
			for _, m := range n.GetMissing() {
				text += fmt.Sprintf(" %v-%v", time.Unix(0, m.GetFromUnixNano()).Sub(noon), time.Unix(0, m.GetToUnixNano()).Sub(noon))
			}
			if n.GetSilent() {
				text += " silent"
			}
		}
		return text
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	heard(0)
	want("at first", answer(s, "shop"), "")
	heard(5 * time.Minute)
	want("without a window", answer(s, "shop"), "n/builtin 0s 0s-4m20s")
	want("of what it does not run", answer(s, "cart"), "")
	for at := time.Duration(0); at < 5*time.Minute; at += 10 * time.Second {
		for i, labels := range []profile.Labels{{"node": "n"}, {"node": "n", "service": "shop"}} {
			w := storetest.Window(uint64(at)+uint64(i), "", "", noon.Add(at))
			w.Target, w.Task, w.Duration = labels, "builtin", 10*time.Second
			if err := kept.Put(t.Context(), "default", store.Raw, storetest.Batch(profile.Run{1}, w)); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept.Settle()
	want("once they came", answer(s, "shop"), "n/builtin 5m0s")
	now = noon.Add(20 * time.Minute)
	want("silent", answer(s, "shop"), "n/builtin 5m0s 5m0s-19m20s silent")
	want("after a restart", answer(begin(), "shop"), "n/builtin 5m0s 5m0s-19m20s silent")
	heard(20 * time.Minute)
	want("heard of again", answer(s, "shop"), "n/builtin 5m0s 5m0s-19m20s")
}
