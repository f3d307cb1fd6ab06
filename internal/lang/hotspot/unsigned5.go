package hotspot

// numbers reads numbers in HotSpot's compressed form, UNSIGNED5: bytes below
// 192 end a number, those from 192 on add 6 bits and go on, at most 5. Since
// 21 all bytes are one more, so that none is zero; what ends a number is told
// from the byte as it is written, still.
type numbers struct {
	raw    []byte
	biased bool
	short  bool // the end came too early
}

const lowCodes = 192

func (n *numbers) next() uint32 {
	sum := uint32(0)
	for shift := 0; shift <= 24; shift += 6 {
		if len(n.raw) == 0 {
			n.short = true
			return 0
		}
		b := uint32(n.raw[0])
		n.raw = n.raw[1:]
		last := b < lowCodes
		if n.biased {
			if b == 0 {
				n.short = true
				return 0
			}
			b--
		}
		sum += b << shift
		if last {
			break
		}
	}
	return sum
}

// signed takes a number whose lowest bit is its sign.
func (n *numbers) signed() int {
	x := n.next()
	return int(int32(x>>1) ^ -int32(x&1))
}

// Lines are a method's table of lines, as it keeps it:
//
//	0         the end
//	255       two signed numbers: how far bytecode and line go on
//	else      5 bits of bytecodes, 3 bits of lines
type lines struct {
	raw    []byte
	biased bool
}

// each gives every entry, until one is refused.
func (l lines) each(entry func(bytecode, line int) bool) {
	n := numbers{raw: l.raw, biased: l.biased}
	bytecode, line := 0, 0
	for len(n.raw) > 0 && n.raw[0] != 0 {
		b := n.raw[0]
		n.raw = n.raw[1:]
		if b == 255 {
			bytecode += n.signed()
			line += n.signed()
		} else {
			bytecode += int(b >> 3)
			line += int(b & 7)
		}
		if n.short || !entry(bytecode, line) {
			return
		}
	}
}

// at gives the line of a bytecode, 0 where it has none.
func (l lines) at(bytecode int) (line int) {
	best := -1
	l.each(func(from, number int) bool {
		if from <= bytecode && from > best && number > 0 {
			best, line = from, number
		}
		return true
	})
	return line
}

// first gives the lowest line.
func (l lines) first() (lowest int) {
	l.each(func(_, number int) bool {
		if number > 0 && (lowest == 0 || number < lowest) {
			lowest = number
		}
		return true
	})
	return lowest
}
