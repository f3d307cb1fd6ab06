package unwind

import (
	"math/rand/v2"
	"testing"
)

// Runs never overlap, and giving all of them back leaves one run again.
func TestExtents(t *testing.T) {
	const cells = 1000
	r := rand.New(rand.NewPCG(3, 4))
	e := newExtents(0, cells)
	owner := make([]int, cells)
	held := map[int]extent{}
	for step := 1; step <= 20000; step++ {
		if r.IntN(2) == 0 {
			run, ok := e.take(uint32(1 + r.IntN(40)))
			if !ok {
				continue
			}
			held[step] = run
			for i := run.first; i < run.first+run.count; i++ {
				if owner[i] != 0 {
					t.Fatalf("cell %d is handed out twice", i)
				}
				owner[i] = step
			}
			continue
		}
		for id, run := range held { // any of them
			for i := run.first; i < run.first+run.count; i++ {
				owner[i] = 0
			}
			e.put(run)
			delete(held, id)
			break
		}
	}
	for _, run := range held {
		e.put(run)
	}
	if len(e.free) != 1 || e.free[0] != (extent{0, cells}) || e.used != 0 {
		t.Errorf("after giving all back: %v, %d used", e.free, e.used)
	}
	if _, ok := e.take(cells + 1); ok {
		t.Error("more was handed out than there is")
	}
}

// A large run that comes back finds room, whatever small ones came while it was
// away, or stay that came while it was there.
func TestLargeRunComesBack(t *testing.T) {
	const cells = 1 << 20
	e := newExtents(0, cells)
	for round := range 20 {
		large, ok := e.take(cells / 9 * 5)
		if !ok {
			t.Fatalf("round %d: no room for five ninths of all cells, %d of which are used", round, e.used)
		}
		if _, ok = e.take(cells / 200); !ok {
			t.Fatal("no room for a small run")
		}
		e.put(large)
		if _, ok = e.take(cells / 1000); !ok {
			t.Fatal("no room for a smaller run")
		}
	}
}
