// Package python reads CPython 3.6 to 3.14 as it runs: where its threads keep their frames, and what functions are called.
//
//	Holds    a file that has the evaluation function
//	Read     code of the evaluation function, symbols, instructions (file.go)
//	         -> version (lang.Told) -> layout (layouts_table.go, made by offsets/generate; debugoffsets.go)
//	         -> key of the thread state, proven on a thread of the process (thread.go)
//	         = parameters of walks; bpf/include/python.h has the picture
//	Album    photographs of code objects -> function, file, line (album.go, lines.go)
//
// The process is only read, never stopped, and no code runs in it.
package python

import (
	"errors"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

const evaluationFunction = "_PyEval_EvalFrameDefault"

// Holds tells whether a file holds a runtime of CPython 3.6 or later.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.Python) }

// Read finds out what walks need to know of the runtime in a process. It fails
// while the runtime is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "CPython", func(f *binfile.File) (file, error) { return readFile(f, m.Path) }, readProcess)
}

func readProcess(m lang.Mapped, f file) (lang.Walked, error) {
	if err := lang.RequireGlibc(m.PID); err != nil {
		return nil, err
	}
	l, err := layoutOf(f.minor)
	if err != nil {
		return nil, lang.Never(err)
	}
	p := process{memory: memory{proc.Memory{PID: m.PID}}, file: f, bias: m.Bias, layout: l, minor: f.minor}
	if err := p.adopt(); err != nil {
		return nil, err
	}
	thread, err := p.threadState()
	if err != nil {
		return nil, err
	}
	r := &lang.Known[Parameters]{Needs: parameters(f.minor, p.layout, thread, f.evaluation)}
	r.Needs.CodeType, r.Needs.Current, r.Needs.MainThreads, r.Needs.Origin = m.Bias+f.codeType, p.current(), p.mainThreads(), uint32(m.PID)
	return r, nil
}

// process is a runtime being read.
type process struct {
	memory memory
	file   file
	bias   uint64
	layout layout
	minor  int
}

// runtime tells where the process has _PyRuntime, if its version has one.
func (p *process) runtime() (at uint64, ok bool) {
	return p.bias + p.file.runtime, p.file.runtime != 0
}

// current tells where the runtime keeps the state of the thread that holds the
// GIL. Until 3.11 a thread's own key has the state of its first interpreter
// only; since 3.12 it follows the thread.
func (p *process) current() uint64 {
	if runtime, ok := p.runtime(); ok && p.layout.Current != 0 {
		return runtime + uint64(p.layout.Current)
	}
	if p.file.current != 0 {
		return p.bias + p.file.current
	}
	return 0
}

// mainThreads tells where the main interpreter, which is the last of the list,
// keeps the first of its threads: since 3.12 only that leads from a thread in a
// sub-interpreter to the frames that started it. 0: not found, or not needed.
func (p *process) mainThreads() uint64 {
	head, err := p.interpreters()
	if err != nil || p.minor < firstOwnStates {
		return 0
	}
	interpreter, err := p.memory.word(head)
	for range maxListed {
		if err != nil || interpreter == 0 {
			break
		}
		var next uint64
		if next, err = p.memory.word(interpreter + uint64(p.layout.NextInterpreter)); err == nil && next == 0 {
			return interpreter + uint64(p.layout.Threads)
		}
		interpreter = next
	}
	return 0
}

// errStarting is met before the runtime has a thread.
var errStarting = errors.New("no thread of the interpreter was found where this version keeps its state: it is still starting, or its C library is not glibc")

// Parameters are struct python_process of python.h.
type Parameters struct {
	Evaluation                                              [maxRanges]lang.Range
	CodeType, Current, MainThreads, NextThread              uint64
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

func parameters(minor int, l layout, t lang.ThreadSlot, ranges []lang.Range) Parameters {
	p := Parameters{
		Activation: uint32(l.Activation), Block: t.Block, Slot: t.Slot,
		Top: l.Top, Entry: l.Entry, EntryFrame: l.EntryFrame, EntryPrevious: l.EntryPrevious,
		FrameCode: l.FrameCode, FramePrevious: l.FramePrevious, FrameInstruction: l.FrameInstruction, FrameEnd: l.FrameEnd,
		CodeFirstLine: l.CodeFirstLine, CodeFile: l.CodeFile, CodeName: l.CodeName, CodeLines: l.CodeLines, CodeBytes: l.CodeBytes,
		StringLength: l.StringLength, StringState: l.StringState, StringASCII: l.StringASCII, StringOther: l.StringOther,
		KindBit: l.KindBit, ASCIIBit: l.ASCIIBit, BytesLength: l.BytesLength, BytesData: l.BytesData, Type: l.Type, Minor: uint32(minor), ThreadPointer: l.ThreadPointer, NextThread: uint64(l.NextThread),
	}
	copy(p.Evaluation[:], ranges)
	return p
}
