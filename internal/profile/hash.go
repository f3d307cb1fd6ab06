package profile

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// Hash identifies a place or a stack by what it is: the same on every host, in
// every window and in every version of atys. Two that differ do not share one
// unless somebody works for that harder than anybody can.
type Hash [16]byte

// Hash of a place in code; its names are not part of it.
func (l Location) Hash() Hash {
	h := newHasher()
	h.byte('L')
	h.byte(byte(l.Kind))
	h.string(l.BuildID)
	h.number(l.Offset)
	h.string(l.Name)
	h.string(l.File)
	h.number(uint64(l.Line))
	return h.sum()
}

// Hash of a walk's end: of the stack without calls that ends so.
func (e End) Hash() Hash {
	h := newHasher()
	h.byte('E')
	h.byte(byte(e))
	return h.sum()
}

// Call is the hash of the stack that h calls: h's, and a location on top of it.
// So all stacks that begin alike share the hashes of what they share.
func (h Hash) Call(location Hash) Hash {
	s := newHasher()
	s.byte('C')
	s.buf = append(append(s.buf, h[:]...), location[:]...)
	return s.sum()
}

// hasher gathers what is hashed, each part with its length, so that no two
// sequences of parts are the same bytes. It ends with sum.
type hasher struct{ buf []byte }

// hashers are used again: servers hash thousands of calls of each new instance.
var hashers = sync.Pool{New: func() any { return &hasher{} }}

func newHasher() *hasher { return hashers.Get().(*hasher) }

func (h *hasher) byte(b byte) { h.buf = append(h.buf, b) }

func (h *hasher) number(n uint64) { h.buf = binary.AppendUvarint(h.buf, n) }

func (h *hasher) string(s string) {
	h.number(uint64(len(s)))
	h.buf = append(h.buf, s...)
}

func (h *hasher) sum() Hash {
	whole := sha256.Sum256(h.buf)
	h.buf = h.buf[:0]
	hashers.Put(h)
	return Hash(whole[:16])
}
