package binfile

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// maxDigest bounds how much of a file is hashed: 0.7 s with the processor's
// instructions for it. Chromium has 0.3 GB.
const maxDigest = 1 << 30

// ErrTooLarge says that a file is too large for something.
var ErrTooLarge = errors.New("the file is too large")

const (
	elfHeader     = 64 // bytes of a 64-bit file
	programHeader = 56
)

// DigestCode hashes all that unwinding is made from, and what runs: the headers,
// what the loader maps, tables of symbols, and unwind information that is not
// mapped. Debug information does not count.
func (f *File) DigestCode() (sum [sha256.Size]byte, err error) {
	d := digester{hash: sha256.New(), r: f.r}
	d.add("headers", 0, elfHeader+uint64(len(f.ELF.Progs))*programHeader)
	for _, p := range f.ELF.Progs {
		d.number(uint64(p.Type), uint64(p.Flags), p.Off, p.Vaddr, p.Filesz, p.Memsz)
	}
	for _, l := range f.loads {
		d.add("load", l.Off, l.Filesz)
	}
	for _, s := range f.ELF.Sections {
		d.string(s.Name)
		d.number(uint64(s.Type), uint64(s.Flags), s.Addr, s.Size, uint64(s.Link), uint64(s.Info))
		if s.Flags&elf.SHF_ALLOC == 0 && s.Type != elf.SHT_NOBITS && !isDebug(s.Name) && s.Offset < uint64(f.size) {
			d.add(s.Name, s.Offset, min(s.FileSize, uint64(f.size)-s.Offset))
		}
	}
	return d.sum()
}

// isDebug tells sections that unwinding does not look at.
func isDebug(name string) bool {
	if name == ".debug_frame" || name == ".zdebug_frame" {
		return false
	}
	return strings.HasPrefix(name, ".debug_") || strings.HasPrefix(name, ".zdebug_") || strings.HasPrefix(name, ".gnu_debug") || name == ".comment"
}

// DigestAll hashes a whole file of any format.
func DigestAll(r io.ReaderAt, size int64) (sum [sha256.Size]byte, err error) {
	d := digester{hash: sha256.New(), r: r}
	d.add("all", 0, uint64(size))
	return d.sum()
}

// Digest hashes the whole file.
func (f *File) Digest() ([sha256.Size]byte, error) { return DigestAll(f.r, f.size) }

// digester hashes parts of a file, each with its place.
type digester struct {
	hash  hash.Hash
	r     io.ReaderAt
	total uint64
	err   error
}

func (d *digester) number(numbers ...uint64) {
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], n)
		d.hash.Write(b[:])
	}
}

func (d *digester) string(s string) {
	d.number(uint64(len(s)))
	io.WriteString(d.hash, s)
}

func (d *digester) add(what string, off, size uint64) {
	if d.err != nil {
		return
	}
	if d.total += size; size > maxDigest || d.total > maxDigest {
		d.err = fmt.Errorf("hash %s: %w: more than %d bytes", what, ErrTooLarge, maxDigest)
		return
	}
	d.string(what)
	d.number(off, size)
	if _, err := io.CopyBuffer(onlyWriter{d.hash}, io.NewSectionReader(d.r, int64(off), int64(size)), make([]byte, digestBlock)); err != nil {
		d.err = fmt.Errorf("hash %s: %w", what, err)
	}
}

// digestBlock is what is read at once.
const digestBlock = 128 << 10

// onlyWriter hides what else a hash can do, so that copies go through the buffer.
type onlyWriter struct{ io.Writer }

func (d *digester) sum() (sum [sha256.Size]byte, err error) {
	if d.err != nil {
		return sum, d.err
	}
	d.hash.Sum(sum[:0])
	return sum, nil
}
