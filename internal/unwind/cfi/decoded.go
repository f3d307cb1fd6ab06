package cfi

import (
	"cmp"
	"math"
	"slices"

	"atys.dev/atys/internal/unwind/cfi/flow"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// Bounds of what is decoded in one file. Programs without any unwind
// information have a few hundred functions where they are C on a small C
// library; 4 million instructions are a compiler.
const (
	maxInstructions = 4 << 20
	maxDecodedBytes = 16 << 20
	maxPasses       = 4
)

// function is one that no unwind information covers, but a symbol bounds.
type function struct {
	flow.Piece
	name    uint32
	cold    bool // moved out of another: walked with that one
	sized   bool
	called  bool // known to be entered by calls, even if it never returns
	ends    bool // clears rbp to mark the outermost frame
	good    bool // walked, and understood
	trusted bool // good, and known to be entered by calls
	returns bool
	leaves  bool
	final   bool // calls of it do not come back
	tails   []uint64
	calls   []uint64
	laid    []laidPiece
}

// laidPiece is what the walk of a function says of one of its pieces.
type laidPiece struct {
	off, size uint32
	rows      []rows.Row
}

// decoder derives rows from code, where that is provably right: see walker.
type decoder struct {
	im      *image
	covered []rows.Row
	list    []function // by address
	w       flow.Walker
}

// decodedRows has the rows of the functions that only symbols describe. The
// spans are those of them that end where they clear rbp.
func decodedRows(im *image, table *symbolTable, covered []rows.Row, ends []span) []rows.Row {
	d := decoder{im: im, covered: covered, w: flow.Walker{Budget: maxInstructions}}
	d.find(table, ends)
	if len(d.list) == 0 {
		return nil
	}
	d.run()
	var laid []laidPiece
	for i := range d.list {
		if d.list[i].trusted {
			laid = append(laid, d.list[i].laid...)
		}
	}
	slices.SortFunc(laid, func(a, b laidPiece) int { return cmp.Compare(a.off, b.off) })
	out := &rows.List{}
	for _, l := range laid {
		out.Begin(l.off, l.size)
		for _, r := range l.rows {
			out.Add(r.Offset(), r.Rule())
		}
	}
	return out.Finish()
}

// run walks all functions.
func (d *decoder) run() {
	d.w.Cold, d.w.Stops = d.coldPiece, d.stops
	for pass := range maxPasses {
		if !d.pass(pass) {
			break
		}
	}
	d.trust()
}

// find lists the functions, each with the code up to its end by its own size
// or, for assembly without one, up to the next function.
func (d *decoder) find(table *symbolTable, ends []span) {
	places := table.functions(0, math.MaxUint64)
	total, end := uint64(0), uint64(0)
	for i, p := range places {
		off, room, ok := d.im.offset(p.addr)
		if !ok || p.addr < end || rows.Find(d.covered, off).Type() != rows.Gap {
			continue
		}
		size, sized := p.size, p.size > 0
		if !sized && i+1 < len(places) {
			size = places[i+1].addr - p.addr
		}
		size = min(size, room)
		if total += size; size == 0 || size > flow.MaxFunction || total > maxDecodedBytes {
			continue
		}
		end = p.addr + size
		f := function{name: p.name, cold: table.cold(p.name), sized: sized, called: p.global}
		f.Addr, f.Off = p.addr, off
		f.Code = make([]byte, size)
		if !d.im.read(f.Code, p.addr) {
			continue
		}
		f.Mark = make([]uint16, size)
		f.ends = slices.ContainsFunc(ends, func(e span) bool { return e.addr == p.addr })
		d.list = append(d.list, f)
	}
}

// at is the function that starts at addr, nil if it is not one of ours.
func (d *decoder) at(addr uint64) *function {
	i, ok := slices.BinarySearchFunc(d.list, addr, func(f function, a uint64) int { return cmp.Compare(f.Addr, a) })
	if !ok {
		return nil
	}
	return &d.list[i]
}

func (d *decoder) stops(addr uint64) bool {
	f := d.at(addr)
	return f != nil && f.final
}

func (d *decoder) coldPiece(addr uint64) (flow.Piece, bool) {
	i, ok := slices.BinarySearchFunc(d.list, addr, func(f function, a uint64) int { return cmp.Compare(f.Addr, a) })
	if !ok {
		i--
	}
	if i < 0 || !d.list[i].cold || addr-d.list[i].Addr >= uint64(len(d.list[i].Code)) {
		return flow.Piece{}, false
	}
	clear(d.list[i].Mark)
	return d.list[i].Piece, true
}

// pass walks the functions; again those that failed, or call what has turned
// out not to return. It reports whether that helps: whether more such is known.
func (d *decoder) pass(pass int) (more bool) {
	for i := range d.list {
		f := &d.list[i]
		if d.w.Budget <= 0 {
			return false
		}
		if f.cold || pass > 0 && f.good && !slices.ContainsFunc(f.calls, d.stops) {
			continue
		}
		d.walk(f)
		if final := f.good && !f.returns && !f.leaves && len(f.tails) == 0; final && !f.final {
			f.final, more = true, true
		}
	}
	return more
}

func (d *decoder) walk(f *function) {
	clear(f.Mark)
	d.w.Bounded, d.w.Ends = f.sized, f.ends
	f.good = d.w.Walk(f.Piece)
	f.returns, f.leaves = d.w.Returns, d.w.Leaves
	f.tails = append(f.tails[:0], d.w.Tails...)
	f.calls = append(f.calls[:0], d.w.Calls...)
	f.laid = f.laid[:0]
	for i := 0; f.good && i < len(d.w.Pieces); i++ {
		p := &d.w.Pieces[i]
		out := &rows.List{}
		out.Begin(p.Off, uint32(len(p.Code)))
		d.w.Emit(p, out, rows.NewRule(rows.Gap, 0, 0))
		f.laid = append(f.laid, laidPiece{p.Off, uint32(len(p.Code)), out.Rows})
	}
}

// trust finds the functions that are entered by calls. Those that return are;
// those that only jump on are if what they jump to is; those that do neither
// if they are called, or are global. Haskell has functions that are jumped to,
// with the caller somewhere else: so those that end in a computed jump count
// only where they are the exception.
func (d *decoder) trust() {
	for i := range d.list {
		for _, to := range d.list[i].calls {
			if f := d.at(to); f != nil && d.list[i].good {
				f.called = true
			}
		}
	}
	returning, leaving := 0, 0
	for i := range d.list {
		switch f := &d.list[i]; {
		case f.good && f.returns:
			returning++
		case f.good && f.leaves:
			leaving++
		}
	}
	calls := returning > 8*leaving // a language that calls
	for changed := true; changed; {
		changed = false
		for i := range d.list {
			f := &d.list[i]
			if !f.good || f.trusted || f.leaves && !f.returns && !calls {
				continue
			}
			switch {
			case f.returns, f.leaves:
				f.trusted = true
			case len(f.tails) == 0:
				f.trusted = f.called
			default:
				f.trusted = !slices.ContainsFunc(f.tails, func(to uint64) bool { return !d.known(to) })
			}
			changed = changed || f.trusted
		}
	}
}

// known reports whether a jump leads to a function that is entered by calls.
func (d *decoder) known(addr uint64) bool {
	if f := d.at(addr); f != nil {
		return f.trusted
	}
	off, _, ok := d.im.offset(addr)
	return ok && rows.Find(d.covered, off).Type() != rows.Gap
}
