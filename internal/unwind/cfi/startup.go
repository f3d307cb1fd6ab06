package cfi

import (
	"cmp"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/flow"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// maxStartup bounds the size of a function of gcc's crtstuff, and how far apart
// they are: the largest has 70 bytes, all of them together less than 200.
const maxStartup = 256

// maxEntries bounds the pointers looked at in one array: gcc's is the first but
// for functions with a priority.
const maxEntries = 8

// startup finds what every program and library brings along to be started and
// ended. None of it has unwind information, most has no symbols either, but a
// process that exits passes through it once for each library:
//
//	.init, .fini         run around main; put together from crti.o and crtn.o
//	.init_array[0]       frame_dummy, of crtstuff: jumps to register_tm_clones
//	.fini_array[0]       __do_global_dtors_aux: calls __cxa_finalize and
//	                     deregister_tm_clones
//
// Where each begins is known, and that it is called; its end is where the walk
// of its code ends.
type startup struct {
	im      *image
	covered []rows.Row
	w       flow.Walker
	entries []uint64 // addresses that are called, or jumped to in a call's place
	laid    []laidPiece
}

// startupRows has the rows of such code that nothing else describes.
func startupRows(im *image, covered []rows.Row) []rows.Row {
	s := startup{im: im, covered: covered, w: flow.Walker{Budget: maxInstructions}}
	for _, sec := range im.file.Sections {
		switch sec.Name {
		case ".init", ".fini":
			s.code(sec.Addr, min(sec.Size, flow.MaxFunction))
		case ".init_array", ".fini_array":
			for at := range min(sec.Size/8, maxEntries) {
				s.code(im.pointer(sec.Addr+8*at), maxStartup)
			}
		}
	}
	slices.SortStableFunc(s.laid, func(a, b laidPiece) int { return cmp.Compare(a.off, b.off) })
	var all []rows.Row
	for _, l := range s.laid {
		all = rows.Overlay(all, l.rows)
	}
	return all
}

// code lays the rows of the function at addr, and of those near it that it
// calls or jumps to.
func (s *startup) code(addr, size uint64) {
	off, room, ok := s.im.offset(addr)
	if !ok || len(s.entries) == maxFound || slices.Contains(s.entries, addr) {
		return
	}
	s.entries = append(s.entries, addr)
	size = s.uncovered(off, min(size, room))
	p := flow.Piece{Addr: addr, Off: off, Code: make([]byte, size), Mark: make([]uint16, size)}
	if size == 0 || !s.im.read(p.Code, addr) || !s.w.Walk(p) {
		return
	}
	out := &rows.List{}
	out.Begin(off, uint32(size))
	s.w.Emit(&s.w.Pieces[0], out, rows.NewRule(rows.Gap, 0, 0))
	s.laid = append(s.laid, laidPiece{off, uint32(size), out.Finish()})
	for _, to := range slices.Concat(s.w.Calls, s.w.Tails) {
		if to-addr+maxStartup < 2*maxStartup { // either way
			s.code(to, maxStartup)
		}
	}
}

// uncovered is how much of the size bytes at off lies before any row.
func (s *startup) uncovered(off uint32, size uint64) uint64 {
	i, ok := slices.BinarySearchFunc(s.covered, off, func(r rows.Row, off uint32) int { return cmp.Compare(r.Offset(), off) })
	if !ok {
		i--
	}
	if i >= 0 && s.covered[i].Rule().Type() != rows.Gap {
		return 0
	}
	for _, r := range s.covered[i+1:] {
		if r.Rule().Type() != rows.Gap {
			return min(size, uint64(r.Offset()-off))
		}
	}
	return size
}
