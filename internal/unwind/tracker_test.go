package unwind

import (
	"os"
	"testing"

	"atys.dev/atys/internal/proc/lifecycle"
)

// fileBehind registers the file behind a mapping.
func fileBehind(u *Unwinder, pid int, m lifecycle.Mapping) *executable {
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	return u.tables.find(pid, m)
}

// slow is a Source that answers only when the test lets it.
type slow struct {
	noProcesses
	asked   chan string // each request, when it comes
	answers chan []lifecycle.Mapping
}

func (s slow) Mappings(int) ([]lifecycle.Mapping, error) {
	s.asked <- "mappings"
	return <-s.answers, nil
}

func (s slow) Open(_ int, m lifecycle.Mapping) (*os.File, error) {
	s.asked <- m.Path
	<-s.answers
	return nil, os.ErrNotExist
}

// Reading mappings and opening files do not hold the lock, however long they take. If the
// process calls exec meanwhile, its mappings are read again.
func TestScanHoldsNobodyUp(t *testing.T) {
	const pid = 1 << 23 // no process has this number
	s := slow{asked: make(chan string), answers: make(chan []lifecycle.Mapping)}
	u := offline(t, Options{Source: s, Wanted: func(int) bool { return true }})
	done := make(chan error)
	go func() { done <- u.Track(pid) }()
	<-s.asked
	u.tracker.applyAll([]lifecycle.Event{{Kind: lifecycle.Exec, PID: pid, Time: monotonic()}}, monotonic(), map[int]bool{})
	s.answers <- []lifecycle.Mapping{{Start: 0x1000, End: 0x2000, Path: ""}} // of the program before
	if again := <-s.asked; again != "mappings" {
		t.Fatalf("asked for %q, want the mappings again: the process has called exec", again)
	}
	s.answers <- []lifecycle.Mapping{fileMapping(0x5000, 7, "/slow")}
	if file := <-s.asked; file != "/slow" {
		t.Fatalf("opened %q", file)
	}
	if n := u.Stats().Processes; n != 1 {
		t.Errorf("%d processes are known, want that of the exec", n)
	}
	s.answers <- nil
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if p := u.tracker.processes[pid]; p.layout.maps(0x1000) || !p.layout.maps(0x5000) {
		t.Errorf("mapped: %+v", p.layout.areas)
	}
}

// A process that exits while its mappings are read is forgotten by the next sweep.
func TestScannedProcessMayBeGone(t *testing.T) {
	u := offline(t, Options{Source: twins{"/bin/sleep", 1}})
	if err := u.Track(1 << 23); err != nil { // no process has this number
		t.Fatal(err)
	}
	u.tracker.sweep(map[int]bool{})
	if n := u.Stats().Processes; n != 0 {
		t.Errorf("%d processes are known, and none is there", n)
	}
}

// Events that happened before a process was read from /proc, but arrive later, change
// nothing: their mappings may be gone by then.
func TestOldEventsChangeNothing(t *testing.T) {
	const pid = 1 << 23
	u := offline(t, Options{Source: twins{"/bin/sleep", 1}, Wanted: func(int) bool { return true }})
	before := monotonic()
	if err := u.Track(pid); err != nil {
		t.Fatal(err)
	}
	stale := fileMapping(1<<30, 9, "/gone")
	u.tracker.applyAll([]lifecycle.Event{{Kind: lifecycle.Exec, PID: pid, Time: before}, {Kind: lifecycle.Map, PID: pid, Time: before, Map: stale}}, monotonic(), map[int]bool{})
	if areas := u.tracker.processes[pid].layout.areas; len(areas) != 1 || areas[0].executable == nil || areas[0].executable.path != "/bin/sleep" {
		t.Errorf("mapped: %+v", areas)
	}
	u.tracker.applyAll([]lifecycle.Event{{Kind: lifecycle.Map, PID: pid, Time: monotonic(), Map: stale}}, monotonic(), map[int]bool{})
	if p := u.tracker.processes[pid]; p.layout.areas[0].executable.path != "/gone" {
		t.Errorf("mapped: %+v", p.layout.areas)
	}
}
