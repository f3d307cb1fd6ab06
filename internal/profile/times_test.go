package profile

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	type taken struct{ at, length time.Duration }
	for _, c := range []struct {
		name    string
		windows []taken
		want    time.Duration
	}{
		{"none", nil, 0},
		{"one", []taken{{0, 10}}, 10},
		{"one after another", []taken{{0, 10}, {10, 10}}, 20},
		{"out of order", []taken{{20, 10}, {0, 10}, {10, 10}}, 30},
		{"at once", []taken{{0, 10}, {0, 4}, {0, 10}}, 10},
		{"across each other", []taken{{0, 10}, {5, 10}, {6, 2}}, 15},
		{"one within another, and more", []taken{{0, 30}, {5, 10}, {20, 20}}, 40},
		{"with a gap", []taken{{0, 10}, {50, 10}}, 20},
		{"a step of which little is there", []taken{{0, 226}, {600, 10}, {610, 10}}, 246},
	} {
		t.Run(c.name, func(t *testing.T) {
			times := Times{}
			for _, w := range c.windows {
				times.Add(&Head{Start: time.Unix(1e9, 0).Add(w.at * time.Second), Duration: w.length * time.Second})
			}
			if got := times.Covered(); got != c.want*time.Second {
				t.Errorf("%v, want %v", got, c.want*time.Second)
			}
		})
	}
	unknown := Times{}
	if unknown.Add(&Head{Duration: time.Second}); unknown.Covered() != 0 {
		t.Error("a window without a start has a time")
	}
}
