package cpu

import (
	"errors"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// How often the ring of exited threads is read between edges. It has room for
// 2,978 of them: where a storm has filled a quarter of it, the next look is soon.
const (
	listenEvery = time.Second
	listenSoon  = 100 * time.Millisecond
	stormy      = 0.25
)

// listen hears of threads that exit, until the sampler is closed.
func (s *Sampler) listen() {
	timer := time.NewTimer(listenEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
			timer.Reset(s.hear())
		}
	}
}

// hear charges the threads that have exited, and tells how long to wait until it
// is asked again.
func (s *Sampler) hear() (pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pause = listenEvery; s.exact.heard() > stormy {
		pause = listenSoon
	}
	wanted, err := s.wantedSoFar()
	if err == nil {
		err = s.exact.listen(wanted)
	}
	if err != nil {
		s.log.Warn("hear of exited threads", "error", err)
	}
	s.forgetEnded()
	return pause
}

// forgetEnded gives the places of processes back that had ended at the look before:
// in a window of an hour, children of targets would fill the table many times. One
// look later, because what the last of their threads used may be told a little
// after the process itself is settled.
func (s *Sampler) forgetEnded() {
	ended := s.ended
	s.ended, s.exact.ended = s.exact.ended, ended[:0]
	if !s.options.onlyTargets() {
		return
	}
	s.targetsMu.Lock()
	defer s.targetsMu.Unlock()
	for _, pid := range ended {
		if !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue // another process has the number
		}
		delete(s.targets, pid)
		if err := s.objects.Targets.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			s.log.Debug("forget target", "pid", pid, "error", err)
		}
	}
}
