package binfile

import (
	"encoding/binary"
	"slices"
)

const (
	maxFunction = 1 << 20 // bytes of one whose parts are looked for
	maxColdPart = 1 << 17
)

// Parts gives the code of a function whose symbol is given, as file offsets:
// the symbol's range, then what the compiler found cold and put elsewhere,
// which has no symbol. Between parts of a function jumps lead into the middle
// of either; between functions none does.
func (f *File) Parts(function Export) (parts []Segment) {
	if function.Size == 0 || function.Size > maxFunction {
		return nil
	}
	hot := codeRange{function.Address, function.Address + function.Size}
	for _, part := range append([]codeRange{hot}, f.coldParts(hot)...) {
		if offset, ok := f.Offset(part.start); ok {
			parts = append(parts, Segment{Offset: offset, Address: part.start, Size: part.end - part.start})
		}
	}
	return parts
}

// codeRange is where code lies, by link-time addresses.
type codeRange struct{ start, end uint64 }

func (r codeRange) has(address uint64) bool { return address >= r.start && address < r.end }

func (f *File) coldParts(hot codeRange) (cold []codeRange) {
	starts := f.FrameStarts()
	looked := map[uint64]bool{}
	for _, target := range f.jumpsOut(hot) {
		part, ok := frameAt(starts, target)
		if !ok || looked[part.start] || hot.has(part.start) {
			continue
		}
		looked[part.start] = true
		inside := func(to uint64) bool { return to > hot.start && to < hot.end }
		if slices.ContainsFunc(f.jumpsOut(part), inside) {
			cold = append(cold, part)
		}
	}
	return cold
}

// frameAt finds what unwind information calls one function.
func frameAt(starts []uint64, address uint64) (codeRange, bool) {
	i, exact := slices.BinarySearch(starts, address)
	if !exact {
		i--
	}
	if i < 0 || i+1 >= len(starts) || starts[i+1]-starts[i] > maxColdPart {
		return codeRange{}, false
	}
	return codeRange{starts[i], starts[i+1]}, true
}

// jumpsOut lists where near jumps lead out of a range: jmp rel32 (e9) and jcc
// rel32 (0f 80 to 0f 8f), wherever bytes look like one. What only looks like
// one leads anywhere, hardly to a function that jumps back.
func (f *File) jumpsOut(of codeRange) (targets []uint64) {
	code := make([]byte, of.end-of.start)
	n, _ := f.ReadAddress(code, of.start)
	code = code[:n]
	for i := 0; i+1 < len(code); i++ {
		at := i + 1
		if code[i] == 0x0f && code[i+1]&0xf0 == 0x80 {
			at = i + 2
		} else if code[i] != 0xe9 {
			continue
		}
		if at+4 > len(code) {
			break
		}
		distance := int64(int32(binary.LittleEndian.Uint32(code[at:])))
		if to := of.start + uint64(at) + 4 + uint64(distance); !of.has(to) {
			targets = append(targets, to)
		}
	}
	return targets
}
