package recorder

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadying aims at targets that take seconds to be read: who aims waits a moment
// for them, and is told later of those that took longer.
func TestReadying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[int]time.Duration{1: 10 * time.Millisecond, 2: time.Second, 3: time.Second, 4: 0, 5: 10 * time.Second}
		told := 0
		var released []int
		r := &readying{
			track:   func(pid int) { time.Sleep(took[pid]) },
			release: func(pid int) bool { released = append(released, pid); return pid != 4 },
			ready:   func() { told++ },
		}
		if r.add(nil) {
			t.Error("nothing is ready")
		}
		if !r.add([]int{1}) || r.add(nil) || told != 0 {
			t.Errorf("one that is read at once is not ready; told %d times", told)
		}
		began := time.Now()
		if r.add([]int{2, 3}) || time.Since(began) > aimPatience {
			t.Errorf("who aims waits %v", time.Since(began))
		}
		time.Sleep(time.Minute)
		if told != 1 || !r.add(nil) || r.add(nil) {
			t.Errorf("told %d times of two that took longer", told)
		}
		if r.add([]int{4}) || told != 1 {
			t.Error("one that is sampled already is fresh")
		}
		r.add([]int{5, 1})
		r.close()
		if r.add([]int{2}); fmt.Sprint(released) != "[1 2 3 4 5]" {
			t.Errorf("read %v", released)
		}
	})
}
