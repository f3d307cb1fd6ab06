package unwind

import (
	"os"
	"testing"
)

// The kernels this is run on are among those whose tree is known: one that is
// not must be looked at before it is said to be supported.
func TestKnowsTree(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading BPF needs root")
	}
	if err := KnowsTree(); err != nil {
		t.Error(err)
	}
}
