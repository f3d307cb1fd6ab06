package recorder

import (
	"context"

	"atys.dev/atys/internal/proc/lifecycle"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/sampler/table"
)

// recording is what the recordings of a machine have in common, whatever they sample.
type recording struct {
	machine  *Machine
	targets  Targets
	mayAsk   bool // see Options.MayAsk
	sampler  windowSampler
	readying *readying
}

// windowSampler is a sampler of cpu or offcpu.
type windowSampler interface {
	Start() error
	Wanted(pid int) bool
	OnTask(e lifecycle.Event)
	Full() float64
	Cut() (*profile.Window, error)
	Close() error
}

// begin has the unwinder know the targets before the first sample is taken. Release has a
// new target be sampled that was read.
func (r *recording) begin(release func(pid int) bool) error {
	r.readying = &readying{track: r.machine.read, release: release, ready: r.machine.setup.Ready}
	if err := r.machine.add(r); err != nil {
		return err
	}
	if err := r.machine.track(r.targets.PIDs); err != nil {
		return err
	}
	return r.sampler.Start()
}

// Wanted reports whether a process is sampled.
func (r *recording) Wanted(pid int) bool { return r.sampler.Wanted(pid) }

// Full returns how full the kernel's tables are of the window that is filled, from 0 to 1.
func (r *recording) Full() float64 { return r.sampler.Full() }

// Cut ends the current window. Names that only the process itself knew are there.
func (r *recording) Cut() (*profile.Window, error) {
	w, err := r.sampler.Cut()
	if err != nil {
		return nil, err
	}
	r.machine.complete(w, &r.targets)
	return w, nil
}

// cutAt ends the current window for one who keeps time; see sampler.Sampler.
func (r *recording) cutAt(e sampler.Edge) ([]*profile.Window, error) {
	if e.First {
		r.readying.settle()
	}
	w, err := r.Cut()
	if err != nil {
		return nil, err
	}
	return []*profile.Window{w}, nil
}

// Name fills in the names of a window that was cut, or of several merged. The context
// bounds downloads of debug files only.
func (r *recording) Name(ctx context.Context, w *profile.Window) (*profile.Window, error) {
	return r.machine.name(ctx, w)
}

// Close ends the recording.
func (r *recording) Close() error {
	r.machine.remove(r)
	r.readying.close()
	return r.sampler.Close()
}

// naming is what samplers ask the machine about code; mayAsk is as in Options.
func (m *Machine) naming(mayAsk bool) table.Naming {
	return table.Naming{OnFile: m.addFile, Kernel: m.kernel.Location, Named: m.unwinder.Name,
		Anonymous: func(pid int, address uint64) (profile.Location, []profile.Frame) {
			return m.anonymous(pid, address, mayAsk)
		}}
}
