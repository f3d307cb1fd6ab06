package cfi

import (
	"math"

	"atys.dev/atys/internal/unwind/cfi/cursor"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// DWARF register numbers on x86-64.
const (
	regRBP = 6
	regRSP = 7
	regRA  = 16
)

// DW_CFA opcodes. The first three carry an operand in their low six bits.
const (
	cfaAdvance    = 0x40
	cfaOffset     = 0x80
	cfaRestore    = 0xc0
	cfaNop        = 0x00
	cfaSetLoc     = 0x01
	cfaAdvance1   = 0x02
	cfaAdvance2   = 0x03
	cfaAdvance4   = 0x04
	cfaOffsetExt  = 0x05
	cfaRestoreExt = 0x06
	cfaUndefined  = 0x07
	cfaSame       = 0x08
	cfaRegister   = 0x09
	cfaRemember   = 0x0a
	cfaRecall     = 0x0b
	cfaDef        = 0x0c
	cfaDefReg     = 0x0d
	cfaDefOffset  = 0x0e
	cfaDefExpr    = 0x0f
	cfaExpr       = 0x10
	cfaOffsetSF   = 0x11
	cfaDefSF      = 0x12
	cfaDefOffSF   = 0x13
	cfaValOffset  = 0x14
	cfaValOffSF   = 0x15
	cfaValExpr    = 0x16
	cfaAdvance8   = 0x1d
	cfaArgsSize   = 0x2e
	cfaOffsetNeg  = 0x2f
)

// maxRemembered bounds the depth of remember_state, which compilers nest little.
const maxRemembered = 64

// where says how a register of the caller is found.
type where uint8

const (
	unset     where = iota // the CIE says nothing
	same                   // still in the register
	atCFA                  // in memory at cfa + off
	atRBP                  // in memory where rbp points
	inContext              // in the signal's ucontext
	undefined              // nowhere
	inReg                  // in another register, whose number is the offset
	odd                    // somewhere the rules cannot say
)

// state is the row being built: the rules for cfa, rbp and return address.
type state struct {
	cfaReg uint64
	cfaOff int64
	expr   value // instead of register and offset
	rbp    where
	ra     where
	rbpOff int64
	raOff  int64
}

// executor runs CFA programs. One serves a whole file: it counts what could
// not be expressed.
type executor struct {
	unsupported map[string]int
	c           *cie
	cur         state
	stack       []state

	loc   uint64 // address
	start uint64 // address of the function
	off   uint32 // file offset of the function
	size  uint64
	out   *rows.List
	sec   *frameSection
}

// initial runs a CIE's own instructions, which describe every function's entry.
func (x *executor) initial(c *cie, code cursor.Cursor) {
	saved := *x
	x.c, x.cur, x.out, x.stack = c, state{cfaReg: math.MaxUint64}, nil, nil
	if !x.run(code) {
		c.flaw = "cie instructions"
	}
	c.init = x.cur
	*x = saved
}

// function adds the rows of one FDE. Its code starts at the file offset off.
func (x *executor) function(d *fde, off uint32, out *rows.List, sec *frameSection) {
	x.c, x.cur, x.out, x.sec = d.cie, d.cie.init, out, sec
	x.loc, x.start, x.off, x.size = d.addr, d.addr, off, d.size
	x.stack = x.stack[:0]
	flaw := d.cie.flaw
	if flaw == "" && !x.run(d.code) {
		flaw = "instruction"
	}
	if flaw != "" {
		x.unsupported[flaw]++
		x.add(rows.NewRule(rows.Unsupported, 0, 0))
		return
	}
	x.emit()
}

// emit writes the current state as the row from the current location on.
func (x *executor) emit() {
	r, why := x.cur.rule()
	if why != "" {
		x.unsupported[why]++
	}
	x.add(r)
}

func (x *executor) add(r rows.Rule) {
	if at := x.loc - x.start; x.out != nil && at < x.size && at < math.MaxUint32-uint64(x.off) {
		x.out.Add(x.off+uint32(at), r)
	}
}

// advance moves on by code units; the state so far held until there.
func (x *executor) advance(units uint64) {
	if delta := units * x.c.codeAlign; delta != 0 {
		x.emit()
		x.loc += delta
	}
}

// run executes instructions. It reports false where it met one it does not
// know, or a malformed one: what follows cannot be trusted.
func (x *executor) run(c cursor.Cursor) bool {
	for c.More() {
		op := c.U8()
		low := uint64(op & 0x3f)
		switch op & 0xc0 {
		case cfaAdvance:
			x.advance(low)
		case cfaOffset:
			x.set(low, atCFA, int64(c.ULEB())*x.c.dataAlign)
		case cfaRestore:
			x.restore(low)
		default:
			if !x.extended(op, &c) {
				return false
			}
		}
	}
	return !c.Bad
}

func (x *executor) extended(op byte, c *cursor.Cursor) bool {
	switch op {
	case cfaNop:
	case cfaAdvance1:
		x.advance(uint64(c.U8()))
	case cfaAdvance2:
		x.advance(uint64(c.U16()))
	case cfaAdvance4:
		x.advance(uint64(c.U32()))
	case cfaAdvance8:
		x.advance(c.U64())
	case cfaSetLoc:
		return x.setLoc(c)
	case cfaDef:
		x.cur.cfaReg, x.cur.cfaOff, x.cur.expr = c.ULEB(), int64(c.ULEB()), value{}
	case cfaDefSF:
		x.cur.cfaReg, x.cur.cfaOff, x.cur.expr = c.ULEB(), c.SLEB()*x.c.dataAlign, value{}
	case cfaDefReg:
		x.cur.cfaReg, x.cur.expr = c.ULEB(), value{}
	case cfaDefOffset:
		x.cur.cfaOff = int64(c.ULEB())
	case cfaDefOffSF:
		x.cur.cfaOff = c.SLEB() * x.c.dataAlign
	case cfaDefExpr:
		x.cur.expr = evaluate(c.Take(c.ULEB()))
	case cfaRemember:
		if len(x.stack) == maxRemembered {
			return false
		}
		x.stack = append(x.stack, x.cur)
	case cfaRecall:
		n := len(x.stack)
		if n == 0 {
			return false
		}
		x.cur, x.stack = x.stack[n-1], x.stack[:n-1]
	case cfaArgsSize:
		c.ULEB()
	default:
		return x.register(op, c)
	}
	return true
}

// register runs the instructions that speak of one saved register.
func (x *executor) register(op byte, c *cursor.Cursor) bool {
	reg := c.ULEB()
	switch op {
	case cfaOffsetExt:
		x.set(reg, atCFA, int64(c.ULEB())*x.c.dataAlign)
	case cfaOffsetSF:
		x.set(reg, atCFA, c.SLEB()*x.c.dataAlign)
	case cfaOffsetNeg:
		x.set(reg, atCFA, -int64(c.ULEB())*x.c.dataAlign)
	case cfaRestoreExt:
		x.restore(reg)
	case cfaUndefined:
		x.set(reg, undefined, 0)
	case cfaSame:
		x.set(reg, same, 0)
	case cfaRegister:
		x.set(reg, inReg, int64(c.ULEB()))
	case cfaExpr:
		w, off := savedAt(reg, evaluate(c.Take(c.ULEB())))
		x.set(reg, w, off)
	case cfaValExpr:
		c.Take(c.ULEB())
		x.set(reg, odd, 0)
	case cfaValOffset, cfaValOffSF:
		c.ULEB()
		x.set(reg, odd, 0)
	default:
		return false
	}
	return true
}

func (x *executor) setLoc(c *cursor.Cursor) bool {
	if x.out == nil {
		return false
	}
	to, ok := x.sec.pointer(c, x.c.enc, x.start)
	if !ok || to < x.loc {
		return false
	}
	if to > x.loc {
		x.emit()
		x.loc = to
	}
	return true
}

func (x *executor) set(reg uint64, w where, off int64) {
	switch reg {
	case regRBP:
		x.cur.rbp, x.cur.rbpOff = w, off
	case regRA:
		x.cur.ra, x.cur.raOff = w, off
	}
}

func (x *executor) restore(reg uint64) {
	switch reg {
	case regRBP:
		x.cur.rbp, x.cur.rbpOff = x.c.init.rbp, x.c.init.rbpOff
	case regRA:
		x.cur.ra, x.cur.raOff = x.c.init.ra, x.c.init.raOff
	}
}

// rule is the state as a Rule. why names what could not be expressed.
func (s *state) rule() (r rows.Rule, why string) {
	switch {
	case s.ra == undefined:
		return rows.NewRule(rows.End, 0, 0), ""
	case s.ra == inContext && s.expr == contextRSP():
		return rows.NewRule(rows.Signal, 0, 0), ""
	case s.ra == inReg && s.raOff >= 0 && s.raOff < regRA:
	case s.ra != atCFA || s.raOff != -8:
		return rows.NewRule(rows.Unsupported, 0, 0), "return address not at cfa-8"
	}
	rbp := uint8(rows.RBPSame)
	switch s.rbp {
	case unset, same:
	case atCFA:
		rbp = rows.RBPLost
		if n := -s.rbpOff / 8; s.rbpOff%8 == 0 && n >= 1 && n <= rows.RBPMax {
			rbp = uint8(n)
		}
	case atRBP:
		rbp = rows.RBPAtRBP
	default:
		rbp = rows.RBPLost
	}
	if rbp == rows.RBPLost && s.rbp != undefined {
		why = "rbp"
	}
	v := s.expr
	if v.form == none {
		v = value{form: address, reg: s.cfaReg, off: s.cfaOff}
	}
	if s.ra == inReg {
		words := v.off / 8
		if v.form != address || v.reg != regRSP || v.off%8 != 0 || words != int64(int16(words)) {
			return rows.NewRule(rows.Unsupported, 0, 0), "return address in a register"
		}
		return rows.NewSplitRule(rows.ReturnReg, rbp, uint8(s.raOff), words), why
	}
	r, whyCFA := v.cfa(rbp)
	if whyCFA != "" {
		why = whyCFA
	}
	return r, why
}
