package hotspot

import (
	"errors"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang"
)

// libjvm is the memory of a process that runs a JVM: what it publishes, and
// what that leads to. next is where there is room.
type libjvm struct {
	*image
	next  uint64
	texts map[string]uint64
	at    symbols
}

func (j *libjvm) room(bytes uint64) uint64 {
	at := j.next
	j.next += (bytes + 7) &^ 7
	return at
}

func (j *libjvm) text(s string) uint64 {
	if at, ok := j.texts[s]; ok {
		return at
	}
	at := j.room(uint64(len(s)) + 1)
	copy(j.data[at-j.base:], s)
	j.texts[s] = at
	return at
}

// export writes a word and the symbol that names it.
func (j *libjvm) export(name string, word uint64) {
	j.at[name] = j.room(8)
	j.put64(j.at[name], word)
}

// entrySize is more than what is told of an entry: its words, the name first.
const entrySize = 64

// publish writes a table of entries; their words lie in the order of its symbols.
func (j *libjvm) publish(t table, entries [][]uint64) {
	first := j.room(uint64(len(entries)+1) * entrySize)
	for n, words := range entries {
		for k, word := range words {
			j.put64(first+uint64(n*entrySize+8*k), word)
		}
	}
	for k, symbol := range t.words() {
		word := uint64(max(k-2, 0) * 8)
		switch k {
		case 0:
			word = first
		case 1:
			word = entrySize
		}
		j.export(symbol, word)
	}
}

// newLibjvm writes the memory of a JVM whose tables are all.
func newLibjvm(all tables) *libjvm {
	j := &libjvm{image: &image{0x20000, make([]byte, 0x10000)}, next: 0x20200, texts: map[string]uint64{}, at: symbols{}}
	var fields, sizes, numbers [][]uint64
	for name, f := range all.fields {
		cut := strings.LastIndex(name, ".")
		entry := []uint64{j.text(name[:cut]), j.text(name[cut+1:]), 0, f.at, 0, j.text(f.kind)}
		if f.static {
			entry[2], entry[3], entry[4] = 1, 0, f.at
		}
		fields = append(fields, entry)
	}
	for name, size := range all.sizes {
		sizes = append(sizes, []uint64{j.text(name), size})
	}
	for name, number := range all.ints {
		numbers = append(numbers, []uint64{j.text(name), uint64(number)})
	}
	structs, types, ints, longs := published()
	j.publish(structs, fields)
	j.publish(types, sizes)
	j.publish(ints, numbers)
	j.publish(longs, nil)
	return j
}

// Where the JVM of 8 has its heap of code, its interpreter, and what leads there.
const (
	staticHeap  = 0x20000
	staticCode  = 0x20008
	staticEntry = 0x20010
	heapObject  = 0x20020
	stubQueue   = 0x20140
	heapLow     = 0x7f0000000000
)

// tablesOf8 add to what is recorded what leads to the code, as jdk8u's headers
// declare it.
func tablesOf8(t testing.TB) tables {
	all := recordedTables(t, "8")
	for name, at := range map[string]uint64{"CodeHeap._memory": 0, "CodeHeap._segmap": 112, "CodeHeap._log2_segment_size": 248,
		"VirtualSpace._low_boundary": 0, "VirtualSpace._high_boundary": 8, "VirtualSpace._low": 16,
		"StubQueue._stub_buffer": 8, "StubQueue._buffer_limit": 20} {
		all.fields[name] = field{at: at}
	}
	for name, at := range map[string]uint64{"CodeCache._heap": staticHeap, "AbstractInterpreter._code": staticCode, entered: staticEntry} {
		all.fields[name] = field{static: true, at: at}
	}
	return all
}

// newJVM8 is a JVM of 8 that runs.
func newJVM8(all tables) *libjvm {
	j := newLibjvm(all)
	j.put64(staticHeap, heapObject)
	j.put64(heapObject, heapLow)
	j.put64(heapObject+8, heapLow+240<<20)
	j.put64(heapObject+112+16, heapLow-1<<20)
	j.put32(heapObject+248, 6)
	j.put64(staticCode, stubQueue)
	j.put64(stubQueue+8, heapLow+0x1000)
	j.put32(stubQueue+20, 0x8000)
	j.put64(staticEntry, heapLow+0x400)
	return j
}

func (j *libjvm) read() (*Process, error) {
	found, err := readProcess(memory{j.image}, j.at, 0)
	if err != nil {
		return nil, err
	}
	return found.(*Process), nil
}

// TestRead8 reads a JVM that has one heap of code, and no mirror in frames.
func TestRead8(t *testing.T) {
	p, err := newJVM8(tablesOf8(t)).read()
	if err != nil {
		t.Fatal(err)
	}
	l := &p.l
	if want := (Heap{Low: heapLow, High: heapLow + 240<<20, Segments: heapLow - 1<<20, Shift: 6}); l.Heaps != [4]Heap{want} {
		t.Errorf("heaps %+v, want %+v", l.Heaps, want)
	}
	if l.Interpreter != heapLow+0x1000 || l.InterpreterEnd != heapLow+0x9000 {
		t.Errorf("the interpreter is at %#x to %#x", l.Interpreter, l.InterpreterEnd)
	}
	if l.NoMirror != 1 || l.Barrier != 0 || l.biased {
		t.Errorf("mirror left out %d, barrier %#x, biased %v", l.NoMirror, l.Barrier, l.biased)
	}
	if want := recordedLayout(t, "8"); l.Tail != want.Tail || l.scopesData != want.scopesData {
		t.Errorf("another layout than the recorded one: %+v", l)
	}
}

// TestReadFails tells what may come yet from what never will.
func TestReadFails(t *testing.T) {
	for name, c := range map[string]struct {
		lacks string
		spoil func(*libjvm)
		never bool
	}{
		"not loaded":              {spoil: func(j *libjvm) { j.put64(j.at["gHotSpotVMTypeEntryArrayStride"], 0) }},
		"no heap yet":             {spoil: func(j *libjvm) { j.put64(staticHeap, 0) }},
		"Java not entered":        {spoil: func(j *libjvm) { j.put64(staticEntry, 0) }},
		"no field, while loading": {lacks: "nmethod._compile_id", spoil: func(j *libjvm) { j.put64(staticEntry, 0) }},
		"no field":                {lacks: "nmethod._compile_id", never: true},
		"no field of heaps":       {lacks: "CodeHeap._segmap", never: true},
	} {
		all := tablesOf8(t)
		delete(all.fields, c.lacks)
		j := newJVM8(all)
		if c.spoil != nil {
			c.spoil(j)
		}
		_, err := j.read()
		if err == nil || errors.Is(err, lang.ErrNever) != c.never || c.never && !strings.Contains(err.Error(), c.lacks) {
			t.Errorf("%s: %v; for good: %v", name, err, c.never)
		}
		if c.lacks == "" && !errors.Is(err, errStarting) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzTables has libjvm's tables be anything, and what they lead to.
func FuzzTables(f *testing.F) {
	const base = 0x10000
	all := tablesOf8(f)
	j := newJVM8(all)
	data := make([]byte, j.base-base)
	copy(data, newImage(recordedLayout(f, "8")).data)
	f.Add(append(data, j.data...), uint32(0x40))
	all.fields["HeapBlock::Header._used"] = field{at: 4000}
	f.Add(append(data, newJVM8(all).data...), uint32(0x40))
	f.Fuzz(func(t *testing.T, data []byte, pc uint32) {
		if found, err := readProcess(memory{&image{base, data}}, j.at, 0); err == nil {
			checkNames(t, found.(*Process), pc)
		}
	})
}
