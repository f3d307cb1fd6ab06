package recorder

import (
	"testing"
	"time"
)

func TestLookEvery(t *testing.T) {
	for _, c := range []struct {
		o    Options
		cpus int
		want time.Duration
	}{
		{Options{Frequency: 1}, 2, 5 * time.Second},
		{Options{Frequency: 99}, 2, 5 * time.Second},
		{Options{Frequency: 100}, 64, 1250 * time.Millisecond},
		{Options{Frequency: 4000}, 2, time.Second},
		{Options{Frequency: 20000}, 2, 200 * time.Millisecond},
		{Options{Frequency: 20000}, 64, 100 * time.Millisecond},
		{Options{Count: 1, Frequency: 99}, 2, time.Second},
	} {
		if got := c.o.lookEvery(c.cpus); got != c.want {
			t.Errorf("%v Hz on %d CPUs, every %d: look every %v, want %v", c.o.Frequency, c.cpus, c.o.Count, got, c.want)
		}
	}
}

func TestPace(t *testing.T) {
	begin := time.Unix(100, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	p := pace{every: 200 * time.Millisecond, longest: time.Second, cut: begin}
	for _, step := range []struct {
		ms   int
		full float64
		want bool
	}{
		{200, 0.2, false},
		{400, 0.3, false}, // it grows less and less
		{600, 0.35, false},
		{800, 0.37, false},
		{1003, 0.38, true}, // long enough
		{1200, 0.2, false},
		{1400, 0.4, true}, // it would be too full at the look after the next
		{1601, 0.1, false},
		{1799, 0.7, true},
	} {
		if got := p.due(step.full, at(step.ms)); got != step.want {
			t.Errorf("after %d ms, %.2f full: %v, want %v", step.ms, step.full, got, step.want)
		}
	}
}
