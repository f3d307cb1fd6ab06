package cpu

import (
	"fmt"
	"time"
)

const (
	// calmEvery is how often we check whether the targets start threads.
	calmEvery = time.Second
	// sightEvery is how often we check who uses the CPUs. It is longer because the check
	// lists all threads of the machine.
	sightEvery = 5 * time.Second
)

// look moves the events as the targets and the machine change: it compares the machine
// with the last sight, if that is old enough, and settles the events. It returns the sight to compare with next.
func (l *placer) look(last sight) sight {
	births, now := l.table.Births(), time.Now()
	l.events.mu.Lock()
	calm, apart := l.events.mover.calm(now, births), l.events.mover.state == apart
	l.events.mu.Unlock()
	if hz, _, _ := l.events.rates(); !apart && !l.considered(hz) {
		return sight{}
	}
	age := now.Sub(last.at)
	if !last.at.IsZero() && age < sightEvery && !(calm && !apart && age >= calmEvery/2) {
		return last
	}
	seen, err := l.sight()
	if err != nil {
		l.log.Warn("look who uses the CPUs", "error", err)
		return last
	}
	if !last.at.IsZero() {
		l.settle(births, l.compare(last, seen))
	}
	return seen
}

// settle moves the events to where they belong by the observed demand, at a rate that
// the budget allows.
func (l *placer) settle(births uint64, d demand) {
	e := l.events
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
	next = l.afford(next)
	if !moves && !worthTelling(e.placed.cap, next.cap) {
		next.cap = e.placed.cap // the load of others fluctuates: ignore small changes
	}
	l.take(next, moves)
}

// worthTelling reports whether the next cap differs enough from the current one to be applied.
func worthTelling(now, next float64) bool {
	return (now == 0) != (next == 0) || next > 1.2*now || next < 0.9*now
}

// afford lowers the rate to fit the budget, or to the slowest rate if none fits.
func (l *placer) afford(p placed) placed {
	p, err := p.afford(l.options.Budget)
	if err != nil {
		l.log.Warn("keep to the budget", "error", err)
	}
	return p
}

// take moves the events to another placement, or changes only their rate. The caller
// holds the events' lock, as for move.
func (l *placer) take(next placed, moves bool) {
	e := l.events
	told := e.say()
	if moves {
		l.move(next)
	} else {
		e.placed = next
		e.changeBase(next.rate(e.asked))
	}
	if now := e.say(); now != told && l.options.OnPlaced != nil {
		l.options.OnPlaced(now, e.placed.bystanders)
	}
}

// born moves the events from the threads to the CPUs, because a target has started a
// thread or a child process.
func (l *placer) born() {
	e := l.events
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !e.mover.born(time.Now()) {
		return
	}
	next := e.placed
	next.decision = decision{PlaceCPUs, "", next.seen.onCPUs(), afterBirth}
	l.take(l.afford(next), true)
}

// move moves all events to another placement. It closes the open events first, since
// time would be sampled twice while both run.
func (l *placer) move(next placed) {
	e := l.events
	e.countInterrupts()
	e.dropAll()
	e.placed = next
	e.base = next.rate(e.asked)
	err := e.openPlaced()
	if err != nil && next.placement == PlaceThreads { // usually too few file descriptors
		l.log.Warn("sample threads", "error", err)
		e.dropAll()
		e.mover.back(time.Now())
		e.placed.decision = decision{PlaceCPUs, "", next.seen.onCPUs(), fmt.Sprintf("each CPU is sampled: threads cannot have events of their own: %v", err)}
		e.placed = l.afford(e.placed)
		e.base = e.placed.rate(e.asked)
		err = e.openPlaced()
	}
	if err != nil {
		l.log.Error("sample each CPU", "error", err)
	}
	e.wake()
}
