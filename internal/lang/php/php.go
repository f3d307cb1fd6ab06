// Package php reads PHP 8.2 as it runs: where it keeps its frames, and what functions are called.
//
//	Holds    a file that has the executor
//	Read     version -> addresses in the process = parameters of walks;
//	         bpf/include/php.h has the picture
//	Album    photographs of functions -> class, function, file, line
//
// The process is only read, never stopped, and no code runs in it.
package php

import (
	"bytes"
	"fmt"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

const (
	executor = "execute_ex"
	globals  = "executor_globals"
	// fiberBottom is the assembler code that a fiber's stack begins with.
	fiberBottom = "make_fcontext"
	// currentFrame is where EG(current_execute_data) lies in the globals.
	currentFrame = 488
)

// Holds tells whether a file holds PHP's executor.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.PHP) }

// Parameters are struct php_process of php.h.
type Parameters struct {
	Current uint64 // address of EG(current_execute_data)
	Body    uint64 // an address in execute_ex where its frame is whole
	Execute [2]lang.Range
	Fiber   lang.Range
}

// Read finds out what walks need to know of the PHP in a process.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "PHP", readFile, func(m lang.Mapped, p Parameters) (lang.Walked, error) {
		p.Current, p.Body = m.Bias+p.Current, m.Bias+p.Body
		return &lang.Known[Parameters]{Needs: p}, nil
	})
}

// readFile reads what PHP's file tells: its addresses are the file's own.
func readFile(f *binfile.File) (p Parameters, err error) {
	if _, err := lang.Told(f, "", lang.PHP); err != nil {
		return p, err
	}
	state, err := lang.Exported(f, globals)
	if err != nil {
		return p, err
	}
	p.Current = state + currentFrame
	execute, err := lang.CodeOf(f, executor, len(p.Execute))
	if err != nil {
		return p, err
	}
	copy(p.Execute[:], execute)
	if p.Body, err = afterPrologue(f); err != nil {
		return p, err
	}
	if bottom, err := lang.CodeOf(f, fiberBottom, 1); err == nil { // a build may be without fibers
		p.Fiber = bottom[0]
	}
	return p, nil
}

// maxPrologue bounds where the frame is made: endbr64, six pushes of two bytes
// and what GCC mixes in.
const maxPrologue = 64

// afterPrologue finds the instruction behind "sub $n,%rsp" at the executor's
// beginning: from there its frame is whole, as it is for all code that jumps
// there and back.
func afterPrologue(f *binfile.File) (uint64, error) {
	function, _ := f.Exports().Lookup(executor)
	code := make([]byte, min(function.Size, maxPrologue))
	n, _ := f.ReadAddress(code, function.Address)
	code = code[:n]
	for _, sub := range []struct {
		bytes string
		size  int
	}{{"\x48\x83\xec", 4}, {"\x48\x81\xec", 7}} {
		if i := bytes.Index(code, []byte(sub.bytes)); i >= 0 && i+sub.size <= len(code) {
			return function.Address + uint64(i+sub.size), nil
		}
	}
	return 0, fmt.Errorf("%s does not begin as it should", executor)
}
