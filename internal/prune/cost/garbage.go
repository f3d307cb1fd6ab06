package cost

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/stats"
)

// garbage is how long it takes to collect what is allocated, in nanoseconds for each
// byte: an estimate. A collection reads all that is in use, and comes when so many percent
// of that were allocated. A stage may see one or none, which would say more of chance than
// of the stage: so none comes while it runs, and it is charged for its bytes. That none
// runs also spares a program what it takes to work beside one; this is not counted.
type garbage float64

// collections are how many are watched.
const collections = 9

// weighGarbage collects, and sees how long that takes.
func weighGarbage() (garbage, error) {
	percent := debug.SetGCPercent(-1)
	debug.SetGCPercent(percent)
	if percent < 0 { // none is collected
		return 0, nil
	}
	var took []float64
	runtime.GC() // the first one finds more to do
	for range collections {
		before, err := cpuTime()
		if err != nil {
			return 0, err
		}
		runtime.GC()
		after, err := cpuTime()
		if err != nil {
			return 0, err
		}
		took = append(took, float64(after-before))
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	return garbage(stats.Median(took) / float64(max(heap.NextGC-heap.HeapAlloc, 1))), nil
}

// letGarbageBe collects all there is, and nothing from then on, until what it gives is
// called. Where memory is limited, garbage is collected at that limit all the same.
func letGarbageBe() (end func()) {
	runtime.GC()
	percent := debug.SetGCPercent(-1)
	return func() { debug.SetGCPercent(percent) }
}

// stopwatch tells how much CPU time this process has used since it told last, and what it
// will take to collect what was allocated.
type stopwatch struct {
	garbage     garbage
	last        time.Duration
	bytes       uint64
	collections uint32
}

func newStopwatch(g garbage) (*stopwatch, error) {
	s := &stopwatch{garbage: g}
	_, err := s.lap()
	return s, err
}

func (s *stopwatch) lap() (time.Duration, error) {
	now, err := cpuTime()
	if err != nil {
		return 0, err
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	d := now - s.last
	if heap.NumGC == s.collections { // else it is counted already
		d += time.Duration(float64(s.garbage) * float64(heap.TotalAlloc-s.bytes))
	}
	s.bytes, s.collections = heap.TotalAlloc, heap.NumGC
	s.last, err = cpuTime() // to count bytes is no stage's
	return d, err
}

// cpuTime is what this process has used.
func cpuTime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		return 0, fmt.Errorf("read the process's CPU time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
