package remote

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for failures, most := range []time.Duration{1: 500 * time.Millisecond, 2: time.Second, 5: 8 * time.Second, 8: time.Minute, 100: time.Minute} {
		for range 100 {
			if got := Backoff(failures); most > 0 && (got < most/2 || got > most) {
				t.Fatalf("after %d failures %v, want %v to %v", failures, got, most/2, most)
			}
		}
	}
}
