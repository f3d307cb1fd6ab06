package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// untilEdge is how long it takes to the next multiple of a window's length by
// the wall clock, so that the windows of all agents begin together.
func untilEdge(now time.Time, window time.Duration) time.Duration {
	return now.Truncate(window).Add(window).Sub(now)
}

// reading is how far this machine's clock is ahead of the server's.
type reading struct {
	offset, uncertain time.Duration
	known             bool // else nobody has compared them
}

// of is the reading as windows and reports have it.
func (r reading) of() (offset, uncertain time.Duration) {
	if !r.known {
		return 0, profile.ClockUnknown
	}
	return r.offset, r.uncertain
}

// comparison is when the clock was compared with the server's last. A clock that
// has been set since is off by that much more.
type comparison struct {
	reading
	wall  time.Time
	since time.Duration // since boot, which no clock that is set changes
}

func (c *comparison) at(wall time.Time, since time.Duration) reading {
	r := c.reading
	if r.known {
		r.offset += wall.Round(0).Sub(c.wall.Round(0)) - (since - c.since)
	}
	return r
}

// sinceBoot goes on while a machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// moment is when something was sent.
type moment struct {
	wall  time.Time
	since time.Duration // since boot
}

func (s *shipper) now() moment { return moment{s.options.Now(), s.elapsed()} }

// setSince tells whether somebody has set the clock meanwhile. Clocks that are made
// to go faster or slower gain or lose less than a thousandth.
func (m moment) setSince(earlier moment) bool {
	const most = 100 * time.Millisecond // 30 s, for which an answer may be waited for, are far from it
	by := m.wall.Round(0).Sub(earlier.wall.Round(0)) - (m.since - earlier.since)
	return by.Abs() > most
}

// compare learns from an answer how far the clock is ahead; nothing where it was set
// while the answer was waited for, so that nobody knows which clock the server's
// was compared with.
func (s *shipper) compare(sent moment, answer *atysv1.PushResponse) {
	back := s.now()
	if back.setSince(sent) {
		return
	}
	c := comparison{wall: back.wall, since: back.since}
	c.offset, c.uncertain = wire.Clock(sent.wall, back.wall, answer)
	if c.uncertain == profile.ClockUnknown { // a relay answered that does not know itself
		return
	}
	c.known = true
	s.mu.Lock()
	first := !s.compared.known
	s.compared = c
	s.mu.Unlock()
	if first {
		s.dated <- struct{}{} // there is room for the one
	}
}

// reading is how far the clock is ahead now.
func (s *shipper) reading() reading {
	wall, since := s.options.Now(), s.elapsed()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compared.at(wall, since)
}

// clock tells how far this machine's clock is ahead of the server's.
func (s *shipper) clock() (offset, uncertain time.Duration) { return s.reading().of() }
