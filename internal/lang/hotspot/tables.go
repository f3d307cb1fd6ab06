package hotspot

import (
	"errors"
	"fmt"

	"atys.dev/atys/internal/binfile"
)

// tables are what libjvm says of itself for debuggers: where the fields of its
// types are, how large the types are, and some constants.
type tables struct {
	fields map[string]field // "Type.name"
	sizes  map[string]uint64
	ints   map[string]int64
}

// field is a field's offset, or a static one's address.
type field struct {
	static bool
	at     uint64
	kind   string // its C++ type
}

const (
	maxEntries = 1 << 14 // JDK 25 has 650 fields, 600 types, 400 numbers
	maxStride  = 256
	maxName    = 512
)

// table is an array of entries, and which exported words tell how they are
// laid out: prefix and ArrayStride, name, and the others.
type table struct {
	array, prefix, name string
	others              []string
}

// published are the tables that libjvm exports.
func published() (structs, types, ints, longs table) {
	return table{"gHotSpotVMStructs", "gHotSpotVMStructEntry", "TypeNameOffset", []string{"FieldNameOffset", "IsStaticOffset", "OffsetOffset", "AddressOffset", "TypeStringOffset"}},
		table{"gHotSpotVMTypes", "gHotSpotVMTypeEntry", "TypeNameOffset", []string{"SizeOffset"}},
		table{"gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", "NameOffset", []string{"ValueOffset"}},
		table{"gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", "NameOffset", []string{"ValueOffset"}}
}

// words are the symbols of a table.
func (t table) words() []string {
	words := []string{t.array, t.prefix + "ArrayStride", t.prefix + t.name}
	for _, other := range t.others {
		words = append(words, t.prefix+other)
	}
	return words
}

// symbols are where a libjvm's file has the words that tell its tables.
type symbols map[string]uint64

// readFile finds them. What they hold is not in the file: in 17 and later the
// tables are filled when it is loaded.
func readFile(f *binfile.File) (symbols, error) {
	exports, at := f.Exports(), symbols{}
	structs, types, ints, longs := published()
	for _, t := range []table{structs, types, ints, longs} {
		for _, word := range t.words() {
			s, ok := exports.Lookup(word)
			if !ok {
				return nil, fmt.Errorf("libjvm does not export %s", word)
			}
			at[word] = s.Address
		}
	}
	return at, nil
}

// errStarting says that a JVM has not got far enough to be read.
var errStarting = errors.New("the JVM is still starting")

// readTables reads them; symbol gives the address of an exported symbol.
func readTables(m memory, symbol func(name string) (uint64, bool)) (t tables, err error) {
	cached := memory{paged{m, map[uint64][]byte{}}}
	r := tableReader{m: cached, symbol: symbol}
	t = tables{map[string]field{}, map[string]uint64{}, map[string]int64{}}
	structs, types, ints, longs := published()
	r.each(structs,
		func(name string, entry []byte, at []uint64) {
			own := r.name(r.word(entry, at[0], 8))
			f := field{static: r.word(entry, at[1], 4) != 0, at: r.word(entry, at[2], 8)}
			if kind := r.word(entry, at[4], 8); kind != 0 {
				f.kind = r.name(kind)
			}
			if f.static {
				f.at = r.word(entry, at[3], 8)
			}
			t.fields[name+"."+own] = f
		})
	r.each(types,
		func(name string, entry []byte, at []uint64) { t.sizes[name] = r.word(entry, at[0], 8) })
	r.each(ints,
		func(name string, entry []byte, at []uint64) { t.ints[name] = int64(int32(r.word(entry, at[0], 4))) })
	r.each(longs,
		func(name string, entry []byte, at []uint64) { t.ints[name] = int64(r.word(entry, at[0], 8)) })
	return t, r.err
}

// tableReader reads arrays whose layout is told by further exported words.
type tableReader struct {
	m      memory
	symbol func(string) (uint64, bool)
	err    error // the first
}

func (r *tableReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// exported reads the word that a symbol names.
func (r *tableReader) exported(name string) uint64 {
	address, ok := r.symbol(name)
	if !ok {
		r.fail(fmt.Errorf("libjvm does not export %s", name))
		return 0
	}
	value, ok := r.m.u64(address)
	if !ok {
		r.fail(fmt.Errorf("cannot read %s", name))
	}
	return value
}

func (r *tableReader) word(entry []byte, at uint64, size int) uint64 {
	if at > maxStride || at+uint64(size) > uint64(len(entry)) {
		r.fail(errors.New("libjvm's tables make no sense"))
		return 0
	}
	if size == 4 {
		return uint64(le.Uint32(entry[at:]))
	}
	return le.Uint64(entry[at:])
}

func (r *tableReader) name(address uint64) string {
	text, ok := r.m.text(address, maxName)
	if !ok {
		r.fail(errStarting)
	}
	return text
}

// each reads the entries of an array up to the one without a name.
func (r *tableReader) each(t table, entry func(name string, entry []byte, at []uint64)) {
	words := make([]uint64, 0, 8)
	for _, word := range t.words() {
		words = append(words, r.exported(word))
	}
	first, stride, nameAt, at := words[0], words[1], words[2], words[3:]
	if r.err == nil && (stride == 0 || stride > maxStride || first == 0) {
		r.fail(errStarting)
	}
	raw := make([]byte, min(stride, maxStride))
	for i := uint64(0); r.err == nil && i < maxEntries; i++ {
		if !r.m.read(raw, first+i*stride) {
			r.fail(fmt.Errorf("cannot read %s", t.array))
			return
		}
		address := r.word(raw, nameAt, 8)
		if address == 0 {
			return
		}
		if text := r.name(address); r.err == nil {
			entry(text, raw, at)
		}
	}
}
