package binfile

import (
	"encoding/binary"
	"slices"
)

const (
	ehVersion       = 1
	ehPointer       = 0x1b // DW_EH_PE_pcrel | sdata4
	ehCount         = 0x03 // udata4
	ehTable         = 0x3b // datarel | sdata4
	maxFrameHdr     = 1 << 28
	frameHdrStart   = 12
	frameHdrEntries = 8
)

// FrameStarts gives the sorted addresses at which unwind information of a
// function starts, from the search table of .eh_frame_hdr; nil without it.
func (f *File) FrameStarts() []uint64 {
	s := f.Section(".eh_frame_hdr")
	if s == nil {
		return nil
	}
	data, err := f.sectionData(s, maxFrameHdr)
	if err != nil || len(data) < frameHdrStart || data[0] != ehVersion || data[1] != ehPointer ||
		data[2] != ehCount || data[3] != ehTable {
		return nil
	}
	n := min(int64(binary.LittleEndian.Uint32(data[8:])), int64(len(data)-frameHdrStart)/frameHdrEntries)
	starts := make([]uint64, n)
	for i := range starts {
		at := frameHdrStart + i*frameHdrEntries
		starts[i] = s.Addr + uint64(int64(int32(binary.LittleEndian.Uint32(data[at:]))))
	}
	slices.Sort(starts)
	return starts
}
