package agent

import (
	"testing"
	"time"

	"atys.dev/atys/internal/wire/atysv1"
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

// TestClockIsSet has somebody set the clock after it was compared with the
// server's: that is known without asking again. A machine that sleeps is no clock
// that is set.
func TestClockIsSet(t *testing.T) {
	wall, boot := time.Unix(1_700_000_000, 0), time.Hour
	s := newShipper(Options{Now: func() time.Time { return wall }})
	s.elapsed = func() time.Duration { return boot }
	pass := func(d time.Duration) { wall, boot = wall.Add(d), boot+d }
	if r := s.reading(); r.known || r.offset != 0 {
		t.Errorf("%+v before anything was compared", r)
	}
	server := wall.Add(-3 * time.Second) // we are ahead
	sent := wall
	pass(100 * time.Millisecond)
	received := server.Add(50 * time.Millisecond).UnixNano()
	s.compare(sent, &atysv1.PushResponse{ReceivedUnixNano: received, AnsweredUnixNano: received})
	for _, step := range []struct{ set, want time.Duration }{{0, 3 * time.Second}, {time.Hour, time.Hour + 3*time.Second}, {-2 * time.Hour, -time.Hour + 3*time.Second}} {
		pass(8 * time.Hour)
		wall = wall.Add(step.set)
		if r := s.reading(); !r.known || r.offset != step.want || r.uncertain != 50*time.Millisecond {
			t.Errorf("set by %v: %+v, want an offset of %v", step.set, r, step.want)
		}
	}
}
