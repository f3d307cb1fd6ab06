package agent

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
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
	unknown := func() {
		t.Helper()
		if offset, uncertain := s.clock(); offset != 0 || uncertain != profile.ClockUnknown {
			t.Errorf("%v +- %v before anything was compared", offset, uncertain)
		}
	}
	unknown()
	s.compare(s.now(), &atysv1.PushResponse{ReceivedUnixNano: 5, AnsweredUnixNano: 5, ClockErrorNs: int64(profile.ClockUnknown)})
	unknown()                            // a relay has answered that knows as little
	server := wall.Add(-3 * time.Second) // we are ahead
	sent := s.now()
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

// TestClockIsSetMeanwhile has somebody set the clock while an answer is waited for:
// the answer tells nothing, and what was known before goes on to hold.
func TestClockIsSetMeanwhile(t *testing.T) {
	for _, set := range []time.Duration{time.Hour, -2 * time.Hour} {
		wall, boot := time.Unix(1_700_000_000, 0), time.Hour
		s := newShipper(Options{Now: func() time.Time { return wall }})
		s.elapsed = func() time.Duration { return boot }
		received := wall.UnixNano()
		s.compare(s.now(), &atysv1.PushResponse{ReceivedUnixNano: received, AnsweredUnixNano: received})
		sent := s.now()
		wall, boot = wall.Add(set+50*time.Millisecond), boot+50*time.Millisecond
		s.compare(sent, &atysv1.PushResponse{ReceivedUnixNano: received, AnsweredUnixNano: received})
		if r := s.reading(); !r.known || r.offset != set || r.uncertain != 0 {
			t.Errorf("set by %v: %+v", set, r)
		}
	}
}

// TestUnknownClock has an agent cut windows before it has reached a server: that
// nobody knows when they were is kept with them, until one has answered.
func TestUnknownClock(t *testing.T) {
	b := newBench(t, 5)
	b.server.away = true
	for range 20 { // a busy machine may cut none in so short a time
		if b.live(t, 50*time.Millisecond); b.spool.Stats().Records > 0 {
			break
		}
	}
	unknown := 0
	for _, id := range b.spool.Oldest(1000) {
		all, err := b.spool.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range all {
			w := &atysv1.Spooled{}
			if err := proto.Unmarshal(record, w); err != nil {
				t.Fatal(err)
			}
			if h, _, err := wire.Head(w.GetWindow()); err != nil || h.ClockOffset != 0 || h.ClockError != profile.ClockUnknown {
				t.Errorf("%v: %v +- %v where no server was reached", err, h.ClockOffset, h.ClockError)
			}
			unknown++
		}
	}
	b.spool.Release(nil, spool.Losses{})
	b.server.away = false
	for range 20 {
		if b.live(t, 100*time.Millisecond); b.server.unknown < len(b.server.taken) {
			break
		}
	}
	if got := b.server.unknown; unknown == 0 || got < unknown || got >= len(b.server.taken) {
		t.Errorf("of %d windows, %d of them cut while no server was reached, nobody knows when %d were", len(b.server.taken), unknown, got)
	}
}
