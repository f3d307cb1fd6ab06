package paging

import (
	"math/rand/v2"
	"testing"
)

// Runs never overlap, and giving all of them back leaves one run again.
func TestExtents(t *testing.T) {
	const cells = 1000
	r := rand.New(rand.NewPCG(3, 4))
	e := NewExtents(0, cells)
	owner := make([]int, cells)
	held := map[int]Extent{}
	for step := 1; step <= 20000; step++ {
		if r.IntN(2) == 0 {
			run, ok := e.Take(uint32(1 + r.IntN(40)))
			if !ok {
				continue
			}
			held[step] = run
			for i := run.First; i < run.First+run.Count; i++ {
				if owner[i] != 0 {
					t.Fatalf("cell %d is handed out twice", i)
				}
				owner[i] = step
			}
			continue
		}
		for id, run := range held { // any of them
			for i := run.First; i < run.First+run.Count; i++ {
				owner[i] = 0
			}
			e.Put(run)
			delete(held, id)
			break
		}
	}
	for _, run := range held {
		e.Put(run)
	}
	if len(e.free) != 1 || e.free[0] != (Extent{0, cells}) || e.Used != 0 {
		t.Errorf("after giving all back: %v, %d used", e.free, e.Used)
	}
	if _, ok := e.Take(cells + 1); ok {
		t.Error("more was handed out than there is")
	}
}

// A large run that comes back finds room, whatever small ones came while it was
// away, or stay that came while it was there.
func TestLargeRunComesBack(t *testing.T) {
	const cells = 1 << 20
	e := NewExtents(0, cells)
	for round := range 20 {
		large, ok := e.Take(cells / 9 * 5)
		if !ok {
			t.Fatalf("round %d: no room for five ninths of all cells, %d of which are used", round, e.Used)
		}
		if _, ok = e.Take(cells / 200); !ok {
			t.Fatal("no room for a small run")
		}
		e.Put(large)
		if _, ok = e.Take(cells / 1000); !ok {
			t.Fatal("no room for a smaller run")
		}
	}
}
