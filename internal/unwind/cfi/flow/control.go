package flow

// flow is what an instruction does to the flow of control.
type flow uint8

const (
	flowNext    flow = iota
	flowCall         // direct
	flowCallAny      // computed
	flowJump         // direct
	flowJumpAny      // computed
	flowBranch       // conditional, direct
	flowReturn
	flowStop // does not go on
	flowOdd  // returns to another privilege or segment
)

func (in *inst) control() flow {
	if in.vector {
		return flowNext
	}
	if in.table == table0F {
		switch {
		case in.op >= 0x80 && in.op < 0x90:
			return flowBranch
		case in.op == 0x0b, in.op == 0xb9, in.op == 0xff: // ud2, ud1, ud0
			return flowStop
		case in.op == 0x07, in.op == 0x34, in.op == 0x35: // sysret, sysenter, sysexit
			return flowOdd
		}
		return flowNext
	}
	if in.table != tableOne {
		return flowNext
	}
	switch op := in.op; {
	case op >= 0x70 && op < 0x80, op >= 0xe0 && op < 0xe4:
		return flowBranch
	case op == 0xe8:
		return flowCall
	case op == 0xe9, op == 0xeb:
		return flowJump
	case op == 0xc3, op == 0xc2:
		return flowReturn
	case op == 0xcc, op == 0xf4: // int3, hlt
		return flowStop
	case op == 0xca, op == 0xcb, op == 0xf1: // far returns, int1
		return flowOdd
	case op == 0xc7 && in.reg&7 == 7: // xbegin: the transaction may continue elsewhere
		return flowOdd
	case op != 0xff:
		return flowNext
	}
	switch in.reg & 7 {
	case 2:
		return flowCallAny
	case 4:
		return flowJumpAny
	case 3, 5:
		return flowOdd
	}
	return flowNext
}

func (in *inst) isCall() bool {
	c := in.control()
	return c == flowCall || c == flowCallAny
}

// padding reports whether compilers put the instruction between blocks.
func (in *inst) padding() bool {
	switch in.table {
	case tableOne:
		return in.op == 0x90 && in.opReg() == rax && in.prefix != 0xf3 || in.op == 0xcc
	case table0F:
		return in.op == 0x1f
	}
	return false
}

// Returned finds what a function of a few instructions at addr returns in rax: a
// constant or, if loaded is set, the value at the address v.
func Returned(code []byte, addr uint64) (v uint64, loaded bool) {
	var in inst
	for at := 0; at < len(code) && in.decode(code[at:]) && in.control() == flowNext; {
		at += in.len
		next := addr + uint64(at)
		switch {
		case in.table != tableOne || in.writes != 1<<rax:
		case in.op == 0xb8:
			return uint64(in.imm), false
		case in.op == 0xc7:
			return uint64(in.imm), false
		case in.op == 0x8d && in.ripBase:
			return next + uint64(in.disp), false
		case in.op == 0x8b && in.ripBase:
			return next + uint64(in.disp), true
		case in.op == 0x8b && in.base == noReg && in.index == noReg && in.memory():
			return uint64(in.disp), true
		}
	}
	return 0, false
}
