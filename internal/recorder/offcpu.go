package recorder

import (
	"errors"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/offcpu"
)

// OffCPU is a recording of time off the CPU, as a sampler of others, who keep time.
type OffCPU struct {
	recording
	waits *offcpu.Sampler
}

// StartOffCPU begins to record time off the CPU, of all of the machine or of processes.
// mayAsk is as in Options.
func (m *Machine) StartOffCPU(targets Targets, mayAsk bool) (*OffCPU, error) {
	if targets.Cgroup != "" {
		return nil, errors.New("time off the CPU is not recorded of cgroups: choose processes or the whole machine")
	}
	waits, err := offcpu.New(offcpu.Options{Unwinder: m.unwinder, Tracker: m.tracker, Log: m.log,
		All: targets.All, PIDs: targets.PIDs, Threads: true, KernelName: m.kernelName, Naming: m.naming(mayAsk)})
	if err != nil {
		return nil, err
	}
	r := &OffCPU{recording: recording{machine: m, targets: targets, mayAsk: mayAsk, sampler: waits}, waits: waits}
	if err := r.begin(func(int) bool { return false }); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Cut ends the current window; see sampler.Sampler.
func (r *OffCPU) Cut(e sampler.Edge) ([]*profile.Window, error) { return r.cutAt(e) }

// Aim adds and drops targets from the next window on; see sampler.Aimer. Stacks of new ones
// are truncated until the unwinder has read them.
func (r *OffCPU) Aim(add, drop []int) (fresh bool) {
	fresh = r.waits.Aim(add, drop)
	r.readying.add(add)
	return fresh
}
