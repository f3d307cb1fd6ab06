package binfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Bounds of headers, which debug/elf reads as large as the file says they are.
const (
	maxPrograms     = 64 // linkers write 9 to 14
	maxSections     = 1<<16 - 1
	maxSectionNames = 1 << 22 // bytes of all names of sections, those in common counted for each
	sectionHeader   = 64      // bytes of one, of 64-bit files
)

// Places in a 64-bit ELF header.
const (
	offsetPhoff     = 0x20
	offsetShoff     = 0x28
	offsetPhentsize = 0x36
	offsetPhnum     = 0x38
	offsetShentsize = 0x3a
	offsetShnum     = 0x3c
	offsetShstrndx  = 0x3e
)

// headers shows a file with the headers that were found to be within bounds,
// whoever writes to the file meanwhile.
type headers struct {
	r      io.ReaderAt
	pieces []piece
}

// piece is what stands at an offset.
type piece struct {
	off  int64
	data []byte
}

// ReadAt reads the file, and the pieces instead of what they stand for.
func (h *headers) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.r.ReadAt(p, off)
	for _, piece := range h.pieces {
		start, end := max(off, piece.off), min(off+int64(n), piece.off+int64(len(piece.data)))
		if start < end {
			copy(p[start-off:end-off], piece.data[start-piece.off:])
		}
	}
	return n, err
}

// keep reads a piece, and shows it from now on as it is now.
func (h *headers) keep(off uint64, size int) ([]byte, error) {
	if off > 1<<62 {
		return nil, fmt.Errorf("offset %#x is in no file", off)
	}
	data := make([]byte, size)
	if n, err := h.ReadAt(data, int64(off)); n < size {
		return nil, fmt.Errorf("read %d bytes at %#x: %w", size, off, err)
	}
	h.pieces = append(h.pieces, piece{int64(off), data})
	return data, nil
}

// readHeaders checks all that debug/elf would read of a file. A table of sections that
// is damaged, cut off, or beyond the bounds is shown as if there were none.
func readHeaders(r io.ReaderAt) (*headers, error) {
	h := &headers{r: r}
	head, err := h.keep(0, elfHeader)
	if err != nil {
		return nil, err
	}
	if err := h.checkPrograms(head); err != nil {
		return nil, err
	}
	if err := h.checkSections(head); err != nil {
		h.hideSections()
	}
	return h, nil
}

func (h *headers) hideSections() {
	head := h.pieces[0].data
	clear(head[offsetShoff : offsetShoff+8])
	clear(head[offsetShnum:elfHeader])
}

func (h *headers) checkPrograms(head []byte) error {
	n, size := binary.LittleEndian.Uint16(head[offsetPhnum:]), binary.LittleEndian.Uint16(head[offsetPhentsize:])
	if n == 0 {
		return nil
	}
	if n > maxPrograms || size != programHeader {
		return fmt.Errorf("%d program headers of %d bytes: more than %d, or of other than %d, are not read",
			n, size, maxPrograms, programHeader)
	}
	_, err := h.keep(binary.LittleEndian.Uint64(head[offsetPhoff:]), int(n)*programHeader)
	return err
}

func (h *headers) checkSections(head []byte) error {
	off := binary.LittleEndian.Uint64(head[offsetShoff:])
	if off == 0 {
		return nil
	}
	if size := binary.LittleEndian.Uint16(head[offsetShentsize:]); size != sectionHeader {
		return fmt.Errorf("section headers of %d bytes", size)
	}
	first, err := h.keep(off, sectionHeader)
	if err != nil {
		return err
	}
	// What does not fit into the header's 16 bits is in the first section.
	n := uint64(binary.LittleEndian.Uint16(head[offsetShnum:]))
	if n == 0 {
		n = binary.LittleEndian.Uint64(first[32:])
	}
	names := uint64(binary.LittleEndian.Uint16(head[offsetShstrndx:]))
	if names == uint64(elf.SHN_XINDEX) {
		names = uint64(binary.LittleEndian.Uint32(first[40:]))
	}
	if n > maxSections || names >= n {
		return fmt.Errorf("%d sections, with names in %d", n, names)
	}
	table, err := h.keep(off, int(n)*sectionHeader)
	if err != nil || names == 0 {
		return err
	}
	return h.checkNames(table, table[names*sectionHeader:])
}

// checkNames bounds the names of sections: they may be ends of one long string,
// and debug/elf copies each.
func (h *headers) checkNames(table, strings []byte) error {
	size := binary.LittleEndian.Uint64(strings[32:])
	compressed := binary.LittleEndian.Uint64(strings[8:])&uint64(elf.SHF_COMPRESSED) != 0
	if size > maxSectionNames || compressed {
		return errors.New("names of sections are too large")
	}
	names, err := h.keep(binary.LittleEndian.Uint64(strings[24:]), int(size))
	if err != nil {
		return err
	}
	total := 0
	for ; len(table) >= sectionHeader; table = table[sectionHeader:] {
		at := uint64(binary.LittleEndian.Uint32(table))
		end := bytes.IndexByte(names[min(at, size):], 0)
		if total += end + 1; end < 0 || total > maxSectionNames {
			return errors.New("names of sections are cut off or too large")
		}
	}
	return nil
}
