package store_test

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

func TestSlotsPart(t *testing.T) {
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	slots := store.Slots{Start: noon, Period: 10 * time.Second, Parts: 10}
	for name, c := range map[string]struct {
		beside time.Duration // of the period's beginning, that of the window
		slot   uint32
		length time.Duration
		want   string
	}{"first": {0, 1, time.Second, "0"}, "last": {0, 10, time.Second, "9"}, "late": {3 * time.Millisecond, 4, time.Second, "3"}, "early": {10*time.Second - 2*time.Millisecond, 4, time.Second, "3"},
		"in the middle": {5 * time.Second, 2, time.Second, "6"}, "reaches into the next period": {5 * time.Second, 9, time.Second, "9"},
		"before the first": {-10 * time.Second, 4, time.Second, "3"}, "short": {0, 31, 50 * time.Millisecond, "1"}, "long": {0, 1, 2 * time.Second, ""}, "none": {0, 0, time.Second, ""}} {
		h := &profile.Head{Start: noon.Add(c.beside), Duration: 10 * time.Second, Slot: c.length}
		if got := slots.Part(h, c.slot); got != c.want {
			t.Errorf("%s: part %q, want %q", name, got, c.want)
		}
	}
}
