package v8

import (
	"net/url"
	"slices"
	"strings"
)

const (
	maxSource = 1 << 24 // characters of a script whose lines are counted
	maxLines  = 1 << 21
)

// script is where the lines of a script end.
type script struct {
	source uint64 // by which it is known again
	name   uint64
	file   string
	first  int // line of its first, less one
	ends   []int32
}

// script gives the lines of a script; nil where it cannot be read.
func (r *Runtime) script(object uint64) *script {
	h := &r.heap
	if !h.is(object, h.layout.scriptType) {
		return nil
	}
	source, ok1 := h.word(object, h.layout.source)
	name, ok2 := h.word(object, h.layout.scriptName)
	if !ok1 || !ok2 {
		return nil
	}
	if s := r.scripts[object]; s != nil && s.source == source && s.name == name {
		return s
	}
	s := &script{source: source, name: name, file: fileName(h.name(name))}
	if v, ok := h.word(object, h.layout.scriptName+8); ok { // its line in a larger file
		if n, ok := small(v); ok && n > 0 {
			s.first = n
		}
	}
	if s.ends = h.lineEnds(object); s.ends == nil {
		if c, ok := h.text(source, maxSource, false); ok {
			s.ends = countLines(c)
		}
	}
	r.makeRoom(s)
	r.scripts[object] = s
	return s
}

// lineEnds reads the positions of line ends that V8 has once it had to tell a
// line itself.
func (h *heap) lineEnds(object uint64) []int32 {
	array, ok := h.field(object, h.layout.lineEnds, h.layout.fixedArrayTypes...)
	if !ok {
		return nil
	}
	n, ok := h.length(array, maxLines)
	if !ok || n == 0 {
		return nil
	}
	b := make([]byte, 8*n)
	if !h.read(b, array-1+arrayData) {
		return nil
	}
	ends := make([]int32, n)
	for i := range ends {
		end, ok := small(le.Uint64(b[8*i:]))
		if !ok || i > 0 && int32(end) < ends[i-1] {
			return nil
		}
		ends[i] = int32(end)
	}
	return ends
}

// countLines finds where lines end, as JavaScript means it; nil where there are
// too many.
func countLines(c chars) (ends []int32) {
	n := c.len()
	for i := 0; i < n; i++ {
		if len(ends) >= maxLines {
			return nil
		}
		switch u := c.at(i); u {
		case '\r':
			if i+1 < n && c.at(i+1) == '\n' {
				i++
			}
			ends = append(ends, int32(i))
		case '\n', 0x2028, 0x2029:
			ends = append(ends, int32(i))
		}
	}
	return append(ends, int32(n))
}

// line is the line of a position, 0 unknown.
func (s *script) line(position int) int {
	if s == nil || position < 0 || len(s.ends) == 0 || position > int(s.ends[len(s.ends)-1]) {
		return 0
	}
	i, _ := slices.BinarySearch(s.ends, int32(position))
	return s.first + i + 1
}

// fileName is a script's name as the file that it is.
func fileName(name string) string {
	path, ok := strings.CutPrefix(name, "file://")
	if !ok {
		return name
	}
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}
