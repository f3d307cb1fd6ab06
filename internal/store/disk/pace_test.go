package disk

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace rests as long as it worked where windows came, and else not at all.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var puts atomic.Uint64
		p := pace{puts: &puts}
		for _, test := range []struct {
			worked, want time.Duration
			came         bool
		}{{stint / 2, 0, true}, {3 * stint, 3 * stint, true}, {3 * stint, 0, false}} {
			p.work()
			time.Sleep(test.worked)
			if test.came {
				puts.Add(1)
			}
			began := time.Now()
			if err := p.rest(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rested := time.Since(began); rested != test.want {
				t.Errorf("rested for %v after %v, want %v", rested, test.worked, test.want)
			}
		}
	})
}
