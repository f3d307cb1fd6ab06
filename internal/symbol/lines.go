package symbol

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"atys.dev/atys/internal/binfile/dwarf"
	"atys.dev/atys/internal/profile"
)

// An index table says which unit of debug information covers which code:
// a count, then count x (start, end, unit), sorted, not overlapping.
type indexTable []byte

const indexBytes = 12

func encodeIndex(units []dwarf.Unit, place func(uint64) (uint32, bool)) indexTable {
	var spans []candidate
	byName := map[string]uint32{}
	for _, u := range units {
		start, ok := place(u.Start)
		if !ok || u.End-u.Start > uint64(math.MaxUint32-start) {
			continue
		}
		name := string(binary.BigEndian.AppendUint32(nil, u.Unit))
		byName[name] = u.Unit
		spans = append(spans, candidate{span: span{start, start + uint32(u.End-u.Start), name}})
	}
	laid := layOut(spans)
	t := make([]byte, 0, len(laid)*indexBytes)
	for _, s := range laid {
		t = binary.LittleEndian.AppendUint32(t, s.start)
		t = binary.LittleEndian.AppendUint32(t, s.end)
		t = binary.LittleEndian.AppendUint32(t, byName[s.name])
	}
	return t
}

// lookup finds the unit that covers an offset.
func (t indexTable) lookup(off uint32) (unit uint32, ok bool) {
	i := sort.Search(len(t)/indexBytes, func(i int) bool { return u32(t, i*indexBytes) > off }) - 1
	if i < 0 || off >= u32(t, i*indexBytes+4) {
		return 0, false
	}
	return u32(t, i*indexBytes+8), true
}

// A unit table is one unit's functions, inlined calls and lines:
//
//	+-------+-------+-------+-------------+-------------+-------------+---------+
//	| calls | spans | lines | calls x     | spans x     | lines x     | strings |
//	| count | count | count | (see below) | (start, end,| (start, file|         |
//	|       |       |       |             | call)       | line)       |         |
//	+-------+-------+-------+-------------+-------------+-------------+---------+
//
// A call is (name, linker name, parent, call file, call line, file, line); names
// and files are offsets into the strings, parents indices plus one. The strings
// begin with an empty one, so that 0 is none. A line without file and number ends
// what is known.
type unitTable []byte

const (
	unitHeader = 12
	callBytes  = 28
	spanBytes  = 12
	lineBytes  = 12
	maxInlined = 256 // frames of one location
)

func encodeUnit(code *dwarf.Code, place func(uint64) (uint32, bool)) unitTable {
	var strings stringWriter
	strings.add("")
	files := make([]uint32, len(code.Files))
	for i := range files {
		files[i] = math.MaxUint32 // not added yet: headers list hundreds that are not used
	}
	file := func(i int) uint32 {
		if i < 0 || i >= len(files) {
			return 0
		}
		if files[i] == math.MaxUint32 {
			files[i] = strings.add(code.Files[i])
		}
		return files[i]
	}
	t := make([]byte, unitHeader)
	add := func(n uint32) { t = binary.LittleEndian.AppendUint32(t, n) }
	for _, c := range code.Calls {
		add(strings.add(c.Name))
		add(strings.add(c.Linkage))
		add(uint32(c.Parent + 1))
		add(file(c.CallFile))
		add(uint32(c.CallLine))
		add(file(c.DeclFile))
		add(uint32(c.DeclLine))
	}
	spans := uint32(0)
	for _, s := range code.Spans {
		start, ok := place(s.Start)
		if !ok || s.End-s.Start > uint64(math.MaxUint32-start) {
			continue
		}
		add(start)
		add(start + uint32(s.End-s.Start))
		add(uint32(s.Call))
		spans++
	}
	lines := placeLines(code.Lines, place)
	for _, l := range lines {
		add(uint32(l.Address))
		add(file(l.File))
		add(uint32(l.Line))
	}
	binary.LittleEndian.PutUint32(t[0:], uint32(len(code.Calls)))
	binary.LittleEndian.PutUint32(t[4:], spans)
	binary.LittleEndian.PutUint32(t[8:], uint32(len(lines)))
	return append(t, strings.data...)
}

// placeLines turns addresses into file offsets, and drops lines that repeat.
func placeLines(lines []dwarf.Line, place func(uint64) (uint32, bool)) []dwarf.Line {
	out := make([]dwarf.Line, 0, len(lines))
	var previous uint64 // address of the last line placed
	var at uint32       // and its offset
	for _, l := range lines {
		off, ok := place(l.Address)
		if !ok && l.File < 0 && len(out) > 0 && l.Address-previous <= uint64(math.MaxUint32-at) {
			// An end may lie just behind the last byte there is.
			off, ok = at+uint32(l.Address-previous), true
		}
		if !ok {
			continue
		}
		previous, at = l.Address, off
		if l.File < 0 {
			l.Line = 0
		}
		if n := len(out); n > 0 && out[n-1].File == l.File && out[n-1].Line == l.Line {
			continue
		}
		l.Address = uint64(off)
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b dwarf.Line) int { return cmp.Compare(a.Address, b.Address) })
	return out
}

func (t unitTable) counts() (calls, spans, lines int) {
	rest := max(len(t)-unitHeader, 0)
	calls = min(int(u32(t, 0)), rest/callBytes)
	rest -= calls * callBytes
	spans = min(int(u32(t, 4)), rest/spanBytes)
	rest -= spans * spanBytes
	return calls, spans, min(int(u32(t, 8)), rest/lineBytes)
}

// frames gives the frames at an offset, the function itself last, and whether
// that one's name came from the debug information. Where it knows no function,
// there is one frame with file and line alone, or none.
func (t unitTable) frames(off uint32) (frames []profile.Frame, named bool) {
	calls, spans, lines := t.counts()
	spansAt := unitHeader + calls*callBytes
	linesAt := spansAt + spans*spanBytes
	strings := t[min(linesAt+lines*lineBytes, len(t)):]

	var file string
	var line int
	if i := sort.Search(lines, func(i int) bool { return u32(t, linesAt+i*lineBytes) > off }) - 1; i >= 0 {
		file = stringAt(strings, u32(t, linesAt+i*lineBytes+4))
		line = int(u32(t, linesAt+i*lineBytes+8))
	}
	call := -1
	if i := sort.Search(spans, func(i int) bool { return u32(t, spansAt+i*spanBytes) > off }) - 1; i >= 0 &&
		off < u32(t, spansAt+i*spanBytes+4) {
		call = int(u32(t, spansAt+i*spanBytes+8))
	}
	for call >= 0 && call < calls && len(frames) < maxInlined {
		field := func(i int) uint32 { return u32(t, unitHeader+call*callBytes+4*i) }
		parent := int(field(2)) - 1
		f := profile.Frame{Function: stringAt(strings, field(0)), Linkage: stringAt(strings, field(1)),
			File: file, Line: line, StartLine: int(field(6)), Inlined: parent >= 0}
		if f.File == "" {
			f.File = stringAt(strings, field(5))
		}
		frames = append(frames, f)
		file, line = stringAt(strings, field(3)), int(field(4))
		if parent >= call {
			parent = -1 // parents come first: this table is damaged
		}
		call = parent
	}
	if len(frames) == 0 && file != "" {
		return []profile.Frame{{File: file, Line: line}}, false
	}
	return frames, len(frames) > 0
}
