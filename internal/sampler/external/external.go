// Package external samples with other profilers that are installed: perf, py-spy and async-profiler, behind the contract of package sampler.
//
// The flow of one window:
//
//	instrument (perf.go, pyspy.go, asprof.go)  knows a tool's command line
//	  -> run        the tool at work: a child process (command.go), or a library
//	                it has put into the target (intruder.go)
//	  -> text       parsed into a profile.Window (pyspytext.go, collapsed.go,
//	                profile/perfscript)
//	  -> Cut        head, exact CPU time (usage.go), losses
//
// Rates change between windows only, because a tool's rate is an argument of
// its command line. perf and py-spy hand over to a second instance of
// themselves, so nothing is missed between windows; async-profiler is stopped
// and started, and the CPU time used meanwhile is a loss of the next window.
//
// Nothing of a tool outlives the sampler: children die with us, files are made
// in folders of our own, and what was started inside a process stops by itself
// after Options.Longest.
package external

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// Kernel names a profiler, as --kernel does.
type Kernel string

const (
	Perf          Kernel = "perf"
	PySpy         Kernel = "py-spy"
	AsyncProfiler Kernel = "async-profiler"
)

// Kernels lists them all.
func Kernels() []Kernel { return []Kernel{Perf, PySpy, AsyncProfiler} }

// Options say what to sample, with what, and how often.
type Options struct {
	Kernel    Kernel
	PIDs      []int
	Frequency float64 // samples a second: of CPU time, or (py-spy) of time
	Threads   bool    // keep threads apart
	// AllowAttach is the user's consent to load a library into the targets;
	// async-profiler cannot work otherwise.
	AllowAttach bool
	// Longest is the longest window Cut will be asked for. What runs inside a
	// target stops by itself soon after, should we be killed. 0: one hour.
	Longest time.Duration
	// Apart has each process be recorded without the children it starts, and tells
	// the exact times of threads.
	Apart bool
	FS    proc.FS
}

// ErrConsent says that the user has not agreed to a library in the target.
var ErrConsent = errors.New("not allowed")

// instrument starts a tool on its targets.
type instrument interface {
	// start returns once the tool samples at the frequency; or, where the
	// instrument is stoppable in between, is ready to by go.
	start(ctx context.Context, frequency float64) (run, error)
	// overlaps tells whether a second run may begin before the first ends.
	overlaps() bool
	// design says how the tool chooses its samples.
	design() profile.Design
	// release removes what the instrument has put anywhere.
	release() error
}

// run is a tool at work.
type run interface {
	// begin has a run that was prepared take its first sample.
	begin() error
	// halt ends sampling; collect returns what was seen. Head and exact times
	// are not filled in. A run is over after collect, whatever it returns.
	halt()
	collect() (*profile.Window, error)
	// abandon ends the run without looking at what it saw.
	abandon()
	// done is closed when the tool has ended: it failed, or its targets did.
	done() <-chan struct{}
}

// Sampler is a tool at work on some processes.
type Sampler struct {
	options Options
	tool    instrument
	ctx     context.Context // its end kills the tool
	cancel  context.CancelFunc

	mu        sync.Mutex // guards all below: one Cut at a time
	frequency float64
	run       run     // nil after Finish, Close, or where a tool could not start again
	rate      float64 // that run has
	started   time.Time
	meter     meter
	lead      time.Duration // that the last run took until it was ready beside another one
	missed    time.Duration // CPU time between the last run's end and this one's begin
	failed    error         // why run is nil
}

// New starts sampling and returns once the tool takes samples. The end of ctx
// kills the tool; what it saw is then lost.
func New(ctx context.Context, o Options) (*Sampler, error) {
	if o.Longest <= 0 {
		o.Longest = time.Hour
	}
	if len(o.PIDs) == 0 {
		return nil, fmt.Errorf("%s: no process to record", o.Kernel)
	}
	tool, err := newInstrument(o)
	if err != nil {
		return nil, err
	}
	s := &Sampler{options: o, tool: tool, frequency: o.Frequency}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if o.Apart {
		s.meter = watchApart(o.FS, o.PIDs)
	} else {
		s.meter = watchUsage(o.FS, o.PIDs, o.Kernel != AsyncProfiler)
	}
	if s.run, err = s.prepare(); err == nil {
		s.meter.cut()
		s.started = time.Now()
		err = s.run.begin()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newInstrument(o Options) (instrument, error) {
	if err := checkFrequency(o.Frequency); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Kernel, err)
	}
	switch o.Kernel {
	case Perf:
		return newPerf(o)
	case PySpy:
		return newPySpy(o)
	case AsyncProfiler:
		return newAsyncProfiler(o)
	}
	return nil, fmt.Errorf("no kernel %q: there is %s", o.Kernel, kernelNames())
}

// maxFrequency is what package cpu takes too.
const maxFrequency = 20000

func checkFrequency(hz float64) error {
	if hz < 1 || hz > maxFrequency {
		return fmt.Errorf("%v samples a second: want 1 to %d", hz, maxFrequency)
	}
	return nil
}

// takes is the rate that a kernel has in place of one: perf and py-spy know whole
// numbers alone.
func (k Kernel) takes(hz float64) float64 {
	if k == AsyncProfiler {
		return hz
	}
	return math.Round(hz)
}

func kernelNames() string {
	var names []string
	for _, k := range Kernels() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// SetFrequency changes the rate from the next Cut on.
func (s *Sampler) SetFrequency(frequency float64) error {
	if err := checkFrequency(frequency); err != nil {
		return fmt.Errorf("%s: %w", s.options.Kernel, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frequency = frequency
	return nil
}

// Done is closed when the tool has ended by itself: because its targets have,
// or because it failed, which the next Cut tells.
func (s *Sampler) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return s.run.done()
}

// Cut ends the window that is being filled and begins the next.
func (s *Sampler) Cut() (*profile.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut(true)
}

// Finish ends the last window: like Cut, but no next one is begun.
func (s *Sampler) Finish() (*profile.Window, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut(false)
}

func (s *Sampler) cut(again bool) (*profile.Window, error) {
	if s.run == nil {
		if s.failed != nil {
			return nil, s.failed
		}
		return nil, fmt.Errorf("%s: has ended", s.options.Kernel)
	}
	old, rate, missed, start := s.run, s.rate, s.missed, s.started
	again = again && slices.ContainsFunc(s.options.PIDs, s.lives)
	s.run, s.missed, s.failed = nil, 0, nil
	if again && s.tool.overlaps() {
		s.run, s.failed = s.prepare()
	}
	old.halt()
	exact := s.meter.cut()
	s.started = time.Now()
	var threads []profile.Thread
	if a, ok := s.meter.(*apart); ok {
		threads = a.times()
	}
	if s.run != nil {
		s.resume()
	}
	window, err := old.collect()
	if again && !s.tool.overlaps() {
		if s.run, s.failed = s.prepare(); s.run != nil {
			s.resume()
			s.missed = s.meter.since()
		}
	}
	if err != nil {
		return nil, err
	}
	timed(window, threads)
	s.complete(window, rate, start, missed, exact)
	return window, nil
}

func (s *Sampler) lives(pid int) bool {
	_, err := s.options.FS.Check(pid)
	return err == nil
}

// prepare starts a run at the rate that is wanted now.
func (s *Sampler) prepare() (run, error) {
	s.rate = s.options.Kernel.takes(s.frequency)
	began := time.Now()
	r, err := s.tool.start(s.ctx, s.rate)
	if err != nil {
		return nil, err
	}
	if s.tool.overlaps() {
		s.lead = time.Since(began)
	}
	return r, nil
}

// resume begins a prepared run; one that cannot is the next Cut's failure.
func (s *Sampler) resume() {
	if err := s.run.begin(); err != nil {
		s.run.abandon()
		s.run, s.failed = nil, err
	}
}

// complete fills in what no tool knows of its own window.
func (s *Sampler) complete(w *profile.Window, rate float64, start time.Time, missed time.Duration, exact profile.Exact) {
	w.Start, w.Duration = start, s.started.Sub(start)
	w.Design, w.Exact, w.Rate.Hertz = s.tool.design(), exact, rate
	w.Samples = nil
	w.Target = s.labels()
	w.Comments = append(w.Comments, fmt.Sprintf("recorded with %s at %g Hz", s.options.Kernel, rate))
	if missed > 0 {
		w.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: string(s.options.Kernel) + " was being started again",
			N: int64(missed.Seconds() * rate), Value: int64(missed)})
	}
	truncated(w)
	w.Comments = append(w.Comments, s.judge(w.N(), exact.CPU-missed, rate)...)
}

// Numbers of samples that differ by this much from what the rate promises are
// worth a word where chance does not explain them: 20% of 200 is more than 2.8
// standard deviations.
const (
	fewSamples = 200
	deviation  = 0.2
)

// judge says where a tool's samples do not fit the exact CPU time.
func (s *Sampler) judge(n int64, used time.Duration, rate float64) []string {
	promised := used.Seconds() * rate
	fact := fmt.Sprintf("%s took %d samples where its rate and the CPU time used promise %.0f", s.options.Kernel, n, promised)
	if s.options.Apart { // of many windows that are added up, each would have a word of its own
		fact = fmt.Sprintf("%s took other numbers of samples than its rate and the CPU time used promise", s.options.Kernel)
	}
	switch got := float64(n); {
	case promised >= fewSamples && got < (1-deviation)*promised:
		return []string{fact + ": it did not keep the rate, or did not see all of the process"}
	case got >= fewSamples && got > (1+deviation)*promised:
		return []string{fact + ": it also counts threads that wait for a CPU"}
	}
	return nil
}

// truncated counts the samples whose stack ends early.
func truncated(w *profile.Window) {
	for _, r := range w.Rows.All() {
		if end := w.Stacks[r.Stack].End; end.Truncated() {
			w.AddLoss(profile.Loss{Reason: profile.LossTruncated, Detail: end.String(), N: r.N, Value: r.Values[0]})
		}
	}
}

func (s *Sampler) labels() profile.Labels {
	l := profile.Labels{}
	if host, err := os.Hostname(); err == nil {
		l["node"] = host
	}
	if len(s.options.PIDs) == 1 {
		l["process.pid"] = fmt.Sprint(s.options.PIDs[0])
	}
	return l
}

// Close stops the tool and removes all that it has put anywhere.
func (s *Sampler) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		s.run.abandon()
		s.run = nil
	}
	s.cancel()
	if s.meter != nil {
		s.meter.close()
		s.meter = nil
	}
	return s.tool.release()
}

// cpuTypes is the head of a window whose samples each stand for some CPU time.
func cpuTypes(period int64) []profile.ValueType {
	return []profile.ValueType{profile.CPUTime(period)}
}

func period(frequency float64) int64 { return max(1, int64(float64(time.Second)/frequency)) }
