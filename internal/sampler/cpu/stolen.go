package cpu

import (
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/proc"
)

// usuallyLate is how late an interrupt may be and count in full. On a virtual machine they
// are 8 to 60 microseconds late, and more where the CPU was idle for long.
const usuallyLate = 100 * time.Microsecond

// lookForStolen has the programs leave out interrupts that are late because a hypervisor
// had the CPU: the kernel's exact times leave that time out. That takes timers that
// always run, and a hypervisor that accounts for what it steals.
func (s *Sampler) lookForStolen() {
	usual := uint32(0)
	if s.options.Event.Clock && !s.options.Fixed && s.events.placed.placement == PlaceCPUs && steals() {
		usual = uint32(usuallyLate)
	}
	atomic.StoreUint32(&s.shared.Value.Control.UsuallyLate, usual)
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
