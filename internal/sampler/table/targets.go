package table

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Targets are the processes that a table samples. It is safe for concurrent use.
type Targets struct {
	table *Table
	log   *slog.Logger
	none  bool // the table samples the whole machine, or a cgroup

	mu       sync.Mutex // guards all below; taken after the tracker's lock
	rate     float64    // of targets that have none of their own
	rates    map[int]float64
	refused  [2]int64        // of them, those the kernel's table had no room for, by the window's buffer
	dropped  map[int]bool    // of them, those that are none from the next edge on
	fresh    map[int]bool    // and those that are sampled from the next edge on
	entering map[int]bool    // those that were fresh at the last edge
	held     map[int]int     // fresh ones that stay so, by the process of AimLater that has to be released
	gone     map[uint32]bool // of the kernel's targets, at the last edge
	ended    []int           // processes that had ended when the ring of exits was last read
	again    map[int]bool    // targets that were aimed at since the last edge: a new process may have the pid of one that ended
}

// KeepAll is the probability, in 1/2^32, with which all samples of a target are kept.
const KeepAll = ^uint32(0)

func newTargets(t *Table, pids []int, rate float64) *Targets {
	s := &Targets{table: t, log: t.log, none: !t.options.onlyTargets(), rate: rate, rates: map[int]float64{},
		dropped: map[int]bool{}, fresh: map[int]bool{}, held: map[int]int{}, again: map[int]bool{}}
	for _, pid := range pids {
		s.rates[pid] = rate
	}
	return s
}

// Has reports whether a process is a target.
func (s *Targets) Has(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.rates[pid]
	return ok
}

// List returns all targets.
func (s *Targets) List() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.rates))
}

// Adopt makes a target's child a target. The kernel's program mostly has done
// so already; it had not where the fork came before it was attached.
func (s *Targets) Adopt(parent, child int) bool {
	if errors.Is(unix.Kill(child, 0), unix.ESRCH) {
		return false // we hear of the fork after the exit, and nobody would forget the target
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rate, ok := s.rates[parent]
	if !ok {
		return false
	}
	s.rates[child] = rate
	if s.fresh[parent] {
		s.fresh[child] = true
	}
	if by, ok := s.held[parent]; ok {
		s.held[child] = by
	}
	tracker := s.table.tracker
	if keep, ok := tracker.keepOf(s.table, uint32(parent)); ok {
		if _, there := tracker.keepOf(s.table, uint32(child)); there {
			return true
		}
		err := tracker.setTarget(s.table, uint32(child), func(k *[2]uint32) { *k = keep })
		if err != nil && !errors.Is(err, unix.E2BIG) { // a full table is counted: see apply
			s.log.Warn("sample a child", "pid", child, "error", err)
		}
	}
	return true
}

// SetRates gives targets rates of their own, from the next window's edge on.
// Targets not named keep theirs; children have their parent's.
func (s *Targets) SetRates(rates map[int]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, rate := range rates {
		if _, ok := s.rates[pid]; ok {
			s.rates[pid] = rate
		}
	}
}

// SetRate gives all targets a rate, from the next window's edge on.
func (s *Targets) SetRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate = rate
	for pid := range s.rates {
		s.rates[pid] = rate
	}
}

// Rate returns the rate of targets that have none of their own.
func (s *Targets) Rate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rate
}

// Rates returns the rate of each target.
func (s *Targets) Rates() map[int]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rates)
}

// Aim makes processes targets, with their later children, and others no longer,
// from the next window's edge on. It returns those that were none before. If they are
// to be sampled later, that is from the first edge after their Release on.
func (s *Targets) Aim(add, drop []int, later bool) (come []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range add {
		if _, ok := s.rates[pid]; !ok {
			s.rates[pid], s.fresh[pid] = s.rate, true
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
		if _, ok := s.rates[pid]; ok {
			s.dropped[pid] = true
		}
	}
	return come
}

// Release ends the wait for a process that Aim held back; false: nothing was held.
func (s *Targets) Release(pid int) (held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.held, func(_, by int) bool {
		held = held || by == pid
		return by == pid
	})
	return held
}

// A Plan decides with which probability, in 1/2^32, samples of each target are kept, by
// the rates that are asked for.
type Plan func(rates map[int]float64) (keep map[int]uint32)

// keepAll is the plan of samplers whose targets have no rates.
func keepAll(rates map[int]float64) map[int]uint32 {
	keep := make(map[int]uint32, len(rates))
	for pid := range rates {
		keep[pid] = KeepAll
	}
	return keep
}

// apply writes the plan for the windows that use the given buffers. The buffer being
// filled is never one of them: a rate holds for whole windows. A target that finds no
// room is counted.
func (s *Targets) apply(plan Plan, buffers ...uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = map[int]bool{}
	s.entering, s.fresh = s.fresh, map[int]bool{} // what those used that are held has no samples either
	keeps := plan(s.rates)
	s.sweep()
	refused := int64(0)
	for pid, keep := range keeps {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(s.rates, pid)
			continue
		}
		if _, waits := s.held[pid]; waits {
			s.fresh[pid] = true
			continue
		}
		if s.dropped[pid] {
			keep = 0
		}
		err := s.table.tracker.setTarget(s.table, uint32(pid), func(k *[2]uint32) {
			for _, b := range buffers {
				k[b] = keep
			}
		})
		if errors.Is(err, unix.E2BIG) {
			refused++
		} else if err != nil {
			return fmt.Errorf("sample process %d: %w", pid, err)
		}
	}
	for _, b := range buffers {
		s.refused[b] = refused
	}
	return nil
}

// sweep drops from the kernel's table what was gone at the edge before this one too: a
// child whose fork we never heard of would else pass its place on to the next process
// with its number. One edge later, because the kernel tells what the last of its threads
// used when it forgets them, soon after.
func (s *Targets) sweep() {
	var pid uint32
	var target kernelTarget
	gone := map[uint32]bool{}
	for all := s.table.tracker.objects.Targets.Iterate(); all.Next(&pid, &target); {
		if target.Tables&s.table.bit() != 0 && errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			gone[pid] = true
		}
	}
	for pid := range gone {
		delete(s.rates, int(pid))
		if s.gone[pid] {
			s.forget(int(pid))
		}
	}
	s.gone = gone
}

// forgetDropped ends what Aim has dropped, whose last window has been cut, and returns it.
func (s *Targets) forgetDropped() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.dropped
	s.dropped = map[int]bool{}
	for pid := range dropped {
		delete(s.rates, pid)
		s.forget(pid)
	}
	return dropped
}

// forgetEnded removes targets that have ended. Without it, the children of targets would
// fill the table many times in a window of an hour. It waits for one call, because the
// kernel may report the CPU time of a process's last thread a little after the process is
// gone.
func (s *Targets) forgetEnded(ended []int) (next []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, s.ended = s.ended, ended
	next = ended[:0]
	if s.none {
		return next
	}
	for _, pid := range ended {
		if s.again[pid] || s.isChild(pid) {
			continue // a new process has the pid, and is a target too
		}
		delete(s.rates, pid)
		s.forget(pid)
	}
	return next
}

// isChild reports whether a process is the child of a target. The caller holds the lock.
func (s *Targets) isChild(pid int) bool {
	stat, err := proc.FS{}.Stat(pid)
	if err != nil {
		return false // there is none
	}
	_, ok := s.rates[stat.PPID]
	return ok
}

// forget takes a target out of the kernel's table.
func (s *Targets) forget(pid int) {
	if err := s.table.tracker.dropTarget(s.table, uint32(pid)); err != nil {
		s.log.Debug("forget target", "pid", pid, "error", err)
	}
}

// entered returns the processes that are sampled from the last edge on.
func (s *Targets) entered() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entering
}

// refusedIn returns how many targets had no room in the window of a buffer.
func (s *Targets) refusedIn(buffer uint32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[buffer]
}
