package external

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

// meter tells the exact CPU time of what is sampled.
type meter interface {
	cut() profile.Exact   // since the last cut
	since() time.Duration // likewise, and goes on counting
	close()
}

// apart is the exact CPU time of processes by themselves, thread by thread: what
// an agent needs, which takes a window of several processes apart again. What
// the children of a process use is not its own.
type apart struct {
	fs         proc.FS
	background *sampler.Background

	mu      sync.Mutex // guards all below
	next    []int      // who is followed from the next cut on
	family  map[int]*used
	threads []profile.Thread // of the window that was cut last
}

// used is what a process has used.
type used struct {
	process       string
	begin, last   spent                 // at the last cut, and when it was looked at last
	threadsBefore map[int]time.Duration // at the last cut
	gone          bool
}

// A process that ends is known to have used what it had when it was last looked
// at. With several tools at work this is done more seldom than for one.
const lookEvery = 500 * time.Millisecond

// endedThreads is what the threads are called that have ended within a window:
// what they used is known of all of them together.
const endedThreads = "[ended threads]"

func watchApart(fs proc.FS, pids []int) *apart {
	a := &apart{fs: fs, background: sampler.NewBackground(), next: pids}
	a.begin()
	a.background.Every(lookEvery, func(time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.look()
	})
	return a
}

func (a *apart) close() { a.background.Stop() }

// follow has others be looked at, from the next cut on.
func (a *apart) follow(pids []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = slices.Clone(pids)
}

// begin begins a window of who is followed now. The lock is held, or nobody else
// knows of it yet.
func (a *apart) begin() {
	a.family = map[int]*used{}
	for _, pid := range a.next {
		now, ok := readSpent(a.fs, pid)
		if !ok {
			continue
		}
		u := &used{begin: now, last: now, threadsBefore: map[int]time.Duration{}}
		u.process, _ = a.fs.ThreadComm(pid, pid)
		tids, _ := a.fs.ThreadIDs(pid) // none, if it has just ended
		for _, tid := range tids {
			if t, err := a.fs.ThreadTime(pid, tid); err == nil {
				u.threadsBefore[tid] = t.Run
			}
		}
		a.family[pid] = u
	}
}

// look brings every process up to date. The lock is held.
func (a *apart) look() {
	for pid, u := range a.family {
		if u.gone {
			continue
		}
		now, ok := readSpent(a.fs, pid)
		if u.gone = !ok || now.started != u.begin.started; !u.gone {
			u.last = now
		}
	}
}

func (a *apart) cut() (sum profile.Exact) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	a.threads = nil
	for pid, u := range a.family {
		a.threads = append(a.threads, a.spend(pid, u)...)
	}
	for _, t := range a.threads {
		sum.Add(t.Exact)
	}
	if sum.Source == "" {
		sum.Source = apartSource
	}
	a.begin()
	return sum
}

const apartSource = "CPU clocks of its processes and threads"

// spend tells what the threads of a process used since the last cut. That of a
// process which has ended is known as a whole.
func (a *apart) spend(pid int, u *used) (threads []profile.Thread) {
	left := max(u.last.cpu-u.begin.cpu, 0)
	user, system := max(u.last.user-u.begin.user, 0), max(u.last.system-u.begin.system, 0)
	add := func(tid int, name string, cpu time.Duration) {
		e := profile.Exact{CPU: cpu, Source: apartSource}
		if both := user + system; both > 0 { // in steps of 10 ms: they split the exact figure
			e.User = time.Duration(float64(cpu) * float64(user) / float64(both))
			e.System = cpu - e.User
		}
		threads = append(threads, profile.Thread{PID: pid, TID: tid, Process: u.process, Name: name, Exact: e})
	}
	if !u.gone {
		all, _ := a.fs.Threads(pid) // none, if it has just ended
		for _, t := range all {
			if cpu := t.Run - u.threadsBefore[t.TID]; cpu > 0 {
				add(t.TID, t.Comm, cpu)
				left -= cpu
			}
		}
	}
	// The clocks of threads are read after that of their process: what they used
	// in between is more than it had.
	if left > time.Millisecond {
		add(0, endedThreads, left)
	}
	return threads
}

func (a *apart) since() (sum time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	for _, u := range a.family {
		sum += max(u.last.cpu-u.begin.cpu, 0)
	}
	return sum
}

// times gives the threads of the window that was cut last.
func (a *apart) times() []profile.Thread {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.threads
}

// timed tells a window's threads what they used; a tool may call them otherwise.
func timed(w *profile.Window, times []profile.Thread) {
	type id struct{ pid, tid int }
	known := map[id]int{}
	for i, t := range w.Threads {
		if _, ok := known[id{t.PID, t.TID}]; !ok {
			known[id{t.PID, t.TID}] = i
		}
	}
	for _, t := range times {
		if i, ok := known[id{t.PID, t.TID}]; ok {
			w.Threads[i].Exact = t.Exact
			continue
		}
		w.Threads = append(w.Threads, t)
	}
	processes := map[int]string{}
	for _, t := range times {
		processes[t.PID] = t.Process
	}
	for i := range w.Threads {
		if t := &w.Threads[i]; t.Process == "" {
			t.Process = processes[t.PID]
		}
	}
}

// only leaves out what belongs to other processes: perf follows children.
func only(w *profile.Window, pids []int) *profile.Window {
	strangers := false
	for _, t := range w.Threads {
		strangers = strangers || !slices.Contains(pids, t.PID)
	}
	if !strangers {
		return w
	}
	b := profile.NewBuilder(w.Head)
	locations := make([]profile.LocationID, len(w.Locations))
	for i, l := range w.Locations {
		locations[i] = b.Location(l, w.Names[i]...)
	}
	for _, row := range w.Rows.All() {
		t := w.Thread(row.Thread)
		if !slices.Contains(pids, t.PID) {
			continue
		}
		s := w.Stacks[row.Stack]
		stack := make([]profile.LocationID, len(s.Locations))
		for i, l := range s.Locations {
			stack[i] = locations[l]
		}
		row.Stack, row.Thread = b.Stack(stack, s.End), b.Thread(t)
		b.Add(row)
	}
	return b.Window()
}

// alive lists those processes that are there.
func alive(fs proc.FS, pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { _, err := fs.Check(pid); return err != nil })
}

// Follow has perf record other processes from the next window on; no other
// kernel records several at once.
func (s *Sampler) Follow(pids []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.tool.(*perf)
	a, apart := s.meter.(*apart)
	if !ok || !apart {
		return fmt.Errorf("%s: records the processes that it began with", s.options.Kernel)
	}
	p.options.PIDs, s.options.PIDs = pids, pids
	a.follow(pids)
	return nil
}

// Failed tells why no window is being filled; nil: one is.
func (s *Sampler) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return nil
	}
	if s.failed != nil {
		return s.failed
	}
	return fmt.Errorf("%s: has ended", s.options.Kernel)
}

// Lead is how long before a window's end Cut has to be called: so long it took
// the last time until the next run was ready.
func (s *Sampler) Lead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lead
}
