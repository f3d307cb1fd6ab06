package cfi

import (
	"atys.dev/atys/internal/unwind/cfi/cursor"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// DW_OP opcodes that occur in the unwind information of real x86-64 code.
const (
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst2u    = 0x0a
	opConst2s    = 0x0b
	opConst4u    = 0x0c
	opConst4s    = 0x0d
	opConstu     = 0x10
	opConsts     = 0x11
	opMinus      = 0x1c
	opPlus       = 0x22
	opPlusUconst = 0x23
	opLit0       = 0x30
	opLit31      = 0x4f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opNop        = 0x96
)

// form is the shape of a symbolic value.
type form uint8

const (
	none     form = iota
	constant      // off
	address       // reg + off
	loaded        // *(reg + off) + add
	stub          // the linker's expression for lazy-binding stubs; off is the threshold
	foreign       // anything else
)

// value is what an expression computes, as far as a rule can say it.
type value struct {
	form form
	reg  uint64
	off  int64
	add  int64
}

// contextRSP is the cfa of the code that signal handlers return to: rsp in the
// ucontext that rsp points at, as glibc and the kernel's vdso describe it.
func contextRSP() value { return value{form: loaded, reg: regRSP, off: 160} }

// The linker's cfa for .plt: rsp + 8 + ((rip & 15) >= T) * 8, where T, the
// operand of the literal, is the offset in the stub after its push.
//
//	breg7 8 | breg16 0 | lit15 | and | litT | ge | lit3 | shl | plus
const (
	stubHead = "\x77\x08\x80\x00\x3f\x1a"
	stubTail = "\x2a\x33\x24\x22"
)

// evaluate computes an expression symbolically. The stack of real ones is two
// deep at most.
func evaluate(code []byte) value {
	if len(code) == 11 && string(code[:6]) == stubHead && string(code[7:]) == stubTail {
		if t := code[6]; t >= opLit0 && t <= opLit0+15 {
			return value{form: stub, off: int64(t - opLit0)}
		}
	}
	var stack [4]value
	n := 0
	c := cursor.Cursor{Bytes: code}
	for c.More() {
		op := c.U8()
		if v, ok := operand(op, &c); ok {
			if n == len(stack) {
				return value{form: foreign}
			}
			stack[n] = v
			n++
			continue
		}
		if n == 0 {
			return value{form: foreign}
		}
		top := &stack[n-1]
		switch op {
		case opNop:
			continue
		case opDeref:
			if top.form != address {
				return value{form: foreign}
			}
			top.form = loaded
			continue
		case opPlusUconst:
			if !top.plus(int64(c.ULEB())) {
				return value{form: foreign}
			}
			continue
		}
		if n < 2 || top.form != constant || op != opPlus && op != opMinus {
			return value{form: foreign}
		}
		k := top.off
		if op == opMinus {
			k = -k
		}
		n--
		if !stack[n-1].plus(k) {
			return value{form: foreign}
		}
	}
	if n != 1 || c.Bad {
		return value{form: foreign}
	}
	return stack[0]
}

// operand reads the value that op pushes; ok is false for other operations.
func operand(op byte, c *cursor.Cursor) (v value, ok bool) {
	v.form = constant
	switch {
	case op >= opBreg0 && op <= opBreg31:
		return value{form: address, reg: uint64(op - opBreg0), off: c.SLEB()}, true
	case op >= opLit0 && op <= opLit31:
		v.off = int64(op - opLit0)
	case op == opConst1u:
		v.off = int64(c.U8())
	case op == opConst1s:
		v.off = int64(int8(c.U8()))
	case op == opConst2u:
		v.off = int64(c.U16())
	case op == opConst2s:
		v.off = int64(int16(c.U16()))
	case op == opConst4u:
		v.off = int64(c.U32())
	case op == opConst4s:
		v.off = int64(int32(c.U32()))
	case op == opConstu:
		v.off = int64(c.ULEB())
	case op == opConsts:
		v.off = c.SLEB()
	default:
		return v, false
	}
	return v, true
}

func (v *value) plus(k int64) bool {
	switch v.form {
	case constant, address:
		v.off += k
	case loaded:
		v.add += k
	default:
		return false
	}
	return true
}

// savedAt says where a register is whose address is v.
func savedAt(reg uint64, v value) (where, int64) {
	switch {
	case reg == regRBP && v == value{form: address, reg: regRBP}:
		return atRBP, 0
	case reg == regRA && v == value{form: address, reg: regRSP, off: 168},
		reg == regRBP && v == value{form: address, reg: regRSP, off: 120}:
		return inContext, 0
	}
	return odd, 0
}

// cfa is the rule whose cfa is v.
func (v *value) cfa(rbp uint8) (r rows.Rule, why string) {
	unsupported := rows.NewRule(rows.Unsupported, 0, 0)
	words := v.off / 8
	if v.form != stub && (v.off%8 != 0 || v.add%8 != 0) {
		return unsupported, "cfa not a multiple of 8"
	}
	switch {
	case v.form == stub:
		return rows.NewRule(rows.PLT, rbp, uint32(v.off)), ""
	case v.form == address && (v.reg == regRSP || v.reg == regRBP):
		if words < 0 || words > rows.MaxCFA {
			return unsupported, "cfa offset"
		}
		if v.reg == regRSP {
			return rows.NewRule(rows.SP, rbp, uint32(words)), ""
		}
		return rows.NewRule(rows.BP, rbp, uint32(words)), ""
	case words != int64(int16(words)):
		return unsupported, "cfa offset"
	case v.form == address && v.reg < regRA:
		return rows.NewSplitRule(rows.LeafReg, rbp, uint8(v.reg), words), ""
	case v.form == loaded && (v.add < 0 || v.add/8 > rows.MaxHigh):
		return unsupported, "cfa added to what was loaded"
	case v.form == loaded && v.reg == regRBP:
		return rows.NewSplitRule(rows.BPDeref, rbp, uint8(v.add/8), words), ""
	case v.form == loaded && v.reg == regRSP:
		return rows.NewSplitRule(rows.SPDeref, rbp, uint8(v.add/8), words), ""
	case v.form == loaded:
		return unsupported, "cfa loaded from another register"
	case v.form == address:
		return unsupported, "cfa register"
	}
	return unsupported, "cfa expression"
}
