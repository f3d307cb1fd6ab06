package unwind

import (
	"cmp"
	"slices"
	"time"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/unwind/paging"
)

// layout is a sorted list of mappings and its copy in the kernel.
type layout struct {
	areas     []area
	shared    int // processes that use it
	published paging.Extent
	stale     bool // what is published is not what areas say
}

// area is a mapping of code.
type area struct {
	start, end, offset uint64
	executable         *executable // nil: no file
	shared             bool        // see isShared
}

// maps reports whether a process is known to have code at an address.
func (l *layout) maps(address uint64) bool { return areaAt(l.areas, address, 0) >= 0 }

// executables returns the files that are mapped, in the order of their addresses.
func (l *layout) executables() []*executable {
	all := []*executable{}
	for _, a := range l.areas {
		if a.executable != nil {
			all = append(all, a.executable)
		}
	}
	return all
}

// runs are the languages whose runtimes are mapped.
func (l *layout) runs() (flags uint32) {
	for _, a := range l.areas {
		if a.executable != nil {
			flags |= a.executable.runs.Load()
		}
	}
	return flags
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

// Flags of mappings in unwind.h.
const (
	mappingFramePointers = 1
	mappingShared        = 2
)

// areaCells are those at the end of the mappings that programs use themselves.
const areaCells = 512

// layouts are the mappings that walks see, in cells of one array. A layout is complete in
// cells of its own before a process points there; cells that were replaced are used again
// after Grace. The lock of tracker guards it.
type layouts struct {
	tables *tables // counts the uses of executables
	cells  *bpf.Mapped[kernelMappings]
	free   *paging.Extents

	retired []retired
}

// retired are cells that programs may still look at.
type retired struct {
	run paging.Extent
	at  time.Time
}

func newLayouts(t *tables, cells *bpf.Mapped[kernelMappings]) layouts {
	return layouts{tables: t, cells: cells, free: paging.NewExtents(0, uint32(len(cells.Value.M)-areaCells))}
}

// own gives p a layout of its own to change.
func (s *layouts) own(p *process) *layout {
	if p.layout.shared == 1 {
		return p.layout
	}
	p.layout.shared--
	p.layout = &layout{areas: slices.Clone(p.layout.areas), shared: 1, stale: true}
	for _, a := range p.layout.areas {
		s.tables.use(a.executable, 1)
	}
	return p.layout
}

// insert adds a mapping; what it overlaps was unmapped or replaced.
func (s *layouts) insert(l *layout, a area) {
	l.stale = true
	var cut []area
	l.areas = slices.DeleteFunc(l.areas, func(old area) bool {
		if old.end <= a.start || old.start >= a.end {
			return false
		}
		if old.start < a.start {
			left := old
			left.end = a.start
			cut = append(cut, left)
		}
		if old.end > a.end {
			right := old
			right.start, right.offset = a.end, old.offset+(a.end-old.start)
			cut = append(cut, right)
		}
		s.tables.use(old.executable, -1)
		return true
	})
	for _, c := range append(cut, a) {
		i, _ := slices.BinarySearchFunc(l.areas, c, func(x, y area) int { return cmp.Compare(x.start, y.start) })
		l.areas = slices.Insert(l.areas, i, c)
		s.tables.use(c.executable, 1)
	}
}

// release drops one user of a layout.
func (s *layouts) release(l *layout) {
	if l == nil {
		return
	}
	if l.shared--; l.shared > 0 {
		return
	}
	for _, a := range l.areas {
		s.tables.use(a.executable, -1)
	}
	s.retire(l.published)
	l.areas, l.published = nil, paging.Extent{}
}

// publish copies a layout to fresh cells; false where there is no room.
func (s *layouts) publish(l *layout) bool {
	run, ok := s.free.Take(uint32(len(l.areas)))
	if !ok {
		return false
	}
	s.fill(run, l)
	l.published, l.stale = run, false
	return true
}

func (s *layouts) fill(run paging.Extent, l *layout) {
	framePointers := uint32(0)
	for _, a := range l.areas {
		if a.executable != nil && a.executable.makesFramePointers() {
			framePointers = mappingFramePointers
		}
	}
	cells := s.cells.Value.M[run.First : run.First+run.Count]
	for i, a := range l.areas {
		cells[i] = kernelMapping{Start: a.start, End: a.end, Offset: a.offset}
		if a.executable != nil {
			cells[i].Executable = a.executable.id
		} else {
			cells[i].Flags = framePointers
		}
		if a.shared {
			cells[i].Flags |= mappingShared
		}
	}
}

// retire gives a run back once no program can be looking at it.
func (s *layouts) retire(run paging.Extent) {
	if run.Count > 0 {
		s.retired = append(s.retired, retired{run, time.Now()})
	}
}

// reclaim frees the runs whose grace has passed.
func (s *layouts) reclaim() {
	n := 0
	for _, r := range s.retired {
		if time.Since(r.at) < Grace {
			break
		}
		s.free.Put(r.run)
		n++
	}
	s.retired = s.retired[n:]
}

// waiting is how many cells are free once their grace has passed.
func (s *layouts) waiting() (n int) {
	for _, r := range s.retired {
		n += int(r.run.Count)
	}
	return n
}
