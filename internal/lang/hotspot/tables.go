package hotspot

import (
	"errors"
	"fmt"
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

// errStarting says that a JVM has not got far enough to be read.
var errStarting = errors.New("the JVM is still starting")

// readTables reads them; symbol gives the address of an exported symbol.
func readTables(m memory, symbol func(name string) (uint64, bool)) (t tables, err error) {
	cached := memory{paged{m, map[uint64][]byte{}}}
	r := tableReader{m: cached, symbol: symbol}
	t = tables{map[string]field{}, map[string]uint64{}, map[string]int64{}}
	r.each("gHotSpotVMStructs", "gHotSpotVMStructEntry", "TypeNameOffset", []string{"FieldNameOffset", "IsStaticOffset", "OffsetOffset", "AddressOffset", "TypeStringOffset"},
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
	r.each("gHotSpotVMTypes", "gHotSpotVMTypeEntry", "TypeNameOffset", []string{"SizeOffset"},
		func(name string, entry []byte, at []uint64) { t.sizes[name] = r.word(entry, at[0], 8) })
	r.each("gHotSpotVMIntConstants", "gHotSpotVMIntConstantEntry", "NameOffset", []string{"ValueOffset"},
		func(name string, entry []byte, at []uint64) { t.ints[name] = int64(int32(r.word(entry, at[0], 4))) })
	r.each("gHotSpotVMLongConstants", "gHotSpotVMLongConstantEntry", "NameOffset", []string{"ValueOffset"},
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
func (r *tableReader) each(array, prefix, name string, others []string, entry func(name string, entry []byte, at []uint64)) {
	first, stride, nameAt := r.exported(array), r.exported(prefix+"ArrayStride"), r.exported(prefix+name)
	at := make([]uint64, len(others))
	for i, o := range others {
		at[i] = r.exported(prefix + o)
	}
	if r.err == nil && (stride == 0 || stride > maxStride || first == 0) {
		r.fail(errStarting)
	}
	raw := make([]byte, min(stride, maxStride))
	for i := uint64(0); r.err == nil && i < maxEntries; i++ {
		if !r.m.read(raw, first+i*stride) {
			r.fail(fmt.Errorf("cannot read %s", array))
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
