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
	"errors"
	"fmt"
	"regexp"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

const (
	executor = "execute_ex"
	globals  = "executor_globals"
	// fiberBottom is the assembler code that a fiber's stack begins with.
	fiberBottom = "make_fcontext"
	// supported is the series whose layouts php.h has.
	supported = "8.2."
	// currentFrame is where EG(current_execute_data) lies in the globals.
	currentFrame = 488
)

// Holds tells whether a file holds PHP's executor.
func Holds(f *binfile.File) bool {
	s, ok := f.Exports().Lookup(executor)
	return ok && s.Address != 0
}

// Runtime is the PHP of a process.
type Runtime struct {
	Version    string
	parameters Parameters
}

// Parameters are what walks need: a *Parameters.
func (r *Runtime) Parameters() any { return &r.parameters }

// Parameters are struct php_process of php.h.
type Parameters struct {
	Current uint64 // address of EG(current_execute_data)
	Body    uint64 // an address in execute_ex where its frame is whole
	Execute [2]Range
	Fiber   Range
}

// Range is a stretch of code, as offsets in its file.
type Range struct{ Start, End uint64 }

// Read finds out what walks need to know of the PHP in a process.
func Read(m lang.Mapped) (lang.Walked, error) {
	r, err := read(m)
	if err != nil {
		return nil, fmt.Errorf("read PHP in %q: %w", m.Path, err)
	}
	return r, nil
}

func read(m lang.Mapped) (*Runtime, error) {
	file, err := m.Open()
	if err != nil {
		return nil, err
	}
	f, err := binfile.FromFile(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &Runtime{Version: version(f)}
	if len(r.Version) < len(supported) || r.Version[:len(supported)] != supported {
		return nil, fmt.Errorf("version %q is not supported, %sx is", r.Version, supported)
	}
	state, ok := f.Exports().Lookup(globals)
	if !ok {
		return nil, errors.New("a build for threads (ZTS) is not supported")
	}
	execute, ok := f.Exports().Lookup(executor)
	if !ok {
		return nil, fmt.Errorf("the symbol %s is missing", executor)
	}
	parts := f.Parts(execute)
	if len(parts) == 0 {
		return nil, fmt.Errorf("the code of %s is missing", executor)
	}
	body, err := afterPrologue(f, execute)
	if err != nil {
		return nil, err
	}
	r.parameters = Parameters{Current: m.Bias + state.Address + currentFrame, Body: m.Bias + body}
	for i := range min(len(parts), len(r.parameters.Execute)) {
		r.parameters.Execute[i] = Range{parts[i].Offset, parts[i].Offset + parts[i].Size}
	}
	if bottom, ok := f.Exports().Lookup(fiberBottom); ok {
		if parts := f.Parts(bottom); len(parts) > 0 {
			r.parameters.Fiber = Range{parts[0].Offset, parts[0].Offset + parts[0].Size}
		}
	}
	return r, nil
}

const (
	maxConstants = 1 << 26
	banner       = "X-Powered-By: PHP/"
)

var numbers = regexp.MustCompile(`^\d+\.\d+\.\d+`)

// version finds the header that PHP sends: "X-Powered-By: PHP/8.2.36".
func version(f *binfile.File) string {
	constants, err := f.SectionData(".rodata", maxConstants)
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(constants, []byte(banner))
	return string(numbers.Find(rest[:min(len(rest), 32)]))
}

// maxPrologue bounds where the frame is made: endbr64, six pushes of two bytes
// and what GCC mixes in.
const maxPrologue = 64

// afterPrologue finds the instruction behind "sub $n,%rsp" at a function's
// beginning: from there its frame is whole, as it is for all code that jumps
// there and back.
func afterPrologue(f *binfile.File, function binfile.Export) (uint64, error) {
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
