package wire

import (
	"math"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestClock has a server whose clock is 3 s behind ours, over ways of
// different lengths: the truth is always within the error.
func TestClock(t *testing.T) {
	const behind = 3 * time.Second
	now := time.Unix(1_700_000_000, 0)
	for _, way := range [][2]time.Duration{{0, 0}, {10, 10}, {200, 0}, {0, 200}, {7, 90}} {
		there, back := way[0]*time.Millisecond, way[1]*time.Millisecond
		received := now.Add(there - behind)
		answered := received.Add(50 * time.Millisecond)
		offset, uncertain := Clock(now, answered.Add(behind+back), &atysv1.PushResponse{ReceivedUnixNano: received.UnixNano(), AnsweredUnixNano: answered.UnixNano()})
		if off := (offset - behind).Abs(); off > uncertain {
			t.Errorf("ways of %v and %v: offset %v +- %v, is %v", there, back, offset, uncertain, behind)
		}
		if want := (there + back) / 2; uncertain != want {
			t.Errorf("ways of %v and %v: uncertain by %v, want %v", there, back, uncertain, want)
		}
	}
}

// TestClockOfRelay adds what a relay may be wrong by itself.
func TestClockOfRelay(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for theirs, want := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Second + time.Minute, -time.Minute: time.Second,
		profile.ClockUnknown: profile.ClockUnknown, profile.ClockUnknown - 1: profile.ClockUnknown} {
		r := &atysv1.PushResponse{ReceivedUnixNano: now.UnixNano(), AnsweredUnixNano: now.UnixNano(), ClockErrorNs: int64(theirs)}
		if _, uncertain := Clock(now, now.Add(2*time.Second), r); uncertain != want {
			t.Errorf("a relay may be wrong by %v, and we by %v, want %v", theirs, uncertain, want)
		}
	}
}

func TestSetRight(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, test := range []struct{ offset, uncertain, moved time.Duration }{
		{0, 0, 0},
		{time.Second, 0, 0},
		{time.Hour, time.Millisecond, time.Hour},
		{-time.Hour - 400*time.Millisecond, time.Millisecond, -time.Hour},
		{time.Hour - 400*time.Millisecond, 0, time.Hour},
		{3 * time.Second, 2 * time.Second, 0}, // it may be one second
		{3 * time.Second, 1999 * time.Millisecond, 3 * time.Second},
		{0, profile.ClockUnknown, 0},
		{3 * time.Second, profile.ClockUnknown, 0},
		{math.MinInt64, 0, 0},
		{math.MaxInt64, 0, 0},
		{math.MaxInt64, math.MinInt64, 0},
	} {
		h := profile.Head{Start: at, Duration: 10 * time.Second, ClockOffset: test.offset, ClockError: test.uncertain}
		if by := SetRight(&h); by != test.moved || !h.Start.Equal(at.Add(-by)) || h.ClockOffset != test.offset-by {
			t.Errorf("%v +- %v: moved by %v to %v, an offset of %v is left; want %v", test.offset, test.uncertain, by, h.Start, h.ClockOffset, test.moved)
		}
		if again := SetRight(&h); again != 0 {
			t.Errorf("%v: moved again, by %v", test.offset, again)
		}
	}
}
