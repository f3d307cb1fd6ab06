package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// held gives how many targets the kernel's table holds.
func held(s *Sampler) (n int) {
	var pid uint32
	var t kernelTarget
	for all := s.objects.Targets.Iterate(); all.Next(&pid, &t); {
		n++
	}
	return n
}

// known gives how many targets we know.
func known(s *Sampler) int {
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	return len(s.targets)
}

// leftOver describes the targets.
func leftOver(s *Sampler) string {
	var pid uint32
	var target kernelTarget
	text := "in the kernel:"
	for all := s.objects.Targets.Iterate(); all.Next(&pid, &target); {
		if stat, err := (proc.FS{}).Stat(int(pid)); err != nil {
			text += fmt.Sprintf(" %d (%v)", pid, err)
		} else {
			text += fmt.Sprintf(" %d (%c, child of %d)", pid, stat.State, stat.PPID)
		}
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	return fmt.Sprintf("%s; known: %v", text, s.targets)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// forks is a script that has so many children, one after another.
func forks(n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do (:); i=$((i+1)); done; ", n)
}

// TestFullTargets has a target's child find no room among the targets: it is told
// that it is not sampled, the window goes on, and it is sampled once there is room.
func TestFullTargets(t *testing.T) {
	begin := filepath.Join(t.TempDir(), "begin")
	parent := shell(t, "while [ ! -e "+begin+" ]; do :; done; sh -c '"+spin+"' & wait")
	s := start(t, Options{PIDs: []int{parent}, Frequency: 499})
	cut(t, s, 0)
	var err error
	for pid := uint32(5_000_000); err == nil; pid++ { // no process has such numbers: they are swept at the second edge
		err = s.objects.Targets.Update(pid, &kernelTarget{}, ebpf.UpdateNoExist)
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the child is a target", func() bool { return known(s) == 2 })
	for range 2 {
		w := cut(t, s, 0)
		if l := w.LossOf(profile.LossTargets); l.N == 0 {
			t.Errorf("it is not told that the child was not sampled: %v", w.Losses)
		}
	}
	gather(t, s, func(w *profile.Window) bool {
		return slices.ContainsFunc(w.Rows.Thread, func(id profile.ThreadID) bool { return w.Thread(id).PID != parent })
	})
}

// TestEndedTargets has children of a target end within a window: their places are
// free again before its edge.
func TestEndedTargets(t *testing.T) {
	begin := filepath.Join(t.TempDir(), "begin")
	pid := shell(t, "while [ ! -e "+begin+" ]; do :; done; "+forks(300)+"sleep 1000")
	s := start(t, Options{PIDs: []int{pid}, Frequency: 99})
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "children are targets", func() bool { return held(s) > 5 })
	testwait.Until(t, "those that have ended are none", func() bool { return held(s) <= 2 && known(s) <= 2 }, func() string { return leftOver(s) })
}

// TestNumbersOfEndedTargets has other processes get the numbers of targets that have ended:
// a stranger is no target, a target's child is, and so is what Aim named meanwhile.
func TestNumbersOfEndedTargets(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	parent := shell(t, "sleep 1000 & echo $! >"+began+".new; mv "+began+".new "+began+"; wait")
	stranger, aimed := shell(t, "sleep 1000; :"), shell(t, "sleep 1000; :")
	testwait.Until(t, "there is a child", func() bool { return exists(began) })
	text, err := os.ReadFile(began)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{PIDs: []int{parent, child, stranger, aimed}, Frequency: 99})
	s.Aim([]int{aimed}, nil)
	s.mu.Lock()
	s.ended = []int{child, stranger, aimed}
	s.forgetEnded()
	s.mu.Unlock()
	for pid, want := range map[int]bool{parent: true, child: true, stranger: false, aimed: true} {
		var target kernelTarget
		if got := s.objects.Targets.Lookup(uint32(pid), &target) == nil; s.Wanted(pid) != want || got != want {
			t.Errorf("process %d (child %d, stranger %d, aimed %d): a target %v, in the kernel %v; want %v", pid, child, stranger, aimed, s.Wanted(pid), got, want)
		}
	}
}

// TestManyExits has more threads exit within a window than their ring has room for:
// what each used is known, and what it was called.
func TestManyExits(t *testing.T) {
	s := start(t, Options{All: true, Frequency: 99})
	cut(t, s, 0)
	const children = 4000
	done := filepath.Join(t.TempDir(), "done")
	shell(t, forks(children)+": >"+done+"; sleep 1000")
	testwait.Until(t, "all children have ended", func() bool { return exists(done) })
	ended := 0
	testwait.Until(t, "they are known", func() bool {
		w := cut(t, s, 0)
		if l := w.LossOf(profile.LossExact); l.N != 0 {
			t.Fatalf("of %d threads it is not known what they used", l.N)
		}
		for _, thread := range w.Threads {
			if thread.Process == "" {
				t.Errorf("%+v has no process", thread)
			}
			if thread.Process == "sh" {
				ended++
			}
		}
		return ended >= children*95/100 // an idle kernel may take its time to forget the last ones
	})
}

// TestLostExits has nobody listen to a storm of exits: what is lost is threads, not
// samples, and those that were sampled have a process nevertheless.
func TestLostExits(t *testing.T) {
	s := start(t, Options{All: true, Frequency: 999})
	cut(t, s, 0)
	done := filepath.Join(t.TempDir(), "done")
	s.mu.Lock()
	shell(t, forks(4000)+": >"+done+"; sleep 1000")
	for began := time.Now(); !exists(done) && time.Since(began) < testwait.Longest(t); {
		time.Sleep(50 * time.Millisecond)
	}
	s.mu.Unlock()
	w := cut(t, s, 0)
	l := w.LossOf(profile.LossExact)
	if l.N == 0 || l.Reason.Unit() != "threads" {
		t.Errorf("%d %s are lost", l.N, l.Reason.Unit())
	}
	for _, r := range w.Rows.All() {
		if thread := w.Thread(r.Thread); thread.PID != 0 && thread.Process == "" {
			t.Errorf("%+v has %d samples and no process", thread, r.N)
		}
	}
}
