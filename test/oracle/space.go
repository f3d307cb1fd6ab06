package oracle

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
)

// freshFor is how long a view of a process's mappings is trusted: a library
// opened meanwhile is met at the latest then, or when a pc lies outside.
const freshFor = 200 * time.Millisecond

// space is what code a process had mapped for a while.
type space struct {
	id       uint32
	pid      int
	mappings []proc.Mapping // of code
	sent     bool           // the walker knows it
}

// place is a location both sides can name: a file and an offset in it; without
// a file, an address.
type place struct {
	path   string
	offset uint64
}

func (p place) String() string {
	if p.path == "" {
		return fmt.Sprintf("0x%x", p.offset)
	}
	return fmt.Sprintf("%s+0x%x", p.path, p.offset)
}

func (s *space) place(pc uint64) place {
	for i := range s.mappings {
		if m := &s.mappings[i]; pc >= m.Start && pc < m.End && m.Path != "" {
			return place{m.Path, pc - m.Start + m.Offset}
		}
	}
	return place{"", pc}
}

func (s *space) maps(pc uint64) bool {
	return slices.ContainsFunc(s.mappings, func(m proc.Mapping) bool { return pc >= m.Start && pc < m.End })
}

// spaces keeps the newest view of each process.
type spaces struct {
	mu    sync.Mutex // guards all below
	next  uint32
	views map[int]view
}

type view struct {
	space *space
	at    time.Time
}

func newSpaces() *spaces { return &spaces{views: map[int]view{}} }

// current is the view of a process that was just interrupted at pc; nil if it is gone.
func (s *spaces) current(pid int, pc uint64) *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.views[pid]
	if known && time.Since(old.at) < freshFor && old.space.maps(pc) {
		return old.space
	}
	mappings, err := proc.FS{}.Executable(pid)
	if err != nil || len(mappings) == 0 {
		return old.space // its last record may come after its end
	}
	if known && slices.Equal(old.space.mappings, mappings) {
		s.views[pid] = view{old.space, time.Now()}
		return old.space
	}
	s.next++
	fresh := &space{id: s.next, pid: pid, mappings: mappings}
	s.views[pid] = view{fresh, time.Now()}
	return fresh
}

// module is a file and by how much its addresses are moved in a space.
type module struct {
	path string
	bias uint64
}

// modules lists the files of a space. vdso is a file with the vdso's image.
func (s *space) modules(vdso string) (list []module) {
	seen := map[module]bool{}
	for _, m := range s.mappings {
		path := m.Path
		if m.Backing == proc.BackingVDSO {
			path = vdso
		}
		bias, ok := biasOf(path, m)
		if one := (module{path, bias}); ok && !seen[one] {
			seen[one] = true
			list = append(list, one)
		}
	}
	return list
}

func biasOf(path string, m proc.Mapping) (bias uint64, ok bool) {
	if path == "" || path[0] != '/' {
		return 0, false
	}
	f, err := elf.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	page := uint64(os.Getpagesize() - 1)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && m.Offset >= p.Off&^page && m.Offset < p.Off+p.Filesz {
			bias = m.Start - m.Offset - (p.Vaddr - p.Off)
			// A program may map its own code a second time, as V8 does: libdwfl
			// knows one place for a file that cannot be moved.
			return bias, f.Type == elf.ET_DYN || bias == 0
		}
	}
	return 0, false
}
