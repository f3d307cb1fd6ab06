package recorder

import (
	"testing"
	"time"
)

func TestCutEvery(t *testing.T) {
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
		if got := c.o.cutEvery(c.cpus); got != c.want {
			t.Errorf("%v Hz on %d CPUs, every %d: cut every %v, want %v", c.o.Frequency, c.cpus, c.o.Count, got, c.want)
		}
	}
}
