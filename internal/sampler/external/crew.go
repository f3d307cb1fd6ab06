package external

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

// CrewOptions say how a crew records.
type CrewOptions struct {
	Kernel      Kernel // "": for each process the best one that is installed
	Why         string // in words, if Kernel is "": why other profilers are used at all
	Frequency   float64
	AllowAttach bool
	Window      time.Duration // how long windows are
	FS          proc.FS
	Log         *slog.Logger
}

// Crew records processes that come and go: perf all of its processes at once,
// the others one each. What it is aimed at it begins at the next cut, and ends
// at the next cut what it is aimed at no more. It is a sampler.Sampler.
//
//	Aim -> wanted -> plan: who is recorded with what, and who is not, and why (plan.go)
//	  -> Cut: those that go on are cut, others ended or begun, all at the same time
type Crew struct {
	options CrewOptions
	ctx     context.Context // its end kills all tools
	cancel  context.CancelFunc
	planner planner

	cutting sync.Mutex // held by Cut and Close; guards members
	members map[post]*member

	mu        sync.Mutex      // guards all below
	frequency float64         // from the next cut on
	rates     map[int]float64 // likewise, of processes that have one of their own
	wanted    map[int]bool
	lead      time.Duration
	said      sampler.Trouble
}

// post is what one tool is started for: perf for all of its processes, the others
// for one each.
type post struct {
	kernel Kernel
	pid    int // 0: all
}

// member is a tool at work.
type member struct {
	sampler *Sampler
	pids    []int
}

// NewCrew prepares a crew. It records nothing until it is aimed and cut. A kernel
// that is not installed is an error.
func NewCrew(o CrewOptions) (*Crew, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Kernel == AsyncProfiler && !o.AllowAttach {
		return nil, fmt.Errorf("allowAttach: false: async-profiler loads a library into the processes it records, which is %w without consent", ErrConsent)
	}
	if err := installed(o.Kernel); err != nil {
		return nil, err
	}
	c := &Crew{options: o, planner: newPlanner(o), members: map[post]*member{},
		frequency: o.Frequency, rates: map[int]float64{}, wanted: map[int]bool{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Aim makes processes targets, and others no longer, from the next cut on. It tells
// whether any was none before.
func (c *Crew) Aim(add, drop []int) (fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range drop {
		delete(c.wanted, pid)
		delete(c.rates, pid)
	}
	for _, pid := range add {
		fresh = fresh || !c.wanted[pid]
		c.wanted[pid] = true
	}
	return fresh
}

// SetFrequency changes the rate from the next cut on. It does not wait for one that
// is under way.
func (c *Crew) SetFrequency(hz float64) error {
	if err := checkFrequency(hz); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frequency = hz
	clear(c.rates)
	return nil
}

// SetRates gives processes rates of their own, from the next cut on. Of several that
// one tool samples all have the highest: only perf samples several.
func (c *Crew) SetRates(hz map[int]float64) error {
	for pid, f := range hz {
		if err := checkFrequency(f); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.rates, hz)
	return nil
}

// rateOf is the rate of a tool that samples these processes, and whether some of them
// were to have another.
func (c *Crew) rateOf(pids []int) (hz float64, mixed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, pid := range pids {
		of, ok := c.rates[pid]
		if !ok {
			of = c.frequency
		}
		mixed = mixed || i > 0 && of != hz
		hz = max(hz, of)
	}
	return hz, mixed
}

// Lead is how long before a window's end Cut has to be called for its
// windows to end there.
func (c *Crew) Lead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lead
}

// Trouble tells what keeps it from recording all that it is aimed at.
func (c *Crew) Trouble() sampler.Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// Cut ends the windows that are being filled and, unless they are the last ones, begins
// the next. It returns one for each tool, and takes as long as the slowest of them.
func (c *Crew) Cut(e sampler.Edge) ([]*profile.Window, error) {
	c.cutting.Lock()
	defer c.cutting.Unlock()
	var p plan
	if !e.Last {
		p = c.planner.plan(c.targets(), c.recorded())
	}
	p.together = c.share(p)
	work := &cut{crew: c, plan: p, turn: make(chan struct{}, runtime.GOMAXPROCS(0)), began: map[post]*member{}}
	for at, m := range c.members {
		work.done.Go(func() { work.end(at, m) })
	}
	for at, pids := range p.posts {
		if c.members[at] == nil {
			work.done.Go(func() { work.begin(at, pids) })
		}
	}
	work.done.Wait()
	maps.Copy(c.members, work.began)
	for _, at := range work.ended {
		delete(c.members, at)
	}
	if !e.Last {
		c.sum(p, work)
	}
	return work.windows, nil
}

// targets are the processes it is aimed at that are there; not its own tools,
// of which perf is one that Python runs in.
func (c *Crew) targets() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid := range c.wanted {
		if stat, err := c.options.FS.Check(pid); err != nil || stat.PPID == os.Getpid() && isProgram(stat.Comm) {
			delete(c.wanted, pid)
			delete(c.rates, pid)
		}
	}
	return slices.Sorted(maps.Keys(c.wanted))
}

// share says of tools that sample processes of several rates that they do so at one.
func (c *Crew) share(p plan) (words []string) {
	for at, pids := range p.posts {
		if hz, mixed := c.rateOf(pids); mixed {
			words = append(words, fmt.Sprintf("%s samples all of its processes at one rate, the highest of theirs: %.4g Hz", at.kernel, hz))
		}
	}
	return words
}

// recorded are the processes that tools are at work on.
func (c *Crew) recorded() map[int]bool {
	all := map[int]bool{}
	for _, m := range c.members {
		for _, pid := range m.pids {
			all[pid] = true
		}
	}
	return all
}

// cut is a cut of a crew under way.
type cut struct {
	crew *Crew
	plan plan
	turn chan struct{} // held while a tool is started: they take CPU
	done sync.WaitGroup

	mu      sync.Mutex // guards all below
	windows []*profile.Window
	began   map[post]*member
	ended   []post
	failed  []failure
	lead    time.Duration
}

// failure is that processes could not be recorded.
type failure struct {
	pids []int
	err  error
}

// end cuts a tool's window, and ends the tool if it is not to go on, or cannot.
func (w *cut) end(at post, m *member) {
	pids, goes := w.plan.posts[at]
	if goes {
		rate, _ := w.crew.rateOf(pids)
		err := m.sampler.SetFrequency(rate)
		if err == nil && !slices.Equal(pids, m.pids) {
			err = m.sampler.Follow(pids)
		}
		if err != nil {
			w.fail(pids, err)
			goes = false
		}
	}
	next := m.sampler.Finish
	if goes {
		next = m.sampler.Cut
	}
	window, err := next()
	w.mu.Lock()
	if err == nil {
		w.windows = append(w.windows, window)
	}
	w.lead = max(w.lead, m.sampler.Lead())
	w.mu.Unlock()
	if err == nil && goes {
		m.pids = pids
		err = m.sampler.Failed()
	}
	if err != nil {
		w.fail(m.pids, err)
	}
	if goes && err == nil {
		return
	}
	if err := m.sampler.Close(); err != nil {
		w.crew.options.Log.Error("end another profiler", "kernel", at.kernel, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, at)
}

// begin starts a tool.
func (w *cut) begin(at post, pids []int) {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	o := w.crew.options
	rate, _ := w.crew.rateOf(pids)
	s, err := New(w.crew.ctx, Options{Kernel: at.kernel, PIDs: pids, Frequency: rate, Threads: true,
		AllowAttach: o.AllowAttach, Longest: o.Window + time.Minute, Apart: true, FS: o.FS})
	if err != nil {
		w.fail(pids, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began[at] = &member{s, pids}
	w.lead = max(w.lead, s.Lead())
}

// fail notes a failure. If processes have ended meanwhile that was the reason,
// and what is left is tried again at once.
func (w *cut) fail(pids []int, err error) {
	if len(alive(w.crew.options.FS, pids)) < len(pids) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, failure{pids, err})
}

// sum notes what a cut has shown.
func (c *Crew) sum(p plan, w *cut) {
	for _, f := range w.failed {
		c.planner.note(f)
		c.options.Log.Warn("record with another profiler", "processes", f.pids, "error", f.err)
	}
	p.wanted = alive(c.options.FS, p.wanted) // starting tools has taken a while
	said := p.trouble(len(c.recorded()), c.planner.failures(p.wanted))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lead, c.said = min(w.lead, c.options.Window/2), said
}

// Close ends all tools and removes what they have put anywhere. Windows that were
// not cut are lost.
func (c *Crew) Close() (err error) {
	c.cancel()
	c.cutting.Lock()
	defer c.cutting.Unlock()
	for _, m := range c.members {
		err = errors.Join(err, m.sampler.Close())
	}
	clear(c.members)
	return err
}

// trouble puts it in words, for so many processes that are recorded.
func (p *plan) trouble(recorded int, failed []string) sampler.Trouble {
	var words []string
	if p.why != "" {
		words = append(words, p.why)
	}
	if recorded < len(p.wanted) {
		words = append(words, fmt.Sprintf("%d of %d processes are recorded", recorded, len(p.wanted)))
	}
	words = append(words, slices.Sorted(maps.Values(p.unfit))...)
	words = append(words, p.over...)
	words = append(words, p.together...)
	words = append(words, failed...)
	return sampler.Trouble{Message: strings.Join(slices.Compact(words), "; "), Failed: recorded == 0 && len(p.wanted) > 0}
}
