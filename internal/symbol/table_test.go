package symbol

import (
	"runtime"
	"strings"
	"testing"
)

// A name that many functions share is not copied without end: those behind the bound
// have their place.
func TestNamesOfTableAreBounded(t *testing.T) {
	name := strings.Repeat("n", 1<<16)
	spans := make([]span, 2*maxNameBytes/len(name))
	for i := range spans {
		spans[i] = span{start: uint32(i), end: uint32(i + 1), name: name}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table := encodeFunctions(spans)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > maxNameBytes+1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	if got, ok := table.lookup(uint32(len(spans)/2 - 1)); !ok || got != name {
		t.Error("the last function within the bound has no name")
	}
	for _, i := range []int{len(spans) / 2, len(spans) - 1} {
		got, _ := table.lookup(uint32(i))
		if start, ok := namelessStart(got); !ok || start != uint64(i) {
			t.Errorf("function %d, behind the bound, has a name of %d bytes", i, len(got))
		}
	}
}
