package unwind

import (
	"slices"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/unwind/paging"
)

// stackRead is how much of a stack is looked at for what its next walk may need.
const stackRead = 16 << 10

// hint loads the rows of code that the stack of a walk returns to, as far as its
// words tell: a walk that finds rows missing ends there, and one that has to load
// those of each frame in turn would be complete after as many samples as it has
// frames. The process runs on meanwhile, and words may be anything: this chooses
// what is loaded, not what walks find.
func (u *Unwinder) hint(r kernelRequest) {
	if u.processes[int(r.Tgid)] == nil || r.Sp == 0 {
		return
	}
	u.mu.Unlock()
	defer u.mu.Lock()
	var stack [stackRead]byte
	n := readMemory(int(r.Tgid), r.Sp, stack[:])
	for _, h := range u.codeIn(int(r.Tgid), stack[:n]) {
		u.rows.Hint(h.table, h.offset)
	}
}

// hinted is code that a stack may return to.
type hinted struct {
	table  *paging.Table
	offset uint32
}

// codeIn finds the words that lie in a process's code of which there are tables.
func (u *Unwinder) codeIn(pid int, words []byte) (found []hinted) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.processes[pid]
	if p == nil {
		return nil
	}
	areas, last := p.layout.areas, 0
	for ; len(words) >= 8; words = words[8:] {
		address := le.Uint64(words) - 1 // the call is before where it returns to
		i := areaAt(areas, address, last)
		if i < 0 {
			continue
		}
		last = i
		if e := areas[i].executable; e != nil && e.table != nil {
			found = append(found, hinted{e.table, uint32(address - areas[i].start + areas[i].offset)})
		}
	}
	return found
}

// areaAt is the index of the area at an address, mostly the one that was found
// last; -1: there is none.
func areaAt(areas []area, address uint64, last int) int {
	if last < len(areas) && address >= areas[last].start && address < areas[last].end {
		return last
	}
	i, found := slices.BinarySearchFunc(areas, address, func(a area, address uint64) int {
		switch {
		case a.end <= address:
			return -1
		case a.start > address:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}

// readMemory reads what it can of a process's memory at an address.
func readMemory(pid int, from uint64, into []byte) int {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	for size := len(into); size >= 512; size /= 2 { // the stack may end before
		n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(from), Len: size}}, 0)
		if err == nil {
			return n
		}
	}
	return 0
}
