package cpu

import (
	"testing"

	"github.com/cilium/ebpf/asm"
)

// mostFrame is how many bytes of stack the entry programs may take. Linux 6.1 rounds each frame
// up to 32 bytes, and what the walk below them takes leaves six of these of its 512.
const mostFrame = 192

// TestFrameFits keeps the programs loadable on Linux 6.1, which later kernels do not show:
// make test-kernels boots it, and takes minutes.
func TestFrameFits(t *testing.T) {
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"on_event", "on_tracepoint"} {
		if deepest := frameOf(spec.Programs[name].Instructions); deepest == 0 || deepest > mostFrame {
			t.Errorf("%s takes %d bytes of stack, want at most %d: move what it keeps there to its scratch", name, deepest, mostFrame)
		}
	}
}

// frameOf returns how deep the first function of some goes into its stack.
func frameOf(all asm.Instructions) (deepest int) {
	for i, ins := range all {
		if i > 0 && ins.Symbol() != "" {
			break
		}
		if ins.Dst == asm.R10 || ins.Src == asm.R10 {
			deepest = max(deepest, -int(ins.Offset))
		}
		if i > 0 && ins.OpCode == asm.Add.Op(asm.ImmSource) && all[i-1].Src == asm.R10 && all[i-1].Dst == ins.Dst {
			deepest = max(deepest, -int(ins.Constant))
		}
	}
	return deepest
}
