package unwind

import "golang.org/x/sys/unix"

// stackRead is how much of a stack is looked at for what its next walk may need.
const stackRead = 16 << 10

// hint loads the rows of code that the stack of a walk returns to, as far as its
// words tell: a walk that finds rows missing ends there, and one that has to load
// those of each frame in turn would be complete after as many samples as it has
// frames. The process runs on meanwhile, and words may be anything: this chooses
// what is loaded, not what walks find.
func (t *tracker) hint(pid int, sp uint64) {
	if sp == 0 || t.executables(pid) == nil {
		return
	}
	var stack [stackRead]byte
	n := readMemory(pid, sp, stack[:])
	t.tables.hint(t.codeIn(pid, stack[:n]))
}

// codeIn finds the words that lie in a process's code.
func (t *tracker) codeIn(pid int, words []byte) (found []hinted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.processes[pid]
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
		if e := areas[i].executable; e != nil {
			found = append(found, hinted{e, uint32(address - areas[i].start + areas[i].offset)})
		}
	}
	return found
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
