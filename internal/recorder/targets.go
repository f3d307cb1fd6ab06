package recorder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// Targets are what is recorded: all of the machine, some processes with their
// descendants, or a cgroup2.
type Targets struct {
	All    bool
	PIDs   []int
	Cgroup string // its directory
}

// ErrNoTarget says that nothing was chosen.
var ErrNoTarget = errors.New("choose what to record: -p PID, --name REGEX, -G CGROUP, -a for everything, or a command after --")

// FindTargets resolves what a user asked for, and refuses what cannot be recorded.
func FindTargets(fs proc.FS, all bool, pids []int, name, cgroup string) (Targets, error) {
	asked := 0
	for _, given := range []bool{all, len(pids) > 0, name != "", cgroup != ""} {
		if given {
			asked++
		}
	}
	switch {
	case asked == 0:
		return Targets{}, ErrNoTarget
	case asked > 1:
		return Targets{}, errors.New("-a, -p, --name and -G exclude each other: give one")
	case all:
		return Targets{All: true}, nil
	case cgroup != "":
		dir, err := findCgroup(cgroup)
		return Targets{Cgroup: dir}, err
	case name != "":
		return findByName(fs, name)
	}
	for _, pid := range pids {
		if _, err := fs.Check(pid); err != nil {
			return Targets{}, err
		}
	}
	return Targets{PIDs: pids}, nil
}

func findByName(fs proc.FS, name string) (Targets, error) {
	re, err := regexp.Compile(name)
	if err != nil {
		return Targets{}, fmt.Errorf("--name %q: %w", name, err)
	}
	found, err := fs.Find(re)
	if err != nil {
		return Targets{}, fmt.Errorf("find processes: %w", err)
	}
	var t Targets
	for _, p := range found {
		if _, err := fs.Check(p.PID); err == nil && p.PID != os.Getpid() {
			t.PIDs = append(t.PIDs, p.PID)
		}
	}
	if len(t.PIDs) == 0 {
		return Targets{}, fmt.Errorf("no process matches --name %q", name)
	}
	return t, nil
}

var cgroupRoots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// findCgroup accepts a directory, or a path below the cgroup2 root.
func findCgroup(name string) (string, error) {
	candidates := []string{name}
	for _, root := range cgroupRoots {
		candidates = append(candidates, filepath.Join(root, name))
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir, nil
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && strings.HasPrefix(dir, "/sys") {
			return "", fmt.Errorf("cgroup %q is a version 1 cgroup: events can only follow version 2 (mounted at %s); use -p with its processes", name, strings.Join(cgroupRoots, " or "))
		}
	}
	return "", fmt.Errorf("no version 2 cgroup %q below %s", name, strings.Join(cgroupRoots, " or "))
}

func (t Targets) labels() profile.Labels {
	l := profile.Labels{}
	if host, err := os.Hostname(); err == nil {
		l["node"] = host
	}
	switch {
	case t.Cgroup != "":
		l["cgroup"] = t.Cgroup
	case len(t.PIDs) == 1:
		l["process.pid"] = strconv.Itoa(t.PIDs[0])
	}
	return l
}
