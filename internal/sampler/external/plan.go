package external

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"
)

// mostAtOnce is how many processes a kernel records at a time. perf opens a file
// for each thread and CPU; each of the others is a program, or a library, at work.
var mostAtOnce = map[Kernel]int{Perf: 64, PySpy: 16, AsyncProfiler: 16}

// programs are those of the kernels.
var programs = map[Kernel]string{Perf: "perf", PySpy: "py-spy", AsyncProfiler: "asprof"}

func isProgram(name string) bool {
	for _, program := range programs {
		if program == name {
			return true
		}
	}
	return false
}

// installed tells whether a kernel is, or for "" any one of them.
func installed(k Kernel) error {
	if k != "" {
		if programs[k] == "" {
			return fmt.Errorf("no kernel %q: there is %s", k, kernelNames())
		}
		program, err := find(k, programs[k])
		if err == nil && k == AsyncProfiler {
			_, err = findLibrary(program)
		}
		return err
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			return nil
		}
	}
	return errNoOther
}

// planner decides who is recorded with what.
type planner struct {
	options CrewOptions
	now     func() time.Time
	most    map[Kernel]int
	fit     func(pid int) (Kernel, string) // which kernel suits a process; none: why not
	spent   func(pid int) (spent, bool)    // what a process has used

	known  map[int]suited
	cpu    map[int]time.Duration // of processes, when there were too many the last time
	failed map[int]failed
}

// suited is which kernel suits a process, as long as that is believed.
type suited struct {
	kernel  Kernel
	why     string
	started time.Duration // of the process, since boot
	until   time.Time
}

// failed is a process that could not be recorded. It is left alone for a while.
type failed struct {
	err   error
	until time.Time
}

// A process that suits no kernel may still be one that is just starting; what
// failed is tried again.
const (
	believeSuited = time.Minute
	believeUnfit  = 15 * time.Second
	leaveAlone    = time.Minute
)

func newPlanner(o CrewOptions) planner {
	p := planner{options: o, now: time.Now, most: mostAtOnce, known: map[int]suited{}, cpu: map[int]time.Duration{}, failed: map[int]failed{}}
	p.fit = p.suits
	p.spent = func(pid int) (spent, bool) { return readSpent(o.FS, pid) }
	return p
}

// plan is who is recorded with what, and who is not.
type plan struct {
	wanted []int
	posts  map[post][]int
	why    string
	unfit  map[int]string // processes that no kernel suits
	over   []string       // that there are more than are recorded at once

	together []string // that some have the rate of others
}

// plan decides for the processes that are wanted. Of too many those are recorded
// that use most CPU time, and rather those that are already.
func (p *planner) plan(wanted []int, recorded map[int]bool) plan {
	out := plan{wanted: wanted, posts: map[post][]int{}, unfit: map[int]string{}, why: p.options.Why}
	p.forget(wanted)
	suit := map[Kernel][]int{}
	for _, pid := range wanted {
		s := p.kernel(pid)
		switch {
		case s.kernel == "":
			out.unfit[pid] = s.why
		case p.failed[pid].err == nil:
			suit[s.kernel] = append(suit[s.kernel], pid)
		}
	}
	for _, k := range Kernels() {
		pids := suit[k]
		if most := p.most[k]; len(pids) > most {
			out.over = append(out.over, fmt.Sprintf("%s records at most %d processes at once, and there are %d for it", k, most, len(pids)))
			pids = p.busiest(pids, recorded)[:most]
			slices.Sort(pids)
		}
		for _, pid := range pids {
			at := post{k, pid}
			if k == Perf {
				at.pid = 0
			}
			out.posts[at] = append(out.posts[at], pid)
		}
	}
	return out
}

// forget drops what is known of processes that are not wanted, and failures that
// are to be tried again.
func (p *planner) forget(wanted []int) {
	now := p.now()
	for pid := range p.known {
		if !slices.Contains(wanted, pid) {
			delete(p.known, pid)
		}
	}
	for pid, f := range p.failed {
		if !now.Before(f.until) || !slices.Contains(wanted, pid) {
			delete(p.failed, pid)
		}
	}
}

func (p *planner) kernel(pid int) suited {
	stat, err := p.options.FS.Stat(pid)
	if err != nil {
		return suited{why: "a process has ended"}
	}
	s, ok := p.known[pid]
	if ok && s.started == stat.Started && p.now().Before(s.until) {
		return s
	}
	s = suited{started: stat.Started}
	s.kernel, s.why = p.fit(pid)
	s.until = p.now().Add(believeSuited)
	if s.kernel == "" {
		s.until = p.now().Add(believeUnfit)
	}
	p.known[pid] = s
	return s
}

// suits tells which kernel suits a process.
func (p *planner) suits(pid int) (Kernel, string) {
	k := p.options.Kernel
	if k == Perf {
		return k, ""
	}
	if k == "" {
		k, _, err := Choose(p.options.FS, []int{pid}, nil, p.options.AllowAttach)
		if err != nil {
			return "", err.Error()
		}
		return k, ""
	}
	names, err := mapped(p.options.FS, pid)
	switch {
	case err != nil:
		return "", err.Error()
	case k == PySpy && !matches(names, pythonFile):
		return "", "py-spy records Python alone"
	case k == AsyncProfiler && names[hotspot] == "":
		return "", "async-profiler records Java (HotSpot) alone"
	}
	return k, ""
}

// busiest orders processes by the CPU time they have used since they were looked
// at last, which counts twice for those that are recorded.
func (p *planner) busiest(pids []int, recorded map[int]bool) []int {
	used, now := map[int]time.Duration{}, map[int]time.Duration{}
	for _, pid := range pids {
		s, ok := p.spent(pid)
		if !ok {
			continue
		}
		now[pid] = s.cpu
		used[pid] = s.cpu - p.cpu[pid]
		if recorded[pid] {
			used[pid] *= 2
		}
	}
	p.cpu = now
	return slices.SortedFunc(slices.Values(pids), func(a, b int) int {
		return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b))
	})
}

// note has processes that could not be recorded be left alone for a while.
func (p *planner) note(f failure) {
	for _, pid := range alive(p.options.FS, f.pids) {
		p.failed[pid] = failed{f.err, p.now().Add(leaveAlone)}
	}
}

// mostTold is of how many failures people are told.
const mostTold = 3

// failures puts what failed into words, each reason once.
func (p *planner) failures(wanted []int) (words []string) {
	of := map[string][]int{}
	for _, pid := range wanted {
		if err := p.failed[pid].err; err != nil {
			of[err.Error()] = append(of[err.Error()], pid)
		}
	}
	for _, text := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Compare(of[a][0], of[b][0]) }) {
		if len(words) == mostTold {
			return append(words, fmt.Sprintf("and %d other failures", len(of)-mostTold))
		}
		who := fmt.Sprintf("process %d", of[text][0])
		if n := len(of[text]); n > 1 {
			who = fmt.Sprintf("%d processes", n)
		}
		words = append(words, who+": "+text)
	}
	return words
}
