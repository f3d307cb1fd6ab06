package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The cost of a sample's interrupt differs by a factor of ten between machines: a
// virtual machine exits to its hypervisor to set each timer. So it is measured once, when
// it is first needed.
const (
	interruptTrial   = 15 * time.Millisecond  // how long to spin under a timer
	interruptPeriod  = 100 * time.Microsecond // how often the timer fires
	cheapInterrupt   = time.Microsecond       // lower bound on the result
	dearInterrupt    = 100 * time.Microsecond // upper bound on the result
	usualInterrupt   = 14 * time.Microsecond  // assumed where it cannot be measured
	leastInterrupts  = 20                     // fewer make a trial invalid
	interruptedAbove = 500 * time.Nanosecond  // a longer gap between two clock readings is an interrupt
)

// interruptCost returns the CPU time that one timer interrupt takes from the thread that
// runs.
var interruptCost = sync.OnceValue(func() time.Duration {
	cost, err := measureInterrupt()
	if err != nil {
		return usualInterrupt
	}
	return cost
})

// measureInterrupt spins under a timer of its own and measures the gaps between clock
// readings.
func measureInterrupt() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := Event{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Clock: true}
	fd, err := unix.PerfEventOpen(clock.attr(uint64(interruptPeriod)), 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("measure what an interrupt costs: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return 0, fmt.Errorf("measure what an interrupt costs: %w", err)
	}
	var gaps []time.Duration
	began := time.Now()
	for last := time.Duration(0); last < interruptTrial; {
		now := time.Since(began)
		if gap := now - last; gap > interruptedAbove {
			gaps = append(gaps, gap)
		}
		last = now
	}
	return costOf(gaps, int(interruptTrial/interruptPeriod))
}

// costOf returns the median of the longest gaps, as many as there were interrupts. The
// median is robust against the few gaps in which another task ran.
func costOf(gaps []time.Duration, interrupts int) (time.Duration, error) {
	if len(gaps) < leastInterrupts {
		return 0, fmt.Errorf("measure what an interrupt costs: %d were seen of some %d", len(gaps), interrupts)
	}
	slices.Sort(gaps)
	longest := gaps[max(len(gaps)-interrupts, 0):]
	return min(max(longest[len(longest)/2], cheapInterrupt), dearInterrupt), nil
}
