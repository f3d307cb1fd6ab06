package wire

import (
	"testing"
	"time"

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
