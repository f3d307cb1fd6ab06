package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
)

// Profile says what is recorded of which targets. The zero value of a field
// stands for its default, which Parse has filled in.
type Profile struct {
	Name      string
	Select    Selector // of targets, by their labels; empty: all of them
	Kinds     []string
	Events    []string // of perf's names, besides those of the kinds
	Kernel    string
	Frequency float64       // samples a second and CPU
	Adaptive  *freq.Options // how rates are chosen, of which Frequency is the largest; nil: there is one
	// MinFrequency is what an agent lowers rates to at most to stay within its budget.
	// A rate that was asked for below it stays as it is.
	MinFrequency float64
	Window       time.Duration
	Threads      Threads
	Pruning      float64 // percent of the samples whose threads are kept; 0: all are
	Top          int     // functions of each target that Prometheus is told of
	AllowAttach  bool
	Duration     time.Duration // 0: until it is deleted
	Instances    int           // as many of the targets, chosen at random; 0: all
}

// Threads says how a target's threads are told apart in what is kept.
type Threads string

// How threads are kept apart.
const (
	ThreadsEach    Threads = "each"
	ThreadsPattern Threads = "pattern" // by their names, numbers in them left out
	ThreadsNone    Threads = "none"
)

// The defaults of a Profile, and the kind that there is.
const (
	KindCPU             = "cpu"
	KindOffCPU          = "off-cpu"
	KernelAuto          = "auto" // bpf where it can be used, else the best of the others that is installed
	KernelBPF           = "bpf"
	KernelPerf          = "perf"
	KernelPySpy         = "py-spy"
	KernelAsync         = "async-profiler"
	DefaultFrequency    = 19
	DefaultMinFrequency = 5
	DefaultWindow       = 10 * time.Second
	DefaultTop          = 10
)

// kernels are those that there are.
var kernels = []string{KernelAuto, KernelBPF, KernelPerf, KernelPySpy, KernelAsync}

// Limits of a Profile.
const (
	minFrequency, maxFrequency = 1, 20_000
	minWindow, maxWindow       = time.Second, time.Hour
	maxTop                     = 1000
	maxInstances               = 1_000_000
)

// builtinName is that of the windows of Builtin.
const builtinName = "builtin"

// Builtin is what runs on a node for which nobody has asked for anything.
func Builtin() *Profile {
	p := &Profile{Name: builtinName}
	p.fill()
	return p
}

// All tells whether every target is chosen.
func (p *Profile) All() bool { return len(p.Select) == 0 && p.Instances == 0 }

// External tells whether another profiler than atys is to take the samples.
func (p *Profile) External() bool { return p.Kernel != KernelAuto && p.Kernel != KernelBPF }

// slotsOfWindow is how many slots a window has whose rate adapts, and leastSlot is how
// long they are at least.
const (
	slotsOfWindow = 10
	leastSlot     = time.Second
)

// Slot is the length of the slots that windows tell apart where rates adapt; 0: of none.
// Windows are pooled there, and one in which a change was is known by when it was.
func (p *Profile) Slot() time.Duration {
	if slot := p.Window / slotsOfWindow; p.Adaptive != nil && p.Adaptive.Policy == freq.Auto && slot >= leastSlot {
		return slot
	}
	return 0
}

// Recording is one of the measurements of a profile, and the task that its windows are of.
type Recording struct {
	Task string
	Measurement
}

// Recordings lists what is to be recorded. No two have the same task and kind, which tell
// windows of one target apart.
func (p *Profile) Recordings() []Recording {
	var all []Recording
	for _, kind := range p.Kinds {
		if kind == KindOffCPU {
			all = append(all, Recording{p.Name, Measurement{Kind: KindOffCPU}})
		} else {
			all = append(all, Recording{p.Name, Measure("cpu-clock", p.Frequency)})
		}
	}
	for _, e := range p.Events {
		all = append(all, Recording{p.Name + "/" + e, Measure(e, p.Frequency)})
	}
	return all
}

// WithOffCPU returns the profile with time off the CPU added, if atys itself takes its samples
// of CPU time. Users cannot ask for that kind yet.
func (p *Profile) WithOffCPU() *Profile {
	if p.External() || !slices.Contains(p.Kinds, KindCPU) || slices.Contains(p.Kinds, KindOffCPU) {
		return p
	}
	more := *p
	more.Kinds = append(slices.Clone(p.Kinds), KindOffCPU)
	return &more
}

// Matches tells whether a target is chosen, whatever Instances says.
func (p *Profile) Matches(target profile.Labels) bool { return p.Select.Matches(target) }

// fill puts defaults where nothing is said.
func (p *Profile) fill() {
	if len(p.Kinds) == 0 && len(p.Events) == 0 {
		p.Kinds = []string{KindCPU}
	}
	if p.Kernel == "" {
		p.Kernel = KernelAuto
	}
	if p.Frequency == 0 && p.Adaptive == nil {
		p.Frequency = DefaultFrequency
	}
	if p.MinFrequency == 0 {
		p.MinFrequency = DefaultMinFrequency
	}
	if p.Window == 0 {
		p.Window = DefaultWindow
	}
	if p.Threads == "" {
		p.Threads = ThreadsPattern
	}
	if p.Top == 0 {
		p.Top = DefaultTop
	}
}

var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// CheckNew tells what a profile may not be called that is asked for. One that a
// server took when it still could be is read all the same, so that it can be deleted.
func (p *Profile) CheckNew() error {
	if p.Name == builtinName {
		return fmt.Errorf("name: %q: so is called what runs where nothing is asked for: take another name", p.Name)
	}
	return nil
}

// check tells all that is wrong, by field and value.
func (p *Profile) check() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if !nameRule.MatchString(p.Name) {
		wrong("name", "%.80q: want up to 63 small letters, digits, dots and dashes, such as checkout-cpu", p.Name)
	}
	for _, k := range p.Kinds {
		if k != KindCPU {
			wrong("kinds", "%.80q is not built yet: there is %s, and events", k, KindCPU)
		}
	}
	for _, e := range p.Events {
		if err := CheckEvent(e); err != nil {
			wrong("events", "%w", err)
		}
	}
	for field, list := range map[string][]string{"kinds": p.Kinds, "events": p.Events} {
		if len(slices.Compact(slices.Sorted(slices.Values(list)))) != len(list) {
			wrong(field, "%s: one is named twice", strings.Join(list, ", "))
		}
	}
	switch {
	case !slices.Contains(kernels, p.Kernel):
		wrong("kernel", "%.80q: want one of %s", p.Kernel, strings.Join(kernels, ", "))
	case p.External() && len(p.Events) > 0:
		wrong("events", "%s: %s samples CPU time alone: leave events out, or kernel", strings.Join(p.Events, ", "), p.Kernel)
	case p.Kernel == KernelAsync && !p.AllowAttach:
		wrong("allowAttach", "false: %s loads a library into the processes it records: to agree to that, say allowAttach: true", p.Kernel)
	}
	errs = append(errs, p.checkFrequency()...)
	if p.Window < minWindow || p.Window > maxWindow {
		wrong("window", "%v: want %v to %v", p.Window, minWindow, maxWindow)
	}
	if p.Threads != ThreadsEach && p.Threads != ThreadsPattern && p.Threads != ThreadsNone {
		wrong("threads", "%.80q: want %s, %s or %s", p.Threads, ThreadsEach, ThreadsPattern, ThreadsNone)
	}
	if p.Top < 0 || p.Top > maxTop {
		wrong("prometheus.top", "%d: want at most %d", p.Top, maxTop)
	}
	if p.Duration < 0 {
		wrong("duration", "%v: want a time such as 30s, or forever", p.Duration)
	}
	if p.Instances < 0 || p.Instances > maxInstances {
		wrong("instances", "%d: want 1 to %d, or none for all", p.Instances, maxInstances)
	}
	return errors.Join(errs...)
}
