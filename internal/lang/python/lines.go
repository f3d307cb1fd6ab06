package python

// lineAt finds the line of an instruction, by its offset in bytes, in the
// table of a code object of 3.minor. 0: it belongs to no line. ok is false
// where the table ends before it.
func lineAt(minor int, table []byte, first, offset int) (line int, ok bool) {
	switch {
	case minor >= 11:
		return lineOfLocations(table, first, offset)
	case minor == 10:
		return lineOfRanges(table, first, offset)
	}
	return lineOfDeltas(table, first, offset), true
}

// lineOfDeltas reads co_lnotab, to 3.9: pairs of bytes to go on, and lines to
// go on or back from there.
func lineOfDeltas(table []byte, line, offset int) int {
	at := 0
	for i := 0; i+1 < len(table); i += 2 {
		at += int(table[i])
		if at > offset {
			break
		}
		line += int(int8(table[i+1]))
	}
	return line
}

const noLine = -128

// lineOfRanges reads co_linetable of 3.10: pairs of bytes that a range has, and
// lines from the range before.
func lineOfRanges(table []byte, line, offset int) (int, bool) {
	at := 0
	for i := 0; i+1 < len(table); i += 2 {
		at += int(table[i])
		delta := int(int8(table[i+1]))
		if delta != noLine {
			line += delta
		}
		if at > offset {
			if delta == noLine {
				return 0, true
			}
			return line, true
		}
	}
	return line, false
}

// Kinds of an entry of co_linetable since 3.11.
const (
	entryOneLine   = 10 // to 12: on the line as many below
	entryNoColumns = 13
	entryLong      = 14
	entryNone      = 15
	unitBytes      = 2 // of an instruction
)

// lineOfLocations reads co_linetable since 3.11 (Objects/locations.md there):
//
//	1 | kind 4 bits | units less one 3 bits, then by kind
//	0-9    1 byte of columns, on the same line
//	10-12  2 bytes of columns, 0 to 2 lines below
//	13     signed number: lines below
//	14     signed number: lines below; three numbers of the end
//	15     no line
func lineOfLocations(table []byte, line, offset int) (int, bool) {
	at := 0
	for i := 0; i < len(table); {
		kind, units := int(table[i]>>3&15), int(table[i]&7)+1
		i++
		switch {
		case kind == entryNone:
		case kind >= entryNoColumns:
			delta, n := signedNumber(table[i:])
			line += delta
			i += n
			for range 3 * (kind - entryNoColumns) {
				_, n := number(table[min(i, len(table)):])
				i += n
			}
		case kind >= entryOneLine:
			line += kind - entryOneLine
			i += 2
		default:
			i++
		}
		if i > len(table) {
			break // the entry is cut
		}
		if at += units * unitBytes; at > offset {
			if kind == entryNone {
				return 0, true
			}
			return line, true
		}
	}
	return line, false
}

// number reads six bits a byte, lowest first, while bit 6 tells that more
// follow; and gives the bytes it took: one too many where the table ends first.
func number(table []byte) (value, n int) {
	for shift := 0; n < len(table); shift += 6 {
		b := table[n]
		n++
		if shift < 30 {
			value |= int(b&63) << shift
		}
		if b&64 == 0 {
			return value, n
		}
	}
	return value, n + 1
}

// signedNumber reads a number whose lowest bit is the sign.
func signedNumber(table []byte) (value, n int) {
	value, n = number(table)
	if value&1 != 0 {
		return -(value >> 1), n
	}
	return value >> 1, n
}
