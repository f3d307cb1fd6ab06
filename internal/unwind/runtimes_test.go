package unwind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/test/testwait"
)

// mapping makes a process that maps a file as that of a language's runtime.
func mapping(t *testing.T, u *Unwinder, pid int, language Language, path string) *attached {
	t.Helper()
	handle, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	f, err := readELF(handle)
	if err != nil {
		t.Fatal(err)
	}
	code := f.Executable()[0]
	e := &executable{handle: handle, path: path}
	e.runs.Store(language.runs())
	u.tracker.mu.Lock()
	u.tracker.processes[pid] = &process{layout: &layout{shared: 1, areas: []area{{start: 1 << 30, end: 1<<30 + code.Size, offset: code.Offset, executable: e}}}}
	u.tracker.mu.Unlock()
	p := &attached{runs: language.runs()}
	u.runtimes.mu.Lock()
	defer u.runtimes.mu.Unlock()
	u.runtimes.known[pid] = p
	return p
}

// coreCLR is a file that is known as .NET's, of a version that is walked, and
// as that of all other runtimes.
func coreCLR(t *testing.T) string {
	t.Helper()
	path := coreCLRPath(t)
	buildMarkers(t, path)
	return path
}

func coreCLRPath(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "Microsoft.NETCore.App", "3.1.23")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "libcoreclr.so")
}

// languagesOf tells which languages walks look for in a process.
func languagesOf(t *testing.T, u *Unwinder, pid int) uint32 {
	t.Helper()
	var p kernelProcess
	if err := u.maps.Processes.Lookup(uint32(pid), &p); err != nil && !isNotExist(err) {
		t.Fatal(err)
	}
	return p.Languages
}

// fillUp puts other processes into a language's map until it is full.
func fillUp(t *testing.T, u *Unwinder, language Language) (last uint32) {
	t.Helper()
	m := u.runtimes.parameters[language]
	for pid := uint32(1 << 24); ; pid++ {
		switch err := m.Put(pid, make([]byte, m.ValueSize())); {
		case errors.Is(err, unix.E2BIG):
			return pid - 1
		case err != nil:
			t.Fatal(err)
		}
	}
}

// A runtime that found no room is not known, neither to walks nor to those who
// name frames, until there is room.
func TestRuntimeWithoutRoom(t *testing.T) {
	met := 0
	u := offline(t, Options{OnRuntime: func(int, Language) { met++ }})
	const pid = 1<<22 + 1
	p := mapping(t, u, pid, DotNet, coreCLR(t))
	last := fillUp(t, u, DotNet)
	a := &attachment{pid: pid, process: p}
	if u.runtimes.read(a) {
		t.Error("it is not tried again")
	}
	if of, err := u.Runtime(pid, DotNet); !errors.Is(err, errNoRoomForRuntime) || of != nil {
		t.Errorf("it is known although there is no room: %v, %v", of, err)
	}
	if got := languagesOf(t, u, pid); got != 0 || met != 0 || u.runtimes.errors != 1 {
		t.Errorf("walks look for languages %#x, %d were told, %d processes without room", got, met, u.runtimes.errors)
	}
	if u.runtimes.read(a); u.runtimes.errors != 1 {
		t.Errorf("one process without room counts as %d", u.runtimes.errors)
	}
	if err := u.runtimes.parameters[DotNet].Delete(last); err != nil {
		t.Fatal(err)
	}
	if !u.runtimes.read(a) {
		t.Error("it is tried again although there was room")
	}
	if of, err := u.Runtime(pid, DotNet); err != nil || of == nil || languagesOf(t, u, pid) != DotNet.runs() || met != 1 {
		t.Errorf("with room: %v, %v, walks look for %#x, %d were told", of, err, languagesOf(t, u, pid), met)
	}
}

// A process that found no room for so long that it is not tried any more is
// tried again when another has ended.
func TestRoomMadeLate(t *testing.T) {
	u := offline(t, Options{})
	const ends, waits = 1<<22 + 1, 1<<22 + 2
	path := coreCLR(t)
	before, p := mapping(t, u, ends, DotNet, path), mapping(t, u, waits, DotNet, path)
	if !u.runtimes.read(&attachment{pid: ends, process: before}) {
		t.Fatal("the first process was not read")
	}
	fillUp(t, u, DotNet)
	p.attaching = true
	if !u.runtimes.read(&attachment{pid: waits, process: p, tries: attachTries}) {
		t.Fatal("it is tried for ever")
	}
	u.tracker.sweep(map[int]bool{})
	if all := u.runtimes.takeUnattached(); len(all) != 0 {
		t.Error("it is tried again although nobody has made room")
	}
	u.tracker.sweep(map[int]bool{ends: true})
	all := u.runtimes.takeUnattached()
	if len(all) != 1 || all[0].process != p || !u.runtimes.read(all[0]) {
		t.Fatalf("%d processes are tried again, want the one that waits", len(all))
	}
	if of, err := u.Runtime(waits, DotNet); err != nil || of == nil {
		t.Errorf("with room: %v, %v", of, err)
	}
}

// The fork of a process has its runtimes where there is room for them, and is
// else read like any other.
func TestForkWithoutRoom(t *testing.T) {
	u := offline(t, Options{})
	const parent, child = 1<<22 + 1, 1<<22 + 2
	p := mapping(t, u, parent, DotNet, coreCLR(t))
	if a := (&attachment{pid: parent, process: p}); !u.runtimes.read(a) {
		t.Fatal("the parent was not read")
	}
	fork := []lifecycle.Event{{Kind: lifecycle.Fork, Parent: parent, PID: child, Time: 1}}
	last := fillUp(t, u, DotNet)
	u.tracker.applyAll(fork, 2, map[int]bool{})
	if of, err := u.Runtime(child, DotNet); !errors.Is(err, errNoRoomForRuntime) || languagesOf(t, u, child) != 0 {
		t.Errorf("without room: %v, %v, walks look for %#x", of, err, languagesOf(t, u, child))
	}
	if all := u.runtimes.takeUnattached(); len(all) != 1 || all[0].pid != child {
		t.Errorf("%d processes are to be read, want the child alone", len(all))
	}
	if err := u.runtimes.parameters[DotNet].Delete(last); err != nil {
		t.Fatal(err)
	}
	u.tracker.mu.Lock()
	u.tracker.forget(child)
	u.tracker.mu.Unlock()
	u.tracker.applyAll(fork, 2, map[int]bool{})
	if of, err := u.Runtime(child, DotNet); err != nil || of == nil || languagesOf(t, u, child) != DotNet.runs() {
		t.Errorf("with room: %v, %v, walks look for %#x", of, err, languagesOf(t, u, child))
	}
}

// A file without the runtime that it was taken for is refused for good.
func TestReadOfNoRuntime(t *testing.T) {
	m := lang.Mapped{PID: 1<<22 + 1, Path: "/bin/x", Open: func() (*os.File, error) { return os.Open("/proc/self/exe") }, Notes: &lang.Notes{}}
	for _, r := range languages {
		if r.language == Java {
			continue // the process tells about it
		}
		if of, err := r.read(m); of != nil || !errors.Is(err, lang.ErrNever) || !strings.Contains(err.Error(), m.Path) {
			t.Errorf("language %d: %v, %v", r.language, of, err)
		}
	}
}

// What can never be read is tried once, and says why; nor is it tried when
// further code is mapped, or in a fork.
func TestNeverReadAgain(t *testing.T) {
	u := offline(t, Options{})
	const parent, child = 1<<22 + 1, 1<<22 + 2
	p := mapping(t, u, parent, PHP, "/proc/self/exe")
	p.attaching = true
	if !u.runtimes.read(&attachment{pid: parent, process: p}) || p.attaching {
		t.Error("it is tried again")
	}
	u.tracker.applyAll([]lifecycle.Event{
		{Kind: lifecycle.Map, PID: parent, Time: 1, Map: lifecycle.Mapping{Start: 1 << 40, End: 1<<40 + 4096}},
		{Kind: lifecycle.Fork, Parent: parent, PID: child, Time: 2},
	}, 3, map[int]bool{})
	for _, pid := range []int{parent, child} {
		if _, err := u.Runtime(pid, PHP); !errors.Is(err, lang.ErrNever) || !strings.Contains(err.Error(), "no php that is known") {
			t.Errorf("process %d: %v", pid, err)
		}
		if _, err := u.Runtime(pid, Perl); err == nil || errors.Is(err, lang.ErrNever) {
			t.Errorf("a language that process %d has not: %v", pid, err)
		}
	}
	if all := u.runtimes.takeUnattached(); len(all) != 0 {
		t.Errorf("process %d is to be read again", all[0].pid)
	}
	u.tracker.applyAll([]lifecycle.Event{{Kind: lifecycle.Exec, PID: child, Time: 4}}, 5, map[int]bool{})
	if a := u.runtimes.known[child]; a.hopeless != 0 {
		t.Error("another program is as hopeless as the one before")
	}
}

// What may still come is tried again, though not for ever.
func TestReadAgain(t *testing.T) {
	path, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("no perl here")
	}
	u := offline(t, Options{})
	const pid = 1<<22 + 1 // no process has it, so that nothing can be read of it
	p := mapping(t, u, pid, Perl, path)
	a := attachment{pid: pid, process: p}
	for !u.runtimes.read(&a) {
		if _, err := u.Runtime(pid, Perl); err == nil || errors.Is(err, lang.ErrNever) {
			t.Fatalf("a process that is not there: %v", err)
		}
		a.tries++
	}
	if a.tries != attachTries {
		t.Errorf("tried again %d times, want %d", a.tries, attachTries)
	}
	if p.wants() != Perl.runs() {
		t.Error("it will not be tried when its mappings change")
	}
}

// twins are processes that map one file.
type twins struct {
	path string
	many int
}

const firstTwin = 1<<22 + 1 // no process has such a number

func (s twins) Mappings(int) ([]lifecycle.Mapping, error) {
	f, err := binfile.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	code := f.Executable()[0]
	return []lifecycle.Mapping{{Start: 1 << 30, End: 1<<30 + code.Size, Offset: code.Offset, Inode: 1, Path: s.path}}, nil
}

func (s twins) Open(int, lifecycle.Mapping) (*os.File, error) { return os.Open(s.path) }

func (s twins) PIDs() (pids []int, err error) {
	for i := range s.many {
		pids = append(pids, firstTwin+i)
	}
	return pids, nil
}

// However many processes run one language when it is first met, all are read,
// though they do nothing that would have them asked for again.
func TestManyProcesses(t *testing.T) {
	const many = 3000
	path := coreCLRPath(t)
	buildLibrary(t, path, "long DotNetRuntimeInfo; int coreclr_initialize(void) { return 5; }")
	u := offline(t, Options{Source: twins{path, many}})
	if err := u.Scan(); err != nil {
		t.Fatal(err)
	}
	u.done.Go(func() { u.runtimes.attach(u.stop) })
	if err := u.Track(firstTwin); err != nil { // it loads the file, and all are published again
		t.Fatal(err)
	}
	unread := func() (n int) {
		u.runtimes.mu.Lock()
		defer u.runtimes.mu.Unlock()
		for _, p := range u.runtimes.known {
			if p.wants() != 0 {
				n++
			}
		}
		return n
	}
	testwait.Until(t, "all processes are read", func() bool { return unread() == 0 })
	if of, err := u.Runtime(firstTwin+many-1, DotNet); err != nil || of == nil {
		t.Errorf("the last one: %v, %v", of, err)
	}
}
