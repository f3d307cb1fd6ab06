package cfi

import (
	"bytes"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// stubRows describes the linker's call stubs where no FDE does (lld writes
// none). A lazy .plt begins with a stub of its own, which the others jump to
// after pushing the number of their symbol:
//
//	.plt       push GOT+8 (6 bytes); jmp *GOT+16
//	           then each 16 bytes: jmp *GOT[n]; push n; jmp .plt
//	           or, for indirect branch tracking: endbr64; push n; jmp .plt
//	.plt.sec   (endbr64;) jmp *GOT[n]       and so .plt.got and .iplt
func stubRows(im *image) []rows.Row {
	out := &rows.List{}
	for _, s := range im.file.Sections {
		switch s.Name {
		case ".plt", ".plt.sec", ".plt.got", ".iplt":
		default:
			continue
		}
		off, room, ok := im.offset(s.Addr)
		if !ok || s.Size == 0 || off < out.End {
			continue
		}
		var b [32]byte
		im.read(b[:min(s.Size, 32)], s.Addr)
		first, second := b[:16], b[16:]
		size := uint32(min(s.Size, room))
		lazy := bytes.HasPrefix(first, []byte{0xff, 0x35})
		switch pushed := afterPush(second); {
		case lazy && pushed > 0:
			out.Begin(off, size)
			out.Add(off, rows.NewRule(rows.SP, rows.RBPSame, 2))
			out.Add(off+6, rows.NewRule(rows.SP, rows.RBPSame, 3))
			out.Add(off+16, rows.NewRule(rows.PLT, rows.RBPSame, pushed))
		case jumps(first):
			out.Begin(off, size)
			out.Add(off, rows.NewRule(rows.SP, rows.RBPSame, 1))
		}
	}
	return out.Finish()
}

const endbr64 = "\xf3\x0f\x1e\xfa"

// afterPush is the offset in a lazy stub after its push, 0 if it has none.
func afterPush(stub []byte) uint32 {
	const push = 0x68
	switch {
	case stub[0] == push:
		return 5
	case bytes.HasPrefix(stub, []byte(endbr64)) && stub[4] == push:
		return 9
	case stub[0] == 0xff && stub[6] == push:
		return 11
	}
	return 0
}

// jumps reports whether a stub does nothing but jump through the GOT.
func jumps(stub []byte) bool {
	stub = bytes.TrimPrefix(stub, []byte(endbr64))
	stub = bytes.TrimPrefix(stub, []byte{0xf2}) // bnd
	return bytes.HasPrefix(stub, []byte{0xff, 0x25})
}
