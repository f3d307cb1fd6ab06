package doctor

import (
	"errors"
	"fmt"
	"os"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/sampler/cpu"
	"atys.dev/atys/internal/sampler/dump"
	"atys.dev/atys/internal/unwind"
)

// tryRecording does what a recording of this very process does, step by step,
// and takes everything down again. sleepers tells whether atys dump works too,
// tree whether new processes' code is found.
func tryRecording() (probes []Probe, sleepers, tree error) {
	steps := []struct {
		name string
		try  func(*attempt) error
	}{
		{"unwinder: maps and events", (*attempt).makeMaps},
		{"unwinder: follows processes", (*attempt).follow},
		{"sampler: programs and events", (*attempt).sample},
		{"sampler: a window is taken", (*attempt).cut},
	}
	var a attempt
	failed := false
	for _, s := range steps {
		p := Probe{Name: s.name, Skip: failed}
		if !failed {
			p.Err = s.try(&a)
			failed = p.Err != nil
		}
		probes = append(probes, p)
	}
	if a.unwinder != nil {
		sleepers, tree = dump.Probe(a.unwinder), unwind.KnowsTree()
	}
	if err := a.close(); err != nil && !failed {
		probes[len(probes)-1].Err = fmt.Errorf("end the recording: %w", err)
	}
	return probes, sleepers, tree
}

type attempt struct {
	cpus     []int
	unwinder *unwind.Unwinder
	sampler  *cpu.Sampler
}

func (a *attempt) makeMaps() (err error) {
	_ = bpf.RaiseLimits() // needed by kernels older than those we support; without it the next step fails
	if a.cpus, err = (proc.Machine{}).OnlineCPUs(); err != nil {
		return fmt.Errorf("list CPUs: %w", err)
	}
	self := os.Getpid()
	a.unwinder, err = unwind.New(unwind.Options{Source: unwind.Proc{}, CPUs: a.cpus,
		Wanted: func(pid int) bool { return pid == self }})
	return err
}

func (a *attempt) follow() error { return a.unwinder.Start() }

func (a *attempt) sample() error {
	event, err := cpu.ParseEvent("cpu-clock")
	if err != nil {
		return err
	}
	a.sampler, err = cpu.New(cpu.Options{Unwinder: a.unwinder, CPUs: a.cpus, Event: event,
		PIDs: []int{os.Getpid()}, Frequency: 99, Threads: true})
	if err != nil {
		return err
	}
	return a.sampler.Start()
}

func (a *attempt) cut() error {
	_, err := a.sampler.Cut()
	return err
}

func (a *attempt) close() error {
	var errs []error
	if a.sampler != nil {
		errs = append(errs, a.sampler.Close())
	}
	if a.unwinder != nil {
		errs = append(errs, a.unwinder.Close())
	}
	return errors.Join(errs...)
}
