package oracle

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"atys.dev/atys/internal/proc"
)

//go:noinline
func second(t *testing.T) []place { return third(t) }

//go:noinline
func third(t *testing.T) []place { return here(t) }

// here gives the stack of its caller as the sampler would: places in files,
// return addresses minus 1.
//
//go:noinline
func here(t *testing.T) (stack []place) {
	t.Helper()
	mappings, err := proc.FS{}.Executable(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s := &space{mappings: mappings}
	pcs := make([]uintptr, 20)
	for _, pc := range pcs[:runtime.Callers(1, pcs)] {
		stack = append(stack, s.place(uint64(pc)-1))
	}
	return stack
}

// TestCalls takes frames out of a true stack: the code must contradict.
func TestCalls(t *testing.T) {
	var c calls
	defer c.close()
	stack := second(t)
	if p := c.check(stack); p.wrong != "" || p.checked < 4 {
		t.Fatalf("a true stack: %+v", p)
	}
	for out := 1; out < 3; out++ { // the frame outside the third is called through a pointer
		wrong := slices.Delete(slices.Clone(stack), out, out+1)
		if p := c.check(wrong); !strings.Contains(p.wrong, "calls") || p.at != out {
			t.Errorf("without frame %d: %+v", out, p)
		}
	}
	moved := slices.Clone(stack)
	moved[2].offset++
	if p := c.check(moved); !strings.Contains(p.wrong, "no call before") {
		t.Errorf("with a return address that follows no call: %+v", p)
	}
}
