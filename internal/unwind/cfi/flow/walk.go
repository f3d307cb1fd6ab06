// Package flow derives unwinding rows from code that nothing describes. A Walker
// decodes a function (inst.go, instwrites.go, control.go), follows its control
// flow and keeps account of its stack frame at each instruction (frame.go).
package flow

import (
	"math"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// Marks of the bytes of a function that is being walked; others are numbers of
// frames, from 1 on, at the starts of instructions.
const (
	MarkNone   = 0
	MarkInside = math.MaxUint16 - 1 // of an instruction
	MarkPad    = math.MaxUint16     // between blocks
	maxFrames  = 1 << 12            // different frames in one function; 150 are many
)

// MaxFunction bounds the size of a function that is walked.
const MaxFunction = 1 << 20

// Piece is a piece of a function: the whole, or what the compiler moved out of
// it because it is seldom run.
type Piece struct {
	Addr uint64
	Off  uint32
	Code []byte
	Mark []uint16
}

// point is an instruction in a piece, and the frame with which it is reached.
type point struct {
	piece, at int
	frame     Frame
}

// Walker follows the control flow of one function from its entry, keeping
// account of the stack. It believes only what fits together: the same frame
// wherever paths meet, and the frame of the entry wherever the function is
// left. It serves one function after the other.
type Walker struct {
	Budget int // instructions left to decode, over all functions

	// Cold finds the piece of a function that was moved out of it to addr.
	Cold func(addr uint64) (p Piece, ok bool)
	// Stops says that a call of addr does not return.
	Stops func(addr uint64) bool
	// Builtin is set for V8's builtins, which follow rules of their own.
	Builtin bool
	// Ends is set where the function clears rbp to mark the outermost frame.
	Ends bool
	// Bounded says that the function's size is known, so that code which only a
	// computed jump reaches belongs to it.
	Bounded bool

	Pieces []Piece
	Frames []Frame
	work   []point
	table  Frame // at the computed jumps that stay in the function
	tables int   // how many different ones

	Returns bool     // there is a way to return
	Leaves  bool     // there is a computed jump to elsewhere
	Tails   []uint64 // direct jumps to elsewhere
	Calls   []uint64 // direct calls
}

// Walk follows the function in p. It reports whether all of it is understood.
func (w *Walker) Walk(p Piece) bool {
	w.Pieces = append(w.Pieces[:0], p)
	w.Frames, w.work = w.Frames[:0], append(w.work[:0], point{frame: entryFrame()})
	w.Tails, w.Calls = w.Tails[:0], w.Calls[:0]
	w.tables, w.Returns, w.Leaves = 0, false, false
	if !w.drain() {
		return false
	}
	for i := 0; i < len(w.Pieces); i++ {
		if !w.sweep(i) {
			return false
		}
	}
	return true
}

func (w *Walker) drain() bool {
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
func (w *Walker) follow(p point) bool {
	afterCall := false
	var in inst
	for {
		here := &w.Pieces[p.piece]
		if p.at == len(here.Code) {
			// A call that does not return may be the last instruction; else the
			// next function is entered, if this one really ends here: a system
			// call may not return either.
			return afterCall || w.Builtin || w.Bounded && w.jump(here.Addr+uint64(p.at), p.frame)
		}
		news, ok := w.reach(here, &p)
		if !ok || !news {
			return ok
		}
		if w.Budget--; w.Budget < 0 || !in.decode(here.Code[p.at:]) {
			return false
		}
		for i := p.at + 1; i < p.at+in.len; i++ {
			if m := here.Mark[i]; m != MarkNone && m != MarkInside {
				return false
			}
			here.Mark[i] = MarkInside
		}
		next := here.Addr + uint64(p.at+in.len)
		p.at += in.len
		on, ok := w.run(&in, &p, next)
		if !ok || !on {
			return ok
		}
		afterCall = in.isCall()
	}
}

// reach notes that p is reached. news is false where that is known.
func (w *Walker) reach(in *Piece, p *point) (news, ok bool) {
	switch m := in.Mark[p.at]; m {
	case MarkInside, MarkPad:
		return false, false
	case MarkNone:
	default:
		before := w.Frames[m-1]
		both, ok := join(before, p.frame)
		if !ok && !w.Builtin {
			return false, false
		}
		if w.Builtin {
			both = settle(before, p.frame, both)
		}
		if both == before {
			return false, true
		}
		p.frame = both
	}
	n := len(w.Frames)
	for i := n - 1; i >= 0; i-- {
		if w.Frames[i] == p.frame {
			in.Mark[p.at] = uint16(i + 1)
			return true, true
		}
	}
	if n == maxFrames {
		return false, false
	}
	w.Frames = append(w.Frames, p.frame)
	in.Mark[p.at] = uint16(n + 1)
	return true, true
}

// run executes an instruction. on is false where control does not go on to the
// next one.
func (w *Walker) run(in *inst, p *point, next uint64) (on, ok bool) {
	switch kind := in.control(); kind {
	case flowNext:
		return true, w.step(in, &p.frame)
	case flowStop:
		return false, true
	case flowOdd:
		return false, false
	case flowReturn:
		w.Returns = true
		return false, w.Builtin || in.op == 0xc3 && p.frame.leaving()
	case flowCall:
		w.Calls = append(w.Calls, next+uint64(in.imm))
		if w.Stops != nil && w.Stops(next+uint64(in.imm)) {
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
func (w *Walker) called(f *Frame) bool {
	if w.Builtin && f.BP != Unknown {
		f.SP = Unknown
	}
	return f.ra == 0 || f.over || w.Builtin
}

func (w *Walker) step(in *inst, f *Frame) bool {
	if w.Ends && in.table == tableOne && (in.op == 0x31 || in.op == 0x33) && in.mod == 3 && in.reg == rbp && in.rm == rbp {
		*f = Frame{over: true}
		return true
	}
	if w.Builtin && f.ra != 0 && in.writes&(1<<rsp) != 0 && in.writes&(1<<(f.ra-1)) == 0 {
		return true // drops the arguments: callers go by rbp
	}
	before := f.SP
	fine := f.step(in)
	if w.Builtin && f.nowhere() && f.Held && f.full != 0 {
		f.SP = f.full // back to the caller's rbp: what was pushed for calls is gone
	}
	if fine && (!f.nowhere() || f.over) {
		return true
	}
	// Where rsp was known and is not, without room being made, it points
	// elsewhere: nothing that another path knows applies.
	torn := f.torn || before != Unknown && !in.makesRoom()
	*f = Frame{SP: Unknown, BP: Unknown, Held: f.Held && f.slot == 0, torn: torn}
	return w.Builtin
}

// jump follows a direct jump.
func (w *Walker) jump(to uint64, f Frame) bool {
	for i := range w.Pieces {
		if at := to - w.Pieces[i].Addr; at < uint64(len(w.Pieces[i].Code)) {
			w.work = append(w.work, point{i, int(at), f})
			return true
		}
	}
	if w.Cold != nil {
		if p, ok := w.Cold(to); ok {
			w.Pieces = append(w.Pieces, p)
			w.work = append(w.work, point{len(w.Pieces) - 1, int(to - p.Addr), f})
			return true
		}
	}
	w.Tails = append(w.Tails, to)
	return f.leaving() || w.Builtin
}

// jumpAny notes a computed jump: to another function where the frame is that
// of the entry, else by a table into this one.
func (w *Walker) jumpAny(f *Frame) bool {
	if f.leaving() || w.Builtin {
		w.Leaves = true
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
func (w *Walker) sweep(i int) bool {
	var in inst
	for at := 0; at < len(w.Pieces[i].Code); {
		p := &w.Pieces[i]
		if p.Mark[at] != MarkNone {
			at++
			continue
		}
		if w.Budget--; w.Budget < 0 || !in.decode(p.Code[at:]) {
			return w.Budget >= 0
		}
		if in.padding() {
			for end := at + in.len; at < end && p.Mark[at] == MarkNone; at++ {
				p.Mark[at] = MarkPad
			}
			continue
		}
		if w.tables != 1 || !w.Bounded || w.Builtin {
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

// Emit adds the rows of a piece to out; other holds where nothing is known.
func (w *Walker) Emit(p *Piece, out *rows.List, other rows.Rule) {
	last := other
	for at, m := range p.Mark {
		switch m {
		case MarkInside:
			continue
		case MarkNone:
			last = other
		case MarkPad:
		default:
			last = w.rule(&w.Frames[m-1], other)
		}
		out.Add(p.Off+uint32(at), last)
	}
}

func (w *Walker) rule(f *Frame, other rows.Rule) rows.Rule {
	switch {
	case f.nowhere() && !f.over && f.ra == 0:
		return other
	case w.Builtin && f.BP == 16 && f.slot == 16:
		return rows.NewRule(rows.FramePointer, 0, 0)
	case w.Builtin && f.BP != Unknown && f.ra == 0:
		f = &Frame{SP: Unknown, BP: f.BP, slot: f.slot}
	}
	return f.Rule()
}
