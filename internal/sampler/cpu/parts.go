package cpu

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
)

// kernelParts is what of the object is loaded. The verifier takes 0.1 s and more
// for each program that walks stacks, so only the one that this sampler's event
// runs is.
type kernelParts struct {
	OnSample    *ebpf.Program `ebpf:"on_sample"` // on_event or on_tracepoint
	ListThreads *ebpf.Program `ebpf:"list_threads"`
	OnExit      *ebpf.Program `ebpf:"on_exit"`
	OnFree      *ebpf.Program `ebpf:"on_free"`
	OnFork      *ebpf.Program `ebpf:"on_fork"`

	SharedState *ebpf.Map `ebpf:"shared_state"`
	Targets     *ebpf.Map `ebpf:"targets"`
	Weights     *ebpf.Map `ebpf:"thread_weights"`
	Births      *ebpf.Map `ebpf:"births"`
	Rows0       *ebpf.Map `ebpf:"rows_0"`
	Rows1       *ebpf.Map `ebpf:"rows_1"`
	Stacks0     *ebpf.Map `ebpf:"stacks_0"`
	Stacks1     *ebpf.Map `ebpf:"stacks_1"`
	Arena0      *ebpf.Map `ebpf:"arena_0"`
	Arena1      *ebpf.Map `ebpf:"arena_1"`
	Counters    *ebpf.Map `ebpf:"counters"`
	Costs       *ebpf.Map `ebpf:"costs"`
	Times       *ebpf.Map `ebpf:"times"`
	DeltaEvents *ebpf.Map `ebpf:"delta_events"`
	Exits       *ebpf.Map `ebpf:"exits"`
}

// load loads the parts; maps that are shared with others come from the options.
func (k *kernelParts) load(spec *ebpf.CollectionSpec, event Event, shared *ebpf.CollectionOptions) error {
	spec.Programs["on_sample"] = spec.Programs["on_event"]
	if event.Trace {
		spec.Programs["on_sample"] = spec.Programs["on_tracepoint"]
	}
	return spec.LoadAndAssign(k, shared)
}

func (k *kernelParts) close() error {
	var errs []error
	for _, part := range []io.Closer{k.OnSample, k.ListThreads, k.OnExit, k.OnFree, k.OnFork, k.SharedState, k.Targets, k.Weights, k.Births,
		k.Rows0, k.Rows1, k.Stacks0, k.Stacks1, k.Arena0, k.Arena1, k.Counters, k.Costs, k.Times, k.DeltaEvents, k.Exits} {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}
