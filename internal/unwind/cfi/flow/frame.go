package flow

import (
	"math"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// Frame is what is known of the stack at one instruction of a function: where
// the cfa is, and the caller's rbp. Distances are in bytes below the cfa.
type Frame struct {
	SP   int32 // of rsp; unknown
	BP   int32 // of rbp; unknown
	slot int32 // of the caller's saved rbp; 0: not saved
	Held bool  // rbp still holds the caller's value
	over bool  // nothing above: the function has cleared rbp to say so
	full int32 // sp after the function's fixed frame was made; 0: none, or several
	ra   uint8 // 1 + the register that the return address was popped into
	torn bool  // see settle
}

const Unknown = math.MinInt32

// maxFrame bounds frames; the largest of musl has 16 kB.
const maxFrame = 1 << 22

func entryFrame() Frame { return Frame{SP: 8, BP: Unknown, Held: true} }

// leaving says that the frame is as on entry: the function may return, or jump
// to another in its place.
func (f *Frame) leaving() bool {
	return f.over || f.SP == 8 && f.Held && f.ra == 0
}

// nowhere says that the cfa is lost.
func (f *Frame) nowhere() bool { return f.SP == Unknown && f.BP == Unknown }

// join is what holds where control comes from a and from b; false where they
// contradict each other.
func join(a, b Frame) (Frame, bool) {
	if a == b {
		return a, true
	}
	if a.ra != b.ra || a.over != b.over {
		return a, false
	}
	if a.SP != b.SP {
		a.SP = Unknown
	}
	if a.BP != b.BP {
		a.BP = Unknown
	}
	if a.slot != b.slot {
		a.slot = 0
	}
	if a.full != b.full {
		a.full = 0
	}
	a.Held = a.Held && b.Held
	a.torn = a.torn || b.torn
	return a, !a.nowhere()
}

// settle is what holds where V8's builtins come from a and from b, and both is
// what join makes of them. Where the caller's rbp is in place, it is rsp that
// the way out goes by, and that way is the same for both: where one of them has
// lost count of rsp, what the other knows is true of both. Two that know
// different things are torn for good, so that the walk comes to an end.
func settle(a, b, both Frame) Frame {
	switch {
	case !both.Held || !both.nowhere():
	case both.torn || a.SP != Unknown && b.SP != Unknown:
		both.torn = true
	case a.SP != Unknown:
		both.SP = a.SP
	default:
		both.SP = b.SP
	}
	return both
}

// Rule is the frame as a Rule, Unsupported where it cannot be one.
func (f *Frame) Rule() rows.Rule {
	slot := uint8(rows.RBPLost)
	switch {
	case f.slot%8 == 0 && f.slot > 0 && f.slot/8 <= rows.RBPMax:
		slot = uint8(f.slot / 8)
	case f.Held && f.slot == 0:
		slot = rows.RBPSame
	}
	switch {
	case f.over:
		return rows.NewRule(rows.End, 0, 0)
	case f.ra != 0:
		return rows.NewSplitRule(rows.ReturnReg, slot, dwarfNumbers[f.ra-1], 0)
	case f.SP != Unknown && f.SP%8 == 0:
		return rows.NewRule(rows.SP, slot, uint32(f.SP/8))
	case f.BP != Unknown && f.BP%8 == 0 && f.BP > 0:
		return rows.NewRule(rows.BP, slot, uint32(f.BP/8))
	}
	return rows.NewRule(rows.Unsupported, 0, 0)
}

// step is the frame after an instruction that does not jump. False: it does
// something to the stack that is not understood.
func (f *Frame) step(in *inst) bool {
	if f.over {
		return true
	}
	if f.ra != 0 && !f.keepsReturn(in) {
		return false
	}
	if !f.stack(in) {
		f.assign(in)
	}
	if f.slot != 0 && f.SP != Unknown && f.slot > f.SP {
		f.slot = 0
	}
	return f.SP == Unknown || f.SP >= 8 && f.SP <= maxFrame || f.ra != 0 && f.SP == 0
}

// keepsReturn says that an instruction leaves the register with the return
// address alone: one of the few that stand there, system calls among them.
func (f *Frame) keepsReturn(in *inst) bool {
	if in.table == tableOne && in.op >= 0x50 && in.op < 0x58 { // push
		return in.opReg() == f.ra-1
	}
	known := in.table == tableOne && (in.op < 0x40 || in.op >= 0x80 && in.op < 0x8e || in.op >= 0xb0 && in.op < 0xc0) ||
		in.table == table0F && (in.op == 0x05 || in.op == 0x1e || in.op == 0x1f)
	return known && in.writes&(1<<(f.ra-1)|1<<rsp) == 0
}

// push makes room for a word; r is the register stored there.
func (f *Frame) push(r uint8) {
	if f.SP == Unknown {
		return
	}
	f.SP += 8
	switch {
	case f.ra != 0 && r == f.ra-1:
		f.ra = 0
	case r == rbp && f.Held && f.slot == 0:
		f.slot = f.SP
	}
}

// pop takes a word off into register r.
func (f *Frame) pop(r uint8) {
	switch {
	case r == rbp && f.slot != 0 && f.slot == f.SP:
		f.restored()
	case r == rbp:
		f.lose()
	case r == rsp:
		f.SP = Unknown
	case f.SP == 8 && r != noReg:
		f.ra = r + 1
	}
	if f.SP != Unknown {
		f.SP -= 8
	}
}

func (f *Frame) restored() { f.Held, f.slot, f.BP = true, 0, Unknown }

// lose says that rbp gets a value that is neither the caller's nor derived from
// rsp.
func (f *Frame) lose() { f.Held, f.BP = false, Unknown }

// stack runs the instructions that move rsp by themselves; false for others.
func (f *Frame) stack(in *inst) bool {
	if in.table == table0F {
		switch in.op {
		case 0xa0, 0xa8: // push %fs, %gs
			f.push(noReg)
			return true
		case 0xa1, 0xa9:
			f.pop(noReg)
			return true
		}
		return false
	}
	if in.table != tableOne || in.vector {
		return false
	}
	switch op := in.op; {
	case op >= 0x50 && op < 0x58:
		f.push(in.opReg())
	case op >= 0x58 && op < 0x60:
		f.pop(in.opReg())
	case op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && in.reg&7 == 6:
		f.push(noReg)
	case op == 0x9d, op == 0x8f:
		f.pop(noReg)
	case op == 0xc9: // leave
		f.SP = f.BP
		f.pop(rbp)
	case op == 0xc8: // enter
		f.SP = Unknown
		f.lose()
	default:
		return false
	}
	if in.data16 { // 16 bits wide
		f.SP = Unknown
	}
	return true
}

// makesRoom says that an instruction subtracts a register from rsp.
func (in *inst) makesRoom() bool {
	sub := in.op == 0x29 && in.mod == 3 && in.rm == rsp || in.op == 0x2b && in.reg == rsp
	return in.table == tableOne && !in.vector && in.wide() && sub
}

// at is how far below the cfa a memory operand is.
func (f *Frame) at(in *inst) int32 {
	if !in.memory() || in.other || in.index != noReg || in.disp != int64(int32(in.disp)) {
		return Unknown
	}
	return f.below(in.base, in.disp)
}

// below is how far below the cfa a register plus a number is.
func (f *Frame) below(base uint8, disp int64) int32 {
	from := int32(Unknown)
	switch base {
	case rsp:
		from = f.SP
	case rbp:
		from = f.BP
	}
	if from == Unknown || disp > maxFrame || disp < -maxFrame {
		return Unknown
	}
	return from - int32(disp)
}

// assign runs the instructions that may give rsp or rbp a value, or save rbp.
func (f *Frame) assign(in *inst) {
	one := in.table == tableOne && !in.vector
	wide := one && in.wide()
	if wide && in.op == 0x89 && in.reg == rbp && in.memory() && f.Held && f.slot == 0 {
		if at := f.at(in); at >= 16 && at <= f.SP {
			f.slot = at
		}
		return
	}
	if in.writes&(1<<rsp|1<<rbp) == 0 {
		return
	}
	if wide && in.op == 0x8b && in.reg == rbp && f.slot != 0 && f.at(in) == f.slot {
		f.restored()
		return
	}
	to, value := uint8(noReg), int32(Unknown)
	switch {
	case !wide:
	case in.op == 0x89 && in.mod == 3: // mov
		to, value = in.rm, f.below(in.reg, 0)
	case in.op == 0x8b && in.mod == 3:
		to, value = in.reg, f.below(in.rm, 0)
	case in.op == 0x8d: // lea
		to, value = in.reg, f.at(in)
	case (in.op == 0x81 || in.op == 0x83) && in.mod == 3 && in.reg&7 == 0: // add
		to, value = in.rm, f.below(in.rm, in.imm)
	case (in.op == 0x81 || in.op == 0x83) && in.mod == 3 && in.reg&7 == 5: // sub
		to, value = in.rm, f.below(in.rm, -in.imm)
		if to == rsp && value != Unknown {
			f.full = value
		}
	}
	if in.writes&(1<<rsp) != 0 {
		f.SP = Unknown
		if to == rsp {
			f.SP = value
		}
	}
	if in.writes&(1<<rbp) != 0 {
		f.lose()
		if to == rbp {
			f.BP = value
		}
	}
}
