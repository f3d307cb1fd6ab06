package unwind

import (
	"testing"
	"unsafe"

	"atys.dev/atys/internal/lang/dotnet"
)

// TestDotNetParameters asserts that package lang/dotnet fills what dotnet.h reads.
func TestDotNetParameters(t *testing.T) {
	var c kernelDotnetProcess
	var g dotnet.Parameters
	if unsafe.Sizeof(c) != unsafe.Sizeof(g) || unsafe.Offsetof(c.Pieces) != unsafe.Offsetof(g.Pieces) ||
		unsafe.Offsetof(c.Method) != unsafe.Offsetof(g.Method) {
		t.Errorf("Go has %+v, dotnet.h %+v", g, c)
	}
}
