package binfile

import "debug/elf"

// Relative calls back for each word that the loader fills with an address of
// the file itself: where it is, and what is put there. In position-independent
// files such words may be zero in the file.
func (f *File) Relative(each func(at, target uint64)) {
	f.relocations(func(off, info uint64, addend int64, _ *elf.Section) {
		if elf.R_X86_64(info&0xffffffff) == elf.R_X86_64_RELATIVE {
			each(off, uint64(addend))
		}
	})
}

// ThreadLocal finds the slot in which the loader puts the number of the file's
// module of thread-local storage, for a variable that the file exports. The
// word behind it is then the variable's offset in the module's block.
func (f *File) ThreadLocal(variable string) (slot uint64, ok bool) {
	f.relocations(func(off, info uint64, _ int64, symbols *elf.Section) {
		if !ok && elf.R_X86_64(info&0xffffffff) == elf.R_X86_64_DTPMOD64 && f.symbolName(symbols, uint32(info>>32)) == variable {
			slot, ok = off, true
		}
	})
	return slot, ok
}
