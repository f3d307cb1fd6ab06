package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/test/testwait"
)

// mapOf gives a map of the sampler's program.
func mapOf(t *testing.T, s *Sampler, name string) *ebpf.Map {
	t.Helper()
	info, err := s.objects.OnSample.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := m.Info(); err == nil && info.Name == name {
			t.Cleanup(func() { m.Close() })
			return m
		}
		m.Close()
	}
	t.Fatalf("the program has no map %q", name)
	return nil
}

// inKernel gives the targets that the kernel's table holds.
func inKernel(targets *ebpf.Map) (pids []int) {
	var pid uint32
	value := make([]byte, targets.ValueSize())
	for all := targets.Iterate(); all.Next(&pid, &value); {
		pids = append(pids, int(pid))
	}
	return pids
}

// known gives how many targets we know.
func known(s *Sampler) int { return len(s.table.Targets.List()) }

// leftOver describes the targets.
func leftOver(s *Sampler, targets *ebpf.Map) string {
	text := "in the kernel:"
	for _, pid := range inKernel(targets) {
		if stat, err := (proc.FS{}).Stat(pid); err != nil {
			text += fmt.Sprintf(" %d (%v)", pid, err)
		} else {
			text += fmt.Sprintf(" %d (%c, child of %d)", pid, stat.State, stat.PPID)
		}
	}
	return fmt.Sprintf("%s; known: %v", text, s.table.Targets.List())
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
	targets := mapOf(t, s, "targets")
	target := make([]byte, targets.ValueSize())
	target[0] = 1                                     // of the only table
	for pid := uint32(5_000_000); err == nil; pid++ { // no process has such numbers: they are swept at the second edge
		err = targets.Update(pid, target, ebpf.UpdateNoExist)
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
	targets := mapOf(t, s, "targets")
	testwait.Until(t, "children are targets", func() bool { return len(inKernel(targets)) > 5 })
	testwait.Until(t, "those that have ended are none", func() bool { return len(inKernel(targets)) <= 2 && known(s) <= 2 }, func() string { return leftOver(s, targets) })
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
	shell(t, forks(4000)+": >"+done+"; sleep 1000")
	began := time.Now()
	err := s.table.EachThread(func(table.ThreadTimes) { // the ring is not read meanwhile
		for !exists(done) && time.Since(began) < testwait.Longest(t) {
			time.Sleep(50 * time.Millisecond)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
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
