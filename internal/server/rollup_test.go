package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
)

// TestRolledUp asks the same before and after windows are added up, and once
// those that were cut have been dropped.
func TestRolledUp(t *testing.T) {
	ctx := context.Background()
	s := mem.New(1)
	begin := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	var windows []*profile.Window
	for i := range uint64(60) {
		w := storetest.Window(i, "shop", fmt.Sprint(i%3), begin.Add(time.Duration(i)*time.Minute))
		w.Target["node"], w.Duration = "n", time.Minute
		machine := storetest.Window(100+i, "", "", w.Start)
		machine.Target, machine.Duration = profile.Labels{"node": "n"}, time.Minute
		windows = append(windows, w, machine)
	}
	// Another node, whose agent is told to end, one that lived for a minute, and one
	// that began within a step, and was away for ten minutes of two.
	there := map[string]func(minute uint64) bool{
		"m": func(uint64) bool { return true },
		"k": func(minute uint64) bool { return minute == 59 },
		"j": func(minute uint64) bool { return minute >= 12 && (minute < 25 || minute >= 35) },
	}
	for i := range uint64(60) {
		for node, is := range there {
			if !is(i) {
				continue
			}
			w := storetest.Window(200+i, "shop", "0", begin.Add(time.Duration(i)*time.Minute))
			w.Target["node"], w.Duration = node, time.Minute
			machine := storetest.Window(300+i, "", "", w.Start)
			machine.Target, machine.Duration = profile.Labels{"node": node}, time.Minute
			if node == "m" && i == 59 {
				machine.Farewell = true
			}
			windows = append(windows, w, machine)
		}
	}
	if err := s.Put(ctx, "x", store.Raw, storetest.Batch(profile.Run{1}, windows...)); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	a := query.Asker{Store: s, Tenant: "x"}
	before := ask(t, a, begin)
	for _, want := range []string{
		"from 0s on m watched 1h0m0s, missing [], stopped [{2026-11-20 23:00:00 +0000 UTC 2026-11-20 23:30:00 +0000 UTC}], silent false",
		"from 0s on n watched 1h0m0s, missing [{2026-11-20 23:00:00 +0000 UTC 2026-11-20 23:30:00 +0000 UTC}], stopped [], silent true",
		"from 0s on k watched 1m0s, missing [{2026-11-20 23:00:00 +0000 UTC 2026-11-20 23:30:00 +0000 UTC}], stopped [], silent true",
		"from 0s on j watched 38m0s, missing [{2026-11-20 22:25:00 +0000 UTC 2026-11-20 22:35:00 +0000 UTC} {2026-11-20 23:00:00 +0000 UTC 2026-11-20 23:30:00 +0000 UTC}], stopped [], silent true",
		"from 1h0m0s on n watched 0s, missing [{2026-11-20 23:00:00 +0000 UTC 2026-11-20 23:30:00 +0000 UTC}], stopped [], silent true",
	} {
		if !slices.Contains(before, want) {
			t.Errorf("%q is not said", want)
		}
	}
	for {
		stale, err := s.Stale(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if len(stale) == 0 {
			break
		}
		if err := s.Roll(ctx, "x", stale[0]); err != nil {
			t.Fatal(err)
		}
	}
	sameLines(t, ask(t, a, begin), before)
	for _, level := range []store.Level{store.Raw, store.Service1m} {
		if err := s.Drop(ctx, "x", level, begin.Add(48*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	// When within the hour these watched is not known any more.
	ofParts := func(line string) bool {
		return strings.Contains(line, " on k ") || strings.Contains(line, " on j ") || strings.HasPrefix(line, "j watched")
	}
	sameLines(t, slices.DeleteFunc(ask(t, a, begin), ofParts), slices.DeleteFunc(before, ofParts))
}

func sameLines(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}

// ask asks all there is to ask of 50 minutes, and writes it down with what
// rounding leaves.
func ask(t *testing.T, a query.Asker, begin time.Time) (lines []string) {
	t.Helper()
	ctx := context.Background()
	for _, text := range []string{`{service="shop"}`, `{service="shop",instance="1"}`} {
		selector, err := spec.ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		about := query.Selection{Select: selector, Kinds: []string{"cpu"}, From: begin, To: begin.Add(50 * time.Minute)}
		top, err := a.Top(ctx, about, query.View{}, 5)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s: %d samples, %d, %v", text, top.N, top.Value, top.Exact))
		for _, f := range top.Functions {
			lines = append(lines, fmt.Sprintf("%s self %d %d %s service %s %v", f.Frame.Function, f.Self.N, f.Self.Value, interval(f.Self.Share), interval(f.Self.Service), f.Self.ServiceKnown))
		}
		slices.SortFunc(top.Coverage.Losses, func(a, b profile.Loss) int {
			return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Detail, b.Detail))
		})
		lines = append(lines, fmt.Sprintf("%d windows, losses %v", top.Coverage.Windows, top.Coverage.Losses))
		for _, n := range top.Coverage.Nodes {
			lines = append(lines, fmt.Sprintf("%s watched %v, %d missing", n.Node, n.Watched, len(n.Missing)))
		}
		for _, after := range []time.Duration{0, 60 * time.Minute} { // until when there are windows
			about.From, about.To = begin.Add(after), begin.Add(90*time.Minute)
			_, c, err := a.Merge(ctx, about)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range c.Nodes {
				lines = append(lines, fmt.Sprintf("from %v on %s watched %v, missing %v, stopped %v, silent %v", after, n.Node, n.Watched, n.Missing, n.Stopped, n.Silent))
			}
		}
		about.From, about.To = begin, begin.Add(50*time.Minute)
		for _, by := range []string{"", "instance", store.ServiceLabel} {
			parts, _, err := a.Split(ctx, about, query.Split{Step: 10 * time.Minute, By: by})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				lines = append(lines, fmt.Sprintf("%v %s: %d windows, %d samples, %d, %v, %s", p.Start, p.By, p.Windows, p.N, p.Value, p.CPU, interval(p.Share)))
			}
		}
	}
	return lines
}

func interval(i stats.Interval) string {
	return fmt.Sprintf("%.3f (%.3f to %.3f)", i.Value, i.Low, i.High)
}
