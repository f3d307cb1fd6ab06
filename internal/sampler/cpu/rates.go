package cpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
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
	keep map[int]uint64 // by pid: probability in 1/2^32
}

const keepAll = uint64(1) << 32

// planRates is pure; base is the rate where no target asks for more, and most what
// is had of it; 0: all.
func planRates(base, most float64, wanted map[int]float64) ratePlan {
	p := ratePlan{keep: make(map[int]uint64, len(wanted))}
	for _, hz := range wanted {
		p.base = max(p.base, hz)
	}
	if p.base == 0 {
		p.base = base
	}
	had := p.base
	if most > 0 {
		had = min(had, most)
	}
	for pid, hz := range wanted {
		p.keep[pid] = keepAll
		if hz < had {
			p.keep[pid] = uint64(hz / had * float64(keepAll))
		}
	}
	return p
}

// SetRates gives targets rates of their own, from the next window's edge on.
// Targets not named keep theirs; children have their parent's.
func (s *Sampler) SetRates(hz map[int]float64) error {
	for pid, f := range hz {
		if err := CheckFrequency(f); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	for pid, f := range hz {
		if _, ok := s.targets[pid]; ok {
			s.targets[pid] = f
		}
	}
	return nil
}

// Aim makes processes targets, with their later children, and others no longer,
// from the next window's edge on. Only samplers of processes have targets. It tells
// whether any of them was none before, nor a target's child.
func (s *Sampler) Aim(add, drop []int) (fresh bool) {
	return len(s.aim(add, drop, false)) > 0
}

// AimLater is Aim, but those that were none before, and their children, are sampled
// only from the first edge after their Release on.
func (s *Sampler) AimLater(add, drop []int) { s.aim(add, drop, true) }

// Release tells that a process of AimLater can be sampled; false: it is already.
func (s *Sampler) Release(pid int) (held bool) {
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	maps.DeleteFunc(s.held, func(_, by int) bool {
		held = held || by == pid
		return by == pid
	})
	return held
}

// aim gives those that have become targets.
func (s *Sampler) aim(add, drop []int, later bool) (come []int) {
	s.targetsMu.Lock()
	for _, pid := range add {
		if _, ok := s.targets[pid]; !ok {
			s.targets[pid], s.fresh[pid] = s.options.Frequency, true
			come = append(come, pid)
			if later {
				s.held[pid] = pid
			}
		} else {
			s.again[pid] = true
		}
		delete(s.dropped, pid)
	}
	for _, pid := range drop {
		if _, ok := s.targets[pid]; ok {
			s.dropped[pid] = true
		}
	}
	s.targetsMu.Unlock()
	for _, pid := range come {
		s.followThreads(pid)
	}
	return come
}

// forgetDropped ends what Aim has dropped: its last window has been cut.
func (s *Sampler) forgetDropped() {
	s.targetsMu.Lock()
	dropped := s.dropped
	s.dropped = map[int]bool{}
	for pid := range dropped {
		delete(s.targets, pid)
		if err := s.objects.Targets.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			s.log.Debug("drop target", "pid", pid, "error", err)
		}
	}
	s.targetsMu.Unlock()
	if len(dropped) > 0 {
		s.leaveThreads(dropped)
	}
}

// SetFrequency changes the base rate, from the next window's edge on.
func (s *Sampler) SetFrequency(hz float64) error {
	if err := CheckFrequency(hz); err != nil {
		return err
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	s.options.Frequency = hz
	for pid := range s.targets {
		s.targets[pid] = hz
	}
	return nil
}

// applyRates writes wanted rates for the windows that use the given buffers, and
// gives the base rate that is asked for with them. The buffer being filled is never one
// of them: a rate holds for whole windows. A target that finds no room is counted.
func (s *Sampler) applyRates(buffers ...int) (base float64, err error) {
	s.events.mu.Lock() // never within the other
	most := s.events.placed.cap
	s.events.mu.Unlock()
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	s.again = map[int]bool{}
	s.entering, s.fresh = s.fresh, map[int]bool{} // what those used that are held has no samples either
	plan := planRates(s.options.Frequency, most, s.targets)
	s.sweepTargets()
	refused := int64(0)
	for pid, keep := range plan.keep {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(s.targets, pid)
			continue
		}
		if _, waits := s.held[pid]; waits {
			s.fresh[pid] = true
			continue
		}
		var t kernelTarget
		if err := s.objects.Targets.Lookup(uint32(pid), &t); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, fmt.Errorf("read target %d: %w", pid, err)
		}
		if s.dropped[pid] {
			keep = 0
		}
		for _, b := range buffers {
			t.Keep[b] = keep
		}
		err := s.objects.Targets.Update(uint32(pid), &t, ebpf.UpdateAny)
		if errors.Is(err, unix.E2BIG) {
			refused++
		} else if err != nil {
			return 0, fmt.Errorf("sample process %d: %w", pid, err)
		}
	}
	for _, b := range buffers {
		s.refused[b] = refused
	}
	return plan.base, nil
}

// sweepTargets drops from the kernel's table what was gone at the edge before
// this one too: a child whose fork we never heard of would else pass its place
// on to whoever has its number next. One edge later, because the kernel tells
// what the last of its threads used when it forgets them, soon after.
func (s *Sampler) sweepTargets() {
	var pid uint32
	var t kernelTarget
	gone := map[uint32]bool{}
	for all := s.objects.Targets.Iterate(); all.Next(&pid, &t); {
		if errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			gone[pid] = true
		}
	}
	for pid := range gone {
		delete(s.targets, int(pid))
		if !s.gone[pid] {
			continue
		}
		if err := s.objects.Targets.Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			s.log.Debug("forget target", "pid", pid, "error", err)
		}
	}
	s.gone = gone
}

// setPeriod changes a running event's period, in ns for clocks.
func setPeriod(fd int, period uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&period)))
	if errno != 0 {
		return errno
	}
	return nil
}
