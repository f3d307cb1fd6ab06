package hotspot

import (
	"encoding/binary"
	"errors"
	"io"
)

var le = binary.LittleEndian

// memory is that of a process. Nothing that is read from it is trusted: it may
// be gone, torn, or something else by now.
type memory struct{ r io.ReaderAt }

// read fills p, or tells that it cannot.
func (m memory) read(p []byte, address uint64) bool {
	n, _ := m.r.ReadAt(p, int64(address))
	return n == len(p)
}

// bytes reads n bytes, which are not more than limit.
func (m memory) bytes(address, n, limit uint64) ([]byte, bool) {
	if n > limit {
		return nil, false
	}
	p := make([]byte, n)
	return p, m.read(p, address)
}

func (m memory) u64(address uint64) (uint64, bool) {
	var b [8]byte
	ok := m.read(b[:], address)
	return le.Uint64(b[:]), ok
}

func (m memory) u32(address uint64) (uint32, bool) {
	var b [4]byte
	ok := m.read(b[:], address)
	return le.Uint32(b[:]), ok
}

// meter lets a number of bytes through. It bounds the work that a process can
// make for us: all that we follow there is its own.
type meter struct {
	r    io.ReaderAt
	left int // negative: something was left out
}

// readCost is what every read counts more than its bytes: a call of the kernel
// takes about as long as 4 KB of copying.
const readCost = 4096

var errSpent = errors.New("more was to be read than real JVMs have")

func (m *meter) ReadAt(p []byte, address int64) (int, error) {
	if m.left < 0 {
		return 0, errSpent
	}
	if m.left -= len(p) + readCost; m.left < 0 {
		return 0, errSpent
	}
	return m.r.ReadAt(p, address)
}

// spend has work count that is no reading; false: the budget is spent.
func (m memory) spend(work int) bool {
	by, ok := m.r.(*meter)
	if !ok {
		return true
	}
	by.left -= work
	below := memory{by.r}.spend(work)
	return below && by.left >= 0
}

// paged keeps the pages that were read: for tables whose many texts lie close
// together, and that never change.
type paged struct {
	m     memory
	pages map[uint64][]byte
}

const (
	pageBytes = 4096
	keepPages = 1 << 12 // libjvm's texts are in fewer than 100
)

// ReadAt reads through the pages kept.
func (p paged) ReadAt(b []byte, address int64) (n int, err error) {
	for n < len(b) {
		at := uint64(address) + uint64(n)
		page, ok := p.pages[at/pageBytes]
		if !ok {
			page = make([]byte, pageBytes)
			if !p.m.read(page, at/pageBytes*pageBytes) {
				return n, io.ErrUnexpectedEOF
			}
			if len(p.pages) >= keepPages {
				clear(p.pages)
			}
			p.pages[at/pageBytes] = page
		}
		n += copy(b[n:], page[at%pageBytes:])
	}
	return n, nil
}

// text reads a string that ends with a zero.
func (m memory) text(address uint64, limit int) (string, bool) {
	var b [64]byte
	var text []byte
	for len(text) < limit {
		n, _ := m.r.ReadAt(b[:], int64(address)+int64(len(text)))
		if n == 0 {
			return "", false
		}
		for i, c := range b[:n] {
			if c == 0 {
				return string(append(text, b[:i]...)), true
			}
		}
		text = append(text, b[:n]...)
	}
	return "", false
}
