package agent

import (
	"time"

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
	when wire.Moment
}

func (c *comparison) at(m wire.Moment) reading {
	r := c.reading
	if r.known {
		r.offset += m.SetSince(c.when)
	}
	return r
}

func (s *shipper) now() wire.Moment { return wire.Moment{Wall: s.options.Now(), Since: s.elapsed()} }

// compare learns from an answer how far the clock is ahead.
func (s *shipper) compare(sent wire.Moment, answer *atysv1.PushResponse) {
	c := comparison{when: s.now()}
	c.offset, c.uncertain, c.known = wire.Compare(sent, c.when, answer)
	if !c.known {
		return
	}
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
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compared.at(now)
}

// clock tells how far this machine's clock is ahead of the server's.
func (s *shipper) clock() (offset, uncertain time.Duration) { return s.reading().of() }
