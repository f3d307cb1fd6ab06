package symbol

import (
	"cmp"
	"debug/elf"
	"math"
	"slices"
	"strconv"
	"strings"

	"atys.dev/atys/internal/binfile"
)

// span is a stretch of code that one symbol names; start and end are offsets
// of the file. Files beyond 4 GiB are named up to there.
type span struct {
	start, end uint32
	name       string
}

// candidate is a symbol before it is settled what it names.
type candidate struct {
	span
	limit uint32 // where a symbol without a size must end at the latest
	rank  int    // the higher is preferred among those that start together
}

// gatherSpans settles which symbol names which code. The rules, so that a name
// is right or missing, and the same on every host:
//
//   - A symbol names [start, start+size). Among several that start together,
//     functions win over labels and indirect functions, global and weak ones
//     over local ones, fewer leading underscores over more (read over __read),
//     global over weak, the shorter name over the longer, then the alphabet
//     decides.
//   - Where symbols overlap, the one that starts later wins as far as it goes;
//     behind its end the outer one goes on.
//   - A symbol without a size (hand-written assembly) counts only where no other
//     one holds, and only in files with a full symbol table, because only there
//     the next symbol is known to be the next function. It ends at the next
//     symbol, the next function that unwind information begins, or the end of
//     its section.
//   - Linker stubs are named f@plt where no symbol names them.
func gatherSpans(main *binfile.File, more ...*binfile.File) []span {
	var sized, open []candidate
	var starts []uint32 // of all symbols
	for _, f := range append([]*binfile.File{main}, more...) {
		first := len(open)
		full := f.EachSymbol(func(s binfile.Symbol) {
			c, ok := newCandidate(main, s)
			if !ok {
				return
			}
			starts = append(starts, c.start)
			if c.end > c.start {
				sized = append(sized, c)
			} else {
				open = append(open, c)
			}
		})
		if !full {
			open = open[:first]
		}
	}
	spans := layOut(sized)
	if len(open) > 0 {
		for _, address := range main.FrameStarts() {
			if off, ok := main.Offset(address); ok && off <= math.MaxUint32 {
				starts = append(starts, uint32(off))
			}
		}
		spans = fillGaps(spans, layOut(bounded(open, starts)))
	}
	var stubs []candidate
	for _, s := range main.Stubs(more...) {
		off, ok := main.Offset(s.Address)
		if !ok || off+s.Size > math.MaxUint32 {
			continue
		}
		name := ".plt"
		if s.Name != "" {
			name = s.Name + pltSuffix
		}
		stubs = append(stubs, candidate{span: span{uint32(off), uint32(off + s.Size), name}})
	}
	return fillGaps(fillGaps(spans, layOut(stubs)), nameless(main))
}

// namelessMark begins the name of a span that only unwind information bounds;
// what follows is where it starts. No linker name begins like this.
const namelessMark = "+0x"

// nameless bounds the functions that no symbol names by their unwind
// information: all of a function's samples are then one place.
func nameless(main *binfile.File) []span {
	starts := main.FrameStarts()
	var out []span
	for _, segment := range main.Executable() {
		end := uint64(math.MaxUint32)
		for _, address := range slices.Backward(starts) {
			off, ok := main.Offset(address)
			if !ok || off < segment.Offset || off >= segment.Offset+segment.Size || off >= end {
				continue
			}
			last := min(end, segment.Offset+segment.Size)
			out = append(out, span{uint32(off), uint32(last), namelessMark + strconv.FormatUint(off, 16)})
			end = off
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return out
}

// namelessStart gives the start of a span that nameless made.
func namelessStart(name string) (start uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, namelessMark)
	if !ok {
		return 0, false
	}
	start, err := strconv.ParseUint(digits, 16, 32)
	return start, err == nil
}

func newCandidate(main *binfile.File, s binfile.Symbol) (candidate, bool) {
	off, ok := main.Offset(s.Address)
	if !ok || off > math.MaxUint32 {
		return candidate{}, false
	}
	// Neither end may leave the section, whatever the symbol says.
	room := min(s.SectionEnd-s.Address, math.MaxUint32-off)
	return candidate{
		span:  span{start: uint32(off), end: uint32(off + min(s.Size, room)), name: s.Name},
		limit: uint32(off + room),
		rank:  rank(s),
	}, true
}

func rank(s binfile.Symbol) (r int) {
	switch s.Type {
	case elf.STT_FUNC:
		r += 2 << 20
	case elf.STT_GNU_IFUNC: // the code there is the resolver's, which may have a name of its own
		r += 1 << 20
	}
	if s.Bind != elf.STB_LOCAL {
		r += 1 << 19
	}
	if !isMangled(s.Name) {
		underscores := len(s.Name) - len(strings.TrimLeft(s.Name, "_"))
		r -= min(underscores, 1<<10) << 4
	}
	if s.Bind == elf.STB_GLOBAL {
		r++
	}
	return r
}

// bounded gives symbols without a size the end they cannot reach beyond.
func bounded(open []candidate, starts []uint32) []candidate {
	slices.Sort(starts)
	out := open[:0]
	for _, c := range open {
		c.end = c.limit
		if i, _ := slices.BinarySearch(starts, c.start+1); i < len(starts) {
			c.end = min(c.end, starts[i])
		}
		out = append(out, c)
	}
	return out
}

// layOut turns candidates into spans that do not overlap, sorted.
func layOut(candidates []candidate) []span {
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.rank, a.rank),
			cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name), cmp.Compare(b.end, a.end))
	})
	var out []span
	var stack []span // open spans, the innermost last; each ends behind the one above it
	emit := func(start, end uint32, name string) {
		if start >= end {
			return
		}
		if n := len(out); n > 0 && out[n-1].end == start && out[n-1].name == name {
			out[n-1].end = end
			return
		}
		out = append(out, span{start, end, name})
	}
	at := uint32(0)
	advance := func(to uint32) {
		for len(stack) > 0 && at < to {
			top := stack[len(stack)-1]
			emit(at, min(top.end, to), top.name)
			at = max(at, min(top.end, to))
			if top.end > to {
				break
			}
			stack = stack[:len(stack)-1]
		}
		at = to
	}
	for i := 0; i < len(candidates); {
		start := candidates[i].start
		advance(start)
		best := candidates[i].span
		outer := best
		for ; i < len(candidates) && candidates[i].start == start; i++ {
			if candidates[i].end > outer.end {
				outer = candidates[i].span
			}
		}
		for _, s := range []span{outer, best} {
			// What ends first hides nothing: drop those it covers.
			for len(stack) > 0 && stack[len(stack)-1].end <= s.end {
				stack = stack[:len(stack)-1]
			}
			stack = append(stack, s)
		}
	}
	advance(math.MaxUint32)
	return out
}

// fillGaps lays more spans into the gaps of others. Both are sorted and do not
// overlap. Of a filler only the part before the first span it meets is taken:
// behind it, it is not known to go on.
func fillGaps(spans, fill []span) []span {
	if len(fill) == 0 {
		return spans
	}
	out := make([]span, 0, len(spans)+len(fill))
	i := 0
	for _, f := range fill {
		for i < len(spans) && spans[i].start <= f.start {
			out = append(out, spans[i])
			i++
		}
		if i > 0 && spans[i-1].end > f.start {
			continue
		}
		if i < len(spans) {
			f.end = min(f.end, spans[i].start)
		}
		out = append(out, f)
	}
	return append(out, spans[i:]...)
}
