package relay

import (
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// moment is a time by this machine's clock, which somebody may set, and since it was
// started, which nobody can.
type moment struct {
	wall  time.Time
	since time.Duration
}

func (r *Relay) now() moment { return moment{r.options.Now().Round(0), r.elapsed()} }

// sinceBoot goes on while a machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// setSince is by how much the clock was set ahead since an earlier moment.
func (m moment) setSince(earlier moment) time.Duration {
	return m.wall.Sub(earlier.wall) - (m.since - earlier.since)
}

// comparison is how far the clock was ahead of the server's when they were compared.
type comparison struct {
	at                moment
	offset, uncertain time.Duration
}

// byServer is what the server's clock said at a moment: the clock may have been set
// since the comparison, or before it while windows waited to be passed on.
func (c *comparison) byServer(m moment) int64 {
	return m.wall.Add(-c.offset - m.setSince(c.at)).UnixNano()
}

// compare learns from an answer of the server how far the clock is ahead; nothing
// where it was set while the answer was waited for, or where the server is a relay
// that does not know. The relay is locked.
func (r *Relay) compare(sent moment, answer *atysv1.PushResponse) {
	const most = 100 * time.Millisecond // clocks that are made to go faster or slower are far from it
	back := r.now()
	if back.setSince(sent).Abs() > most {
		return
	}
	if offset, uncertain := wire.Clock(sent.wall, back.wall, answer); uncertain != profile.ClockUnknown {
		r.compared = comparison{back, offset, uncertain}
	}
}
