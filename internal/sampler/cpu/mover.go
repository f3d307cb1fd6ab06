package cpu

import "time"

// mover decides where the events of chosen processes belong, as time goes by. Only
// events on CPUs see a thread from its first instruction to its last; those on
// threads spare bystanders, and come too late for a thread that has just begun.
//
//	guarding --(no births for long enough, threads cost less)--> apart
//	guarding <--(a birth, or threads that run too rarely)------- apart
//
// It is pure: whoever carries out what it decides tells it what happened.
type mover struct {
	state  residence
	first  uint64        // births counted when it began,
	births uint64        // and up to the last look
	quiet  time.Time     // since when there was no birth
	needed time.Duration // without one, until events may go to threads
}

// residence is where events are, and what would move them.
type residence uint8

const (
	resident residence = iota // they stay where they are: so it was asked, or nothing else serves
	guarding                  // on CPUs, as threads may be born
	apart                     // on threads, as none are
)

// How long targets start no threads before they are believed to start none: at
// first, and when that was found to be wrong. There are some milliseconds of one
// thread to lose each time.
const (
	calmAtFirst = 2 * time.Second
	calmAfter   = 10 * time.Second
	calmAtMost  = 160 * time.Second
)

// guard begins on CPUs.
func (m *mover) guard(now time.Time, births uint64) {
	*m = mover{state: guarding, first: births, births: births, quiet: now, needed: calmAtFirst}
}

// calm counts births, and tells whether events on threads come into question.
func (m *mover) calm(now time.Time, births uint64) bool {
	if births != m.births {
		m.births, m.quiet = births, now
	}
	return m.state == guarding && now.Sub(m.quiet) >= m.needed
}

// settle judges where events belong by what was seen, and gives the placement they
// move to, if they do.
func (m *mover) settle(now time.Time, births uint64, d demand) (to decision, moves bool) {
	calm := m.calm(now, births)
	to = place(d)
	switch {
	case m.state == guarding && calm && to.placement == PlaceThreads:
		m.state = apart
		return to, true
	case m.state == apart && to.placement != PlaceThreads && !m.nearly(d):
		m.back(now)
		return decision{PlaceCPUs, "", d.onCPUs(), to.why}, true
	}
	return decision{}, false
}

// guards is the decision to be on CPUs, and why by now.
func (m *mover) guards(d demand) decision {
	at := place(d)
	switch {
	case m.state != guarding || at.placement != PlaceThreads:
	case m.births > m.first:
		at.why = afterBirth
	default:
		at.why = untilCalm
	}
	return decision{PlaceCPUs, "", d.onCPUs(), at.why}
}

// nearly tells whether threads, where events are, would be chosen but for what the
// targets pay: that alone moves nothing before it is twice what the others save.
func (m *mover) nearly(d demand) bool {
	d.switches /= 2
	return place(d).placement == PlaceThreads
}

// born hears of a birth, and tells whether events have to leave the threads.
func (m *mover) born(now time.Time) bool {
	m.quiet = now
	if m.state != apart {
		return false
	}
	m.back(now)
	return true
}

// back is on CPUs again. Who starts threads now and then would have us move for
// each of them: it is waited longer and longer.
func (m *mover) back(now time.Time) {
	m.state, m.quiet = guarding, now
	m.needed = min(max(2*m.needed, calmAfter), calmAtMost)
}
