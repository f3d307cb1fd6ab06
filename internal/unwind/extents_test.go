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

// Small runs that come and go, some of which stay, leave room for a large one
// that comes back.
func TestLargeRunComesBack(t *testing.T) {
	const cells = 1 << 20
	r := rand.New(rand.NewPCG(5, 6))
	e := newExtents(0, cells)
	var stay []extent
	for range 200 {
		large, ok := e.take(cells / 2)
		if !ok {
			t.Fatalf("no room for half of all cells, %d of which are used", e.used)
		}
		e.put(large)
		for range 10 {
			small, ok := e.take(uint32(1 + r.IntN(2000)))
			if !ok {
				t.Fatal("no room for a small run")
			}
			stay = append(stay, small)
		}
		for len(stay) > 200 {
			i := r.IntN(len(stay))
			e.put(stay[i])
			stay = append(stay[:i], stay[i+1:]...)
		}
	}
}
