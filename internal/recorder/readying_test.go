package recorder

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadying aims at targets that take seconds to be read: who aims does not wait, and
// is told later of them, but for those that the first window has waited for.
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
		began := time.Now()
		if r.add([]int{1}) || time.Since(began) > 0 {
			t.Errorf("who aims waits %v", time.Since(began))
		}
		if r.settle(); len(released) != 1 || r.add(nil) || told != 0 {
			t.Errorf("released %v for the first window; told %d times", released, told)
		}
		began = time.Now()
		r.add([]int{2, 3})
		if r.settle(); time.Since(began) > aimPatience || len(released) != 1 {
			t.Errorf("the first window waits %v", time.Since(began))
		}
		time.Sleep(time.Minute)
		if told != 1 || !r.add(nil) || r.add(nil) {
			t.Errorf("told %d times of two that took longer", told)
		}
		r.add([]int{4})
		time.Sleep(time.Minute)
		if told != 1 || r.add(nil) {
			t.Error("one that is sampled already is fresh")
		}
		r.add([]int{5, 1})
		synctest.Wait()
		r.close()
		if r.add([]int{2}); fmt.Sprint(released) != "[1 2 3 4 5]" {
			t.Errorf("read %v", released)
		}
	})
}
