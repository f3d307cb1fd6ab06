package cpu

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// placement is where a sampler's events are.
func (s *Sampler) placement() Placement {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return s.events.placed.placement
}

// TestEventsFollowBirths has a target that starts nothing, which gets events for its
// threads, and then one child after another, which events on CPUs have to see.
func TestEventsFollowBirths(t *testing.T) {
	begin := filepath.Join(t.TempDir(), "begin")
	pid := shell(t, "while [ ! -e "+begin+" ]; do :; done; while :; do sh -c 'n=0; while [ $n -lt 2000 ]; do n=$((n+1)); done'; done")
	shell(t, spin) // who would pay
	told := make(chan string, 100)
	s := start(t, Options{PIDs: []int{pid}, Frequency: 4999, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		OnPlaced: func(why string, _ float64) { told <- why }})
	if got := s.placement(); got != PlaceCPUs {
		t.Errorf("events begin at %v", got)
	}
	testwait.Until(t, "threads have events of their own", func() bool { return s.placement() == PlaceThreads })
	if why := <-told; !strings.Contains(why, "each thread") {
		t.Errorf("it is told that %q", why)
	}
	cut(t, s, 0)
	w := gather(t, s, samples(500))
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.75 || r > 1.3 {
		t.Errorf("on threads, %.2f of the exact time was sampled", r)
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "each CPU is sampled again", func() bool { return s.placement() == PlaceCPUs })
	if why := <-told; !strings.Contains(why, "start threads") {
		t.Errorf("it is told that %q", why)
	}
	cut(t, s, 0)
	w = gather(t, s, samples(500))
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.75 || r > 1.3 {
		t.Errorf("with children, %.2f of the exact time was sampled", r)
	}
}

// TestLateThreadsAreALoss forces events on threads, where they come too late for
// children that live for a moment: what was not sampled is told.
func TestLateThreadsAreALoss(t *testing.T) {
	pid := shell(t, "while :; do /bin/true; done")
	s := start(t, Options{PIDs: []int{pid}, Frequency: 999, Spread: PlaceThreads})
	w := gather(t, s, used(time.Second))
	lost := w.LossOf(profile.LossUnsampled)
	if lost.N <= 0 || lost.Value <= 0 || float64(lost.Value)+float64(w.Total(0)) > 1.2*float64(w.Exact.CPU) {
		t.Errorf("%d samples, %v, are told to be missing, of %v used and %v sampled", lost.N, time.Duration(lost.Value), w.Exact.CPU, time.Duration(w.Total(0)))
	}
	if b := w.Balance(); b.Missing() == 0 || !strings.Contains(b.String(), profile.TooShortLived) {
		t.Errorf("the balance says %q", b)
	}
	if err := unix.Kill(-pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "events of threads that have ended are closed", func() bool {
		s.events.mu.Lock()
		defer s.events.mu.Unlock()
		return len(s.events.open) <= 1 // the shell's own, which nobody has waited for yet
	})
}

// TestBudgetLowersTheRate has others pay no more than the budget, and weights stay right.
func TestBudgetLowersTheRate(t *testing.T) {
	shell(t, spin)
	s := start(t, Options{PIDs: []int{shell(t, spin)}, Frequency: 4999, Budget: 0.002})
	if _, hz, _ := s.events.rates(); hz >= 4999 || hz < MinFrequency {
		t.Fatalf("sampled at %v Hz", hz)
	}
	if why, pays := s.Placement(); pays > 0.003 || !strings.Contains(why, "instead of 4999") {
		t.Errorf("others pay %.4f of a core: %q", pays, why)
	}
	w := gather(t, s, samples(100))
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.6 || r > 1.5 {
		t.Errorf("%.2f of the exact time was sampled", r)
	}
	if len(w.Comments) == 0 || !strings.Contains(w.Comments[0], "the budget") {
		t.Errorf("the window says %q", w.Comments)
	}
}

// TestExactTimeOfChildrenNobodyHeardOf has children live across edges before anybody
// follows their forks: they have samples, so they have exact time.
func TestExactTimeOfChildrenNobodyHeardOf(t *testing.T) {
	pid := shell(t, "while :; do sh -c 'n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done'; done")
	s := startHearing(t, Options{PIDs: []int{pid}, Frequency: 999}, func(*Sampler, lifecycle.Event) {}) // as where it comes late
	cut(t, s, 100*time.Millisecond)
	w := cut(t, s, 20*time.Millisecond)
	for deadline := time.Now().Add(testwait.Longest(t)); w.N() < 1000 && time.Now().Before(deadline); {
		next, err := profile.Merge(w, cut(t, s, 20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		w = next
	}
	if r := float64(w.Total(0)) / float64(w.Exact.CPU); r < 0.75 || r > 1.25 {
		t.Errorf("%.2f of the exact time was sampled, with %d samples", r, w.N())
	}
}
