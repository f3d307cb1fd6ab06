package main

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/unwind"
)

// What --unwind-memory takes, in megabytes (of 2^20 bytes).
const (
	leastUnwindMemory   = 1
	mostUnwindMemory    = unwind.MaxRows * 8 >> 20
	defaultUnwindMemory = unwind.DefaultRows * 8 >> 20
)

// What --unwind-memory is where nothing is said: a part of --max-memory, within
// limits.
const (
	unwindPart          = 16
	leastUnwindDefault  = 4
	mostUnwindDefault   = 64
	unwindOfMachine     = 4 // of the machine's memory a quarter at most
	unwindOfBudget      = 4 // and likewise of --max-memory
	megabyte            = 1 << 20
	unwindMemoryMeaning = "kernel memory for unwinding tables, 1 to 128 megabytes, rounded up to a power of two; the least recently used rows are evicted"
)

// unwindMemory is a number of megabytes; empty: not given.
type unwindMemory string

func (m *unwindMemory) add(f *pflag.FlagSet, otherwise string) {
	f.StringVar((*string)(m), "unwind-memory", "", unwindMemoryMeaning+" (default "+otherwise+")")
}

// megabytes reads what was given, 0 where nothing was, for a machine with so many
// bytes of memory.
func (m unwindMemory) megabytes(machine int64) (int64, error) {
	if m == "" {
		return 0, nil
	}
	n, err := parseMegabytes(string(m))
	if err != nil {
		return 0, fmt.Errorf("--unwind-memory %q: want megabytes, %d to %d, such as 16", string(m), leastUnwindMemory, mostUnwindMemory)
	}
	if n < leastUnwindMemory || n > mostUnwindMemory {
		return 0, fmt.Errorf("--unwind-memory %s: want %d to %d megabytes", string(m), leastUnwindMemory, mostUnwindMemory)
	}
	if most := machine / unwindOfMachine / megabyte; n > most {
		return 0, fmt.Errorf("--unwind-memory %d: this machine has %d megabytes of memory: want at most %d", n, machine/megabyte, most)
	}
	return n, nil
}

// parseMegabytes reads a number of megabytes (of 2^20 bytes, as 16, 16M, 16MB and 16MiB
// are), or an amount in another unit.
func parseMegabytes(text string) (int64, error) {
	number := text
	for _, unit := range []string{"MiB", "MB", "M"} {
		number = strings.TrimSuffix(number, unit)
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil {
		return n, nil
	}
	n, err := spec.ParseBytes(text)
	return n / megabyte, err
}

// rows is how many rows a recording of its own has room for.
func (m unwindMemory) rows() (uint32, error) {
	n, err := m.megabytes(machineMemory())
	if n == 0 {
		n = defaultUnwindMemory
	}
	return uint32(n * megabyte / 8), err
}

// rowsWithin is how many rows an agent has room for that may take so much memory
// in all; 0: as much as it takes.
func (m unwindMemory) rowsWithin(budget int64) (uint32, error) {
	n, err := m.megabytes(machineMemory())
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		n = defaultUnwind(budget)
	case budget != 0 && n*megabyte > budget/unwindOfBudget:
		return 0, fmt.Errorf("--unwind-memory %d: it is part of --max-memory, of which that would be more than a quarter: want at most %d, or raise --max-memory",
			n, budget/unwindOfBudget/megabyte)
	}
	return uint32(n * megabyte / 8), nil
}

// defaultUnwind is a sixteenth of a budget, rounded up to a power of two as the
// unwinder does.
func defaultUnwind(budget int64) int64 {
	if budget == 0 {
		return defaultUnwindMemory
	}
	n := (budget/unwindPart + megabyte - 1) / megabyte
	n = 1 << bits.Len64(uint64(max(n, 1))-1)
	return min(max(n, leastUnwindDefault), mostUnwindDefault)
}

// machineMemory is how much memory this machine has.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 62 // not known: no limit
	}
	return int64(info.Totalram) * int64(info.Unit)
}
