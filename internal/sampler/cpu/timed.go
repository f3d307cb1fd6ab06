package cpu

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"atys.dev/atys/internal/sampler/table"
)

// drainTimesEvery keeps the ring of timed samples from filling: 4 MB last 1.3 s
// at 20,000 Hz on two CPUs.
const drainTimesEvery = 100 * time.Millisecond

// timedSamples gathers the stream of samples whose times are kept.
type timedSamples struct {
	ring *ringbuf.Reader

	mu      sync.Mutex // guards all below
	record  ringbuf.Record
	samples []kernelTimedSample
}

func newTimedSamples(m *ebpf.Map) (*timedSamples, error) {
	ring, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("read timed samples: %w", err)
	}
	return &timedSamples{ring: ring}, nil
}

func (t *timedSamples) close() error { return t.ring.Close() }

// drain empties the ring between cuts.
func (t *timedSamples) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
}

// read empties the ring.
func (t *timedSamples) read() {
	t.ring.SetDeadline(time.Now())
	for {
		if err := t.ring.ReadInto(&t.record); err != nil {
			return // mostly for want of more
		}
		if len(t.record.RawSample) >= int(unsafe.Sizeof(kernelTimedSample{})) {
			t.samples = append(t.samples, *(*kernelTimedSample)(unsafe.Pointer(&t.record.RawSample[0])))
		}
	}
}

// take gives the samples of one buffer, in the order of their times.
func (t *timedSamples) take(buffer uint32) (taken []table.TimedSample) {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
	t.samples = slices.DeleteFunc(t.samples, func(s kernelTimedSample) bool {
		if s.Buffer == buffer {
			taken = append(taken, table.TimedSample{Time: s.Time, UserStack: s.UserStack, KernelStack: s.KernelStack,
				Weight: int64(s.Weight), Delta: int64(s.Delta), Tgid: s.Tgid, Tid: s.Tid, CPU: int(s.Cpu)})
		}
		return s.Buffer == buffer
	})
	slices.SortFunc(taken, func(a, b table.TimedSample) int { return cmp.Compare(a.Time, b.Time) })
	return taken
}
