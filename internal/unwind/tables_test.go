package unwind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/unwind/cfi"
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

// readable registers a file as one whose rows can be built.
func readable(u *Unwinder, inode uint64) *executable {
	e := u.executableOf(1, fileMapping(0x1000, inode, "/file"))
	e.failed = false
	u.unload(e)
	return e
}

func tableOf(rows int) *cfi.Table {
	return &cfi.Table{Rows: make([]cfi.Row, rows), Index: make([]uint32, 8)}
}

// published tells whether walks find an executable's rows.
func (u *Unwinder) published(e *executable) bool {
	return u.memory.executables.Value.E[e.id].Flags&executableLoaded != 0
}

// What no process uses makes room, that unused for longest first; what is in
// use does not.
func TestEviction(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	old, recent, next := readable(u, 11), readable(u, 12), readable(u, 13)
	for _, e := range []*executable{old, recent} {
		use(e, 1)
		if err := u.publish(e, tableOf(1500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.publish(next, tableOf(1500)); !errors.Is(err, errNoRoom) {
		t.Fatalf("rows found room among those in use: %v", err)
	}
	if !u.published(old) || !u.published(recent) || u.published(next) {
		t.Fatal("rows in use were dropped")
	}
	use(old, -1)
	use(recent, -1)
	old.idle = recent.idle.Add(-time.Second)
	if err := u.publish(next, tableOf(1500)); err != nil {
		t.Fatal(err)
	}
	if u.published(old) || !u.published(recent) || !u.published(next) || u.stats.Evicted != 1 {
		t.Errorf("published: old %v, recent %v, next %v; %d evicted", u.published(old), u.published(recent), u.published(next), u.stats.Evicted)
	}
	if next.row.first < recent.row.first+recent.row.count && recent.row.first < next.row.first+next.row.count {
		t.Errorf("rows %v and %v overlap", next.row, recent.row)
	}
	if err := u.publish(old, tableOf(minRows+1)); !errors.Is(err, errNoRoom) || !u.published(recent) || !u.published(next) {
		t.Errorf("for rows that never fit: %v, published: recent %v, next %v", err, u.published(recent), u.published(next))
	}
}

// An executable whose rows found no room is not built again and again.
func TestRefused(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	e := readable(u, 11)
	e.needs, e.refused = minRows, time.Now()
	if u.mayFit(e) {
		t.Error("it is built again at once")
	}
	e.refused = time.Now().Add(-2 * refuseFor)
	if !u.mayFit(e) {
		t.Error("it is never built again")
	}
	other := readable(u, 12)
	use(other, 1)
	if err := u.publish(other, tableOf(100)); err != nil {
		t.Fatal(err)
	}
	if u.mayFit(e) {
		t.Error("it is built where it cannot fit")
	}
}

// What most walks have missed is built first.
func TestMostWantedFirst(t *testing.T) {
	u := offline(t, Options{})
	u.mu.Lock()
	defer u.mu.Unlock()
	for inode := range uint64(4) {
		u.want(readable(u, 11+inode))
	}
	for i, misses := range []uint32{3, 70, 0, 8} {
		u.memory.executables.Value.E[u.executables.byFile[fileID{inode: uint64(11 + i)}].id].Wanted = misses
	}
	var order []uint64
	for e := u.mostWanted(); e != nil; e = u.mostWanted() {
		delete(u.wanted, e)
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
		if e := u.executableOf(1, m); !e.failed || source.opens != 1 {
			t.Fatalf("failed: %v, opened %d times", e.failed, source.opens)
		}
	}
	e := u.executableOf(2, m)
	if e.failed || e.image == "" || u.published(e) {
		t.Errorf("failed: %v, image %q, given up: %v", e.failed, e.image, u.published(e))
	}
	source.denied = func(int) bool { return true }
	source.opens = 0
	for pid := range 20 {
		u.executableOf(pid, fileMapping(0x1000, 12, "/other"))
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
	u.mu.Lock()
	defer u.mu.Unlock()
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
		eventually(t, path+" is mapped", func() bool { // an exec maps the file a little after it is known to succeed
			if err := u.scan(cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			for _, a := range u.processes[cmd.Process.Pid].layout.areas {
				if a.executable != nil && a.executable.path == path {
					copies = append(copies, a.executable)
					return true
				}
			}
			return false
		})
		u.loadAll(u.processes[cmd.Process.Pid])
	}
	a, b := copies[0], copies[1]
	if a == b || !u.published(a) || !u.published(b) || a.row != b.row || a.row.count == 0 {
		t.Fatalf("rows %v and %v, published %v and %v", a.row, b.row, u.published(a), u.published(b))
	}
	if a.currentNotes() == nil || a.currentNotes() != b.currentNotes() {
		t.Error("what the file tells of runtimes is read for each copy")
	}
	before, run := len(u.retired), a.row
	u.unload(a)
	if len(u.retired) != before || !u.published(b) || b.row != run {
		t.Error("the rows went with the first copy")
	}
	u.unload(b)
	if len(u.retired) == before || u.published(b) {
		t.Error("the rows stayed after the last copy")
	}
}
