package binfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sort"
)

// PE is a file in the format of Windows: what .NET compiles ahead, on Linux too.
type PE struct {
	// BuildID identifies the content, as far as a file of ELF's build-id does:
	// "pe-" and a hash of the headers and the table of functions.
	BuildID string
	// Functions are the pieces of code of its functions, by place.
	Functions []PEFunction

	r        io.ReaderAt
	sections []peSection
}

// PEFunction is where code of a function lies, by offset in the file.
type PEFunction struct{ Start, End uint64 }

type peSection struct {
	address, size, offset uint32
}

var errPE = errors.New("not a PE file of 64 bits")

const (
	peHeaderAt      = 0x3c
	peFileHeader    = 24 // with its signature
	peOptional64    = 0x20b
	peDirectories   = 112 // in the optional header
	peExceptions    = 3
	peSectionBytes  = 40
	peFunctionBytes = 12 // begin, end, unwinding information
	maxPEFunctions  = 1 << 20
	maxPEHeaders    = 64 << 10
)

// NewPE reads a PE file for x86-64. The machine in its header tells the
// operating system too, in ways of its own, and is not looked at: code that is
// mapped here runs here.
func NewPE(r io.ReaderAt) (*PE, error) {
	head := make([]byte, 64)
	if _, err := r.ReadAt(head, 0); err != nil || head[0] != 'M' || head[1] != 'Z' {
		return nil, errPE
	}
	at := int64(binary.LittleEndian.Uint32(head[peHeaderAt:]))
	headers := make([]byte, maxPEHeaders)
	n, err := r.ReadAt(headers, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	headers = headers[:n]
	if n < peFileHeader || string(headers[:4]) != "PE\x00\x00" {
		return nil, errPE
	}
	count := int(binary.LittleEndian.Uint16(headers[6:]))
	optional := int(binary.LittleEndian.Uint16(headers[20:]))
	end := peFileHeader + optional + count*peSectionBytes
	if optional < peDirectories+8*(peExceptions+1) || end > n || binary.LittleEndian.Uint16(headers[peFileHeader:]) != peOptional64 {
		return nil, errPE
	}
	p := &PE{r: r}
	for s := headers[peFileHeader+optional : end]; len(s) > 0; s = s[peSectionBytes:] {
		p.sections = append(p.sections, peSection{address: binary.LittleEndian.Uint32(s[12:]),
			size: binary.LittleEndian.Uint32(s[16:]), offset: binary.LittleEndian.Uint32(s[20:])})
	}
	directory := headers[peFileHeader+peDirectories+8*peExceptions:]
	table, err := p.readTable(binary.LittleEndian.Uint32(directory), binary.LittleEndian.Uint32(directory[4:]))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	sum.Write(headers[:end])
	sum.Write(table)
	p.BuildID = "pe-" + hex.EncodeToString(sum.Sum(nil)[:idHashBytes])
	p.readFunctions(table)
	return p, nil
}

// readTable reads the bytes of the table of functions; a file without code has none.
func (p *PE) readTable(address, size uint32) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	at, ok := p.offset(address)
	if !ok || size > maxPEFunctions*peFunctionBytes {
		return nil, fmt.Errorf("%w: its functions are at %#x", errPE, address)
	}
	table := make([]byte, size)
	n, err := p.r.ReadAt(table, int64(at))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return table[:n], nil
}

func (p *PE) readFunctions(table []byte) {
	for ; len(table) >= peFunctionBytes; table = table[peFunctionBytes:] {
		begin, end := binary.LittleEndian.Uint32(table), binary.LittleEndian.Uint32(table[4:])
		start, ok := p.offset(begin)
		if !ok || end <= begin {
			continue
		}
		f := PEFunction{start, start + uint64(end-begin)}
		if n := len(p.Functions); n > 0 && f.Start < p.Functions[n-1].End {
			continue // damaged: they are sorted and do not overlap
		}
		p.Functions = append(p.Functions, f)
	}
}

// offset tells where in the file an address of the image is.
func (p *PE) offset(address uint32) (uint64, bool) {
	for _, s := range p.sections {
		if address >= s.address && address-s.address < s.size {
			return uint64(address-s.address) + uint64(s.offset), true
		}
	}
	return 0, false
}

// ReadAt reads the file.
func (p *PE) ReadAt(b []byte, offset int64) (int, error) { return p.r.ReadAt(b, offset) }

// Function gives the function whose code holds an offset of the file.
func (p *PE) Function(offset uint64) (PEFunction, bool) {
	i := sort.Search(len(p.Functions), func(i int) bool { return p.Functions[i].Start > offset }) - 1
	if i < 0 || offset >= p.Functions[i].End {
		return PEFunction{}, false
	}
	return p.Functions[i], true
}
