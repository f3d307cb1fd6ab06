package main

import (
	"errors"
	"fmt"
	"log/slog"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/external"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/unwind"
)

// station is how an agent records on this machine.
type station struct {
	machine *recorder.Machine // nil: BPF cannot be used at all
	cause   error             // why not
	ready   chan struct{}     // tells an agent to aim again; see agent.Options
	account *cputime.Account  // of this process's CPU time
	log     *slog.Logger
}

// openStation prepares this machine. Where BPF cannot be used, other profilers
// may be: that is an error only if none is installed.
//
// Names of programs take a part of the budget's memory.
func openStation(memory int64, rows uint32, cache cacheFlags, account *cputime.Account, log *slog.Logger) (*station, error) {
	dir, limit, err := cache.place()
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{}, 1)
	m, err := recorder.Open(recorder.Setup{CacheDir: dir, CacheMax: limit, Names: memory / namesPart, Rows: rows, Account: account, Log: log, Ready: func() {
		select {
		case ready <- struct{}{}:
		default: // the agent has not come to the one before
		}
	}})
	if err == nil {
		return &station{machine: m, ready: ready, account: account, log: log}, nil
	}
	s := &station{cause: err, account: account, log: log}
	if _, failed := external.NewCrew(external.CrewOptions{}); failed != nil {
		return nil, err
	}
	log.Warn("BPF cannot be used, other profilers are", "error", err)
	return s, nil
}

// shed gives up what is kept in memory and can be had again.
func (s *station) shed() {
	if s.machine != nil {
		s.machine.Shed()
	}
}

// unwinding gives what tells how unwinding tables fare; nil: there are none.
func (s *station) unwinding() func() unwind.Stats {
	if s.machine == nil {
		return nil
	}
	return s.machine.Unwinder().Stats
}

// cached returns the function that reports what the disk cache did; nil: this process does
// not record.
func (s *station) cached() func() diskcache.Stats {
	if s.machine == nil {
		return nil
	}
	return s.machine.Cache
}

// limit bounds what recordings take beside their samples.
func (s *station) limit(l budget.Limits, tablesWait bool) {
	if s.machine != nil {
		s.machine.Limit(recorder.Limits{Tables: l.Tables, SkipYoung: tablesWait, Naming: l.Naming, Events: l.Events})
	}
}

func (s *station) Close() error {
	if s.machine == nil {
		return nil
	}
	return s.machine.Close()
}

// record begins a recording with the kernel that a profile names.
func (s *station) record(w agent.Wanted) (sampler.Sampler, error) {
	crew := external.CrewOptions{Frequency: w.Frequency, Window: w.Window, AllowAttach: w.MayAttach, Log: s.log}
	if w.Kernel != spec.KernelAuto && w.Kernel != spec.KernelBPF && w.Kernel != "" {
		crew.Kernel = external.Kernel(w.Kernel)
		return others(external.NewCrew(crew))
	}
	r, err := s.withBPF(w)
	if w.Kind == spec.KindOffCPU { // other profilers do not sample it
		return r, err
	}
	base, _, unknown := cpu.ParseEvents(w.Event)
	if err == nil || w.Kernel == spec.KernelBPF || unknown != nil || base.Name != "cpu-clock" { // others know no events
		return r, err
	}
	crew.Why = fmt.Sprintf("BPF cannot be used (%v), other profilers are", err)
	c, failed := others(external.NewCrew(crew))
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	return c, nil
}

// others is a crew, or none where there is an error.
func others(c *external.Crew, err error) (sampler.Sampler, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *station) withBPF(w agent.Wanted) (sampler.Sampler, error) {
	if s.machine == nil {
		return nil, s.cause
	}
	if w.Kind == spec.KindOffCPU {
		r, err := s.machine.StartOffCPU(recorder.Targets{All: w.All}, w.MayAttach)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	o := recorder.Options{Targets: recorder.Targets{All: w.All}, Event: w.Event, Frequency: w.Frequency,
		Threads: true, Slot: w.Slot, MayAsk: w.MayAttach, MeasureCost: true}
	if w.Adapts { // rates are low most of the time, and its targets many: an event of each thread would cost more
		o.Placement = cpu.PlaceCPUs
	}
	r, err := s.machine.Start(o)
	if err != nil {
		return nil, err
	}
	return recorder.Instrument{Recorder: r}, nil
}
