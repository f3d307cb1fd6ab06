package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

const (
	// calmEvery is how often we check whether the targets start threads.
	calmEvery = time.Second
	// sightEvery is how often we check who uses the CPUs. It is longer because the check
	// lists all threads of the machine.
	sightEvery = 5 * time.Second
)

// watch moves the events as the targets and the machine change, until the sampler
// is closed.
func (s *Sampler) watch() {
	ticker := time.NewTicker(calmEvery)
	defer ticker.Stop()
	var last sight
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			last = s.look(last)
		}
	}
}

// look compares the machine with the last sight, if that is old enough, and settles the
// events. It returns the sight to compare with next.
func (s *Sampler) look(last sight) sight {
	births, now := atomic.LoadUint64(&s.shared.Value.Control.Births), time.Now()
	s.events.mu.Lock()
	calm, apart := s.events.mover.calm(now, births), s.events.mover.state == apart
	s.events.mu.Unlock()
	if hz := s.asked(); !apart && !s.considered(hz) {
		return sight{}
	}
	age := now.Sub(last.at)
	if !last.at.IsZero() && age < sightEvery && !(calm && !apart && age >= calmEvery/2) {
		return last
	}
	s.mu.Lock()
	seen, err := s.sight()
	s.mu.Unlock()
	if err != nil {
		s.log.Warn("look who uses the CPUs", "error", err)
		return last
	}
	if !last.at.IsZero() {
		s.settle(births, s.compare(last, seen))
	}
	return seen
}

// settle moves the events to where they belong by the observed demand, at a rate that
// the budget allows.
func (s *Sampler) settle(births uint64, d demand) {
	e := &s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	next := e.placed
	next.seen = d
	to, moves := e.mover.settle(time.Now(), births, d)
	if moves {
		next.decision = to
	} else if next.placement == PlaceCPUs {
		next.decision = e.mover.guards(d)
	}
	next = s.afford(next)
	if !moves && !worthTelling(e.placed.cap, next.cap) {
		next.cap = e.placed.cap // the load of others fluctuates: ignore small changes
	}
	s.take(next, moves)
}

// worthTelling reports whether the next cap differs enough from the current one to be applied.
func worthTelling(now, next float64) bool {
	return (now == 0) != (next == 0) || next > 1.2*now || next < 0.9*now
}

// afford lowers the rate to fit the budget, or to the slowest rate if none fits.
func (s *Sampler) afford(p placed) placed {
	p, err := p.afford(s.options.Budget)
	if err != nil {
		s.log.Warn("keep to the budget", "error", err)
	}
	return p
}

// take moves the events to another placement, or changes only their rate. The caller
// holds the events' lock, as for move.
func (s *Sampler) take(next placed, moves bool) {
	e := &s.events
	told := e.say()
	if moves {
		s.move(next)
	} else {
		e.placed = next
		s.changeBase(next.rate(e.asked))
	}
	if now := e.say(); now != told && s.options.OnPlaced != nil {
		s.options.OnPlaced(now, e.placed.bystanders)
	}
}

// followBirths moves the events back to the CPUs at the first thread start after they
// moved to the threads.
func (s *Sampler) followBirths(ring *ringbuf.Reader) {
	var record ringbuf.Record
	for {
		if err := ring.ReadInto(&record); err != nil {
			if !errors.Is(err, ringbuf.ErrClosed) {
				s.log.Error("stop hearing of births", "error", err)
			}
			return
		}
		s.born()
	}
}

// born moves the events from the threads to the CPUs, because a target has started a
// thread or a child process.
func (s *Sampler) born() {
	e := &s.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.mover.born(time.Now()) {
		return
	}
	next := e.placed
	next.decision = decision{PlaceCPUs, "", next.seen.onCPUs(), afterBirth}
	s.take(s.afford(next), true)
}

// move moves all events to another placement. It closes the open events first, since
// time would be sampled twice while both run.
func (s *Sampler) move(next placed) {
	e := &s.events
	s.countInterrupts()
	s.dropAll()
	e.placed = next
	e.base = next.rate(e.asked)
	err := s.openPlaced()
	if err != nil && next.placement == PlaceThreads { // usually too few file descriptors
		s.log.Warn("sample threads", "error", err)
		s.dropAll()
		e.mover.back(time.Now())
		e.placed.decision = decision{PlaceCPUs, "", next.seen.onCPUs(), fmt.Sprintf("each CPU is sampled: threads cannot have events of their own: %v", err)}
		e.placed = s.afford(e.placed)
		e.base = e.placed.rate(e.asked)
		err = s.openPlaced()
	}
	if err != nil {
		s.log.Error("sample each CPU", "error", err)
	}
	e.wake()
}
