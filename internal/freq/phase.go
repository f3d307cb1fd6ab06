package freq

import (
	"time"

	"atys.dev/atys/internal/stats"
)

// phase is what a program did for a stretch, and may do again: a hotspot that comes
// back needs no new reference.
type phase struct {
	cells   *cells
	tally   tally
	spreads overdispersions
	last    time.Time // when it was left
}

const (
	mostPhases = 16 // the one that was left longest ago goes

	// A program is doing again what it did before, if the difference would be as large
	// one time in a hundred by chance, and enough is known that another would show.
	alike     = 0.01
	leastSeen = 200
)

// phases are those that a service is known to have.
type phases struct{ known []*phase }

// leave remembers a stretch that has ended. What lasted a window only is none: the
// change was within it.
func (p *phases) leave(s *stretch, at time.Time) {
	if s.windows() < 2 {
		return
	}
	left := &phase{s.cells, s.all(), s.spreads, at}
	for i, old := range p.known {
		if old.cells == s.cells { // it had returned
			p.known[i] = left
			return
		}
	}
	if p.known = append(p.known, left); len(p.known) > mostPhases {
		oldest := 0
		for i, old := range p.known {
			if old.last.Before(p.known[oldest].last) {
				oldest = i
			}
		}
		p.known = append(p.known[:oldest], p.known[oldest+1:]...)
	}
}

// find gives the phase that windows are most like, if they are alike, of a service
// whose windows differ by so much: a phase in which they differed by more would be
// like anything. That which was just left is none.
func (p *phases) find(windows []Window, spread float64, left *cells) (found *phase) {
	best := alike
	for _, old := range p.known {
		if old.cells == left {
			continue
		}
		now := tally{}
		for i := range windows {
			now.add(tallyOf(old.cells.counts(&windows[i])))
		}
		d, _ := old.spreads.any.value()
		d = min(d, spread)
		if now = now.worth(d); now.n < leastSeen {
			continue
		}
		c := compare(now, old.tally.worth(d))
		if p := stats.ChiSquaredAbove(c.g, c.freedom); c.freedom > 0 && p >= best {
			found, best = old, p
		}
	}
	return found
}
