// Package python reads CPython 3.6 to 3.14 as it runs: where its threads keep their frames, and what functions are called.
//
//	Holds    a file that has the evaluation function
//	Read     version -> layout (layouts_table.go, made by offsets/generate; debugoffsets.go)
//	         -> key of the thread state, proven on a thread of the process
//	         -> code of the evaluation function (evaluation.go)
//	         = parameters of walks; bpf/include/python.h has the picture
//	Album    photographs of code objects -> function, file, line (album.go, lines.go)
//
// The process is only read, never stopped, and no code runs in it.
package python

import (
	"errors"
	"fmt"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

const evaluationFunction = "_PyEval_EvalFrameDefault"

// Holds tells whether a file holds a runtime of CPython 3.6 or later.
func Holds(f *binfile.File) bool {
	s, ok := f.Exports().Lookup(evaluationFunction)
	return ok && s.Address != 0
}

// Runtime is the CPython of a process.
type Runtime struct {
	Minor      int // of version 3.minor
	parameters Parameters
}

// Parameters are what walks need: a *Parameters.
func (r *Runtime) Parameters() any { return &r.parameters }

// Read finds out what walks need to know of the runtime in a process. It fails
// while the runtime is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	r, err := read(m)
	if err != nil {
		return nil, fmt.Errorf("read CPython in %q: %w", m.Path, err)
	}
	return r, nil
}

func read(m lang.Mapped) (*Runtime, error) {
	file, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	f, err := binfile.FromFile(file)
	if err != nil {
		return nil, err
	}
	minor, err := version(f, m.Path)
	if err != nil {
		return nil, err
	}
	l, err := layoutOf(minor)
	if err != nil {
		return nil, err
	}
	p := process{memory: memory{proc.Memory{PID: m.PID}}, exports: f.Exports(), file: f, bias: m.Bias, layout: l, minor: minor}
	if err := p.adopt(); err != nil {
		return nil, err
	}
	thread, err := p.threadState()
	if err != nil {
		return nil, err
	}
	ranges, err := evaluation(f)
	if err != nil {
		return nil, err
	}
	code, err := p.address("PyCode_Type")
	if err != nil {
		return nil, err
	}
	r := &Runtime{Minor: minor, parameters: parameters(minor, p.layout, thread, ranges)}
	r.parameters.CodeType, r.parameters.Current, r.parameters.Origin = code, p.current(), uint32(m.PID)
	return r, nil
}

// process is a runtime being read.
type process struct {
	memory  memory
	exports binfile.Exports
	file    *binfile.File
	bias    uint64
	layout  layout
	minor   int
}

// address tells where a symbol of the runtime is in the process.
func (p *process) address(symbol string) (uint64, error) {
	s, ok := p.exports.Lookup(symbol)
	if !ok {
		return 0, fmt.Errorf("the symbol %s is missing", symbol)
	}
	return s.Address + p.bias, nil
}

// current tells where the runtime keeps the state of the thread that holds the
// GIL. Until 3.11 a thread's own key has the state of its first interpreter
// only; since 3.12 it follows the thread.
func (p *process) current() uint64 {
	if p.layout.Current != 0 {
		if runtime, err := p.address("_PyRuntime"); err == nil {
			return runtime + uint64(p.layout.Current)
		}
	}
	at, err := p.address("_PyThreadState_Current") // of 3.6
	if err != nil {
		return 0
	}
	return at
}

// errStarting is met before the runtime has a thread.
var errStarting = errors.New("no thread of the interpreter was found where this version keeps its state: it is still starting, or its C library is not glibc")

// Parameters are struct python_process of python.h.
type Parameters struct {
	Evaluation                                              [maxRanges]Range
	CodeType, Current                                       uint64
	Activation                                              uint32
	Block, Slot                                             uint32
	Top, Entry, EntryFrame, EntryPrevious                   uint32
	FrameCode, FramePrevious, FrameInstruction, FrameEnd    uint32
	CodeFirstLine, CodeFile, CodeName, CodeLines, CodeBytes uint32
	StringLength, StringState, StringASCII, StringOther     uint32
	KindBit, ASCIIBit                                       uint32
	BytesLength, BytesData                                  uint32
	Type                                                    uint32
	Minor, ThreadPointer, Origin                            uint32
}

// Range is a stretch of code, as offsets in its file.
type Range struct{ Start, End uint64 }

func parameters(minor int, l layout, t threadSlot, ranges []Range) Parameters {
	p := Parameters{
		Activation: uint32(l.Activation), Block: t.block, Slot: t.slot,
		Top: l.Top, Entry: l.Entry, EntryFrame: l.EntryFrame, EntryPrevious: l.EntryPrevious,
		FrameCode: l.FrameCode, FramePrevious: l.FramePrevious, FrameInstruction: l.FrameInstruction, FrameEnd: l.FrameEnd,
		CodeFirstLine: l.CodeFirstLine, CodeFile: l.CodeFile, CodeName: l.CodeName, CodeLines: l.CodeLines, CodeBytes: l.CodeBytes,
		StringLength: l.StringLength, StringState: l.StringState, StringASCII: l.StringASCII, StringOther: l.StringOther,
		KindBit: l.KindBit, ASCIIBit: l.ASCIIBit, BytesLength: l.BytesLength, BytesData: l.BytesData, Type: l.Type, Minor: uint32(minor), ThreadPointer: l.ThreadPointer,
	}
	copy(p.Evaluation[:], ranges)
	return p
}
