package external

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

// usage is the exact CPU time of processes, read from the kernel's clock of
// each, which counts threads that have exited too. A clock is gone with its
// process. Where a parent has waited for a child, the child's time is part of
// what the kernel keeps for the parent, so that clocks and those together only
// grow; of all others the last reading is kept.
type usage struct {
	fs       proc.FS
	children bool // also those they start

	background *sampler.Background

	mu       sync.Mutex // guards all below
	family   map[int]spent
	departed spent // of those that are gone, and no parent has waited for
	atCut    spent
}

// spent is CPU time since a process began.
type spent struct {
	started      time.Duration // since boot: the same number may be another process
	parent       int
	cpu          time.Duration
	user, system time.Duration // in steps of 10 ms: they split the exact figure
}

// readEvery is how much of a process's last CPU time may be missed, and
// searchEvery in how many readings its new children are looked for.
const (
	readEvery   = 50 * time.Millisecond
	searchEvery = 4
)

// watchUsage begins to read.
func watchUsage(fs proc.FS, pids []int, children bool) *usage {
	u := &usage{fs: fs, children: children, background: sampler.NewBackground(), family: map[int]spent{}}
	if children {
		pids = descendants(fs, pids)
	}
	for _, pid := range pids {
		if now, ok := u.spent(pid); ok {
			u.family[pid] = now
		}
	}
	readings := 0
	u.background.Every(readEvery, func(time.Time) {
		u.mu.Lock()
		defer u.mu.Unlock()
		readings++
		u.read(readings%searchEvery == 0)
	})
	return u
}

func (u *usage) close() { u.background.Stop() }

// cut returns what was used since the last cut.
func (u *usage) cut() profile.Exact {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read(true)
	window := u.window()
	u.atCut = u.total()
	return window
}

// since returns what was used since the last cut, and goes on counting.
func (u *usage) since() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read(false)
	return u.window().CPU
}

func (u *usage) total() spent {
	sum := u.departed
	for _, s := range u.family {
		sum.add(s)
	}
	return sum
}

func (s *spent) add(o spent) {
	s.cpu += o.cpu
	s.user += o.user
	s.system += o.system
}

// window divides the exact time as the coarse ones are.
func (u *usage) window() profile.Exact {
	now := u.total()
	e := profile.Exact{CPU: max(now.cpu-u.atCut.cpu, 0), Source: "CPU clocks of its processes"}
	user, system := max(now.user-u.atCut.user, 0), max(now.system-u.atCut.system, 0)
	if sum := user + system; sum > 0 {
		e.User = time.Duration(float64(e.CPU) * float64(user) / float64(sum))
		e.System = e.CPU - e.User
	}
	return e
}

// read brings every process up to date, and finds new children where asked.
func (u *usage) read(search bool) {
	now := make(map[int]spent, len(u.family))
	pending := make([]int, 0, len(u.family))
	for pid := range u.family {
		pending = append(pending, pid)
	}
	for i := 0; i < len(pending); i++ {
		pid := pending[i]
		s, ok := u.spent(pid)
		before, known := u.family[pid]
		if !ok || known && before.started != s.started {
			continue
		}
		now[pid] = s
		if search && u.children {
			for _, child := range childrenOf(u.fs, pid) {
				if _, known := u.family[child]; !known && !slices.Contains(pending, child) {
					pending = append(pending, child)
				}
			}
		}
	}
	for pid, before := range u.family {
		if _, lives := now[pid]; !lives && !u.inherited(before, now) {
			u.departed.add(before)
		}
	}
	u.family = now
}

// inherited tells whether the time of a process that is gone is part of what
// an ancestor's children have used: each hands on what it has waited for.
func (u *usage) inherited(s spent, now map[int]spent) bool {
	for range u.family { // no longer than a chain can be, should numbers be used again
		if _, lives := now[s.parent]; lives {
			return u.children
		}
		parent, known := u.family[s.parent]
		if !known {
			return false
		}
		s = parent
	}
	return false
}

// readSpent reads what a process has used itself.
func readSpent(fs proc.FS, pid int) (s spent, ok bool) {
	s, _, ok = readStat(fs, pid)
	return s, ok
}

func readStat(fs proc.FS, pid int) (s spent, stat proc.Stat, ok bool) {
	stat, err := fs.Stat(pid)
	if err != nil {
		return s, stat, false
	}
	s = spent{started: stat.Started, parent: stat.PPID, cpu: stat.User + stat.System, user: stat.User, system: stat.System}
	var t unix.Timespec
	if err := unix.ClockGettime(processClock(pid), &t); err == nil {
		s.cpu = time.Duration(t.Nano())
	}
	return s, stat, true
}

func (u *usage) spent(pid int) (s spent, ok bool) {
	s, stat, ok := readStat(u.fs, pid)
	if ok && u.children {
		s.cpu += stat.ChildrenUser + stat.ChildrenSystem
		s.user += stat.ChildrenUser
		s.system += stat.ChildrenSystem
	}
	return s, ok
}

// processClock is the clock of a process's CPU time, as clock_getcpuclockid
// makes it: the complement of the process, and CPUCLOCK_SCHED.
func processClock(pid int) int32 { return int32(^pid)<<3 | 2 }

// maxThreads bounds the reads for one process's children.
const maxThreads = 256

// childrenOf lists the children of a process's threads, as far as the kernel
// was built to tell (CONFIG_PROC_CHILDREN).
func childrenOf(fs proc.FS, pid int) (children []int) {
	tids, err := fs.ThreadIDs(pid)
	if err != nil {
		return nil
	}
	folder := filepath.Join(procRoot(fs), strconv.Itoa(pid), "task")
	for _, tid := range tids[:min(len(tids), maxThreads)] {
		data, err := os.ReadFile(filepath.Join(folder, strconv.Itoa(tid), "children"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if child := number(field); child > 0 {
				children = append(children, child)
			}
		}
	}
	return children
}

// descendants lists processes and all they have started that lives.
func descendants(fs proc.FS, roots []int) []int {
	family := slices.Clone(roots)
	all, err := fs.PIDs()
	if err != nil {
		return family
	}
	children := map[int][]int{}
	for _, pid := range all {
		if s, err := fs.Stat(pid); err == nil {
			children[s.PPID] = append(children[s.PPID], pid)
		}
	}
	for i := 0; i < len(family); i++ {
		for _, child := range children[family[i]] {
			if !slices.Contains(family, child) {
				family = append(family, child)
			}
		}
	}
	return family
}
