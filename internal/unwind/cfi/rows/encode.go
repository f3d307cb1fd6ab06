package rows

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"unsafe"
)

// A table as it is kept on disk. Numbers have 32 bits but for rows, and are
// little-endian:
//
//	+------+-------+-------+-------+-------+--------+---------+------+
//	| rows | index | first | shift | flags | source | reasons | zero |
//	+------+-------+-------+-------+-------+--------+---------+------+
//	| rows x row (64 bits)                                           |
//	+----------------------------------------------------------------+
//	| index x number                                                 |
//	+----------------------------------------------------------------+
//	| source bytes | reasons x (count, length, length bytes)          |
//	+----------------------------------------------------------------+
//
// Rows and index lie as they are used, so that a mapped file need not be copied,
// and a range of rows costs the pages it is in.
const (
	encodedHeader = 32
	rowBytes      = 8

	flagKeepsFramePointers = 1

	maxReasons = 1 << 10
)

// errEncoding says that bytes are no table.
var errEncoding = errors.New("not an unwinding table")

// Encode gives the table in parts: what stands before its rows, its rows and
// index, which share its memory, and what follows.
func (t *Table) Encode() [][]byte {
	le := binary.LittleEndian
	header := make([]byte, encodedHeader)
	flags := uint32(0)
	if t.KeepsFramePointers {
		flags |= flagKeepsFramePointers
	}
	for i, n := range []uint32{uint32(len(t.Rows)), uint32(len(t.Index)), t.First, uint32(t.Shift), flags, uint32(len(t.Source)), uint32(len(t.Unsupported))} {
		le.PutUint32(header[4*i:], n)
	}
	tail := []byte(t.Source)
	for _, reason := range slices.Sorted(maps.Keys(t.Unsupported)) {
		tail = le.AppendUint32(tail, uint32(t.Unsupported[reason]))
		tail = le.AppendUint32(tail, uint32(len(reason)))
		tail = append(tail, reason...)
	}
	return [][]byte{header, memoryOf(t.Rows), memoryOf(t.Index), tail}
}

// memoryOf shows numbers as the bytes they are in memory, which on x86-64, the
// only machine there are rows of, are those on disk.
func memoryOf[N Row | uint32](numbers []N) []byte {
	if len(numbers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), len(numbers)*int(unsafe.Sizeof(numbers[0])))
}

// numbersIn shows bytes as numbers: in place where they are aligned.
func numbersIn[N Row | uint32](data []byte) []N {
	size := int(unsafe.Sizeof(*new(N)))
	n := len(data) / size
	if n == 0 {
		return nil
	}
	if p := unsafe.Pointer(&data[0]); uintptr(p)%uintptr(size) == 0 {
		return unsafe.Slice((*N)(p), n)
	}
	numbers := make([]N, n)
	copy(memoryOf(numbers), data)
	return numbers
}

// Decode gives the table that Encode made the bytes of, joined. Its rows and index
// are in the bytes' memory. Whatever the bytes are, a table that is given can be
// looked up in: its rows are sorted, and its index leads nowhere else.
func Decode(data []byte) (*Table, error) {
	if len(data) < encodedHeader {
		return nil, errEncoding
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(data[4*i:]) }
	rows, index, source, reasons := int64(word(0)), int64(word(1)), int64(word(5)), word(6)
	if int64(len(data)-encodedHeader) < rows*rowBytes+index*4+source || word(3) > maxShift || word(4)&^flagKeepsFramePointers != 0 ||
		word(7) != 0 || reasons > maxReasons {
		return nil, errEncoding
	}
	rest := data[encodedHeader:]
	cut := func(n int64) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	t := &Table{Rows: numbersIn[Row](cut(rows * rowBytes)), Index: numbersIn[uint32](cut(index * 4)), First: word(2), Shift: uint8(word(3)),
		KeepsFramePointers: word(4)&flagKeepsFramePointers != 0, Source: string(cut(source)), Unsupported: map[string]int{}}
	for range reasons {
		if len(rest) < 8 {
			return nil, errEncoding
		}
		count, length := binary.LittleEndian.Uint32(rest), int64(binary.LittleEndian.Uint32(rest[4:]))
		cut(8)
		if length > int64(len(rest)) {
			return nil, errEncoding
		}
		t.Unsupported[string(cut(length))] = int(count)
	}
	if len(rest) != 0 || len(t.Unsupported) != int(reasons) || !t.sound() {
		return nil, errEncoding
	}
	return t, nil
}

// sound tells whether a table is one that index makes: lookups in others could
// leave their rows.
func (t *Table) sound() bool {
	if len(t.Rows) == 0 {
		return len(t.Index) == 0 && t.First == 0 && t.Shift == 0
	}
	if t.Shift < minShift || t.First&(1<<t.Shift-1) != 0 || t.Rows[0].Offset() != t.First {
		return false
	}
	for i, r := range t.Rows[1:] {
		if r.Offset() <= t.Rows[i].Offset() {
			return false
		}
	}
	span := t.Rows[len(t.Rows)-1].Offset() - t.First
	if len(t.Index) != int(span>>t.Shift)+2 {
		return false
	}
	last := uint32(0)
	for page, at := range t.Index {
		start := uint64(t.First) + uint64(page)<<t.Shift
		for int(last)+1 < len(t.Rows) && uint64(t.Rows[last+1].Offset()) <= start {
			last++
		}
		if at != last || page > 0 && at-t.Index[page-1]+1 > pageRows {
			return false
		}
	}
	return true
}
