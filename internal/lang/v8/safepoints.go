package v8

import "slices"

// safepoint is a call in optimised code: where it returns to, and where instead
// once the code may no longer run (0: nowhere, its caller cannot go on
// elsewhere). Offsets from the code's begin.
type safepoint struct{ returns, exit int }

const (
	maxSafepoints = 1 << 16
	maxSafepoint  = 16 // bytes
)

// safepointHeader is how a table of safepoints begins: where the number of its
// entries is and what is in one, after how many bytes the first follows, and
// what entries have besides.
//
//	V8 10, 11        count 4 | fields 4
//	later            stack slots 4 | count 4 | fields 4
//	made by Maglev   stack slots 4 | count 4 | fields 4 | tagged slots 4; entries have a byte more
//
// An entry has, with as many bytes as fields tells (has exits 1 bit, registers
// 3, pc 3, number of the exit 3): pc | number of the exit | exit | a byte, of
// Maglev | registers. Numbers of exits and exits are one more, 0 for none.
type safepointHeader struct{ count, size, more int }

var safepointHeaders = []safepointHeader{{0, 8, 0}, {4, 12, 0}, {4, 16, 1}}

// safepoints reads the table of safepoints, which follows the instructions. It
// is known by its entries: they lead on through the code, and their exits are
// among those that exits, a slice of the code's end, has.
func (r *Runtime) safepoints(c *code, exits int) (all []safepoint, ok bool) {
	var b [16]byte
	if !r.heap.read(b[:], c.end) {
		return nil, false
	}
	for _, h := range safepointHeaders {
		n, fields := int(le.Uint32(b[h.count:])), le.Uint32(b[h.count+4:])
		l := newSafepointLayout(fields, h)
		if n <= 0 || n > maxSafepoints || l.pc == 0 || l.size > maxSafepoint {
			continue
		}
		table := make([]byte, n*l.size)
		if !r.heap.read(table, c.end+uint64(h.size)) {
			continue
		}
		if all, ok = l.parse(table, exits, int(c.end-c.begin)); ok {
			return all, true
		}
	}
	return nil, false
}

// safepointLayout is how many bytes fields of an entry have, and all of it.
type safepointLayout struct{ pc, number, exit, size int }

func newSafepointLayout(fields uint32, h safepointHeader) safepointLayout {
	l := safepointLayout{pc: int(fields >> 4 & 7)}
	if fields&1 != 0 {
		l.number, l.exit = int(fields>>7&7), l.pc
	}
	l.size = l.pc + l.number + l.exit + h.more + int(fields>>1&7)
	return l
}

func (l safepointLayout) parse(table []byte, exits, size int) (all []safepoint, ok bool) {
	last := 0
	for ; len(table) >= l.size; table = table[l.size:] {
		s := safepoint{returns: bytesOf(table[:l.pc]), exit: bytesOf(table[l.pc+l.number : l.pc+l.number+l.exit])}
		if s.returns <= last || s.returns > size {
			return nil, false
		}
		if last = s.returns; s.exit != 0 {
			if s.exit--; s.exit < exits || s.exit >= size {
				return nil, false
			}
		}
		all = append(all, s)
	}
	return all, true
}

// bytesOf is a number in so many bytes, lowest first.
func bytesOf(b []byte) (v int) {
	for i, x := range b {
		v |= int(x) << (8 * i)
	}
	return v
}

// call finds the call that a return address belongs to: the offset to which it
// returns while its code may run.
func (c *code) call(address int) (returns int, found bool) {
	for _, s := range c.safepoints {
		if address == s.returns || s.exit != 0 && address == s.exit {
			return s.returns, true
		}
	}
	return 0, false
}

// alone tells whether no call returns between two offsets.
func (c *code) alone(from, to int) bool {
	i, _ := slices.BinarySearchFunc(c.safepoints, from+1, func(s safepoint, at int) int { return s.returns - at })
	return i == len(c.safepoints) || c.safepoints[i].returns >= to
}

// runsAt gives what runs at a place in optimised code, innermost first, and
// whether it is known at all. What has called but not at one of the code's calls
// was in other code, which lay here before, unless the code has a call there
// that it need not list. A call has the position of the last entry before it, if
// that is its own: V8 leaves out the entries of calls whose position it does not
// know, such as of its allocator, or which are at that of the call before, and
// they would seem to be in the inlined function of another call. Elsewhere it is
// the nearest place before.
func (c *code) runsAt(where spot) (all []running, known bool) {
	at := int(where.pc - c.begin)
	returns, isCall := c.call(at + 1)
	switch {
	case isCall:
		if all, known = c.callers[returns]; known {
			return all, true
		}
		at = returns - 1
	case where.called && len(c.safepoints) > 0 && where.body == 0:
		return nil, false
	case where.called && len(c.safepoints) > 0:
		at = int(where.body - c.begin)
	case c.exits != 0 && at >= c.exits:
		return nil, false // on its way out of the code
	}
	e, ok := c.positions.last(at)
	if !ok && !where.called {
		return nil, true // at the entry, before anything inlined
	}
	if !ok || isCall && !c.alone(e.code, returns) {
		return nil, false
	}
	return c.inlinedAt(e.position), true
}

// body tells where the call before a return address goes on in the body of code;
// 0: there is no call. What writes to the heap is called without being listed,
// from behind the body, whose positions say nothing of it, and jumps back.
func (r *Runtime) body(c *code, returns uint64) uint64 {
	const before, behind = 7, 24
	var b [before + behind]byte
	if returns < c.begin+before || returns >= c.end || !r.heap.read(b[:], returns-before) || !endsWithCall(b[:before]) {
		return 0
	}
	target := jumpBehind(b[before:], returns)
	if target < c.begin || target >= c.end {
		return 0
	}
	return target
}

// endsWithCall tells whether instructions may end with a call: of an address, of
// a register, or of what lies in memory.
func endsWithCall(b []byte) bool {
	n := len(b)
	memory := func(size int, kind byte) bool { return b[n-size] == 0xff && b[n-size+1]&0xf8 == kind }
	return b[n-5] == 0xe8 || memory(2, 0xd0) || memory(3, 0x50) || memory(6, 0x90) || b[n-6] == 0xff && b[n-5] == 0x15
}

// jumpBehind follows what comes behind such a call: registers are taken from the
// stack, then it jumps. Where it does not, it is in the body itself.
func jumpBehind(b []byte, at uint64) uint64 {
	for i := 0; i+6 < len(b); {
		switch {
		case b[i]&0xf8 == 0x58: // pop
			i++
		case b[i] == 0x41 && b[i+1]&0xf8 == 0x58: // pop, of r8 and up
			i += 2
		case b[i] == 0xe9:
			return at + uint64(i) + 5 + uint64(int64(int32(le.Uint32(b[i+1:]))))
		case b[i] == 0xeb:
			return at + uint64(i) + 2 + uint64(int64(int8(b[i+1])))
		default:
			return at
		}
	}
	return at
}
