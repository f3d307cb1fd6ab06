package unwind

import (
	"testing"
	"unsafe"

	"atys.dev/atys/internal/lang/beam"
)

// TestBEAMParameters asserts that package lang/beam fills what beam.h reads.
func TestBEAMParameters(t *testing.T) {
	var c kernelBeamProcess
	var g beam.Parameters
	if unsafe.Sizeof(c) != unsafe.Sizeof(g) || unsafe.Offsetof(c.Bottom) != unsafe.Offsetof(g.Bottom) ||
		unsafe.Offsetof(c.Idle) != unsafe.Offsetof(g.Idle) || unsafe.Offsetof(c.Heap) != unsafe.Offsetof(g.Heap) ||
		unsafe.Offsetof(c.Stop) != unsafe.Offsetof(g.Stop) {
		t.Errorf("Go has %+v, beam.h %+v", g, c)
	}
}
