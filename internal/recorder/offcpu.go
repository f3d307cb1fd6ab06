package recorder

import (
	"context"
	"errors"

	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/offcpu"
)

// OffCPU is a recording of time off the CPU, as a sampler of others, who keep time.
type OffCPU struct {
	targets  Targets
	asks     bool
	machine  *Machine
	sampler  *offcpu.Sampler
	readying *readying
}

// StartOffCPU begins to record time off the CPU, of all of the machine or of processes.
// mayAsk is as in Options.
func (m *Machine) StartOffCPU(targets Targets, mayAsk bool) (*OffCPU, error) {
	if targets.Cgroup != "" {
		return nil, errors.New("time off the CPU is not recorded of cgroups: choose processes or the whole machine")
	}
	r := &OffCPU{targets: targets, asks: mayAsk, machine: m}
	r.readying = &readying{track: m.read, release: func(int) bool { return false }, ready: m.setup.Ready}
	var err error
	r.sampler, err = offcpu.New(offcpu.Options{
		Unwinder: m.unwinder, Tracker: m.tracker, Log: m.log, All: targets.All, PIDs: targets.PIDs, Threads: true,
		OnFile: m.addFile, Kernel: m.kernel.Location, KernelName: m.kernelName, Named: m.unwinder.Name,
		Anonymous: func(pid int, address uint64) (profile.Location, []profile.Frame) {
			return m.anonymous(pid, address, mayAsk)
		},
	})
	if err != nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// begin has the unwinder know the targets before the first wait is sampled.
func (r *OffCPU) begin() error {
	if err := r.machine.add(r); err != nil {
		return err
	}
	if err := r.machine.track(r.targets.PIDs); err != nil {
		return err
	}
	return r.sampler.Start()
}

// Wanted reports whether a process is sampled.
func (r *OffCPU) Wanted(pid int) bool { return r.sampler.Wanted(pid) }

// OnTask tells the recording of a fork.
func (r *OffCPU) OnTask(e lifecycle.Event) { r.sampler.OnTask(e) }

func (r *OffCPU) mayAsk() bool { return r.asks }

func (r *OffCPU) ofProcesses() bool { return !r.targets.All }

// Cut ends the current window; see sampler.Sampler.
func (r *OffCPU) Cut(e sampler.Edge) ([]*profile.Window, error) {
	if e.First {
		r.readying.settle()
	}
	w, err := r.sampler.Cut()
	if err != nil {
		return nil, err
	}
	r.machine.complete(w, &r.targets)
	return []*profile.Window{w}, nil
}

// Aim adds and drops targets from the next window on; see sampler.Aimer. Stacks of new ones
// are truncated until the unwinder has read them.
func (r *OffCPU) Aim(add, drop []int) (fresh bool) {
	fresh = r.sampler.Aim(add, drop)
	r.readying.add(add)
	return fresh
}

// Full returns how full the kernel's tables are, from 0 to 1.
func (r *OffCPU) Full() float64 { return r.sampler.Full() }

// Name fills in the names of a window that was cut, or of several merged.
func (r *OffCPU) Name(ctx context.Context, w *profile.Window) (*profile.Window, error) {
	return r.machine.name(ctx, w)
}

// Close ends the recording.
func (r *OffCPU) Close() error {
	r.machine.remove(r)
	r.readying.close()
	return r.sampler.Close()
}
