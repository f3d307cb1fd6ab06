package binfile

import (
	"debug/elf"
	"encoding/binary"
)

// Exports is the table of symbols that a file offers to the dynamic linker. It
// is searched as the linker does, through the file's own hash table: a handful
// of small reads however large the file is, where LookupSymbols reads whole
// tables (of node: 7 MB, 10 ms). The zero value offers nothing.
type Exports struct {
	f                *File
	symbols, strings uint64 // addresses of the tables
	gnu, sysv        uint64 // of the hash tables, 0 without it
}

// Export is one symbol of Exports: code or data.
type Export struct {
	Address, Size uint64
	Type          elf.SymType
}

// Exports opens the table. Files without one, as static programs are, offer
// nothing.
func (f *File) Exports() Exports {
	e := Exports{f: f,
		symbols: f.dynamicFlag(uint64(elf.DT_SYMTAB)),
		strings: f.dynamicFlag(uint64(elf.DT_STRTAB)),
		gnu:     f.dynamicFlag(uint64(elf.DT_GNU_HASH)),
		sysv:    f.dynamicFlag(uint64(elf.DT_HASH)),
	}
	if e.symbols == 0 || e.strings == 0 || e.gnu == 0 && e.sysv == 0 {
		return Exports{}
	}
	return e
}

// Empty reports whether there is no table to search.
func (e Exports) Empty() bool { return e.f == nil }

// Lookup finds a defined symbol by its name, whatever its version.
func (e Exports) Lookup(name string) (Export, bool) {
	switch {
	case e.f == nil || name == "":
		return Export{}, false
	case e.gnu != 0:
		return e.lookupGNU(name)
	}
	return e.lookupSysV(name)
}

// maxChain bounds the symbols looked at in one bucket: linkers make buckets of
// a few, an enemy one of all.
const maxChain = 1 << 12

// lookupGNU searches the table of DT_GNU_HASH, all little-endian:
//
//	buckets 4 | first symbol 4 | bloom words 4 | bloom shift 4
//	bloom     8 each: two bits per symbol, so that most misses end here
//	bucket    4 each: the first symbol of a chain, or 0
//	hash      4 each, from the first symbol on; bit 0 ends a chain
func (e Exports) lookupGNU(name string) (Export, bool) {
	var head [16]byte
	if !e.read(head[:], e.gnu) {
		return Export{}, false
	}
	buckets := uint64(binary.LittleEndian.Uint32(head[0:]))
	first := binary.LittleEndian.Uint32(head[4:])
	words := uint64(binary.LittleEndian.Uint32(head[8:]))
	shift := binary.LittleEndian.Uint32(head[12:])
	if buckets == 0 || words == 0 {
		return Export{}, false
	}
	h := gnuHash(name)
	bloom := e.gnu + uint64(len(head))
	word, ok := e.word64(bloom + uint64(h)/64%words*8)
	if !ok || word>>(h%64)&1 == 0 || word>>(h>>(shift%32)%64)&1 == 0 {
		return Export{}, false
	}
	bucket := bloom + words*8
	chain := bucket + buckets*4
	i, ok := e.word32(bucket + uint64(h)%buckets*4)
	if !ok || i < first {
		return Export{}, false
	}
	for range maxChain {
		hash, ok := e.word32(chain + uint64(i-first)*4)
		if !ok {
			break
		}
		if hash|1 == h|1 {
			if s, ok := e.symbol(i, name); ok {
				return s, true
			}
		}
		if hash&1 != 0 {
			break
		}
		i++
	}
	return Export{}, false
}

// lookupSysV searches the older table of DT_HASH: buckets 4 | symbols 4 |
// bucket 4 each | next symbol of the chain 4 each.
func (e Exports) lookupSysV(name string) (Export, bool) {
	buckets, ok := e.word32(e.sysv)
	if !ok || buckets == 0 {
		return Export{}, false
	}
	i, ok := e.word32(e.sysv + 8 + uint64(sysvHash(name)%buckets)*4)
	for n := 0; ok && i != 0 && n < maxChain; n++ {
		if s, ok := e.symbol(i, name); ok {
			return s, true
		}
		i, ok = e.word32(e.sysv + 8 + uint64(buckets)*4 + uint64(i)*4)
	}
	return Export{}, false
}

// symbol reads a symbol if it is the defined one of that name.
func (e Exports) symbol(index uint32, name string) (Export, bool) {
	var raw [symbolBytes]byte
	if !e.read(raw[:], e.symbols+uint64(index)*symbolBytes) || binary.LittleEndian.Uint16(raw[6:]) == uint16(elf.SHN_UNDEF) {
		return Export{}, false
	}
	found := make([]byte, len(name)+1)
	if !e.read(found, e.strings+uint64(binary.LittleEndian.Uint32(raw[0:]))) || string(found) != name+"\x00" {
		return Export{}, false
	}
	return Export{Address: binary.LittleEndian.Uint64(raw[8:]), Size: binary.LittleEndian.Uint64(raw[16:]), Type: elf.ST_TYPE(raw[4])}, true
}

func (e Exports) read(p []byte, address uint64) bool {
	n, _ := e.f.ReadAddress(p, address)
	return n == len(p)
}

func (e Exports) word32(address uint64) (uint32, bool) {
	var b [4]byte
	ok := e.read(b[:], address)
	return binary.LittleEndian.Uint32(b[:]), ok
}

func (e Exports) word64(address uint64) (uint64, bool) {
	var b [8]byte
	ok := e.read(b[:], address)
	return binary.LittleEndian.Uint64(b[:]), ok
}

// gnuHash is the hash of DT_GNU_HASH.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

// sysvHash is the hash of DT_HASH, of the System V ABI.
func sysvHash(name string) uint32 {
	h := uint32(0)
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		high := h & 0xf0000000
		h = (h ^ high>>24) &^ high
	}
	return h
}
