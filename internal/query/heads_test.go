package query

import (
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestOverlapsOfManyServices ends: each pair of so many services would take hours.
func TestOverlapsOfManyServices(t *testing.T) {
	const services = 200_000
	var h heads
	saw := func(service int, task string, start time.Time) {
		h.Add(profile.Labels{"service": fmt.Sprint(service)}, &profile.Head{Task: task, Start: start, Duration: 10 * time.Second})
	}
	for i := range services {
		saw(i, "builtin", noon)
	}
	if got := h.overlapping(); len(got) != 0 {
		t.Errorf("%v of different services", got)
	}
	for _, start := range []time.Time{noon, noon.Add(50 * time.Second)} {
		saw(7, "builtin", start)
		saw(7, "other", start)
	}
	if got := fmt.Sprint(h.overlapping()); got != "[builtin other]" {
		t.Errorf("at one service of many: %v", got)
	}
}
