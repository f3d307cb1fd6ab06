package cfi

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// relocation is a place where the loader writes a pointer into this file.
type relocation struct{ at, value uint64 }

// relative lists the R_X86_64_RELATIVE relocations by place.
func (im *image) relative() []relocation {
	if im.relocs != nil {
		return im.relocs
	}
	im.relocs = []relocation{}
	for _, s := range im.file.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || s.Size > maxSection {
			continue
		}
		b, err := s.Data()
		if err != nil {
			continue
		}
		for ; len(b) >= 24; b = b[24:] {
			if binary.LittleEndian.Uint64(b[8:]) == uint64(elf.R_X86_64_RELATIVE) {
				im.relocs = append(im.relocs, relocation{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[16:])})
			}
		}
	}
	slices.SortFunc(im.relocs, func(a, b relocation) int { return cmp.Compare(a.at, b.at) })
	return im.relocs
}
