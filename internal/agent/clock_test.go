package agent

import (
	"testing"
	"time"
)

func TestUntilEdge(t *testing.T) {
	edge := time.Unix(1_700_000_000, 0).Truncate(10 * time.Second)
	for _, test := range []struct{ past, want time.Duration }{
		{0, 10 * time.Second}, {time.Second, 9 * time.Second}, {10*time.Second - 1, 1},
	} {
		if got := untilEdge(edge.Add(test.past), 10*time.Second); got != test.want {
			t.Errorf("%v after an edge: %v to the next, want %v", test.past, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for failures, most := range []time.Duration{1: 500 * time.Millisecond, 2: time.Second, 5: 8 * time.Second, 8: time.Minute, 100: time.Minute} {
		for range 100 {
			if got := backoff(failures); most > 0 && (got < most/2 || got > most) {
				t.Fatalf("after %d failures %v, want %v to %v", failures, got, most/2, most)
			}
		}
	}
}

// TestClockOffset has a server whose clock is 3 s behind ours, over ways of
// different lengths: the truth is always within the error.
func TestClockOffset(t *testing.T) {
	const behind = 3 * time.Second
	now := time.Unix(1_700_000_000, 0)
	for _, way := range [][2]time.Duration{{0, 0}, {10, 10}, {200, 0}, {0, 200}, {7, 90}} {
		there, back := way[0]*time.Millisecond, way[1]*time.Millisecond
		received := now.Add(there - behind)
		answered := received.Add(50 * time.Millisecond)
		offset, uncertain := clockOffset(now, received, answered, answered.Add(behind+back))
		if off := (offset - behind).Abs(); off > uncertain {
			t.Errorf("ways of %v and %v: offset %v +- %v, is %v", there, back, offset, uncertain, behind)
		}
		if want := (there + back) / 2; uncertain != want {
			t.Errorf("ways of %v and %v: uncertain by %v, want %v", there, back, uncertain, want)
		}
	}
}
