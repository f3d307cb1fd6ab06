package unwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/paging"
	"atys.dev/atys/test/testwait"
)

// offline is an unwinder of which nothing but its tables is used.
func offline(t *testing.T, o Options) *Unwinder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("creating BPF maps needs root")
	}
	if o.Source == nil {
		o.Source = noProcesses{}
	}
	o.CPUs = []int{0}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// readable registers a file as one whose table can be built.
func readable(u *Unwinder, inode uint64) *executable {
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	return heldReadable(u, inode)
}

// heldReadable is readable for callers that hold the lock.
func heldReadable(u *Unwinder, inode uint64) *executable {
	e := u.tables.find(1, fileMapping(0x1000, inode, "/file"))
	e.failed = false
	u.tables.unload(e, 0)
	return e
}

// rowsFrom are rows for each 16 bytes of code.
func rowsFrom(offset, rows int) *paging.Packed {
	all := make([]uint64, rows)
	for i := range all {
		all[i] = uint64(offset+16*i)<<32 | 1<<28 | 1
	}
	return paging.Pack(all)
}

// published tells whether walks find an executable's rows.
func (u *Unwinder) published(e *executable) bool {
	return u.tables.executables.entries.entry(e).Flags&executableLoaded != 0
}

// Where the directory is full of tables that are used, a walk is told that there
// is no room; one that was not used lately makes some, and its walks are told that.
func TestFullDirectory(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	clock := time.Hour
	u.tables.rows = paging.New(paging.Options{Rows: u.memory.rows.Values, Cells: u.memory.cells.Values[:20], Packed: 1 << 20, Grace: Grace,
		Now: func() time.Duration { clock += Grace; return clock }})
	flags := func(e *executable) uint32 { return u.tables.executables.entries.entry(e).Flags }
	old, recent, next := readable(u, 11), readable(u, 12), readable(u, 13)
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	old.runs.Store(Python.runs())
	for _, e := range []*executable{old, recent} {
		e.uses++
		if !u.tables.publish(e, rowsFrom(0, 10*paging.SlotRows)) {
			t.Fatal("no room in an empty directory")
		}
	}
	if u.tables.publish(next, rowsFrom(0, 10*paging.SlotRows)) || flags(next) != executableNoRoom || u.tables.stats.NoRoom != 1 {
		t.Fatalf("a third table found room; flags %d, counted %d times", flags(next), u.tables.stats.NoRoom)
	}
	if next.mayBuild() {
		t.Error("it is built again at once")
	}
	clock += time.Minute
	u.tables.rows.Demand(recent.table, 16)
	if !u.tables.publish(next, rowsFrom(0, 10*paging.SlotRows)) || !u.published(next) || !u.published(recent) {
		t.Fatal("what was not used for a minute makes no room")
	}
	if old.table != nil || flags(old) != executableEvicted || u.tables.stats.TablesEvicted != 1 {
		t.Errorf("what made room: table %p, flags %d; %d evicted", old.table, flags(old), u.tables.stats.TablesEvicted)
	}
	if old.runs.Load() != Python.runs() {
		t.Error("which runtime it holds is forgotten")
	}
}

// Processes that were not sampled make room for others.
func TestProcessesMakeRoom(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	const first = 1 << 22 // beyond any pid
	u.tracker.mu.Lock()
	defer u.tracker.mu.Unlock()
	for pid := first; pid < first+32; pid++ {
		p := &process{layout: &layout{shared: 1, stale: true, areas: []area{{start: 0x1000, end: 0x2000}}}}
		u.tracker.processes[pid] = p
		u.tracker.publish(pid, p)
	}
	if u.tracker.evictProcesses(first, nil) {
		t.Fatal("processes that have just changed are evicted")
	}
	for pid := first; pid < first+32; pid++ {
		var k kernelProcess
		if err := u.maps.Processes.Lookup(uint32(pid), &k); err != nil {
			t.Fatal(err)
		}
		if k.Used -= 100; pid >= first+8 {
			k.Used += 50 // sampled later
		}
		if err := u.maps.Processes.Put(uint32(pid), &k); err != nil {
			t.Fatal(err)
		}
	}
	if !u.tracker.evictProcesses(first, func() bool { return len(u.tracker.processes) <= 25 }) {
		t.Fatal("no process makes room")
	}
	for pid := first + 1; pid < first+8; pid++ {
		var k kernelProcess
		if u.tracker.processes[pid] != nil || u.maps.Processes.Lookup(uint32(pid), &k) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if u.tracker.processes[first] == nil || u.tracker.processes[first+8] == nil || u.tracker.stats.ProcessesEvicted != 7 {
		t.Errorf("%d processes are left, %d evicted", len(u.tracker.processes), u.tracker.stats.ProcessesEvicted)
	}
}

// What most walks have missed is built first.
func TestMostWantedFirst(t *testing.T) {
	u := offline(t, Options{})
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	for inode := range uint64(4) {
		u.tables.want(heldReadable(u, 11+inode))
	}
	for i, misses := range []uint32{3, 70, 0, 8} {
		u.tables.queue.entries.entry(u.tables.executables.byFile[fileID{inode: uint64(11 + i)}]).Wanted = misses
	}
	var order []uint64
	for e := u.tables.queue.mostWanted(); e != nil; e = u.tables.queue.mostWanted() {
		delete(u.tables.queue.wanted, e)
		order = append(order, e.file.inode)
	}
	if len(order) != 4 || order[0] != 12 || order[1] != 14 || order[2] != 11 || order[3] != 13 {
		t.Errorf("order %v", order)
	}
}

// opening gives files to some processes only.
type opening struct {
	noProcesses
	opens  int
	denied func(pid int) bool
}

func (o *opening) Open(pid int, m lifecycle.Mapping) (*os.File, error) {
	o.opens++
	if o.denied(pid) {
		return nil, os.ErrPermission
	}
	return os.Open("/proc/self/exe")
}

// A file that could not be read is tried again when another process maps it,
// and not for ever.
func TestUnreadableFileIsTriedAgain(t *testing.T) {
	source := &opening{denied: func(pid int) bool { return pid == 1 }}
	u := offline(t, Options{Source: source})
	m := fileMapping(0x1000, 11, "/file")
	for range 3 {
		if e := fileBehind(u, 1, m); !e.failed || source.opens != 1 {
			t.Fatalf("failed: %v, opened %d times", e.failed, source.opens)
		}
	}
	e := fileBehind(u, 2, m)
	u.tables.mu.Lock()
	u.tables.identify(e)
	u.tables.mu.Unlock()
	if e.failed || e.handle == nil || u.published(e) {
		t.Errorf("failed: %v, handle %v, given up: %v", e.failed, e.handle, u.published(e))
	}
	source.denied = func(int) bool { return true }
	source.opens = 0
	for pid := range 20 {
		fileBehind(u, pid, fileMapping(0x1000, 12, "/other"))
	}
	if source.opens != maxTries {
		t.Errorf("opened %d times, want %d", source.opens, maxTries)
	}
}

// Copies of one file have one table between them, until the last is unloaded.
func TestCopiesShareRows(t *testing.T) {
	u := offline(t, Options{Source: Proc{}})
	image, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	var copies []*executable
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, image, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		testwait.Until(t, path+" is mapped", func() bool { // an exec maps the file a little after it is known to succeed
			if err := u.tracker.scan(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			for _, e := range u.tracker.executables(cmd.Process.Pid) {
				if e.path == path {
					copies = append(copies, e)
					return true
				}
			}
			return false
		})
		for _, e := range u.tracker.executables(cmd.Process.Pid) {
			u.tables.load(e)
		}
	}
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	a, b := copies[0], copies[1]
	if a == b || !u.published(a) || !u.published(b) || a.table != b.table || a.table == nil {
		t.Fatalf("tables %p and %p, published %v and %v", a.table, b.table, u.published(a), u.published(b))
	}
	if a.currentNotes() == nil || a.currentNotes() != b.currentNotes() {
		t.Error("what the file tells of runtimes is read for each copy")
	}
	before := u.tables.rows.Stats().Tables
	u.tables.unload(a, 0)
	if u.tables.rows.Stats().Tables != before || !u.published(b) || b.table == nil {
		t.Error("the rows went with the first copy")
	}
	u.tables.unload(b, 0)
	if u.tables.rows.Stats().Tables == before || u.published(b) {
		t.Error("the rows stayed after the last copy")
	}
}
