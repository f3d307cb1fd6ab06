package cfi

import (
	"encoding/binary"
	"math"
)

// The builtins of V8 are machine code without unwind information, all in one
// piece of the file, the blob. Its symbols are local; programs that are
// stripped of them often export the two functions that V8 finds it by.
//
// Most builtins keep rbp frames: those that do, except while they make and
// leave them, and whatever is not understood, gets frame pointer rows. But the
// bytecode handlers and small stubs have no frame of their own: there rbp is
// the caller's, and following it would skip the caller. So each is walked like
// other code, with four rules changed: those called from JavaScript drop
// their arguments, so rsp is not known behind calls; they return by popping
// the return address, dropping the arguments and pushing it again; handlers
// jump from one to the next; and where they have left their frame, or made room
// below the caller's, for such a jump, the paths to it need not all tell where
// rsp is (settle).

// builtinAlign is what V8 aligns builtins to.
const builtinAlign = 64

// builtinRows has the rows of V8's builtins, none in other files.
func builtinRows(im *image, table *symbolTable, known []span) []Row {
	addr, size := blob(im, known)
	off, room, ok := im.offset(addr)
	if !ok || size == 0 || size > room {
		return nil
	}
	out := &rowList{}
	framed := rule(FramePointer, 0, 0)
	out.begin(off, uint32(size))
	out.add(off, framed)
	w := &walker{budget: maxInstructions, builtin: true}
	end := addr
	var code []byte
	var mark []uint16
	for _, p := range table.functions(addr, addr+size) {
		p.size = min(p.size, addr+size-p.addr)
		if p.addr < end || p.size == 0 || p.size > maxFunction {
			continue
		}
		end = p.addr + p.size
		if uint64(cap(code)) < p.size {
			code, mark = make([]byte, p.size, 2*p.size), make([]uint16, p.size, 2*p.size)
		}
		code, mark = code[:p.size], mark[:p.size]
		clear(mark)
		at := off + uint32(p.addr-addr)
		if im.read(code, p.addr) && w.walk(piece{p.addr, at, code, mark}) {
			w.emit(&w.pieces[0], out, framed)
		}
		out.add(at+uint32(p.size), framed)
	}
	if end == addr {
		entries(im, addr, size, off, out)
	}
	return out.finish()
}

// entries adds the rows of the prologues in a blob without symbols.
func entries(im *image, addr, size uint64, off uint32, out *rowList) {
	const prologue = "\x55\x48\x89\xe5" // push %rbp; mov %rsp,%rbp
	var b [len(prologue)]byte
	for at := uint64(0); at+builtinAlign <= size; at += builtinAlign {
		if !im.read(b[:], addr+at) || string(b[:]) != prologue {
			continue
		}
		out.add(off+uint32(at), rule(SP, RBPSame, 1))
		out.add(off+uint32(at)+1, rule(SP, 2, 2))
		out.add(off+uint32(at)+4, rule(FramePointer, 0, 0))
	}
}

// blob finds the builtins.
func blob(im *image, known []span) (addr, size uint64) {
	for _, s := range known {
		var b [4]byte
		switch s.fate {
		case fateBlob:
			if _, _, code := im.offset(s.addr); code {
				addr = s.addr
			}
		case fateBlobCall:
			v, loaded := returned(im, s.addr)
			if !loaded {
				addr = v
			} else if p := make([]byte, 8); im.read(p, v) {
				addr = binary.LittleEndian.Uint64(p)
			}
		case fateBlobSizeCall, fateBlobSize:
			at := s.addr
			if s.fate == fateBlobSizeCall {
				v, loaded := returned(im, at)
				if !loaded {
					size = v
					continue
				}
				at = v
			}
			if im.read(b[:], at) {
				size = uint64(binary.LittleEndian.Uint32(b[:]))
			}
		}
	}
	return addr, min(size, math.MaxInt32)
}

// returned is the constant, or the address of the value, that a function of a
// few instructions returns.
func returned(im *image, addr uint64) (v uint64, loaded bool) {
	var code [32]byte
	if !im.read(code[:], addr) {
		return 0, false
	}
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
