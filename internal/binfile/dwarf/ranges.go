package dwarf

import "math"

// span is a stretch of addresses.
type span struct{ start, end uint64 }

// Many entries may share one list, and a list may be of entries that cover nothing:
// what is bounded is what is read of lists.
const (
	maxFileSpans = 1 << 21 // of the roots of all units of a file
	maxUnitSpans = 1 << 20 // of one unit, or of its root
	maxCallSpans = 1 << 16 // of one function or inlined call; those in parts have some 10
	rangeChunk   = 1 << 12
	spanBytes    = 1 << 5 // of one in a list, at most
)

// Entries of .debug_rnglists (DW_RLE_*).
const (
	rleEnd         = 0
	rleBaseAddrx   = 1
	rleStartxEndx  = 2
	rleStartxLen   = 3
	rleOffsetPair  = 4
	rleBaseAddress = 5
	rleStartEnd    = 6
	rleStartLength = 7
)

// ranges gives the addresses an entry covers, without empty stretches and
// without those of code that the linker threw away: it leaves them at address 0
// (ld) or near the highest one (lld). It reads no more than limit stretches, and
// tells how many it read.
func (u *unit) ranges(e entry, limit int) (spans []span, read int) {
	if e.rangeList.class != classNone {
		spans, read = u.rangeList(e.rangeList, limit)
		return keepReal(spans), read
	}
	low, ok := u.address(e.lowPC)
	if !ok {
		return nil, 0
	}
	high, ok := u.address(e.highPC)
	if !ok {
		if e.highPC.class != classNumber {
			return nil, 0
		}
		high = low + e.highPC.n
	}
	return keepReal([]span{{low, high}}), 1
}

func keepReal(spans []span) []span {
	out := spans[:0]
	for _, s := range spans {
		if s.start != 0 && s.start < s.end && s.start < math.MaxUint64-1 {
			out = append(out, s)
		}
	}
	return out
}

func (u *unit) rangeList(v value, limit int) (spans []span, steps int) {
	section, off := "ranges", v.n
	read := (*cursor).rangesBefore5
	if u.version >= 5 {
		section, read = "rnglists", (*cursor).ranges5
		if v.class == classRnglistx {
			size := u.wordSize()
			if v.n > 1<<32 {
				return nil, 1
			}
			word := u.data.bytes(section, u.rngBase+v.n*uint64(size), size)
			if len(word) < size {
				return nil, 1
			}
			c := cursor{data: word}
			off = u.rngBase + c.word(u.wide)
		}
	} else if u.skeleton != nil {
		off += u.rangeBase
	}
	from := u.data
	if u.skeleton != nil && u.version < 5 {
		from = u.skeleton.data // .debug_ranges stays behind
	}
	for size := rangeChunk; ; size *= 8 {
		data := from.bytes(section, off, size)
		c := cursor{data: data}
		spans, steps = read(&c, u, limit)
		if !c.bad || len(data) < size || size >= limit*spanBytes {
			return spans, max(steps, c.at/spanBytes) // few may be long: numbers may have padding
		}
	}
}

func (c *cursor) rangesBefore5(u *unit, limit int) (spans []span, steps int) {
	base := u.lowPC
	highest := uint64(math.MaxUint64) >> (64 - 8*uint(u.addrSize))
	for steps < limit {
		steps++
		start, end := c.fixed(int(u.addrSize)), c.fixed(int(u.addrSize))
		if c.bad || start == 0 && end == 0 {
			break
		}
		if start == highest {
			base = end
			continue
		}
		spans = append(spans, real(base, start, end))
	}
	return spans, steps
}

// real adds a base. What belongs to no code stays at 0, wherever the base is.
func real(base, start, end uint64) span {
	if start == end || base+start < base {
		return span{}
	}
	return span{base + start, base + end}
}

func (c *cursor) ranges5(u *unit, limit int) (spans []span, steps int) {
	base := u.lowPC
	index := func() uint64 {
		a, _ := u.address(value{classAddrx, c.uleb()})
		return a
	}
	for steps < limit && !c.bad {
		steps++
		switch c.u8() {
		case rleEnd:
			return spans, steps
		case rleBaseAddrx:
			base = index()
		case rleStartxEndx:
			start := index()
			spans = append(spans, span{start, index()})
		case rleStartxLen:
			start := index()
			spans = append(spans, span{start, start + c.uleb()})
		case rleOffsetPair:
			start, end := c.uleb(), c.uleb()
			spans = append(spans, real(base, start, end))
		case rleBaseAddress:
			base = c.fixed(int(u.addrSize))
		case rleStartEnd:
			start := c.fixed(int(u.addrSize))
			spans = append(spans, span{start, c.fixed(int(u.addrSize))})
		case rleStartLength:
			start := c.fixed(int(u.addrSize))
			spans = append(spans, span{start, start + c.uleb()})
		default:
			return spans, steps
		}
	}
	return spans, steps
}
