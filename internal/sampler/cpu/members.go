package cpu

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupMembers lists the processes of a cgroup2 directory and all below it.
func cgroupMembers(dir string) (map[int]bool, error) {
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

// wantedNow tells whose exact times belong to the window that ends now. Of a
// cgroup these are the processes in it now, at the last edge, or when threads that
// exited were heard of in between; one that came and went unseen has samples, but
// no exact time.
func (s *Sampler) wantedNow() (func(pid int) bool, error) {
	if s.options.Cgroup == "" {
		return s.Wanted, nil
	}
	members, err := cgroupMembers(s.options.Cgroup)
	if err != nil {
		return nil, err
	}
	before := s.members
	s.members = members
	return func(pid int) bool { return members[pid] || before[pid] }, nil
}

// wantedSoFar is wantedNow within a window.
func (s *Sampler) wantedSoFar() (func(pid int) bool, error) {
	if s.options.Cgroup == "" {
		return s.Wanted, nil
	}
	members, err := cgroupMembers(s.options.Cgroup)
	if err != nil {
		return nil, err
	}
	if s.members == nil {
		s.members = map[int]bool{}
	}
	maps.Copy(s.members, members)
	return func(pid int) bool { return s.members[pid] }, nil
}
