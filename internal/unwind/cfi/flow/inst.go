package flow

import "atys.dev/atys/internal/unwind/cfi/cursor"

// Numbers of general registers as instructions encode them.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r11 = 11

	noReg = 0xff
)

// dwarfNumbers translates the numbers of registers from instructions to DWARF.
const dwarfNumbers = "\x00\x02\x01\x03\x07\x06\x04\x05\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"

// maxInst is the length of the longest instruction.
const maxInst = 15

// Opcode tables: where the opcode byte is looked up.
const (
	tableOne  = 0 // one byte
	table0F   = 1
	table0F38 = 2
	table0F3A = 3
)

// What follows an opcode:
//
//	.  nothing          m  modrm            b  8 bits      z  16 or 32 bits
//	w  16 bits          B  modrm, 8 bits    Z  modrm, z    e  24 bits
//	q  up to 64 bits    o  an address       j  rel8        J  rel32
//	g, G  modrm, and b or z if its reg is 0 or 1           x  no such opcode
const (
	layoutOne = "mmmmbzxxmmmmbzxx" + "mmmmbzxxmmmmbzxx" + "mmmmbzxxmmmmbzxx" + "mmmmbzxxmmmmbzxx" +
		"xxxxxxxxxxxxxxxx" + "................" + "xxxmxxxxzZbB...." + "jjjjjjjjjjjjjjjj" +
		"BZxBmmmmmmmmmmmm" + "..........x....." + "oooo....bz......" + "bbbbbbbbqqqqqqqq" +
		"BBw.xxBZe.w..bx." + "mmmmxxx.mmmmmmmm" + "jjjjbbbbJJxj...." + "x.xx..gG......mm"
	layout0F = "mmmmx.....x.xm.x" + "mmmmmmmmmmmmmmmm" + "mmmmxxxxmmmmmmmm" + "......x.xxxxxxxx" +
		"mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "BBBBmmm.mmmmmmmm" +
		"JJJJJJJJJJJJJJJJ" + "mmmmmmmmmmmmmmmm" + "...mBmxx...mBmmm" + "mmmmmmmmmmBmmmmm" +
		"mmBmBBBm........" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm"
)

// inst is one decoded instruction, as far as it can concern rsp and rbp. x86asm
// tells more, at ten times the cost: it is what the tests compare with.
type inst struct {
	len    int
	table  uint8
	op     byte
	vector bool // VEX or EVEX
	evex   bool
	rex    byte
	prefix byte // 0x66, 0xf2 or 0xf3
	data16 bool
	other  bool // memory operand in another segment, or by a 32-bit address
	addr32 bool

	mod      uint8
	reg, rm  uint8 // with their REX bits; rm is a register where mod is 3
	hasModRM bool
	base     uint8 // of the memory operand
	index    uint8
	ripBase  bool
	disp     int64
	vvvv     uint8
	imm      int64 // or relative target

	// writes has a bit for each general register that gets a new value, save
	// what push, pop, call, ret and leave do to rsp.
	writes uint32
}

// decode reads the instruction at the start of code; false if there is none.
func (in *inst) decode(code []byte) bool {
	*in = inst{base: noReg, index: noReg}
	c := cursor.Cursor{Bytes: code[:min(len(code), maxInst)]}
	op := in.prefixes(&c)
	layout := byte('x')
	switch {
	case in.rex == 0 && (op == 0xc4 || op == 0xc5):
		layout = in.vexPrefix(op, &c)
	case in.rex == 0 && op == 0x62:
		layout = in.evexPrefix(&c)
	case op == 0x0f:
		in.table, in.op = table0F, c.U8()
		layout = layout0F[in.op]
		switch in.op {
		case 0x38:
			in.table, in.op, layout = table0F38, c.U8(), 'm'
		case 0x3a:
			in.table, in.op, layout = table0F3A, c.U8(), 'B'
		}
	default:
		in.op, layout = op, layoutOne[op]
	}
	if layout == 'x' {
		return false
	}
	in.operands(layout, &c)
	in.len = c.Pos
	in.writes = in.written()
	return !c.Bad
}

// prefixes reads the legacy prefixes and REX; it returns the byte behind them.
func (in *inst) prefixes(c *cursor.Cursor) byte {
	for {
		b := c.U8()
		switch b {
		case 0x66:
			in.data16 = true
			if in.prefix == 0 {
				in.prefix = b
			}
		case 0xf2, 0xf3:
			in.prefix = b
		case 0x64, 0x65:
			in.other = true
		case 0x67:
			in.other, in.addr32 = true, true
		case 0x26, 0x2e, 0x36, 0x3e, 0xf0:
		default:
			if b&0xf0 == 0x40 {
				in.rex = b
				b = c.U8()
			}
			return b
		}
	}
}

// vexPrefix reads a VEX prefix and the opcode.
//
//	c5 | R vvvv L pp          c4 | R X B table 5 | W vvvv L pp     (R X B vvvv inverted)
func (in *inst) vexPrefix(op byte, c *cursor.Cursor) byte {
	in.vector, in.rex, in.table = true, 0x40, table0F
	b := c.U8()
	if op == 0xc4 {
		in.rex |= ^b >> 5 & 7
		in.table = b & 0x1f
		b = c.U8()
		in.rex |= b >> 7 << 3
	} else {
		in.rex |= ^b >> 7 << 2
	}
	in.vvvv = ^b >> 3 & 0xf
	in.prefix = "\x00\x66\xf3\xf2"[b&3]
	in.op = c.U8()
	return in.vectorLayout()
}

// evexPrefix reads what follows the first byte of an EVEX prefix:
//
//	R X B R' 0 table 3 | W vvvv 1 pp | z L L b V' aaa
func (in *inst) evexPrefix(c *cursor.Cursor) byte {
	in.vector, in.evex = true, true
	b := c.Take(3)
	if b == nil {
		return 'x'
	}
	in.rex = 0x40 | ^b[0]>>5&7 | b[1]>>7<<3
	in.table = b[0] & 7
	in.vvvv = ^b[1] >> 3 & 0xf
	in.prefix = "\x00\x66\xf3\xf2"[b[1]&3]
	in.op = c.U8()
	return in.vectorLayout()
}

func (in *inst) vectorLayout() byte {
	switch in.table {
	case table0F:
		if l := layout0F[in.op]; l != 'J' {
			return l
		}
	case table0F38, 5, 6:
		return 'm'
	case table0F3A:
		return 'B'
	}
	return 'x'
}

// operands reads what follows the opcode.
func (in *inst) operands(layout byte, c *cursor.Cursor) {
	switch layout {
	case 'm', 'B', 'Z', 'g', 'G':
		in.modRM(c)
	}
	switch layout {
	case 'g':
		if in.reg&7 < 2 {
			layout = 'b'
		}
	case 'G':
		if in.reg&7 < 2 {
			layout = 'z'
		}
	}
	switch layout {
	case 'b', 'B', 'j':
		in.imm = int64(int8(c.U8()))
	case 'w':
		in.imm = int64(c.U16())
	case 'e':
		c.Take(3)
	case 'J':
		in.imm = int64(int32(c.U32()))
	case 'o':
		if !in.addr32 {
			c.Take(4)
		}
		c.Take(4)
	case 'q':
		switch {
		case in.wide():
			in.imm = int64(c.U64())
		case in.data16:
			in.imm = int64(c.U16())
		default:
			in.imm = int64(c.U32())
		}
	case 'z', 'Z':
		if in.data16 && !in.wide() {
			in.imm = int64(int16(c.U16()))
		} else {
			in.imm = int64(int32(c.U32()))
		}
	}
}

func (in *inst) modRM(c *cursor.Cursor) {
	b := c.U8()
	in.hasModRM = true
	in.mod, in.reg, in.rm = b>>6, b>>3&7|in.rex<<1&8, b&7
	if in.mod == 3 {
		in.rm |= in.rex << 3 & 8
		return
	}
	sib := byte(0)
	if in.rm == rsp {
		sib = c.U8()
		in.base = sib&7 | in.rex<<3&8
		if in.index = sib>>3&7 | in.rex<<2&8; in.index == rsp {
			in.index = noReg
		}
	} else {
		in.base = in.rm | in.rex<<3&8
	}
	switch {
	case in.mod == 1:
		in.disp = int64(int8(c.U8()))
	case in.mod == 2:
		in.disp = int64(int32(c.U32()))
	case in.base&7 == rbp: // no base: 32 bits, relative to the next instruction if without SIB
		in.ripBase = in.rm == rbp
		in.base = noReg
		in.disp = int64(int32(c.U32()))
	}
}

// wide says that the operands have 64 bits.
func (in *inst) wide() bool { return in.rex&8 != 0 }

// opReg is the register that the opcode itself names.
func (in *inst) opReg() uint8 { return in.op&7 | in.rex<<3&8 }

func (in *inst) memory() bool { return in.hasModRM && in.mod != 3 }
