package cpu

import "time"

// mover decides over time whether the events of chosen processes belong on CPUs or on
// threads. Only events on CPUs see a thread from its first instruction to its last.
// Events on threads spare bystanders, but are opened too late to see a new thread start.
//
//	guarding --(no thread starts for long enough, threads cost less)--> apart
//	guarding <--(a thread start, or threads that run too rarely)------- apart
//
// It is pure: the caller reports what happened and carries out the decisions.
type mover struct {
	state  residence
	first  uint64        // thread starts counted when guarding began
	births uint64        // and at the last look
	quiet  time.Time     // no thread has started since
	needed time.Duration // quiet time required before events may move to threads
}

// residence is where events are and what would move them.
type residence uint8

const (
	resident residence = iota // fixed: the options ask for it, or no other placement works
	guarding                  // on CPUs, because threads may start
	apart                     // on threads, because none do
)

// How long targets must start no threads before we assume that they start none. The
// wait grows each time the assumption turns out wrong, since each time costs the
// samples of some milliseconds of one thread.
const (
	calmAtFirst = 2 * time.Second
	calmAfter   = 10 * time.Second
	calmAtMost  = 160 * time.Second
)

// guard resets the mover to events on CPUs.
func (m *mover) guard(now time.Time, births uint64) {
	*m = mover{state: guarding, first: births, births: births, quiet: now, needed: calmAtFirst}
}

// calm records the count of thread starts and reports whether events may move to threads.
func (m *mover) calm(now time.Time, births uint64) bool {
	if births != m.births {
		m.births, m.quiet = births, now
	}
	return m.state == guarding && now.Sub(m.quiet) >= m.needed
}

// settle decides from the observed demand where events belong. If they have to move,
// it returns the new placement.
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

// guards returns the decision to be on CPUs, with the current reason.
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

// nearly reports whether place would still choose threads if they cost the targets half
// as much. This is hysteresis: cost alone moves events off threads only once the targets
// pay twice what the others save.
func (m *mover) nearly(d demand) bool {
	d.switches /= 2
	return place(d).placement == PlaceThreads
}

// born records a thread start and reports whether events have to leave the threads.
func (m *mover) born(now time.Time) bool {
	m.quiet = now
	if m.state != apart {
		return false
	}
	m.back(now)
	return true
}

// back returns to guarding and doubles the required quiet time. Otherwise a target that
// starts a thread now and then would make events move for each one.
func (m *mover) back(now time.Time) {
	m.state, m.quiet = guarding, now
	m.needed = min(max(2*m.needed, calmAfter), calmAtMost)
}
