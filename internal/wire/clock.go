package wire

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// Moment is a time by this machine's clock, which somebody may set, and since it was
// started, which nobody can change.
type Moment struct {
	Wall  time.Time
	Since time.Duration // see SinceBoot
}

// SinceBoot goes on while a machine sleeps.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// SetSince is by how much the clock was set ahead since an earlier moment.
func (m Moment) SetSince(earlier Moment) time.Duration {
	return m.Wall.Round(0).Sub(earlier.Wall.Round(0)) - (m.Since - earlier.Since)
}

// Compare is Clock where that tells something: not where our clock was set while the
// answer was waited for, so that nobody knows which one the server's was compared
// with, nor where a relay answered that does not know the server's itself.
func Compare(sent, back Moment, r *atysv1.PushResponse) (offset, uncertain time.Duration, known bool) {
	// Clocks that are made to go faster or slower gain or lose less than a thousandth:
	// 30 s, for which an answer may be waited for, are far from it.
	const most = 100 * time.Millisecond
	if back.SetSince(sent).Abs() > most {
		return 0, profile.ClockUnknown, false
	}
	offset, uncertain = Clock(sent.Wall, back.Wall, r)
	return offset, uncertain, uncertain != profile.ClockUnknown
}

// Clock tells how far our clock is ahead of the server's, and by how much that
// may be wrong, from a request that was sent at one time of ours and answered at
// another: what it took there and back, less what the server took for it, may
// all have been spent one way. A relay adds what it does not know itself.
func Clock(sent, back time.Time, r *atysv1.PushResponse) (offset, uncertain time.Duration) {
	received, answered := time.Unix(0, r.GetReceivedUnixNano()), time.Unix(0, r.GetAnsweredUnixNano())
	travel := max(back.Sub(sent)-answered.Sub(received), 0)
	theirs := max(time.Duration(r.GetClockErrorNs()), 0)
	if theirs > profile.ClockUnknown-travel/2 {
		return sent.Add(travel / 2).Sub(received), profile.ClockUnknown
	}
	return sent.Add(travel / 2).Sub(received), travel/2 + theirs
}

// tolerated is by how much an agent's clock may be off before its windows are
// moved: machines that keep their time are within milliseconds of each other.
const tolerated = time.Second

// SetRight has a window begin by the server's clock, if its agent's was off by
// more than a second for certain, and tells by how much. It is done by whole
// seconds, so that windows stay where others of their time are and what a
// measurement errs by moves none of them; the rest is still the offset. What is
// set right stays so: the same window is the same one whoever looks at it first,
// a relay that adds it up or a server, and however often it comes.
func SetRight(h *profile.Head) (by time.Duration) {
	if h.ClockOffset.Abs()-max(h.ClockError, 0) <= tolerated {
		return 0
	}
	by = h.ClockOffset.Round(time.Second)
	at := h.Start.Add(-by)
	if at.Before(time.Unix(0, 0)) || at.Add(h.Duration).After(time.Unix(0, math.MaxInt64)) {
		return 0 // there is no such time
	}
	h.Start = at
	h.ClockOffset -= by
	return by
}
