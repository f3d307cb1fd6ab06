package cpu

import (
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/proc"
)

// lateAfter is how late the interrupt of a CPU's timer has to be for the time it was
// due at to count as stolen. Without that, a virtual machine's timers are late by 10 to
// 60 microseconds.
const lateAfter = 60 * time.Microsecond

// lookForStolen has the programs leave out interrupts that were due while a hypervisor
// had stolen the CPU: the kernel's exact times leave that time out. They need timers
// that always run, and a hypervisor that accounts for what it steals.
func (s *Sampler) lookForStolen() {
	after := uint32(0)
	if s.options.Event.Clock && !s.options.Fixed && s.events.placed.placement == PlaceCPUs && steals() {
		after = uint32(lateAfter)
	}
	atomic.StoreUint32(&s.shared.Value.Control.LateAfter, after)
}

// started tells the programs that the timer of a CPU was started afresh: when it is due
// is not known. An event of a thread, which has no CPU, has no such time.
func (s *Sampler) started(cpu int) {
	if cpu >= 0 {
		atomic.StoreUint64(&s.shared.Value.Cpu[cpu].Due, 0)
	}
}

// steals tells whether a hypervisor has stolen time from this machine.
func steals() bool {
	cpus, err := proc.FS{}.CPUTimes()
	if err != nil {
		return false
	}
	for _, c := range cpus {
		if c.Steal > 0 {
			return true
		}
	}
	return false
}
