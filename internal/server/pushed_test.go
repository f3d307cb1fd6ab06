package server

import (
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/server/ui"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// foreign is a request with profiles that another profiler has taken of instances, in an
// order, each by a sender of its own.
func foreign(t *testing.T, sender byte, instances ...string) *atysv1.PushRequest {
	t.Helper()
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	for _, instance := range instances {
		w := storetest.Window(uint64(instance[0]), "shop", instance[:1], noon)
		w.Origin, w.ClockError, w.ClockOffset = profile.OriginPushed, time.Duration(sender), time.Duration(sender)*time.Second
		if strings.HasSuffix(instance, "'") { // another profile of the same time
			w.Rows.N[0]++
		}
		if err := b.Add(wire.Seal(w, profile.Run{sender})); err != nil {
			t.Fatal(err)
		}
	}
	return b.Request()
}

// TestPushedWindows pushes profiles of another profiler: what is pushed twice is one window,
// what differs are two, and answers say of how many instances some was pushed.
func TestPushedWindows(t *testing.T) {
	kept := mem.New(1)
	s, err := New(Options{Store: kept, Now: func() time.Time { return noon.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, push := range []struct {
		instances []string
		windows   int // that there are then
	}{{[]string{"a", "b"}, 2}, {[]string{"b", "a"}, 2}, {[]string{"a'"}, 3}, {[]string{"b", "a'"}, 3}} {
		if _, err := s.Push(t.Context(), foreign(t, byte(push.windows+len(push.instances)), push.instances...)); err != nil {
			t.Fatal(err)
		}
		if windows, _ := held(t, kept); windows != push.windows {
			t.Errorf("after %v there are %d windows, want %d", push.instances, windows, push.windows)
		}
	}
	ours, _ := request(t, false, "shop", noon)
	if _, err := s.Push(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	about := &atysv1.Selection{Select: `{service="shop"}`, Kind: "cpu", FromUnixNano: noon.UnixNano(), ToUnixNano: noon.Add(time.Hour).UnixNano()}
	told := func() (line string) {
		t.Helper()
		kept.Settle()
		merged, err := s.Merge(t.Context(), &atysv1.MergeRequest{Selection: about})
		if err != nil {
			t.Fatal(err)
		}
		line = remote.Coverage(merged.GetCoverage(), about).Words(time.UTC).Line
		chosen, err := selection(about)
		if err != nil {
			t.Fatal(err)
		}
		_, coverage, err := s.queries.asker(t.Context()).Merge(t.Context(), chosen)
		if err != nil {
			t.Fatal(err)
		}
		if page := ui.CoverageWords(coverage, noon, noon.Add(time.Hour)).Line; page != line {
			t.Errorf("the page says %q, and the command %q", page, line)
		}
		return line
	}
	if line := told(); !strings.Contains(line, "pushed: 2 instances") {
		t.Errorf("told is %q", line)
	}
	stale, err := kept.Stale(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		for _, step := range stale {
			if err := kept.Roll(t.Context(), "default", step); err != nil {
				t.Fatal(err)
			}
		}
	}
	if line := told(); !strings.Contains(line, "pushed: at least 1 instance") {
		t.Errorf("of roll-ups told is %q", line)
	}
	about.Select = `{service="bank"}`
	if line := told(); strings.Contains(line, "pushed") {
		t.Errorf("of another service told is %q", line)
	}
}
