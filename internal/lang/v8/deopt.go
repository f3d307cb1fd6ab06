package v8

// Optimised code has, for each call after which it may no longer run, a
// description of the functions to go on with: these are the ones that run at the
// call, also where the table of positions has no entry of its own for it. It has
// such entries, each of three small integers, behind the other elements of its
// deoptimization data, those for calls last:
//
//	bytecode offset | where its translation begins | pc
//
// where the pc is that which the call returns to, or (of Maglev) its exit.
// Translations follow each other in an array of bytes. Each is
//
//	begin: how many bytes before begins one that this takes from, 0 none | frames | those of JavaScript
//	an interpreted function: offset in its bytecode | function, a literal | ...
//	its values, then the next frame: that which it calls
//
// all of them an opcode of a byte, with so many operands as a table of V8's
// tells. Operands have 7 bits a byte; signed ones their sign in the lowest bit.
// One opcode stands for so many instructions as those of the other translation
// after as many as were here since the last such; as it is frequent, bytes above
// all opcodes are it and its operand at once.

const (
	maxTranslations = 1 << 22 // bytes of one piece of code
	maxInstructions = 1 << 20 // of the translations of one piece of code
	maxCallers      = 1 << 12
	entryWords      = 3
	beginOperands   = 3
)

// opcodes are those of translations.
type opcodes struct {
	operands []int // of each
	frames   int   // the first of four of frames of JavaScript: interpreted that return a value, and that do not, builtin, builtin that catches
}

const (
	mostOpcodes     = 64
	mostOperands    = 6
	opcodesBefore   = 28 // at least, those that end the list
	framesFirst     = 12 // since this V8 frames come first
	framesByName    = 23 // before, opcodes were in the order of their names
	interpretedOver = 3  // operands that an interpreted frame has at least
)

// newOpcodes reads V8's table of how many operands each has, which ends in 2
// (feedback to be updated) and 1 (instructions of another translation); nil where
// it is not as V8 11.3 to 14 have it.
func newOpcodes(table []byte, major int) *opcodes {
	o := &opcodes{}
	if major < framesFirst {
		o.frames = framesByName
	}
	for i := 0; i+4 <= len(table); i += 4 {
		n := le.Uint32(table[i:])
		if n > mostOperands {
			return nil
		}
		o.operands = append(o.operands, int(n))
		if last := len(o.operands) - 1; last > opcodesBefore && n == 1 && o.operands[last-1] == 2 {
			f := o.operands[o.frames:]
			if f[0] != f[1]+2 || f[1] < interpretedOver || f[2] != 3 || f[3] != 3 {
				return nil
			}
			return o
		}
	}
	return nil
}

// translation reads one.
type translation struct {
	*opcodes
	left   *int // instructions that may still be read
	bytes  []byte
	at     int
	other  int // where in the one that it takes from; -1 none
	own    int // instructions since that was left
	taking int // instructions still to be taken
}

// interpreted is a function, by its literal, and where in its bytecode it is.
type interpreted struct{ offset, literal int }

// interpreted gives the functions of the translation that begins at an offset,
// the outermost first.
func (o *opcodes) interpreted(bytes []byte, at int, left *int) (all []interpreted, ok bool) {
	t := &translation{opcodes: o, left: left, bytes: bytes, at: at, other: -1, own: 1}
	op, operands, ok := t.read(&t.at)
	if !ok || op >= len(o.operands) || o.operands[op] != beginOperands {
		return nil, false
	}
	if back := operands[0]; back != 0 {
		t.other = at - int(min(back, maxTranslations))
	}
	frames := signed(operands[2])
	if frames <= 0 || frames > maxDepth {
		return nil, false
	}
	for {
		if op, operands, ok = t.next(); !ok {
			return nil, false
		}
		switch op - o.frames {
		case 0, 1:
			all = append(all, interpreted{signed(operands[0]), signed(operands[1])})
			frames--
		case 2, 3:
			frames--
		}
		if frames == 0 {
			return all, len(all) > 0
		}
	}
}

// next reads an instruction, here or in the other translation.
func (t *translation) next() (op int, operands [beginOperands]uint64, ok bool) {
	if t.taking > 0 {
		t.taking--
		return t.taken()
	}
	op, operands, ok = t.read(&t.at)
	if !ok || op != len(t.operands)-1 {
		t.own++
		return op, operands, ok
	}
	if operands[0] == 0 || operands[0] > maxInstructions {
		return op, operands, false
	}
	t.taking = int(operands[0]) - 1
	for ; t.own > 0; t.own-- {
		if _, _, ok = t.read(&t.other); !ok {
			return op, operands, false
		}
	}
	return t.taken()
}

// taken is the next instruction of the other translation, which takes none itself.
func (t *translation) taken() (op int, operands [beginOperands]uint64, ok bool) {
	op, operands, ok = t.read(&t.other)
	return op, operands, ok && op != len(t.operands)-1
}

// read reads an instruction, and of its operands the first.
func (t *translation) read(at *int) (op int, operands [beginOperands]uint64, ok bool) {
	if *t.left--; *t.left < 0 || *at < 0 || *at >= len(t.bytes) {
		return 0, operands, false
	}
	op = int(t.bytes[*at])
	rest := t.bytes[*at+1:]
	if short := op - len(t.operands); short >= 0 {
		op, operands[0] = len(t.operands)-1, uint64(short)
		*at++
		return op, operands, true
	}
	for i := range t.operands[op] {
		var v uint64
		if v, rest, ok = number(rest); !ok {
			return 0, operands, false
		}
		if i < len(operands) {
			operands[i] = v
		}
	}
	*at = len(t.bytes) - len(rest)
	return op, operands, true
}

func signed(v uint64) int {
	n := int(v >> 1 & (1<<31 - 1))
	if v&1 != 0 {
		n = -n
	}
	return n
}

// readCallers finds out what runs at the calls of optimised code that have no
// position of their own. What does not fit what is known to be inlined is left.
func (r *Runtime) readCallers(c *code, literals uint64) {
	h, l := &r.heap, &r.heap.layout
	lacking := c.lacking()
	if l.translations == nil || len(lacking) == 0 {
		return
	}
	entries, ok := r.callEntries(c)
	array, ok1 := h.word(c.data, arrayData)
	bytes, ok2 := h.bytes(array, maxTranslations)
	if !ok || !ok1 || !ok2 {
		return
	}
	c.callers = map[int][]running{}
	left := maxInstructions
	for ; len(entries) > 0 && len(c.callers) < maxCallers; entries = entries[8*entryWords:] {
		begin, ok := small(le.Uint64(entries[8:]))
		pc, ok1 := small(le.Uint64(entries[16:]))
		returns, ok2 := lacking[pc]
		if !ok || !ok1 || !ok2 {
			continue
		}
		if all, ok := l.translations.interpreted(bytes, begin, &left); ok {
			if running := r.runningIn(c, all, literals); running != nil {
				c.callers[returns] = running
			}
		}
	}
}

// callEntries reads the entries of calls: so many as one of the last two
// elements before them tells, after those of which the other tells.
func (r *Runtime) callEntries(c *code) ([]byte, bool) {
	h, l := &r.heap, &r.heap.layout.code
	element := func(i uint32) (int, bool) {
		v, ok := h.word(c.data, arrayData+8*i)
		n, isSmall := small(v)
		return n, ok && isSmall && n >= 0
	}
	first := int(l.inlining) + 4
	n, ok := h.length(c.data, maxSafepoints*entryWords)
	others, ok1 := element(l.inlining + 2)
	calls, ok2 := element(l.inlining + 3)
	if !ok || !ok1 || !ok2 || n != first+entryWords*(others+calls) {
		return nil, false
	}
	b := make([]byte, 8*entryWords*calls)
	return b, h.read(b, c.data-1+arrayData+8*uint64(first+entryWords*others))
}

// lacking gives where calls return to that have an exit and no position of their
// own, by that and by the exit.
func (c *code) lacking() map[int]int {
	all := map[int]int{}
	rest, last, before := c.safepoints, -1, 0 // last entry, and call before
	upTo := func(code int) {
		for ; len(rest) > 0 && rest[0].returns <= code; rest = rest[1:] {
			s := rest[0]
			if s.exit != 0 && (last < 0 || before > last) {
				all[s.returns], all[s.exit] = s.returns, s.returns
			}
			before = s.returns
		}
	}
	c.positions.each(func(e entry) bool {
		upTo(e.code)
		last = e.code
		return true
	})
	upTo(int(c.end - c.begin))
	return all
}

// runningIn gives what runs where a translation tells of functions, innermost
// first; nil where they are not those of the code, inlined in each other there.
func (r *Runtime) runningIn(c *code, all []interpreted, literals uint64) (found []running) {
	call := -1 // the inlined call that is followed; the code's own function
	for depth, f := range all {
		if f.literal < 0 {
			return nil
		}
		word, ok := r.heap.word(literals, arrayData+8*uint32(f.literal))
		shared := r.heap.unwrapped(word &^ 2)
		if !ok || shared == 0 {
			return nil
		}
		literal := -1
		if depth > 0 {
			if call = c.inlinedCall(call, found[0].position, shared); call < 0 {
				return nil
			}
			literal = int(c.calls[call].literal)
		} else if shared != c.function.shared {
			return nil
		}
		position, ok := r.unoptimised(shared).at(f.offset)
		if !ok {
			return nil
		}
		found = append([]running{{literal, position}}, found...)
	}
	return found
}

// inlinedCall finds the call of a function that was inlined in another inlined
// call (-1: in none) at a position; -1 none.
func (c *code) inlinedCall(in int, at sourcePosition, shared uint64) int {
	for i, call := range c.calls {
		if call.position.inlined() == in && call.position.offset() == at.offset() &&
			call.literal >= 0 && int(call.literal) < len(c.inlined) && c.inlined[call.literal].shared == shared {
			return i
		}
	}
	return -1
}
