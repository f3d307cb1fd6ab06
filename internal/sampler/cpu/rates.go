package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/sampler/table"
)

// Limits of what may be asked for.
const (
	MinFrequency = 1
	MaxFrequency = 20_000
)

// CheckFrequency refuses what the sampler cannot do.
func CheckFrequency(hz float64) error {
	if math.IsNaN(hz) || hz < MinFrequency || hz > MaxFrequency {
		return fmt.Errorf("frequency %v Hz is out of range: choose from %d to %d", hz, MinFrequency, MaxFrequency)
	}
	return nil
}

// ratePlan is how wanted rates are had from one base rate: targets slower than
// the fastest keep a random part of its samples.
type ratePlan struct {
	base float64
	most float64 // Hz; 0: as much as is wanted
}

// planRates is pure; base is the rate where no target asks for more, and most what
// is had of it; 0: all.
func planRates(base, most float64, wanted map[int]float64) ratePlan {
	p := ratePlan{most: most}
	for _, hz := range wanted {
		p.base = max(p.base, hz)
	}
	if p.base == 0 {
		p.base = base
	}
	return p
}

// probabilities returns with which probability, in 1/2^32, samples of each target are kept.
func (p ratePlan) probabilities(wanted map[int]float64) map[int]uint32 {
	had := p.base
	if p.most > 0 {
		had = min(had, p.most)
	}
	keep := make(map[int]uint32, len(wanted))
	for pid, hz := range wanted {
		keep[pid] = table.KeepAll
		if hz < had {
			keep[pid] = uint32(hz / had * (1 << 32))
		}
	}
	return keep
}

// plan decides on the rates of the next window.
func (s *Sampler) plan() ratePlan {
	targets := s.table.Targets
	_, _, most := s.events.rates()
	return planRates(targets.Rate(), most, targets.Rates())
}

// SetRates gives targets rates of their own, from the next window's edge on.
// Targets not named keep theirs; children have their parent's.
func (s *Sampler) SetRates(hz map[int]float64) error {
	for pid, f := range hz {
		if err := CheckFrequency(f); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	s.table.Targets.SetRates(hz)
	return nil
}

// SetFrequency changes the base rate, from the next window's edge on.
func (s *Sampler) SetFrequency(hz float64) error {
	if err := CheckFrequency(hz); err != nil {
		return err
	}
	s.table.Targets.SetRate(hz)
	return nil
}

// Aim makes processes targets, with their later children, and others no longer,
// from the next window's edge on. Only samplers of processes have targets. It tells
// whether any of them was none before, nor a target's child.
func (s *Sampler) Aim(add, drop []int) (fresh bool) {
	come := s.table.Targets.Aim(add, drop, false)
	s.events.followThreads(come)
	return len(come) > 0
}

// AimLater is Aim, but those that were none before, and their children, are sampled
// only from the first edge after their Release on.
func (s *Sampler) AimLater(add, drop []int) {
	s.events.followThreads(s.table.Targets.Aim(add, drop, true))
}

// Release tells that a process of AimLater can be sampled; false: it is already.
func (s *Sampler) Release(pid int) (held bool) { return s.table.Targets.Release(pid) }

// setPeriod changes a running event's period, in ns for clocks.
func setPeriod(fd int, period uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&period)))
	if errno != 0 {
		return errno
	}
	return nil
}
