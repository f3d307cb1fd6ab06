package v8

const (
	maxBytecode  = 1 << 22
	maxPositions = 1 << 22
)

// unoptimised is a function's bytecode: where in the script each of its
// instructions comes from.
type unoptimised struct {
	bytecode  uint64 // the array
	begin     int    // what frames add to offsets in it
	positions positions
	code      []byte // read for functions that have baseline code
	sizes     *bytecodeSizes
}

// bytecode finds the bytecode of a function: what it shares with others of its
// source leads to it, through baseline code if there is some.
func (h *heap) bytecode(shared uint64) uint64 {
	data, ok := h.word(shared, h.layout.functionData)
	if ok && h.is(data, h.layout.codeType) {
		data, ok = h.word(data, h.layout.code.data)
	}
	if !ok {
		return 0
	}
	return h.bytecodeOf(data)
}

// bytecodeOf is the bytecode that an object is, or holds together with a way to
// run it; 0 none.
func (h *heap) bytecodeOf(data uint64) uint64 {
	ok := true
	if h.is(data, h.layout.interpreterData) {
		data, ok = h.word(data, 8)
	}
	if !ok || !h.is(data, h.layout.bytecodeType) {
		return 0
	}
	return data
}

// unoptimised reads a function's bytecode; nil where it has none now.
func (r *Runtime) unoptimised(shared uint64) *unoptimised {
	array := r.heap.bytecode(shared)
	if array == 0 {
		return nil
	}
	if u := r.functions[shared]; u != nil && u.bytecode == array {
		return u
	}
	table, ok := r.heap.word(array, r.heap.layout.bytecodeTable)
	if !ok {
		return nil
	}
	u := &unoptimised{bytecode: array, begin: int(r.heap.layout.bytecodeData) - 1}
	if u.positions, ok = r.positions(table); !ok {
		return nil
	}
	r.readCode(u)
	r.makeRoom(u)
	r.functions[shared] = u
	return u
}

// positions reads a table of positions.
func (r *Runtime) positions(array uint64) (positions, bool) {
	table, ok := r.heap.bytes(array, maxPositions)
	return positions{table, r.heap.layout.major >= flagsSince}, ok
}

// find gives the position of an offset in the bytecode, as frames have it.
func (u *unoptimised) find(offset int) (sourcePosition, bool) {
	if u == nil {
		return 0, false
	}
	return u.at(offset - u.begin)
}

// at gives the position of an offset in the bytecode.
func (u *unoptimised) at(offset int) (sourcePosition, bool) {
	if u == nil || offset < 0 {
		return 0, false
	}
	return u.positions.find(offset)
}

// readCode reads the instructions: how long each is tells which of them an
// offset in baseline code belongs to.
func (r *Runtime) readCode(u *unoptimised) {
	sizes := r.heap.layout.sizes
	n, ok := r.heap.length(u.bytecode, maxBytecode)
	if sizes.count == 0 || !ok {
		return
	}
	code := make([]byte, n)
	if r.heap.read(code, u.bytecode-1+uint64(r.heap.layout.bytecodeData)) {
		u.code, u.sizes = code, sizes
	}
}

// bytecodeSizes tells how long instructions of the bytecode are: a table of V8's
// own, of three rows: as they are, with operands of two bytes, and of four. It
// is empty where V8's file is stripped of its symbol.
type bytecodeSizes struct {
	sizes []byte
	count int // of instructions
}

const (
	mostBytecode = 256
	prefixes     = 4 // the first instructions: wide, extra wide, and the same when debugging
)

// newSizes finds out how many instructions there are: the second row is longer
// than the first by an instruction's operands, and the third by three times that.
func newSizes(table []byte) *bytecodeSizes {
	for n := min(len(table)/3, mostBytecode); n > 128; n-- {
		fits, wider := true, 0
		for i := 0; i < n && fits; i++ {
			one, two, four := int(table[i]), int(table[n+i]), int(table[2*n+i])
			fits = one > 0 && two >= one && four-one == 3*(two-one)
			wider += two - one
		}
		if fits && wider > 0 {
			return &bytecodeSizes{table[:3*n], n}
		}
	}
	return &bytecodeSizes{}
}

// offset walks bytecode and a table of baseline code together, up to an offset
// of that code.
func (s *bytecodeSizes) offset(code, table []byte, offset int) (int, bool) {
	if s == nil {
		return 0, false
	}
	end, rest, ok := number(table) // of what precedes the first instruction
	at, here := 0, 0
	for ok && int(end) <= offset {
		size, fits := s.size(code[at:])
		if !fits || len(rest) == 0 {
			return 0, false
		}
		here = at
		at += size
		var more uint64
		more, rest, ok = number(rest)
		end += more
	}
	return here, ok && len(code) > 0
}

// size is how long the instruction at the beginning of some bytecode is, with
// the one before it that widens its operands.
func (s *bytecodeSizes) size(code []byte) (int, bool) {
	row, before := 0, 0
	if len(code) > 1 && code[0] < prefixes {
		row, before = 1+int(code[0]&1), 1
	}
	if len(code) <= before || int(code[before]) >= s.count {
		return 0, false
	}
	size := before + int(s.sizes[row*s.count+int(code[before])])
	return size, size <= len(code)
}
