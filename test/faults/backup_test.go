package faults

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/test/testwait"
)

// backUp backs a server up as its operator would.
func backUp(s *Server, dir string) *exec.Cmd {
	return exec.Command(program, "store", "backup", dir, "--server", s.URL(), "--token-file", filepath.Join(s.Dir, "operator.token"))
}

// unfinished lists what a backup that failed has left beside where it was to be.
func unfinished(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestBackupUnderLoad backs a server up again and again while it is sent to. Each
// backup, put in place, has every window that was acknowledged before it began,
// once, and of later ones those that came first.
func TestBackupUnderLoad(t *testing.T) {
	s := serve(t, t.TempDir())
	senders := make([]*Sender, 6)
	var mu sync.Mutex // guards sums
	sums := map[string][]int64{}
	stop, all := make(chan struct{}), sync.WaitGroup{}
	for i := range senders {
		one := NewSender(s, "web-"+string(rune('a'+i)))
		one.run[2] = byte(i)
		senders[i] = one
		sums[one.Instance] = []int64{0}
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := one.Send(t.Context()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sums[one.Instance] = append(sums[one.Instance], one.N)
				mu.Unlock()
			}
		})
	}
	backups, before := t.TempDir(), map[string]map[string]int{}
	for _, name := range []string{"first", "second"} {
		time.Sleep(2 * time.Second)
		acknowledged := map[string]int{}
		testwait.Until(t, "20 windows of each instance", func() bool { // fewer tell nothing
			mu.Lock()
			defer mu.Unlock()
			least := math.MaxInt
			for instance, of := range sums {
				acknowledged[instance] = len(of) - 1
				least = min(least, len(of)-1)
			}
			return least >= 20
		})
		before[name] = acknowledged
		if out, err := backUp(s, filepath.Join(backups, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command(program, "store", "check", "--server", s.URL(), "--token-file", filepath.Join(s.Dir, "operator.token")).CombinedOutput(); err != nil || !strings.Contains(string(out), "can be read") {
		t.Errorf("check under load: %v: %s", err, out)
	}
	close(stop)
	all.Wait()
	check(t, s, senders...)
	for name, acknowledged := range before {
		dir := t.TempDir()
		if out, err := exec.Command(program, "store", "restore", filepath.Join(backups, name), "--data", dir).CombinedOutput(); err != nil {
			t.Fatalf("restore: %v: %s", err, out)
		}
		restored := serve(t, dir)
		kept, err := restored.Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for instance, least := range acknowledged {
			got, of := kept[instance], sums[instance]
			if got.Windows < least || got.Windows >= len(of) || got.N != of[got.Windows] {
				t.Errorf("%s: of %s there are %d windows with %d samples, and %d were acknowledged before", name, instance, got.Windows, got.N, least)
			}
		}
	}
}

// TestBackupInterrupted kills a server while it is backed up, and who backs it
// up: nothing is left that passes as a backup, and the server does not keep what
// it made for it.
func TestBackupInterrupted(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	one := NewSender(s, "web")
	for range 20 {
		if err := one.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 6 {
		beside := t.TempDir()
		dir := filepath.Join(beside, "backup")
		command := backUp(s, dir)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+30*round) * time.Millisecond)
		if round%2 == 0 {
			s.Kill()
		} else {
			_ = command.Process.Kill() // it may have ended
		}
		err := command.Wait()
		if _, there := os.Lstat(dir); (err == nil) != (there == nil) {
			t.Errorf("round %d: the command ends with %v, and the backup: %v", round, err, there)
		}
		if left := unfinished(t, beside); round%2 == 0 && err != nil && len(left) > 0 {
			t.Errorf("round %d: %v are left", round, left)
		}
		for _, name := range unfinished(t, beside) { // killed at the very end it is whole, but for its name
			data := t.TempDir()
			if out, err := exec.Command(program, "store", "restore", filepath.Join(beside, name), "--data", data).CombinedOutput(); err != nil {
				if name == "backup" || !strings.Contains(string(out), "is no backup") {
					t.Errorf("round %d: restore %s: %v: %s", round, name, err, out)
				}
				continue
			}
			if out, err := exec.Command(program, "store", "stat", "--data", data).CombinedOutput(); err != nil || !strings.Contains(string(out), " 20 windows") {
				t.Errorf("round %d: what was interrupted is restored: %v: %s", round, err, out)
			}
		}
		if round%2 == 0 {
			if err := s.Again(); err != nil {
				t.Fatal(err)
			}
			check(t, s, one) // it may answer before its store is open
			if left, err := filepath.Glob(filepath.Join(s.Dir, "store.snapshot-*")); err != nil || len(left) > 0 {
				t.Errorf("round %d: the server has kept %v, %v", round, left, err)
			}
		}
	}
	check(t, s, one)
}

// TestBackupDiskFull backs up to a disk without room, and from one: both say so,
// and the server goes on.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	dir, remount := small(t, 150)
	s := serve(t, dir)
	one := NewSender(s, "web")
	if sendUntil(t, one, 50) {
		t.Fatalf("refused with room left: %s", s.Log())
	}
	to, _ := small(t, 1)
	fill(t, filepath.Join(to, "filler"))
	out, err := backUp(s, filepath.Join(to, "backup")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), unix.ENOSPC.Error()) || !strings.Contains(string(out), "there is no backup") {
		t.Errorf("to a full disk: %v: %s", err, out)
	}
	if left := unfinished(t, to); len(left) != 1 {
		t.Errorf("to a full disk: %v are left", left)
	}
	fill(t, filepath.Join(dir, "filler"))
	elsewhere := filepath.Join(t.TempDir(), "backup")
	if out, err := backUp(s, elsewhere).CombinedOutput(); err == nil || !strings.Contains(string(out), "must stay free") {
		t.Errorf("from a full disk: %v: %s", err, out)
	}
	remount("size=500m", 0)
	if out, err := backUp(s, elsewhere).CombinedOutput(); err != nil {
		t.Errorf("with room again: %v: %s", err, out)
	}
	check(t, s, one)
}
