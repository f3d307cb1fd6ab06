package paging

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Packed is a table as it is kept outside the array: about a quarter of the size.
//
// Rows are stored chunk by chunk, so that one can be unpacked alone. Each row is
// two unsigned varints: the distance from the row before it, and the index of its
// rule among the table's rules, the most frequent of which come first.
type Packed struct {
	starts []uint32 // file offset of the first row of each chunk
	ends   []uint32 // where each chunk ends in data
	rules  []uint32
	data   []byte
	rows   int
}

// Pack cuts rows, which are sorted, into chunks and packs them. The file offset
// is a row's high half, its rule the low one.
func Pack(rows []uint64) *Packed {
	p := &Packed{rows: len(rows)}
	index := p.countRules(rows)
	p.data = make([]byte, 0, len(rows)*5/2)
	for chunk := range slices.Chunk(rows, SlotRows) {
		last := uint32(chunk[0] >> 32)
		p.starts = append(p.starts, last)
		for _, row := range chunk {
			offset := uint32(row >> 32)
			p.data = binary.AppendUvarint(p.data, uint64(offset-last))
			p.data = binary.AppendUvarint(p.data, uint64(index[uint32(row)]))
			last = offset
		}
		p.ends = append(p.ends, uint32(len(p.data)))
	}
	p.data = slices.Clip(p.data)
	return p
}

// countRules lists the rules, the most frequent first, and gives the index of each.
func (p *Packed) countRules(rows []uint64) map[uint32]int {
	counts := map[uint32]int{}
	for _, row := range rows {
		counts[uint32(row)]++
	}
	for rule := range counts {
		p.rules = append(p.rules, rule)
	}
	slices.SortFunc(p.rules, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, rule := range p.rules {
		counts[rule] = i
	}
	return counts
}

// unpack writes the rows of a chunk to a slot. Rows that the chunk does not have
// begin after any code.
func (p *Packed) unpack(chunk int, slot []uint64) {
	from := uint32(0)
	if chunk > 0 {
		from = p.ends[chunk-1]
	}
	data := p.data[from:p.ends[chunk]]
	offset := p.starts[chunk]
	for i := range slot {
		if len(data) == 0 {
			slot[i] = afterCode
			continue
		}
		delta, n := binary.Uvarint(data)
		rule, m := binary.Uvarint(data[n:])
		data = data[n+m:]
		offset += uint32(delta)
		slot[i] = uint64(offset)<<32 | uint64(p.rules[rule])
	}
}

// afterCode is a row that no lookup finds: beyond the largest offset a row has.
const afterCode = 0xffffffff << 32

// Bytes is what a packed table takes of memory.
func (p *Packed) Bytes() int {
	return len(p.data) + 4*(len(p.rules)+len(p.starts)+len(p.ends))
}

// Table is an executable's rows: all of them packed, some of them in slots.
type Table struct {
	packed   *Packed // nil: given up, has to be built again
	cells    Extent  // of the directory
	starts   []uint32
	chunks   []chunkState
	held     int  // slots
	demanded bool // a walk has asked for a chunk
	used     Tick // when a walk was last seen to use it, or to ask for it
}

// chunkState is where a chunk is, or was.
type chunkState struct {
	slot    uint16 // 0: none
	met     bool   // a walk has used it, or asked for it
	evicted Tick   // 0: never
}

// First is the first cell of the table's directory, and how many there are.
func (t *Table) First() (cell, cells uint32) { return t.cells.First, t.cells.Count }

// chunkOf is the chunk that has the row of a file offset; ok is false before the
// first.
func (t *Table) chunkOf(offset uint32) (chunk int, ok bool) {
	i, found := slices.BinarySearch(t.starts, offset)
	if found {
		return i, true
	}
	return i - 1, i > 0
}
