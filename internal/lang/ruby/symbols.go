package ruby

import (
	"encoding/binary"
	"fmt"
	"io"
)

// memory reads words of a process. What it reads may be anything.
type memory struct{ io.ReaderAt }

func (m memory) words(address uint64, words []uint64) error {
	raw := make([]byte, 8*len(words))
	if _, err := m.ReadAt(raw, int64(address)); err != nil {
		return err
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return nil
}

// Types and flags of objects; see ruby.h.
const (
	typeMask   = 0x1f
	typeString = 0x05
	typeArray  = 0x07
	typeHash   = 0x08
	embedded   = 1 << 13 // an array; a string: it is not

	unitNumbers = 512 // of symbols in one array
	idFlags     = 4   // bits of an id below its number
	idLocal     = 1   // the lowest: not an operator
)

// symbols is ruby_global_symbols: how many there are, and the arrays of their
// strings. It has no symbol of its own.
//
//	number of the last u32 | unused u32 | table | array of arrays | hash
type symbols struct {
	memory memory
	at     uint64
	last   uint32
	arrays []uint64
}

const (
	maxAreas   = 8       // of libruby's data that are searched; it has one
	maxData    = 1 << 22 // bytes of each
	minSymbols = 512     // Ruby itself has 3,000
	maxSymbols = 1 << 26
)

// findSymbols looks for the table in the data of libruby: it is the only one
// there that looks like it and has strings where it should.
func findSymbols(in []area, m memory, bias uint64) (*symbols, error) {
	for _, a := range in {
		data := make([]uint64, a.words)
		if err := m.words(bias+a.start, data); err != nil {
			return nil, err
		}
		for i := range len(data) - 3 {
			if s := symbolsAt(m, bias+a.start+8*uint64(i), data[i:i+4]); s != nil {
				return s, nil
			}
		}
	}
	return nil, errStarting
}

func isObject(word uint64) bool { return word >= 4096 && word&7 == 0 && word>>47 == 0 }

// symbolsAt checks whether four words are the table.
func symbolsAt(m memory, at uint64, words []uint64) *symbols {
	last, ids, hash := uint32(words[0]), words[2], words[3]
	if last < minSymbols || last > maxSymbols || !isObject(words[1]) || !isObject(ids) || !isObject(hash) {
		return nil
	}
	var flags [1]uint64
	if m.words(hash, flags[:]) != nil || flags[0]&typeMask != typeHash {
		return nil
	}
	s := &symbols{memory: m, at: at, last: last}
	s.arrays = s.array(ids, maxSymbols/unitNumbers)
	if len(s.arrays) == 0 || uint32(len(s.arrays)-1) != last/unitNumbers {
		return nil
	}
	return s
}

// array reads an array of at most some elements; none where it is no array.
func (s *symbols) array(at uint64, most uint64) []uint64 {
	var words [5]uint64 // flags, class, length, unused, address
	if !isObject(at) || s.memory.words(at, words[:]) != nil || words[0]&typeMask != typeArray {
		return nil
	}
	length, from := words[2], words[4]
	if words[0]&embedded != 0 {
		length, from = words[0]>>15&3, at+16
	}
	if length > most {
		return nil
	}
	elements := make([]uint64, length)
	if s.memory.words(from, elements) != nil {
		return nil
	}
	return elements
}

const maxName = 64 // of the names that are looked for

// text reads a short string; "" where it is none.
func (s *symbols) text(at uint64) string {
	var words [4]uint64 // flags, class, length, address
	if !isObject(at) || s.memory.words(at, words[:]) != nil || words[0]&typeMask != typeString {
		return ""
	}
	length, from := words[0]>>14&0x1f, at+16
	if words[0]&embedded != 0 {
		length, from = words[2], words[3]
	}
	text := make([]byte, min(length, maxName))
	if _, err := s.memory.ReadAt(text, int64(from)); err != nil {
		return ""
	}
	return string(text)
}

// ids finds the ids of names that the virtual machine itself made, which are
// among the first.
func (s *symbols) ids(wanted map[string]*uint64) error {
	missing := len(wanted)
	strings := s.array(s.arrays[0], 2*unitNumbers)
	for i := 0; i < len(strings) && missing > 0; i += 2 {
		if id := wanted[s.text(strings[i])]; id != nil && *id == 0 {
			*id = uint64(i/2)<<idFlags | idLocal
			missing--
		}
	}
	if missing > 0 {
		return fmt.Errorf("%w, or its table of symbols is not understood", errStarting)
	}
	return nil
}
