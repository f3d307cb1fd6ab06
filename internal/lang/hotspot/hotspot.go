// Package hotspot reads JVMs of the HotSpot kind from outside: what walks of their stacks need to know, and what the functions on them are called.
//
// The flow:
//
//	Read    libjvm's tables for debuggers -> layout -> Parameters for walks
//	Namer   nmethod, pc  -> scopes -> methods inlined there, each with its bytecode
//	        Method       -> constant pool -> names, source file, line
//
// A JVM throws code and classes away while it is read. So whatever was read of
// an nmethod counts only if its number was the sampled one before and after,
// and a Method must have the identity that the walk took of it; see hotspot.h.
// What fails this has no name, never a wrong one.
package hotspot

import (
	"fmt"
	"sync"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

// entered is the static field that a JVM fills shortly before it first enters Java.
const entered = "StubRoutines._call_stub_return_address"

// Holds tells whether a file is a libjvm.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.HotSpot) }

// Process is a JVM, and what is known of its functions so far.
type Process struct {
	reader

	mu          sync.Mutex // guards all below, and reader where it reads for names
	compiled    map[compilation]*nmethod
	methods     map[uint64][]*method // by address, those last met first
	stubs       map[uint64]string    // names of blobs
	frames      int                  // kept in compiled
	bytes       int                  // of scopes kept in compiled
	methodBytes int                  // read for methods since they were dropped
	looking     allowance
}

// Parameters give what walks need.
func (p *Process) Parameters() any { return &p.l.Parameters }

// Read finds out how to read a JVM. Its file tells where its tables are, the
// process what is in them.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "HotSpot", readFile, func(m lang.Mapped, at symbols) (lang.Walked, error) {
		return readProcess(memory{proc.Memory{PID: m.PID}}, at, m.Bias)
	})
}

func readProcess(m memory, at symbols, bias uint64) (lang.Walked, error) {
	t, err := readTables(m, func(word string) (uint64, bool) {
		address, ok := at[word]
		return address + bias, ok
	})
	if err != nil {
		return nil, err
	}
	s := statics{m: m, t: t}
	l, err := newLayout(t)
	if err != nil {
		return nil, s.lacks(err)
	}
	s.readHeaps(&l)
	s.readInterpreter(&l)
	p := newProcess(m, l)
	if s.err == nil && l.biased { // no virtual threads before 21
		s.err = p.readVirtualThreads(t)
	}
	if s.err != nil {
		return nil, s.err
	}
	return p, nil
}

func newProcess(m memory, l layout) *Process {
	return &Process{reader: reader{m, l}, compiled: map[compilation]*nmethod{}, methods: map[uint64][]*method{}}
}

// reader reads structures of a JVM by their layout.
type reader struct {
	m memory
	l layout
}

// statics reads what a JVM keeps in static fields.
type statics struct {
	m   memory
	t   tables
	err error
}

// starting notes that something is not there yet.
func (s *statics) starting(ok bool) {
	if !ok && s.err == nil {
		s.err = errStarting
	}
}

// lacks makes an error final if the JVM runs: while it is loaded its tables are
// not filled yet.
func (s *statics) lacks(err error) error {
	if at := s.staticAt(entered); at != 0 {
		if v, ok := s.m.u64(at); ok && v != 0 {
			return lang.Never(err)
		}
	}
	return err
}

func (s *statics) u64(address uint64) uint64 {
	v, ok := s.m.u64(address)
	s.starting(ok)
	return v
}

func (s *statics) u32(address uint64) uint32 {
	v, ok := s.m.u32(address)
	s.starting(ok)
	return v
}

// staticAt gives the address of the first of some static fields that is there;
// 0: none is.
func (s *statics) staticAt(names ...string) uint64 {
	for _, name := range names {
		if f, ok := s.t.fields[name]; ok && f.static {
			return f.at
		}
	}
	return 0
}

// static reads a pointer in a static field.
func (s *statics) static(names ...string) uint64 {
	at := s.staticAt(names...)
	if at == 0 {
		return 0
	}
	return s.u64(at)
}

func (s *statics) at(names ...string) uint64 {
	f := finder{t: s.t}
	at := f.offset(names...)
	if f.err != nil && s.err == nil {
		s.err = s.lacks(f.err)
	}
	return uint64(at)
}

// readHeaps finds the heaps of code: a list of them, in 8 only one.
func (s *statics) readHeaps(l *layout) {
	var heaps []uint64
	if s.staticAt("CodeCache._heap") != 0 {
		heaps = []uint64{s.static("CodeCache._heap")}
		s.starting(heaps[0] != 0)
		l.NoMirror = 1 // came with the list, in 9; no table tells it
	} else {
		list := s.static("CodeCache._heaps")
		s.starting(list != 0)
		length, data := s.at("GrowableArrayBase._len", "GenericGrowableArray._len"), s.at("GrowableArray<int>._data")
		if s.err != nil {
			return
		}
		n, first := s.u32(list+length), s.u64(list+data)
		s.starting(n > 0 && first != 0)
		if n > uint32(len(l.Heaps)) && s.err == nil {
			s.err = s.lacks(fmt.Errorf("this JVM has %d heaps of code, more than atys knows", n))
		}
		for i := uint64(0); i < uint64(n) && s.err == nil; i++ {
			heaps = append(heaps, s.u64(first+8*i))
		}
	}
	memory, segments, shift := s.at("CodeHeap._memory"), s.at("CodeHeap._segmap"), s.at("CodeHeap._log2_segment_size")
	low, reserved, first := s.at("VirtualSpace._low_boundary"), s.at("VirtualSpace._high_boundary"), s.at("VirtualSpace._low")
	for i, h := range heaps {
		if s.err != nil {
			return
		}
		l.Heaps[i] = Heap{Low: s.u64(h + memory + low), High: s.u64(h + memory + reserved),
			Segments: s.u64(h + segments + first), Shift: s.u32(h + shift)}
		s.starting(l.Heaps[i].Low != 0 && l.Heaps[i].Low < l.Heaps[i].High && l.Heaps[i].Segments != 0 && l.Heaps[i].Shift < 32)
	}
}

// readInterpreter finds the code of the interpreter. It is made long before
// the first Java method runs, in one piece.
func (s *statics) readInterpreter(l *layout) {
	queue := s.static("AbstractInterpreter._code")
	s.starting(queue != 0)
	begin, limit := s.at("StubQueue._stub_buffer"), s.at("StubQueue._buffer_limit")
	if s.err != nil {
		return
	}
	l.Interpreter = s.u64(queue + begin)
	l.InterpreterEnd = l.Interpreter + uint64(s.u32(queue+limit))
	s.starting(l.Interpreter != 0 && l.Interpreter < l.InterpreterEnd && s.static(entered) != 0)
}
