package cpu

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/proc"
)

// The ring of exited threads has room for 2,978 of them. How full it is one sees
// without a call, so it is looked at often, and read each second, or as soon as a
// quarter of it is filled: a script may start and end 4,000 processes in a second.
const (
	lookEvery   = 100 * time.Millisecond
	listenEvery = time.Second
	stormy      = 0.25
)

// listen hears of threads that exit, until the sampler is closed.
func (s *Sampler) listen() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	heard := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			if now.Sub(heard) >= listenEvery || s.exact.waiting() > stormy {
				s.hear()
				heard = now
			}
		}
	}
}

// hear charges the threads that have exited.
func (s *Sampler) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted, err := s.wantedSoFar()
	if err == nil {
		err = s.exact.listen(wanted)
	}
	if err != nil {
		s.log.Warn("hear of exited threads", "error", err)
	}
	s.forgetEnded()
}

// isChild reports whether a process is the child of a target. The targets are locked.
func (s *Sampler) isChild(pid int) bool {
	stat, err := proc.FS{}.Stat(pid)
	if err != nil {
		return false // there is none
	}
	_, ok := s.targets[stat.PPID]
	return ok
}

// forgetEnded removes targets that had ended when it was called last. Without it,
// the children of targets would fill the table many times in a window of an hour. It
// waits for one call, because the kernel may report the CPU time of a process's last
// thread a little after the process is gone.
func (s *Sampler) forgetEnded() {
	ended := s.ended
	s.ended, s.exact.ended = s.exact.ended, ended[:0]
	if !s.options.onlyTargets() {
		return
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	for _, pid := range ended {
		if s.again[pid] || s.isChild(pid) {
			continue // a new process has the pid, and is a target too
		}
		delete(s.targets, pid)
		if err := s.objects.Targets.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			s.log.Debug("forget target", "pid", pid, "error", err)
		}
	}
}
