package cfi

import (
	"encoding/binary"
	"math"

	"atys.dev/atys/internal/unwind/cfi/flow"
	"atys.dev/atys/internal/unwind/cfi/rows"
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
func builtinRows(im *image, table *symbolTable, known []span) []rows.Row {
	addr, size := blob(im, known)
	off, room, ok := im.offset(addr)
	if !ok || size == 0 || size > room {
		return nil
	}
	out := &rows.List{}
	framed := rows.NewRule(rows.FramePointer, 0, 0)
	out.Begin(off, uint32(size))
	out.Add(off, framed)
	w := &flow.Walker{Budget: maxInstructions, Builtin: true}
	end := addr
	var code []byte
	var mark []uint16
	for _, p := range table.functions(addr, addr+size) {
		p.size = min(p.size, addr+size-p.addr)
		if p.addr < end || p.size == 0 || p.size > flow.MaxFunction {
			continue
		}
		end = p.addr + p.size
		if uint64(cap(code)) < p.size {
			code, mark = make([]byte, p.size, 2*p.size), make([]uint16, p.size, 2*p.size)
		}
		code, mark = code[:p.size], mark[:p.size]
		clear(mark)
		at := off + uint32(p.addr-addr)
		if im.read(code, p.addr) && w.Walk(flow.Piece{Addr: p.addr, Off: at, Code: code, Mark: mark}) {
			w.Emit(&w.Pieces[0], out, framed)
		}
		out.Add(at+uint32(p.size), framed)
	}
	if end == addr {
		entries(im, addr, size, off, out)
	}
	return out.Finish()
}

// entries adds the rows of the prologues in a blob without symbols.
func entries(im *image, addr, size uint64, off uint32, out *rows.List) {
	const prologue = "\x55\x48\x89\xe5" // push %rbp; mov %rsp,%rbp
	var b [len(prologue)]byte
	for at := uint64(0); at+builtinAlign <= size; at += builtinAlign {
		if !im.read(b[:], addr+at) || string(b[:]) != prologue {
			continue
		}
		out.Add(off+uint32(at), rows.NewRule(rows.SP, rows.RBPSame, 1))
		out.Add(off+uint32(at)+1, rows.NewRule(rows.SP, 2, 2))
		out.Add(off+uint32(at)+4, rows.NewRule(rows.FramePointer, 0, 0))
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
	return flow.Returned(code[:], addr)
}
