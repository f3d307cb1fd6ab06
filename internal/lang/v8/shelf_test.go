package v8

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"atys.dev/atys/internal/lang"
)

// large makes many functions, each in a script of its own: what is read of one
// takes a megabyte, though all share their memory. The photographs are of them.
func large(many int) (r *Runtime, all []lang.Photograph) {
	m := newObjects()
	lines := make([]uint64, 1<<17)
	for i := range lines {
		lines[i] = smi(10 * i)
	}
	ends := m.array(lines...)
	table := m.byteArray(append(encode([]entry{{0, at(15, -1)}, {100, at(25, -1)}}, []bool{true, true}, true), make([]byte, 1<<19)...))
	for i := range many {
		name := fmt.Sprint("f", i)
		script := m.object(typeScript, smi(0), m.text("/srv/a.js"), smi(0), 0, 0, 0, ends)
		scope := m.scope(0, 5, true, m.text(name), smi(0))
		shared := m.object(typeShared, m.object(typeBytecode, 0, 0, table), 0, scope, 0, script, 0)
		p := lang.Photograph{What: uint64(i), Bytes: make([]byte, 1024)}
		p.Values = [8]uint64{shared, scope, script, 1, smi(5)}
		p.Lengths[0] = uint32(copy(p.Bytes, name))
		all = append(all, p)
	}
	return newRuntime(m, laidOut()), all
}

// heapInUse is what is left when all garbage has gone.
func heapInUse() int {
	for range 3 {
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}

// TestBytesKept reads more of a process than may be kept.
func TestBytesKept(t *testing.T) {
	const many, slack = 100, 4 << 20
	r, all := large(many)
	n := &Namer{}
	name := func(i int, of lang.Walked) string {
		frames := n.Name(lang.Activation{What: uint64(i), Where: kindInterpreted<<kindShift | (63 + 6)}, of)
		if len(frames) != 1 {
			return fmt.Sprint(len(frames), " frames")
		}
		return fmt.Sprintf("%s:%d at %d", frames[0].Function, frames[0].StartLine, frames[0].Line)
	}
	before := heapInUse()
	for _, p := range all {
		n.Look(p, r)
	}
	if r.bytes > keepBytes {
		t.Errorf("%d bytes are kept, want no more than %d", r.bytes, keepBytes)
	}
	if took := heapInUse() - before; took > keepBytes+2*shelfHalf+slack {
		t.Errorf("%d MB are in use for %d MB that were read", took>>20, many)
	}
	if got, want := name(many-1, nil), fmt.Sprintf("f%d:2 at 3", many-1); got != want {
		t.Errorf("the last one, without its process: %q, want %q", got, want)
	}
	if got := name(0, nil); got != "f0:0 at 0" {
		t.Errorf("the first one, without its process: %q, want it to have its name, and no line any more", got)
	}
	for i := range all {
		if got, want := name(i, r), fmt.Sprintf("f%d:2 at 3", i); got != want {
			t.Errorf("%q, want %q: what was dropped is read again", got, want)
		}
	}
	runtime.KeepAlive(r)
}

// TestCodeBytesKept keeps more code than may be.
func TestCodeBytesKept(t *testing.T) {
	r := newRuntime(newObjects(), laidOut())
	for i := range uint64(100) {
		r.keepCode(&code{begin: 100 * i, end: 100*i + 50, positions: positions{table: make([]byte, 1<<20)}})
	}
	if r.bytes > keepBytes || len(r.codes) == 0 || len(r.codes) > keepBytes>>20 || r.codes[len(r.codes)-1].begin != 9900 {
		t.Errorf("%d pieces of code are kept, %d bytes", len(r.codes), r.bytes)
	}
}

// TestShelf has what is asked for stay, and the rest fall out.
func TestShelf(t *testing.T) {
	var s shelf
	make1MB := func() *unoptimised { return &unoptimised{code: bytes.Repeat([]byte{1}, 1<<20)} }
	asked, other := make1MB(), make1MB()
	s.keep(other)
	for range 10 * shelfHalf >> 20 {
		s.keep(asked)
		s.keep(make1MB())
	}
	has := func(what sized) bool { return s.fresh[what] || s.old[what] }
	if !has(asked) || has(other) {
		t.Errorf("what is asked for is there: %v, what is not: %v", has(asked), has(other))
	}
	if n := len(s.fresh) + len(s.old); n > 2*shelfHalf>>20 {
		t.Errorf("%d MB on the shelf", n)
	}
}

// TestCountLines counts no more lines than are kept.
func TestCountLines(t *testing.T) {
	for lines, want := range map[int]int{2: 3, maxLines - 1: maxLines, maxLines + 1: 0} {
		if got := len(countLines(chars{bytes: bytes.Repeat([]byte("\n"), lines)})); got != want {
			t.Errorf("%d ends of lines in a text with %d newlines, want %d", got, lines, want)
		}
	}
}
