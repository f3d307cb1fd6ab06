package unwind

import (
	"os"
	"testing"

	"atys.dev/atys/internal/proc/lifecycle"
)

// noProcesses is a machine where nothing runs.
type noProcesses struct{}

func (noProcesses) Mappings(int) ([]lifecycle.Mapping, error)     { return nil, os.ErrNotExist }
func (noProcesses) Open(int, lifecycle.Mapping) (*os.File, error) { return nil, os.ErrNotExist }
func (noProcesses) PIDs() ([]int, error)                          { return nil, nil }
func fileMapping(start, inode uint64, path string) lifecycle.Mapping {
	return lifecycle.Mapping{Start: start, End: start + 0x1000, Inode: inode, Path: path}
}

// A parent that maps one file over another and forks, all before it is
// published again: parent and child are both seen with the new file, in cells
// that are not given back.
func TestForkOfStaleLayout(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating BPF maps needs root")
	}
	u, err := New(Options{Source: noProcesses{}, CPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	const parent, child = 1<<22 + 1, 1<<22 + 2 // beyond any pid
	exited := map[int]bool{}
	u.tracker.applyAll([]lifecycle.Event{
		{Kind: lifecycle.Exec, PID: parent, Time: 1},
		{Kind: lifecycle.Map, PID: parent, Time: 2, Map: fileMapping(0x1000, 11, "/old")},
	}, 3, exited)
	u.tracker.applyAll([]lifecycle.Event{
		{Kind: lifecycle.Map, PID: parent, Time: 4, Map: fileMapping(0x1000, 12, "/new")},
		{Kind: lifecycle.Fork, Parent: parent, PID: child, Time: 5},
	}, 6, exited)
	want := u.tables.executables.byFile[fileID{inode: 12}].id
	for _, pid := range []uint32{parent, child} {
		var p kernelProcess
		if err := u.maps.Processes.Lookup(pid, &p); err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
		if p.Count != 1 {
			t.Fatalf("process %d has %d mappings, want 1", pid, p.Count)
		}
		if got := u.memory.mappings.Value.M[p.First].Executable; got != want {
			t.Errorf("process %d: executable %d is mapped, want %d", pid, got, want)
		}
		for _, r := range u.tracker.layouts.retired {
			if r.run.First <= p.First && p.First < r.run.First+r.run.Count {
				t.Errorf("process %d looks at cells that were given back", pid)
			}
		}
	}
}
