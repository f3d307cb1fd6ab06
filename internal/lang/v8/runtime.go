package v8

import (
	"io"
	"sync"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

// Runtime is V8 in one process.
type Runtime struct {
	mu              sync.Mutex // guards all below
	heap            heap
	scripts         map[uint64]*script      // by the Script
	functions       map[uint64]*unoptimised // by the SharedFunctionInfo
	codes           []*code                 // by address
	bytes           int                     // of scripts, functions and codes
	instructionsMap uint64                  // of objects that hold instructions
}

// What is kept of a process: so many scripts, functions and pieces of code each,
// and bytes of all together, but always what was read last: a script has 4 bytes
// a line, up to 8 MB, and a function some hundred, with code some thousand.
const (
	maxKept   = 1 << 14
	keepBytes = 16 << 20
)

// Read finds out how V8 lays out its objects in a process: its file tells.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "V8", readLayout, func(m lang.Mapped, l layout) (lang.Walked, error) {
		return newRuntime(proc.Memory{PID: m.PID}, l), nil
	})
}

func newRuntime(memory io.ReaderAt, l layout) *Runtime {
	return &Runtime{heap: heap{memory: memory, layout: l},
		scripts: map[uint64]*script{}, functions: map[uint64]*unoptimised{}}
}

// Parameters are what walks need: struct v8_process of v8.h.
func (r *Runtime) Parameters() any { return &r.heap.layout.parameters }

// makeRoom has something that was read fit among what is kept: where that is too
// much all of it goes, and is read again when it is asked for.
func (r *Runtime) makeRoom(of sized) {
	n := of.size()
	if r.bytes+n > keepBytes || max(len(r.scripts), len(r.functions), len(r.codes)) >= maxKept {
		clear(r.scripts)
		clear(r.functions)
		r.codes, r.bytes = nil, 0
	}
	r.bytes += n
}

// look reads a function's lines and bytecode while it is where it was
// photographed; what was read earlier is kept.
func (r *Runtime) look(f *photographed) {
	if f.script == 0 {
		return // it is of V8's library
	}
	now, ok := r.heap.function(f.shared)
	if !ok || now.place() != f.place() {
		return // gone since
	}
	if f.compare(&now); f.reused {
		return
	}
	if s := r.script(f.script); s != nil {
		f.lines = s
	}
	if u := r.unoptimised(f.shared); u != nil {
		f.unoptimised = u
	}
}

// compare takes what is known of the function that lies where another was
// photographed: the same one, or one that came later.
func (f *photographed) compare(now *function) {
	if f.contradicts(now) {
		f.reused = true
		return
	}
	if !f.known && now.known {
		f.name, f.known = now.name, true
	}
}
