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
