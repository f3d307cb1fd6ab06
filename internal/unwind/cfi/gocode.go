package cfi

import (
	"bytes"
	"math"

	"golang.org/x/arch/x86/x86asm"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// maxGoCode bounds how much of one function is decoded: those that switch
// stacks are a few hundred bytes long.
const maxGoCode = 4096

// never is an offset that no function reaches.
const never = math.MaxUint64

// slotRBP is where a Go function with a frame keeps rbp: one word below the
// return address. Its prologue is one of two kinds:
//
//	from Go 1.21     push %rbp; mov %rsp,%rbp; sub $n,%rsp
//	up to Go 1.20    sub $n,%rsp; mov %rbp,n-8(%rsp); lea n-8(%rsp),%rbp
//
// The pc table follows rsp through both. Assembly may have no frame, or change
// rsp in ways that the table does not follow (flagSPWrite).
const slotRBP = 2

// turn says that from an offset in a function on, its pc table is no longer all
// there is to know.
type turn struct {
	at    uint64
	mode  mode
	words uint32 // in mode viaRBP: cfa = rbp + 8*words
}

type mode uint8

const (
	viaTable mode = iota // the pc table is right
	viaRBP               // rsp is on another stack, rbp still points to this one
	viaNone              // nothing leads back to the caller: complete
	viaLost              // something may lead back, we do not know what
)

// convert adds the rows of the function.
func (g *goFunc) convert() {
	f := g.fate()
	asm := g.flag&(flagAsm|flagSPWrite|flagTopFrame) != 0 || f != fateNone
	switch {
	case f == fateEnd || g.flag&flagTopFrame != 0 && f != fateThrough:
		g.out.Begin(g.off, uint32(g.size))
		g.out.Add(g.off, rows.NewRule(rows.End, 0, 0))
		return
	case f == fateSignal:
		g.signal()
		return
	}
	g.path = g.t.steps(g.path[:0], g.pcsp, g.size)
	if len(g.path) == 0 {
		return
	}
	g.taken += len(g.path)
	// Behind the last step is padding: no code.
	g.out.Begin(g.off, uint32(g.path[len(g.path)-1].end))
	g.body = 0
	for _, s := range g.path {
		g.body = max(g.body, s.delta)
	}
	saved := g.saves(asm)
	var turns []turn
	if g.flag&flagSPWrite != 0 || f == fateSwitch || f == fateEndAfter || f == fateLostAfter {
		turns = g.turns(f)
	}
	g.emit(saved, turns)
}

// signal adds the one rule of the code that signal handlers return to. Their
// return address is its start, and looked up minus 1: in the padding before.
func (g *goFunc) signal() {
	off, size := g.off, uint32(g.size)
	if off > 0 && g.out.End < off {
		off, size = off-1, size+1
	}
	g.out.Begin(off, size)
	g.out.Add(off, rows.NewRule(rows.Signal, 0, 0))
}

// saves is the offset in the function from which the caller's rbp is in its
// slot, never if it stays in the register.
func (g *goFunc) saves(asm bool) uint64 {
	if g.body <= 0 {
		return never
	}
	at, delta := uint64(0), int32(0)
	for _, s := range g.path {
		if delta = s.delta; delta != 0 {
			break
		}
		at = s.end
	}
	var code []byte
	if asm {
		code = g.read(max(at, 1)-1, 9)
	}
	pushed := delta == 8 && !g.t.subFirst
	if asm {
		pushed = delta == 8 && len(code) > 0 && code[0] == 0x55 // push %rbp
	}
	switch {
	case pushed:
		return at
	case !asm:
		g.t.subFirst = g.t.subFirst || delta > 8
	case len(code) < 5 || !bytes.HasPrefix(code[1:], []byte{0x48, 0x89}) || // mov %rbp,n(%rsp)
		code[3] != 0x2c && code[3] != 0x6c && code[3] != 0xac || code[4] != 0x24:
		return never
	}
	switch disp := delta - 8; {
	case disp == 0:
		return at + 4
	case disp < 128:
		return at + 5
	}
	return at + 8
}

// emit adds the rows of the pc table, changed by the turns. rbp is in its slot
// from the offset saved on, wherever there is a frame.
func (g *goFunc) emit(saved uint64, turns []turn) {
	from, now := uint64(0), turn{}
	for _, s := range g.path {
		for from < s.end {
			for len(turns) > 0 && turns[0].at <= from {
				now, turns = turns[0], turns[1:]
			}
			to := s.end
			if len(turns) > 0 {
				to = min(to, turns[0].at)
			}
			if saved > from {
				to = min(to, saved)
			}
			g.out.Add(g.off+uint32(from), g.rule(s.delta, from >= saved, now))
			from = to
		}
	}
}

func (g *goFunc) rule(delta int32, saved bool, t turn) rows.Rule {
	slot := uint8(rows.RBPSame)
	if saved && delta > 0 {
		slot = slotRBP
	}
	switch {
	case t.mode == viaNone:
		return rows.NewRule(rows.End, 0, 0)
	case t.mode == viaLost:
		g.reasons["go stack switch"]++
		return rows.NewRule(rows.Unsupported, 0, 0)
	case t.mode == viaRBP && delta == g.body && t.words == 2 && slot == slotRBP:
		return rows.NewRule(rows.FramePointer, 0, 0)
	case t.mode == viaRBP && delta == g.body:
		return rows.NewRule(rows.BP, slot, t.words)
	case delta < 0 || delta%8 != 0 || delta/8+1 > rows.MaxCFA:
		g.reasons["go frame size"]++
		return rows.NewRule(rows.Unsupported, 0, 0)
	}
	return rows.NewRule(rows.SP, slot, uint32(delta/8+1))
}

// turns decodes the function to find where it leaves its stack: the first
// write to rsp that the pc table does not follow. From there on rbp leads to
// the caller if it was set from rsp before, by the prologue or, up to Go 1.16,
// to keep rsp in it; until it is cleared, which the runtime does where the
// goroutine may meanwhile run elsewhere.
func (g *goFunc) turns(f fate) []turn {
	var list []turn
	now := turn{}
	become := func(at int, m mode) {
		now.at, now.mode = uint64(at), m
		list = append(list, now)
	}
	if g.decoded++; g.decoded > maxDecoded {
		become(0, viaLost)
		return list
	}
	code := g.read(0, min(g.size, maxGoCode))
	for at := 0; at < len(code) && now.mode != viaNone; {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			become(at, viaLost)
			break
		}
		delta := g.delta(uint64(at))
		at += in.Len
		switch {
		case in.Op == x86asm.RET && len(list) > 0 && list[0].mode == viaRBP:
			become(at, viaRBP) // other branches follow
		case writes(&in, x86asm.RSP, x86asm.ESP) && len(list) == 0 && delta == g.delta(uint64(at)):
			switch {
			case f == fateEndAfter, f == fateSwitch && now.words == 0:
				become(at, viaNone)
			case f == fateLostAfter, now.words == 0:
				become(at, viaLost)
			default:
				become(at, viaRBP)
			}
		case !writes(&in, x86asm.RBP, x86asm.EBP):
		case len(list) == 0:
			now.words = fromRSP(&in, delta)
		case clears(&in):
			become(at, viaNone)
		case loadsFrame(&in): // the epilogue: rsp is back
			become(at, viaTable)
		}
	}
	return list
}

// fromRSP is how many words the cfa is above the value that an instruction
// puts into rbp, 0 if it does not derive it from rsp.
func fromRSP(in *x86asm.Inst, delta int32) uint32 {
	disp := int64(0)
	switch in.Op {
	case x86asm.MOV:
		if in.Args[1] != x86asm.RSP {
			return 0
		}
	case x86asm.LEA:
		m, ok := in.Args[1].(x86asm.Mem)
		if !ok || m.Base != x86asm.RSP || m.Index != 0 {
			return 0
		}
		disp = m.Disp
	default:
		return 0
	}
	if above := int64(delta) + 8 - disp; above > 0 && above%8 == 0 && above/8 <= rows.MaxCFA {
		return uint32(above / 8)
	}
	return 0
}

// loadsFrame reports whether an instruction reloads rbp from the frame.
func loadsFrame(in *x86asm.Inst) bool {
	m, ok := in.Args[1].(x86asm.Mem)
	return in.Op == x86asm.MOV && ok && m.Base == x86asm.RSP
}

// delta is how far rsp is below its value on entry, as the pc table has it.
func (g *goFunc) delta(at uint64) int32 {
	for _, s := range g.path {
		if at < s.end {
			return s.delta
		}
	}
	return g.path[len(g.path)-1].delta
}

// writes reports whether an instruction puts a new value into a register, given
// by its two widths; pushes and pops do not count.
func writes(in *x86asm.Inst, wide, narrow x86asm.Reg) bool {
	switch in.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.PUSH, x86asm.POP:
		return false
	}
	return in.Args[0] == wide || in.Args[0] == narrow
}

// clears reports whether an instruction sets rbp to zero.
func clears(in *x86asm.Inst) bool {
	if !writes(in, x86asm.RBP, x86asm.EBP) {
		return false
	}
	imm, ok := in.Args[1].(x86asm.Imm)
	return in.Op == x86asm.MOV && ok && imm == 0 || in.Op == x86asm.XOR && in.Args[0] == in.Args[1]
}

// read returns up to n bytes of the function's code from an offset on.
func (g *goFunc) read(at, n uint64) []byte {
	n = min(n, g.size-min(at, g.size))
	b := g.code[:n]
	if n == 0 || !g.im.read(b, g.addr+at) {
		return nil
	}
	return b
}
