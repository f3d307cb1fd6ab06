package table

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CgroupMembers lists the processes of a cgroup2 directory and all below it.
func CgroupMembers(dir string) (map[int]bool, error) {
	members := map[int]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a cgroup may be removed while we look
		}
		list, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for _, line := range strings.Fields(string(list)) {
			if pid, err := strconv.Atoi(line); err == nil {
				members[pid] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %q: %w", dir, err)
	}
	return members, nil
}

// wantedExact reports whether the exact times of a process belong to the window that
// ends. Of a cgroup these are the processes in it now, at the last edge, or when threads
// that exited were heard of in between; one that came and went unseen has samples, but
// no exact time. The caller holds the tracker's lock.
func (t *Table) wantedExact(pid int) bool {
	if t.options.Cgroup == "" {
		return t.Wanted(pid)
	}
	return t.members[pid] || t.former[pid]
}

// lookAtMembers adds the processes that are in the cgroup now.
func (t *Table) lookAtMembers() error {
	if t.options.Cgroup == "" {
		return nil
	}
	members, err := CgroupMembers(t.options.Cgroup)
	if err == nil {
		maps.Copy(t.members, members)
	}
	return err
}

// turnMembers begins with the processes that are in the cgroup now, at an edge.
func (t *Table) turnMembers() error {
	if t.options.Cgroup == "" {
		return nil
	}
	members, err := CgroupMembers(t.options.Cgroup)
	if err == nil {
		t.former, t.members = t.members, members
	}
	return err
}
