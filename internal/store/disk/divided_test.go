package disk

import (
	"testing"

	"atys.dev/atys/internal/store/disk/codec"
	"atys.dev/atys/internal/store/storetest"
)

// TestWithoutRules checks that refining windows of a kind without rules allocates nothing, and reads
// neither their rows nor their names.
func TestWithoutRules(t *testing.T) {
	r, c := refiner{rules: storetest.Rules()}, &codec.Columns{Leaves: make([]uint32, 1000)}
	if n := testing.AllocsPerRun(10, func() { r.refine(c, "cpu", nil, nil) }); n != 0 || len(c.Context) != 0 {
		t.Errorf("%v allocations, %d contexts", n, len(c.Context))
	}
}

func BenchmarkWithoutRules(b *testing.B) {
	r, c := refiner{rules: storetest.Rules()}, &codec.Columns{Leaves: make([]uint32, 1000)}
	for b.Loop() {
		r.refine(c, "cpu", nil, nil)
	}
}
