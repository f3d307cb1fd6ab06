// Package gopclntab names code in Go binaries, stripped ones too, from the table
// that the Go runtime itself uses for its tracebacks: function, file, line, start
// line, and the calls that were inlined.
//
// The flow:
//
//  1. New finds the table, by section or by its header (find.go), and the
//     runtime's moduledata, which knows where text and inline trees begin.
//  2. Lookup finds the function that holds an address, then follows the inline
//     tree from the innermost call to the function itself (lookup.go).
//
// Layouts are those of Go 1.16 to 1.26, 64 bits. The table is read in place,
// a block at a time; nothing is unpacked.
//
//	pcHeader    magic, sizes, offsets of the parts below
//	names       NUL-terminated, by offset
//	cutab       per compilation unit: file number -> offset in files
//	files       NUL-terminated, by offset
//	pctab       sequences of (value delta, pc delta), by offset
//	functab     (entry, offset of func), sorted; then the funcs
package gopclntab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"atys.dev/atys/internal/binfile"
)

// ErrNoTable is what New wraps for files that the Go linker did not make.
var ErrNoTable = errors.New("no Go function table")

type version int

const (
	go116 version = iota // Go 1.16 and 1.17
	go118                // Go 1.18 and 1.19
	go120                // Go 1.20 to 1.26
)

var magics = map[uint32]version{0xfffffffa: go116, 0xfffffff0: go118, 0xfffffff1: go120}

// Table is the function table of one file. It is safe for concurrent use.
type Table struct {
	r       io.ReaderAt // of the table, through a cache
	size    int64
	file    *binfile.File
	version version

	address  uint64 // of the table
	text     uint64 // what entries are relative to since 1.18
	inline   uint64 // what inline trees are relative to since 1.18, 0 if not found
	nfunc    int64
	names    int64
	units    int64
	files    int64
	pctab    int64
	functab  int64
	firstPC  uint64
	behindPC uint64
}

// Frame is a function at a line.
type Frame struct {
	Function, File  string
	Line, StartLine int
	Inlined         bool // into the frame that follows
}

const (
	ptrSize     = 8
	headerBytes = 8 + 8*ptrSize
	maxString   = 1 << 14
	maxInlined  = 1 << 10 // calls inlined into each other
	functab116  = 2 * ptrSize
	functab118  = 2 * 4
)

// New finds the table of a file, which must stay open as long as the table is used.
func New(f *binfile.File) (*Table, error) {
	t, err := find(f)
	if err != nil {
		return nil, err
	}
	t.findModule()
	if t.version >= go118 && t.text == 0 {
		return nil, fmt.Errorf("%w: no start of text", ErrNoTable)
	}
	if t.firstPC, err = t.entry(0); err != nil {
		return nil, err
	}
	if t.behindPC, err = t.entry(t.nfunc); err != nil {
		return nil, err
	}
	// A wrong start of text would give wrong names for everything.
	if _, ok := f.Offset(t.firstPC); !ok || t.behindPC <= t.firstPC {
		return nil, fmt.Errorf("%w: functions lie outside of the code", ErrNoTable)
	}
	return t, nil
}

// parseHeader reads a header that may be one; false if it is not.
func (t *Table) parseHeader() bool {
	var h [headerBytes]byte
	if _, err := t.r.ReadAt(h[:], 0); err != nil {
		return false
	}
	v, ok := magics[binary.LittleEndian.Uint32(h[:])]
	if !ok || h[4] != 0 || h[5] != 0 || h[6] != 1 || h[7] != ptrSize {
		return false
	}
	t.version = v
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(h[8+i*ptrSize:])) }
	t.nfunc = word(0)
	i := 2
	if v >= go118 {
		t.text = uint64(word(2)) // 0 since 1.26, and in position-independent files
		i = 3
	}
	t.names, t.units, t.files, t.pctab, t.functab = word(i), word(i+1), word(i+2), word(i+3), word(i+4)
	for _, off := range []int64{t.names, t.units, t.files, t.pctab, t.functab} {
		if off < headerBytes-ptrSize || off >= t.size {
			return false
		}
	}
	return t.nfunc > 0 && t.nfunc <= (t.size-t.functab)/t.functabBytes()
}

func (t *Table) functabBytes() int64 {
	if t.version == go116 {
		return functab116
	}
	return functab118
}

// entry gives the address where function i starts; that of nfunc is the end.
func (t *Table) entry(i int64) (uint64, error) {
	at := t.functab + i*t.functabBytes()
	if t.version == go116 {
		return t.u64(at)
	}
	off, err := t.u32(at)
	return t.text + uint64(off), err
}

func (t *Table) u32(at int64) (uint32, error) {
	var b [4]byte
	err := t.read(b[:], at)
	return binary.LittleEndian.Uint32(b[:]), err
}

func (t *Table) u64(at int64) (uint64, error) {
	var b [8]byte
	err := t.read(b[:], at)
	return binary.LittleEndian.Uint64(b[:]), err
}

// read fills b with what the table has at an offset.
func (t *Table) read(b []byte, at int64) error {
	if at < 0 || at+int64(len(b)) > t.size {
		return io.ErrUnexpectedEOF
	}
	_, err := t.r.ReadAt(b, at)
	return noEOF(err)
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
