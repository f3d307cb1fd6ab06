package flow

// bit is the mask of a register. Without REX, the byte registers 4 to 7 are
// the second bytes of 0 to 3.
func (in *inst) bit(r uint8, narrow bool) uint32 {
	if narrow && in.rex == 0 && r&^3 == 4 {
		r -= 4
	}
	return 1 << r
}

// rmBit is the mask of the rm operand where that is a register.
func (in *inst) rmBit(narrow bool) uint32 {
	if !in.hasModRM || in.mod != 3 {
		return 0
	}
	return in.bit(in.rm, narrow)
}

// written is the mask of the registers that the instruction writes. Where an
// instruction is rare it may name more than are written.
func (in *inst) written() uint32 {
	switch {
	case in.vector:
		return in.writtenVector()
	case in.table == tableOne:
		return in.writtenOne()
	case in.table == table0F:
		return in.written0F()
	case in.table == table0F38:
		switch in.op {
		case 0xf0, 0xf6: // movbe, crc32, adcx, adox
			return in.bit(in.reg, false)
		case 0xf1: // crc32; movbe to memory
			if in.prefix == 0xf2 {
				return in.bit(in.reg, false)
			}
		}
		return 0
	}
	return in.written0F3A()
}

func (in *inst) written0F3A() uint32 {
	switch in.op {
	case 0x14, 0x15, 0x16, 0x17: // pextr, extractps
		return in.rmBit(false)
	case 0x60, 0x61, 0x62, 0x63: // pcmpstr
		return 1 << rcx
	}
	return 0
}

func (in *inst) writtenVector() uint32 {
	switch in.table {
	case table0F, 5:
		switch in.op {
		case 0x2c, 0x2d: // conversions to integers
			return in.bit(in.reg, false)
		case 0x50, 0x93, 0xc5, 0xd7: // movmsk, kmov, pextrw, pmovmskb
			if !in.evex || in.op == 0xc5 {
				return in.bit(in.reg, false)
			}
		case 0x78, 0x79:
			if in.evex && in.prefix >= 0xf2 {
				return in.bit(in.reg, false)
			}
		case 0x7e:
			if in.prefix == 0x66 {
				return in.rmBit(false)
			}
		}
	case table0F38:
		if in.evex {
			return 0
		}
		switch in.op {
		case 0xf2, 0xf5, 0xf7: // andn, bzhi, pext, pdep, bextr, shlx
			return in.bit(in.reg, false)
		case 0xf3: // blsr, blsi, blsmsk
			return in.bit(in.vvvv, false)
		case 0xf6: // mulx
			return in.bit(in.reg, false) | in.bit(in.vvvv, false)
		}
	case table0F3A:
		if in.op == 0xf0 { // rorx
			return in.bit(in.reg, false)
		}
		return in.written0F3A()
	}
	return 0
}

func (in *inst) writtenOne() uint32 {
	narrow := in.op&1 == 0
	group := in.reg & 7
	switch op := in.op; {
	case op < 0x38: // add, or, adc, sbb, and, sub, xor
		switch op & 7 {
		case 0, 1:
			return in.rmBit(narrow)
		case 2, 3:
			return in.bit(in.reg, narrow)
		}
		return 1 << rax
	case op < 0x40: // cmp
	case op >= 0x58 && op < 0x60: // pop
		return 1 << in.opReg()
	case op == 0x63, op == 0x69, op == 0x6b, op == 0x8d: // movsxd, imul, lea
		return in.bit(in.reg, false)
	case op >= 0x6c && op < 0x70, op >= 0xa4 && op < 0xb0 && op&^1 != 0xa8: // strings
		return 1<<rsi | 1<<rdi | 1<<rcx | 1<<rax
	case op >= 0x80 && op < 0x84:
		if group != 7 { // cmp
			return in.rmBit(narrow)
		}
	case op == 0x86, op == 0x87: // xchg
		return in.rmBit(narrow) | in.bit(in.reg, narrow)
	case op == 0x88, op == 0x89, op == 0x8c, op == 0x8f, op == 0xc6, op == 0xc7: // mov, pop
		return in.rmBit(op == 0x88 || op == 0xc6)
	case op == 0x8a, op == 0x8b:
		return in.bit(in.reg, narrow)
	case op == 0x90 && in.opReg() == rax: // nop
	case op >= 0x90 && op < 0x98: // xchg
		return 1<<rax | 1<<in.opReg()
	case op == 0x98, op == 0x9f, op == 0xa0, op == 0xa1, op == 0xd7, op == 0xe4, op == 0xe5, op == 0xec, op == 0xed:
		return 1 << rax
	case op == 0x99:
		return 1 << rdx
	case op >= 0xb0 && op < 0xb8: // mov
		return in.bit(in.opReg(), true)
	case op >= 0xb8 && op < 0xc0:
		return 1 << in.opReg()
	case op == 0xc0, op == 0xc1, op >= 0xd0 && op < 0xd4: // shifts
		return in.rmBit(narrow)
	case op == 0xdf && in.mod == 3 && group == 4: // fnstsw %ax
		return 1 << rax
	case op >= 0xe0 && op < 0xe3: // loop
		return 1 << rcx
	case op == 0xf6, op == 0xf7:
		switch {
		case group >= 4: // mul, div
			return 1<<rax | 1<<rdx
		case group >= 2: // not, neg
			return in.rmBit(narrow)
		}
	case (op == 0xfe || op == 0xff) && group < 2: // inc, dec
		return in.rmBit(narrow)
	}
	return 0
}

func (in *inst) written0F() uint32 {
	group := in.reg & 7
	switch op := in.op; {
	case op == 0x00, op == 0x20, op == 0x21, op == 0xa4, op == 0xa5, op == 0xab, op == 0xac, op == 0xad, op == 0xb3, op == 0xbb:
		return in.rmBit(false) // sldt, mov from control, shld, shrd, bts, btr, btc
	case op == 0x01: // xgetbv, rdtscp and their like
		return in.rmBit(false) | 1<<rax | 1<<rcx | 1<<rdx
	case op == 0x02, op == 0x03, op >= 0x40 && op < 0x51, op == 0xaf, op == 0xb2, op == 0xb4, op == 0xb5, op == 0xb6, op == 0xb7,
		op == 0xb8, op >= 0xbc && op < 0xc0, op == 0xc5, op == 0xd7: // cmov, movmsk, imul, movzx, bsf, popcnt, pextrw, pmovmskb
		return in.bit(in.reg, false)
	case op == 0x05: // syscall
		return 1<<rax | 1<<rcx | 1<<r11
	case op == 0x1e && in.prefix == 0xf3 && group == 1: // rdssp
		return in.rmBit(false)
	case (op == 0x2c || op == 0x2d) && in.prefix >= 0xf2: // cvtsd2si
		return in.bit(in.reg, false)
	case op >= 0x31 && op < 0x34: // rdtsc, rdmsr, rdpmc
		return 1<<rax | 1<<rdx
	case op == 0x37, op == 0xa2: // getsec, cpuid
		return 1<<rax | 1<<rbx | 1<<rcx | 1<<rdx
	case op == 0x7e && in.prefix != 0xf3, op == 0x78: // movd, vmread
		return in.rmBit(false)
	case op >= 0x90 && op < 0xa0: // setcc
		return in.rmBit(true)
	case op == 0xae && in.prefix == 0xf3 && group < 4: // rdfsbase
		return in.rmBit(false)
	case op == 0xb0, op == 0xb1: // cmpxchg
		return in.rmBit(op == 0xb0) | 1<<rax
	case op == 0xba && group > 4: // bts, btr, btc
		return in.rmBit(false)
	case op == 0xc0, op == 0xc1: // xadd
		return in.rmBit(op == 0xc0) | in.bit(in.reg, op == 0xc0)
	case op == 0xc7: // cmpxchg16b, rdrand
		return in.rmBit(false) | 1<<rax | 1<<rdx
	case op >= 0xc8 && op < 0xd0: // bswap
		return 1 << in.opReg()
	}
	return 0
}
