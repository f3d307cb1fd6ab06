package python

import (
	"encoding/binary"
	"errors"
	"slices"

	"atys.dev/atys/internal/binfile"
)

const (
	maxRanges       = 8
	maxEvaluation   = 1 << 20 // bytes of the evaluation function; GCC makes 40 to 80 KB
	maxColdFunction = 1 << 17
)

// evaluation finds the code of the evaluation function: what its symbol says,
// and the parts that the compiler found cold and put elsewhere, which have no
// symbol. Between those two jumps lead into the middle of either, which no
// jump between functions does.
func evaluation(f *binfile.File) ([]Range, error) {
	s, ok := f.Exports().Lookup(evaluationFunction)
	if !ok || s.Size == 0 || s.Size > maxEvaluation {
		return nil, errors.New("the evaluation function has no size")
	}
	hot := span{s.Address, s.Address + s.Size}
	found := append([]span{hot}, coldParts(f, hot)...)
	var ranges []Range
	for _, part := range found[:min(len(found), maxRanges)] {
		if offset, ok := f.Offset(part.start); ok {
			ranges = append(ranges, Range{offset, offset + part.end - part.start})
		}
	}
	if len(ranges) == 0 {
		return nil, errors.New("the evaluation function is not in the file's code")
	}
	return ranges, nil
}

type span struct{ start, end uint64 }

func (s span) has(address uint64) bool { return address >= s.start && address < s.end }

// coldParts finds the other parts of a function.
func coldParts(f *binfile.File, hot span) (cold []span) {
	starts := f.FrameStarts()
	seen := map[uint64]bool{}
	for _, target := range jumps(f, hot) {
		part, ok := functionAt(starts, target)
		if !ok || seen[part.start] || hot.has(part.start) {
			continue
		}
		seen[part.start] = true
		returns := func(to uint64) bool { return to > hot.start && to < hot.end }
		if slices.ContainsFunc(jumps(f, part), returns) {
			cold = append(cold, part)
		}
	}
	return cold
}

// functionAt finds what unwind information calls one function.
func functionAt(starts []uint64, address uint64) (span, bool) {
	i, exact := slices.BinarySearch(starts, address)
	if !exact {
		i--
	}
	if i < 0 || i+1 >= len(starts) || starts[i+1]-starts[i] > maxColdFunction {
		return span{}, false
	}
	return span{starts[i], starts[i+1]}, true
}

// jumps lists where the near jumps of a function lead, outside of itself:
// jmp rel32 (e9) and jcc rel32 (0f 80 to 0f 8f), wherever bytes look like one.
// What only looks like one leads anywhere, hardly to a function that jumps back.
func jumps(f *binfile.File, of span) (targets []uint64) {
	code := make([]byte, of.end-of.start)
	n, _ := f.ReadAddress(code, of.start)
	code = code[:n]
	for i := 0; i+5 <= len(code); i++ {
		at := 0
		switch {
		case code[i] == 0xe9:
			at = i + 1
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80:
			at = i + 2
		default:
			continue
		}
		if at+4 > len(code) {
			break
		}
		distance := int64(int32(binary.LittleEndian.Uint32(code[at:])))
		if to := uint64(int64(of.start) + int64(at) + 4 + distance); !of.has(to) {
			targets = append(targets, to)
		}
	}
	return targets
}
