package v8

// A table of source positions, as V8 writes it beside code: pairs of numbers of
// 7 bits a byte, lowest first, the eighth bit tells that there is more.
//
//	how much further in the code | how much further in the script, zigzag
//
// The first begins at -1. Up to V8 13 it is zigzag too, and negative, less one,
// where an expression begins and not a statement; later two flags are below it.
type positions struct {
	table []byte
	flags bool // the later way
}

const flagsSince = 14 // V8's major version

// entry is a line of the table: from code on, position is what runs.
type entry struct {
	code     int
	position sourcePosition
}

// sourcePosition is an offset in a script, and which inlined call it is in.
type sourcePosition uint64

// offset is the position in the script, -1 unknown.
func (p sourcePosition) offset() int { return int(p>>1&(1<<30-1)) - 1 }

// inlined is the number of the inlined call, -1 none.
func (p sourcePosition) inlined() int { return int(p>>31&(1<<16-1)) - 1 }

// external tells that the position is not in a script at all.
func (p sourcePosition) external() bool { return p&1 != 0 }

// each calls f for all entries until it wants no more; false where the table
// ends in the middle of one.
func (t positions) each(f func(entry) bool) bool {
	e := entry{code: -1}
	rest := t.table
	for len(rest) > 0 {
		code, ok := uint64(0), false
		if code, rest, ok = number(rest); !ok {
			return false
		}
		delta := int64(code >> 2)
		if !t.flags {
			if delta = unzigzag(code); delta < 0 {
				delta = -(delta + 1)
			}
		}
		step := uint64(0)
		if step, rest, ok = number(rest); !ok || delta > 1<<31 {
			return false
		}
		e.code += int(delta)
		e.position += sourcePosition(unzigzag(step))
		if !f(e) {
			return true
		}
	}
	return true
}

// last is the last entry up to an offset of the code.
func (t positions) last(code int) (found entry, ok bool) {
	whole := t.each(func(e entry) bool {
		if e.code > code {
			return false
		}
		found, ok = e, true
		return true
	})
	return found, ok && whole
}

// find gives what runs at an offset of the code.
func (t positions) find(code int) (sourcePosition, bool) {
	e, ok := t.last(code)
	return e.position, ok
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// number reads one number of a table.
func number(b []byte) (v uint64, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 10; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}
