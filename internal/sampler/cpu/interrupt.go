package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a sample's interrupt costs differs by a factor of ten between machines: a
// virtual one leaves for its hypervisor to set each timer. So it is measured,
// once, when it is first needed.
const (
	interruptTrial   = 15 * time.Millisecond  // of spinning under a timer,
	interruptPeriod  = 100 * time.Microsecond // which fires this often
	cheapInterrupt   = time.Microsecond       // less is believed of no machine,
	dearInterrupt    = 100 * time.Microsecond // nor is more
	usualInterrupt   = 14 * time.Microsecond  // where it cannot be measured
	leastInterrupts  = 20                     // that a trial has to see
	interruptedAbove = 500 * time.Nanosecond  // a longer time between two readings of the clock
)

// interruptCost is what one interrupt of a timer takes from whoever runs.
var interruptCost = sync.OnceValue(func() time.Duration {
	cost, err := measureInterrupt()
	if err != nil {
		return usualInterrupt
	}
	return cost
})

// measureInterrupt spins under a timer of its own, and looks how long the clock
// stood still for it.
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

// costOf judges by the longest gaps, as many as there were interrupts. The median
// of them is not moved by the few in which another task ran.
func costOf(gaps []time.Duration, interrupts int) (time.Duration, error) {
	if len(gaps) < leastInterrupts {
		return 0, fmt.Errorf("measure what an interrupt costs: %d were seen of some %d", len(gaps), interrupts)
	}
	slices.Sort(gaps)
	longest := gaps[max(len(gaps)-interrupts, 0):]
	return min(max(longest[len(longest)/2], cheapInterrupt), dearInterrupt), nil
}
