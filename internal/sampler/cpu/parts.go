package cpu

import (
	"errors"
	"io"

	"github.com/cilium/ebpf"
)

// kernelParts is what of the object is loaded, beside the table's maps. The verifier
// takes 0.1 s and more for each program that walks stacks, so only the one that this
// sampler's event runs is.
type kernelParts struct {
	OnSample    *ebpf.Program `ebpf:"on_sample"` // on_event or on_tracepoint
	Timers      *ebpf.Map     `ebpf:"timer_state"`
	Weights     *ebpf.Map     `ebpf:"thread_weights"`
	Costs       *ebpf.Map     `ebpf:"costs"`
	Times       *ebpf.Map     `ebpf:"times"`
	DeltaEvents *ebpf.Map     `ebpf:"delta_events"`
}

func (k *kernelParts) close() error {
	var errs []error
	for _, part := range []io.Closer{k.OnSample, k.Timers, k.Weights, k.Costs, k.Times, k.DeltaEvents} {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}
