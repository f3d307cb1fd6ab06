package beam

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/profile"
)

const (
	headBytes   = 40 // before a function's code
	page        = 4096
	maxFunction = 256 << 10 // how far back a function's beginning is looked for
	maxAtom     = 255       // characters
	maxAtoms    = 1 << 26
	maxArity    = 255
)

// Namer names functions. The zero value is ready.
type Namer struct{}

// Name gives module:function/arity.
func (*Namer) Name(a lang.Activation, of lang.Walked) []profile.Frame {
	r, ok := of.(*Runtime)
	if !ok {
		return nil
	}
	if name, ok := r.name(a.Where); ok {
		return []profile.Frame{{Function: name, Kind: profile.KindBEAM}}
	}
	return nil
}

// name finds the function that holds an address: the last that begins before it.
func (r *Runtime) name(pc uint64) (string, bool) {
	var buffer [page + headBytes]byte // a head may go over the page's edge
	for low := pc &^ (page - 1); pc-low < maxFunction; low -= page {
		n, _ := r.memory.ReadAt(buffer[:], int64(low))
		if n == 0 {
			break // that is before all code
		}
		for at := min(n, int(min(pc-low, page+headBytes)))&^7 - headBytes; at >= 0; at -= 8 {
			if name, ok := r.parseHead(buffer[at:]); ok {
				return name, true
			}
		}
	}
	return "", false
}

// parseHead reads what stands before a function's code.
func (r *Runtime) parseHead(head []byte) (string, bool) {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(head[8*i:]) }
	if head[0] != 0xe8 || word(1)&7 != 0 || word(1)>>47 != 0 || word(4) > maxArity { // a call
		return "", false
	}
	module, ok := r.atom(word(2))
	if !ok {
		return "", false
	}
	function, ok := r.atom(word(3))
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%s:%s/%d", module, function, word(4)), true
}

// atom reads an atom's text: a segment of the table has 1,024 of them; in an
// atom, its length is at 24 and its bytes are where 32 points.
func (r *Runtime) atom(term uint64) (string, bool) {
	index := term >> 6
	if term&0x3f != 0x0b || index >= maxAtoms {
		return "", false
	}
	segment, err := r.word(r.segments + 8*(index>>10))
	if err != nil || segment == 0 {
		return "", false
	}
	atom, err := r.word(segment + 8*(index&1023))
	if err != nil || atom == 0 {
		return "", false
	}
	var fields [16]byte
	if _, err := r.memory.ReadAt(fields[:], int64(atom+24)); err != nil {
		return "", false
	}
	length := int(int16(binary.LittleEndian.Uint16(fields[:])))
	if length <= 0 || length > maxAtom*utf8.UTFMax {
		return "", false
	}
	text := make([]byte, length)
	if _, err := r.memory.ReadAt(text, int64(binary.LittleEndian.Uint64(fields[8:]))); err != nil {
		return "", false
	}
	return string(text), utf8.Valid(text) && !strings.ContainsFunc(string(text), func(c rune) bool { return c < ' ' || c == 0x7f })
}
