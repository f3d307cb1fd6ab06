package offcpu

import (
	"errors"
	"sync"
	"time"

	"github.com/cilium/ebpf/btf"
)

const (
	firstThreshold = 10 * time.Millisecond
	leastThreshold = 100 * time.Microsecond
	mostThreshold  = 2 * time.Second // below MOST_THRESHOLD of offcpu.bpf.c
	adaptEvery     = 250 * time.Millisecond
)

// adapt returns the next threshold, by how many walks a second the last one led to. Both
// grow in proportion while most waits are shorter than the threshold. It falls slowly:
// the target may be idle for a moment only.
func adapt(threshold time.Duration, walks, budget float64) time.Duration {
	factor := min(max(walks/budget, 0.8), 64)
	return min(max(time.Duration(float64(threshold)*factor), leastThreshold), mostThreshold)
}

// Supported reports whether this kernel has the tracepoint.
var Supported = sync.OnceValue(func() bool {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return true // loading the program says why
	}
	_, err = spec.AnyTypeByName("btf_trace_sched_exit_tp")
	return !errors.Is(err, btf.ErrNotFound)
})
