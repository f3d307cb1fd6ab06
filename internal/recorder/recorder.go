// Package recorder profiles this machine: it finds the targets, starts the unwinder and a sampler for each recording, and names what they saw.
//
//	targets (targets.go) -> unwind.Unwinder, one for all (machine.go) -> cpu.Sampler
//	   -> windows, cut every few seconds, merged as they come, pruned and named once at the end: a profile.Window
package recorder

import (
	"context"
	"errors"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/unwind"
)

// Options say what to record; exactly one kind of target must be given.
type Options struct {
	Targets   Targets
	Event     string
	Frequency float64
	Count     uint64
	Threads   bool
	Timed     bool
	Slot      time.Duration
	Placement cpu.Placement
	Budget    float64 // see cpu.Options
	Fixed     bool
	Pruning   float64 // percent of the samples whose threads Record keeps, see prune.Window; 0: all

	// MayAsk lets the runtimes of .NET be asked what their methods are called:
	// nobody else knows, and a question that is cut off can crash 3.1.
	MayAsk bool

	Placed func(why string, bystanders float64) // see OnPlaced of cpu.Options

	MeasureCost, Empty bool // see cpu.Options
}

// Recorder is a recording in progress.
type Recorder struct {
	recording
	options Options
	alone   bool // the machine is closed with it
	events  *cpu.Sampler
}

// Start begins to record, with a machine to itself.
func Start(s Setup, o Options) (*Recorder, error) {
	if _, _, err := o.events(); err != nil {
		return nil, err // before anything is opened
	}
	s.Eager = len(o.Targets.PIDs) > 0
	m, err := Open(s)
	if err != nil {
		return nil, err
	}
	r, err := m.Start(o)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	r.alone = true
	return r, nil
}

// Start begins to record.
func (m *Machine) Start(o Options) (*Recorder, error) {
	base, second, err := o.events()
	if err != nil {
		return nil, err
	}
	events, err := cpu.New(cpu.Options{
		Unwinder: m.unwinder, Tracker: m.tracker, CPUs: m.cpus, Event: base, Second: second, Log: m.log,
		All: o.Targets.All, PIDs: o.Targets.PIDs, Cgroup: o.Targets.Cgroup,
		Frequency: o.Frequency, Count: o.Count, Threads: o.Threads, Slot: o.Slot, Timed: o.Timed, Fixed: o.Fixed,
		Spread: o.Placement, Budget: o.Budget, OnPlaced: o.Placed, Naming: m.naming(o.MayAsk),
		MeasureCost: o.MeasureCost, Empty: o.Empty,
	})
	if err != nil {
		return nil, err
	}
	r := &Recorder{recording: recording{machine: m, targets: o.Targets, mayAsk: o.MayAsk, sampler: events}, options: o, events: events}
	if err := r.begin(events.Release); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	m.log.Debug("sampling has begun")
	return r, nil
}

// events says what is to be sampled, if that can be done.
func (o *Options) events() (base cpu.Event, second *cpu.Event, err error) {
	if base, second, err = cpu.ParseEvents(o.Event); err == nil && o.Count == 0 {
		err = cpu.CheckFrequency(o.Frequency)
	}
	return base, second, err
}

// Sampler gives the sampler, for live changes and its costs.
func (r *Recorder) Sampler() *cpu.Sampler { return r.events }

// Unwinder gives the unwinder, for its statistics.
func (r *Recorder) Unwinder() *unwind.Unwinder { return r.machine.unwinder }

// CutNamed ends the current window and names it.
func (r *Recorder) CutNamed(ctx context.Context) (*profile.Window, error) {
	w, err := r.Cut()
	if err != nil {
		return w, err
	}
	return r.Name(ctx, w)
}

// lookEvery is how often to look whether the kernel's tables, of some 30,000
// rows, fill: after 8,000 samples, but at least 0.1 and at most 5 seconds. How
// often events happen that are counted is not known.
func (o *Options) lookEvery(cpus int) time.Duration {
	if o.Count > 0 {
		return time.Second
	}
	wanted := time.Duration(8000 / (max(o.Frequency, 1) * float64(max(cpus, 1))) * float64(time.Second))
	return min(max(wanted, 100*time.Millisecond), 5*time.Second)
}

// pace decides when to empty the tables: as seldom as they allow, for each cut
// lists all threads, and most stacks of a cut come again in the next.
type pace struct {
	every, longest time.Duration // looks; between cuts
	full           float64       // at the look before
	cut            time.Time     // the last
}

// due tells whether to cut now, when the tables are so full.
func (p *pace) due(full float64, now time.Time) bool {
	grew := full - p.full
	p.full = full
	if full+2*grew < 0.7 && now.Sub(p.cut) < p.longest-p.every/2 {
		return false
	}
	p.full, p.cut = 0, now
	return true
}

// Record gathers windows until the context ends, or for the duration if it is
// not zero. What was measured is named all the same, and returned even if an error ends it.
func (r *Recorder) Record(ctx context.Context, duration time.Duration, progress func(*profile.Window)) (*profile.Window, error) {
	every := r.options.lookEvery(len(r.machine.cpus))
	if progress != nil { // somebody watches
		every = min(every, time.Second)
	}
	p := pace{every: every, longest: max(every, time.Second), cut: time.Now()}
	due := func(now time.Time) bool { return p.due(r.sampler.Full(), now) }
	cut := func(bool) (*profile.Window, error) { return r.Cut() }
	whole, err := gathering{duration: duration, every: every, due: due, cut: cut, progress: progress}.run(ctx)
	if whole == nil {
		return nil, err
	}
	named, finishErr := r.finish(context.WithoutCancel(ctx), whole)
	return named, errors.Join(err, finishErr)
}

// finish prunes what was recorded and names it.
func (r *Recorder) finish(ctx context.Context, whole *profile.Window) (*profile.Window, error) {
	whole.AddLoss(whole.Balance().Loss())
	r.machine.managed.settle()
	if r.options.Pruning > 0 {
		prune.Window(whole, r.options.Pruning, nil)
	}
	return r.Name(ctx, whole)
}

// Close ends the recording.
func (r *Recorder) Close() error {
	err := r.recording.Close()
	if r.alone {
		err = errors.Join(err, r.machine.Close())
	}
	return err
}
