package v8

import (
	"bytes"
	"slices"
)

// Where V8 puts code it makes.
const (
	codePage   = 1 << 18 // the memory that a search for an object's begin does not leave
	codeAlign  = 32      // of instructions; newer versions have 64
	readAtOnce = 1 << 12
	maxCode    = 1 << 26
	maxCalls   = 1 << 16 // inlined in one piece of code
	maxInlined = 1 << 12 // functions; V8 inlines 4,600 bytes of bytecode at most
	maxDepth   = 64      // of inlined calls
)

// code is one piece of compiled code.
type code struct {
	object       uint64 // Code
	instructions uint64 // the object that holds the instructions
	begin, end   uint64 // of the instructions
	data         uint64 // deoptimization data, or bytecode
	table        uint64 // its positions
	positions    positions
	baseline     bool
	bytecode     uint64 // of baseline code

	// Of optimised code:
	function   located
	calls      []inlinedCall
	inlined    []located
	exits      int // where it is left once it may no longer run; from there on it does nothing else
	safepoints []safepoint
	callers    map[int][]running // what runs at calls without a position of their own, by where they return to
}

// inlinedCall is a call that was inlined: where it was made, in which other
// inlined call, and of what.
type inlinedCall struct {
	position sourcePosition
	literal  int32
}

// codeAt finds the code that holds a pc; nil where there is none to be read.
func (r *Runtime) codeAt(pc uint64) *code {
	i, found := slices.BinarySearchFunc(r.codes, pc, func(c *code, pc uint64) int {
		switch {
		case c.end <= pc:
			return -1
		case c.begin > pc:
			return 1
		}
		return 0
	})
	if found && r.unchanged(r.codes[i]) {
		return r.codes[i]
	}
	c := r.findCode(pc)
	if c == nil {
		return nil
	}
	r.keepCode(c)
	return c
}

// keepCode remembers code, and forgets what was there before.
func (r *Runtime) keepCode(c *code) {
	r.codes = slices.DeleteFunc(r.codes, func(o *code) bool { return o.begin < c.end && c.begin < o.end })
	r.makeRoom(c)
	i, _ := slices.BinarySearchFunc(r.codes, c.begin, func(o *code, begin uint64) int {
		if o.begin < begin {
			return -1
		}
		return 1
	})
	r.codes = slices.Insert(r.codes, i, c)
}

// unchanged tells whether code is still what it was when it was read.
func (r *Runtime) unchanged(c *code) bool {
	now, ok := r.readCodeHeader(c.instructions)
	return ok && now.is(c)
}

// sameAs tells whether code does what other code in the same place did: garbage
// collection may have moved its tables.
func (c *code) sameAs(o *code) bool {
	return c.begin == o.begin && c.end == o.end && c.baseline == o.baseline && c.function.name == o.function.name &&
		c.function.start == o.function.start && slices.Equal(c.calls, o.calls) && bytes.Equal(c.positions.table, o.positions.table)
}

// is tells whether code is in the same place and has the same tables.
func (c *code) is(o *code) bool {
	return c.object == o.object && c.begin == o.begin && c.end == o.end && c.data == o.data && c.table == o.table
}

// findCode goes back from a pc to the object that holds it: the one whose
// instructions begin at an aligned address before it, and reach that far.
func (r *Runtime) findCode(pc uint64) *code {
	l := &r.heap.layout.code
	var memory [readAtOnce]byte
	have := uint64(0) // where that was read
	for begin := pc &^ (codeAlign - 1); begin > pc&^(codePage-1); begin -= codeAlign {
		at := begin - uint64(l.instructions)
		if block := at &^ (readAtOnce - 1); block != have {
			if have = block; !r.heap.read(memory[:], block) {
				return nil // pages that hold code begin with some that nobody may read
			}
		}
		m := le.Uint64(memory[at-have:])
		if !pointer(m) || m>>47 != 0 || !r.isInstructions(m) {
			continue
		}
		c, ok := r.readCodeHeader(at + 1)
		if !ok || pc < c.begin || pc >= c.end || !r.readCodeData(&c) {
			return nil
		}
		return &c
	}
	return nil
}

// isInstructions tells whether a map is that of objects which hold instructions.
func (r *Runtime) isInstructions(m uint64) bool {
	if r.instructionsMap == m {
		return true
	}
	h := &r.heap
	meta, ok := h.word(m, 0)
	if !ok || !pointer(meta) {
		return false
	}
	if self, ok := h.word(meta, 0); !ok || self != meta { // the map of maps is its own
		return false
	}
	var b [2]byte
	if !h.read(b[:], m-1+uint64(h.layout.instanceType)) || uint32(le.Uint16(b[:])) != h.layout.code.instructionsType {
		return false
	}
	r.instructionsMap = m
	return true
}

// readCodeHeader reads where code is, and where its tables are.
func (r *Runtime) readCodeHeader(instructions uint64) (c code, ok bool) {
	h, l := &r.heap, &r.heap.layout.code
	c.instructions, c.object = instructions, instructions
	c.begin = instructions - 1 + uint64(l.instructions)
	if l.start != 0 {
		if c.object, ok = h.field(instructions, 8, h.layout.codeType); !ok {
			return c, false
		}
		if start, ok := h.word(c.object, l.start); !ok || start != c.begin {
			return c, false
		}
	}
	size, ok1 := h.half(c.object, l.size)
	data, ok2 := h.word(c.object, l.data)
	table, ok3 := h.word(c.object, l.positions)
	c.end, c.data, c.table = c.begin+uint64(size), data, table
	return c, ok1 && ok2 && ok3 && size > 0 && size < maxCode
}

// readCodeData reads code's table of positions and what is inlined in it.
func (r *Runtime) readCodeData(c *code) (ok bool) {
	h := &r.heap
	if h.is(c.data, h.layout.bytecodeType, h.layout.interpreterData) {
		c.baseline, c.bytecode = true, h.bytecodeOf(c.data)
		c.positions.table, ok = h.bytes(c.table, maxPositions)
		return ok
	}
	if !h.is(c.data, h.layout.fixedArrayTypes...) {
		return false
	}
	if c.positions, ok = r.positions(c.table); !ok {
		return false
	}
	return r.readInlined(c)
}

// readInlined reads deoptimization data: an array of which some elements tell
// what the code is of, and what is inlined.
func (r *Runtime) readInlined(c *code) bool {
	h, l := &r.heap, &r.heap.layout.code
	element := func(i uint32) (uint64, bool) { return h.word(c.data, arrayData+8*i) }
	if n, ok := h.length(c.data, maxCalls); !ok || n <= int(max(l.inlined, l.literals, l.function, l.inlining+1)) {
		return false
	}
	count, ok1 := element(l.inlined)
	literals, ok2 := element(l.literals)
	function, ok3 := element(l.function)
	calls, ok4 := element(l.inlining)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return false
	}
	var ok bool
	if c.function, ok = r.located(h.unwrapped(function)); !ok {
		return false
	}
	n, ok := small(count)
	if !ok || n < 0 || n > maxInlined {
		return false
	}
	if n == 0 {
		return true
	}
	exits, ok := element(l.inlining + 1)
	if c.exits, ok1 = small(exits); !ok || !ok1 || c.exits <= 0 || c.exits > int(c.end-c.begin) {
		return false
	}
	if c.safepoints, ok = r.safepoints(c, c.exits); !ok {
		return false
	}
	if b, ok := h.bytes(calls, maxCalls*inlinedBytes); ok {
		c.calls = parseCalls(b)
	}
	if !r.readLiterals(c, literals, n) {
		return false
	}
	r.readCallers(c, literals)
	return true
}

// readLiterals reads the functions that are inlined: the first literals.
func (r *Runtime) readLiterals(c *code, literals uint64, n int) bool {
	h := &r.heap
	if !h.is(literals, h.layout.fixedArrayTypes...) && !h.is(literals, h.layout.weakArrayTypes...) {
		return false
	}
	if all, ok := h.length(literals, 1<<24); !ok || all < n {
		return false
	}
	b := make([]byte, 8*n)
	if !h.read(b, literals-1+arrayData) {
		return false
	}
	c.inlined = make([]located, n)
	for i := range c.inlined {
		c.inlined[i], _ = r.located(h.unwrapped(le.Uint64(b[8*i:]) &^ 2)) // the bit of weak pointers
	}
	return true
}

// located is a function, and the lines of its script.
type located struct {
	function
	lines *script
}

func (r *Runtime) located(shared uint64) (l located, ok bool) {
	if l.function, ok = r.heap.function(shared); ok {
		l.lines = r.script(l.script)
	}
	return l, ok
}

// unwrapped is what a function shares with others of its source, where a word
// points to that or to its wrapper; else 0.
func (h *heap) unwrapped(word uint64) uint64 {
	t, ok := h.typeOf(word)
	if ok && h.layout.sharedWrapperType != 0 && t == h.layout.sharedWrapperType {
		word, ok = h.field(word, 8, h.layout.sharedType)
	} else if t != h.layout.sharedType {
		return 0
	}
	if !ok {
		return 0
	}
	return word
}

const inlinedBytes = 16

// parseCalls reads inlined calls: position 8, number of the literal 4, unused 4.
func parseCalls(b []byte) []inlinedCall {
	calls := make([]inlinedCall, len(b)/inlinedBytes)
	for i := range calls {
		calls[i] = inlinedCall{sourcePosition(le.Uint64(b[i*inlinedBytes:])), int32(le.Uint32(b[i*inlinedBytes+8:]))}
	}
	return calls
}

// running is a function, of those that are inlined or (-1) the one that holds
// them, and what of it runs.
type running struct {
	literal  int
	position sourcePosition
}

// inlinedAt gives what runs at a position of optimised code, the innermost
// inlined call first; nil where that does not fit together.
func (c *code) inlinedAt(p sourcePosition) (all []running) {
	for range maxDepth {
		i := p.inlined()
		if i < 0 {
			return append(all, running{-1, p})
		}
		if i >= len(c.calls) {
			return nil
		}
		call := c.calls[i]
		if call.literal < 0 || int(call.literal) >= len(c.inlined) || c.inlined[call.literal].shared == 0 {
			return nil
		}
		all = append(all, running{int(call.literal), p})
		p = call.position
	}
	return nil
}
