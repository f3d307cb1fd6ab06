package main

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/spec"
)

// budgetFlags say what an agent may take of its machine; empty, as much as it does.
type budgetFlags struct {
	cpu, memory string
	unwinding   unwindMemory
	rows        uint32 // that this has room for
	cache       cacheFlags
	offCPU      bool // sample time off the CPU as well: hidden until that is complete
}

// What may be taken where nothing is said: CPU time of a core, and more of it on
// machines whose every CPU is sampled; memory. "atys up" has a server and a store
// in the same process, which answer whoever asks.
const (
	leastShare      = 5.0 // percent of a core
	shareOfMachine  = 0.1 // percent of all CPUs
	serverShare     = 10.0
	defaultMemory   = "256MB"
	defaultUpMemory = "1GB"
	leastMemory     = 64e6 // below, an agent does nothing but collect garbage
)

func (f *budgetFlags) add(c *cobra.Command, share float64, memory string) {
	share = max(share, shareOfMachine*float64(runtime.NumCPU()))
	flags := c.Flags()
	f.cache.add(c)
	flags.StringVar(&f.cpu, "max-cpu", strconv.FormatFloat(share, 'g', 4, 64)+"%", "CPU time it may take, of one core, its BPF programs and interrupts included; over it, it limits what costs most, and says so; 0 is as much as it takes")
	flags.StringVar(&f.memory, "max-memory", memory, "memory it may take, its BPF maps included; over it, it keeps less, then samples less; 0 is as much as it takes")
	f.unwinding.add(flags, "a sixteenth of --max-memory, 4 to 64; it counts towards that")
	flags.BoolVar(&f.offCPU, "off-cpu", false, "sample time off the CPU as well")
	_ = flags.MarkHidden("off-cpu") // it is there
}

// namesPart is which part of the memory tables of names may have: what they give
// up is read again, from the disk cache, where it is asked for.
const namesPart = 8

// budget reads what was given.
func (f *budgetFlags) budget() (b budget.Budget, err error) {
	if b.Cores, err = parseShare(cmp.Or(f.cpu, "0")); err != nil {
		return b, &usageError{fmt.Errorf("--max-cpu %w", err)}
	}
	if b.Memory, err = spec.ParseBytes(cmp.Or(f.memory, "0")); err != nil {
		return b, &usageError{fmt.Errorf("--max-memory %w", err)}
	}
	if b.Memory != 0 && b.Memory < leastMemory {
		return b, &usageError{fmt.Errorf("--max-memory %s: an agent takes %d MB at least", f.memory, int64(leastMemory/1e6))}
	}
	if f.rows, err = f.unwinding.rowsWithin(b.Memory); err != nil {
		return b, &usageError{err}
	}
	return b, nil
}

// parseShare reads a share of a core, such as 2%.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(share) || share < 0 || share > 100*1024 || share != 0 && !percent {
		return 0, fmt.Errorf("%q: want a share of a core, such as 2%%, or 0", text)
	}
	return share / 100, nil
}
