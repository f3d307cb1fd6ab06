package cfi

import "math"

// Marks of the bytes of a function that is being walked; others are numbers of
// frames, from 1 on, at the starts of instructions.
const (
	markNone   = 0
	markInside = math.MaxUint16 - 1 // of an instruction
	markPad    = math.MaxUint16     // between blocks
	maxFrames  = 1 << 12            // different frames in one function; 150 are many
)

// maxFunction bounds the size of a function that is walked.
const maxFunction = 1 << 20

// piece is a piece of a function: the whole, or what the compiler moved out of
// it because it is seldom run.
type piece struct {
	addr uint64
	off  uint32
	code []byte
	mark []uint16
}

// point is an instruction in a piece, and the frame with which it is reached.
type point struct {
	piece, at int
	frame     frame
}

// walker follows the control flow of one function from its entry, keeping
// account of the stack. It believes only what fits together: the same frame
// wherever paths meet, and the frame of the entry wherever the function is
// left. It serves one function after the other.
type walker struct {
	budget int // instructions left to decode, over all functions

	// cold finds the piece of a function that was moved out of it to addr.
	cold func(addr uint64) (p piece, ok bool)
	// stops says that a call of addr does not return.
	stops func(addr uint64) bool
	// builtin is set for V8's builtins, which follow rules of their own.
	builtin bool
	// ends is set where the function clears rbp to mark the outermost frame.
	ends bool
	// bounded says that the function's size is known, so that code which only a
	// computed jump reaches belongs to it.
	bounded bool

	pieces []piece
	frames []frame
	work   []point
	table  frame // at the computed jumps that stay in the function
	tables int   // how many different ones

	returns  bool     // there is a way to return
	leaves   bool     // there is a computed jump to elsewhere
	tails    []uint64 // direct jumps to elsewhere
	calls    []uint64 // direct calls
	overflow bool
}

// walk follows the function in p. It reports whether all of it is understood.
func (w *walker) walk(p piece) bool {
	w.pieces = append(w.pieces[:0], p)
	w.frames, w.work = w.frames[:0], append(w.work[:0], point{frame: entryFrame()})
	w.tails, w.calls = w.tails[:0], w.calls[:0]
	w.tables, w.returns, w.leaves, w.overflow = 0, false, false, false
	if !w.drain() {
		return false
	}
	for i := 0; i < len(w.pieces); i++ {
		if !w.sweep(i) {
			return false
		}
	}
	return true
}

func (w *walker) drain() bool {
	for len(w.work) > 0 {
		next := w.work[len(w.work)-1]
		w.work = w.work[:len(w.work)-1]
		if !w.follow(next) {
			return false
		}
	}
	return true
}

// follow goes on until control ends or comes to where it was before.
func (w *walker) follow(p point) bool {
	afterCall := false
	var in inst
	for {
		here := &w.pieces[p.piece]
		if p.at == len(here.code) {
			// A call that does not return may be the last instruction; else the
			// next function is entered, if this one really ends here: a system
			// call may not return either.
			return afterCall || w.builtin || w.bounded && w.jump(here.addr+uint64(p.at), p.frame)
		}
		news, ok := w.reach(here, &p)
		if !ok || !news {
			return ok
		}
		if w.budget--; w.budget < 0 || !in.decode(here.code[p.at:]) {
			return false
		}
		for i := p.at + 1; i < p.at+in.len; i++ {
			if m := here.mark[i]; m != markNone && m != markInside {
				return false
			}
			here.mark[i] = markInside
		}
		next := here.addr + uint64(p.at+in.len)
		p.at += in.len
		on, ok := w.run(&in, &p, next)
		if !ok || !on {
			return ok
		}
		afterCall = in.isCall()
	}
}

// reach notes that p is reached. news is false where that is known.
func (w *walker) reach(in *piece, p *point) (news, ok bool) {
	switch m := in.mark[p.at]; m {
	case markInside, markPad:
		return false, false
	case markNone:
	default:
		before := w.frames[m-1]
		both, ok := join(before, p.frame)
		if !ok && !w.builtin {
			return false, false
		}
		if w.builtin {
			both = settle(before, p.frame, both)
		}
		if both == before {
			return false, true
		}
		p.frame = both
	}
	n := len(w.frames)
	for i := n - 1; i >= 0; i-- {
		if w.frames[i] == p.frame {
			in.mark[p.at] = uint16(i + 1)
			return true, true
		}
	}
	if n == maxFrames {
		return false, false
	}
	w.frames = append(w.frames, p.frame)
	in.mark[p.at] = uint16(n + 1)
	return true, true
}

// run executes an instruction. on is false where control does not go on to the
// next one.
func (w *walker) run(in *inst, p *point, next uint64) (on, ok bool) {
	switch kind := in.control(); kind {
	case flowNext:
		return true, w.step(in, &p.frame)
	case flowStop:
		return false, true
	case flowOdd:
		return false, false
	case flowReturn:
		w.returns = true
		return false, w.builtin || in.op == 0xc3 && p.frame.leaving()
	case flowCall:
		w.calls = append(w.calls, next+uint64(in.imm))
		if w.stops != nil && w.stops(next+uint64(in.imm)) {
			return false, true
		}
		return true, w.called(&p.frame)
	case flowCallAny:
		return true, w.called(&p.frame)
	case flowJumpAny:
		return false, w.jumpAny(&p.frame)
	default:
		return kind == flowBranch, w.jump(next+uint64(in.imm), p.frame)
	}
}

// called is what a call leaves behind. In C the callee restores rsp and rbp; of
// V8's builtins, those called from JavaScript also drop their arguments.
func (w *walker) called(f *frame) bool {
	if w.builtin && f.bp != unknown {
		f.sp = unknown
	}
	return f.ra == 0 || f.over || w.builtin
}

func (w *walker) step(in *inst, f *frame) bool {
	if w.ends && in.table == tableOne && (in.op == 0x31 || in.op == 0x33) && in.mod == 3 && in.reg == rbp && in.rm == rbp {
		*f = frame{over: true}
		return true
	}
	if w.builtin && f.ra != 0 && in.writes&(1<<rsp) != 0 && in.writes&(1<<(f.ra-1)) == 0 {
		return true // drops the arguments: callers go by rbp
	}
	before := f.sp
	fine := f.step(in)
	if w.builtin && f.nowhere() && f.held && f.full != 0 {
		f.sp = f.full // back to the caller's rbp: what was pushed for calls is gone
	}
	if fine && (!f.nowhere() || f.over) {
		return true
	}
	// Where rsp was known and is not, without room being made, it points
	// elsewhere: nothing that another path knows applies.
	torn := f.torn || before != unknown && !in.makesRoom()
	*f = frame{sp: unknown, bp: unknown, held: f.held && f.slot == 0, torn: torn}
	return w.builtin
}

// jump follows a direct jump.
func (w *walker) jump(to uint64, f frame) bool {
	for i := range w.pieces {
		if at := to - w.pieces[i].addr; at < uint64(len(w.pieces[i].code)) {
			w.work = append(w.work, point{i, int(at), f})
			return true
		}
	}
	if w.cold != nil {
		if p, ok := w.cold(to); ok {
			w.pieces = append(w.pieces, p)
			w.work = append(w.work, point{len(w.pieces) - 1, int(to - p.addr), f})
			return true
		}
	}
	w.tails = append(w.tails, to)
	return f.leaving() || w.builtin
}

// jumpAny notes a computed jump: to another function where the frame is that
// of the entry, else by a table into this one.
func (w *walker) jumpAny(f *frame) bool {
	if f.leaving() || w.builtin {
		w.leaves = true
	}
	if w.tables == 0 || w.table.leaving() && !f.leaving() {
		w.table, w.tables = *f, 1
	} else if *f != w.table && !f.leaving() {
		w.tables = 2
	}
	return true
}

// sweep looks at the code that nothing led to. It stands behind jumps and
// returns, and is either padding or reached by a computed jump; in the latter
// case the frame is that of the jump, if there is but one such frame.
func (w *walker) sweep(i int) bool {
	var in inst
	for at := 0; at < len(w.pieces[i].code); {
		p := &w.pieces[i]
		if p.mark[at] != markNone {
			at++
			continue
		}
		if w.budget--; w.budget < 0 || !in.decode(p.code[at:]) {
			return w.budget >= 0
		}
		if in.padding() {
			for end := at + in.len; at < end && p.mark[at] == markNone; at++ {
				p.mark[at] = markPad
			}
			continue
		}
		if w.tables != 1 || !w.bounded || w.builtin {
			at += in.len
			continue
		}
		w.work = append(w.work, point{i, at, w.table})
		if !w.drain() {
			return false
		}
	}
	return true
}

// emit adds the rows of a piece to out; other holds where nothing is known.
func (w *walker) emit(p *piece, out *rowList, other Rule) {
	last := other
	for at, m := range p.mark {
		switch m {
		case markInside:
			continue
		case markNone:
			last = other
		case markPad:
		default:
			last = w.rule(&w.frames[m-1], other)
		}
		out.add(p.off+uint32(at), last)
	}
}

func (w *walker) rule(f *frame, other Rule) Rule {
	switch {
	case f.nowhere() && !f.over && f.ra == 0:
		return other
	case w.builtin && f.bp == 16 && f.slot == 16:
		return rule(FramePointer, 0, 0)
	case w.builtin && f.bp != unknown && f.ra == 0:
		f = &frame{sp: unknown, bp: f.bp, slot: f.slot}
	}
	return f.rule()
}
