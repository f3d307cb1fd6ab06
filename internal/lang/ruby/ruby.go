// Package ruby reads CRuby 3.1 as it runs: where its threads keep their frames, and what methods are called.
//
//	Holds    a file that has the virtual machine
//	Read     version -> addresses in the process, table of symbols (symbols.go)
//	         = parameters of walks; bpf/include/ruby.h has the picture
//	Album    photographs of methods -> class, method, file, line
//
// The process is only read, never stopped, and no code runs in it.
package ruby

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

const (
	executor = "rb_vm_exec"
	context  = "ruby_current_ec"
	// supported is the series whose layouts ruby.h has.
	supported = "3.1."
	// programModule is the number of a program's own thread-local storage.
	programModule = 1
	// moduleBytes are what glibc's DTV has for each module.
	moduleBytes = 16
)

// Holds tells whether a file holds CRuby's virtual machine.
func Holds(f *binfile.File) bool {
	s, ok := f.Exports().Lookup(executor)
	return ok && s.Address != 0
}

// Runtime is the CRuby of a process.
type Runtime struct {
	Version    string
	parameters Parameters
}

// Parameters are what walks need: a *Parameters.
func (r *Runtime) Parameters() any { return &r.parameters }

// Parameters are struct ruby_process of ruby.h.
type Parameters struct {
	Module, Context                         uint64 // offsets in the DTV, and in the TLS block
	Symbols                                 uint64 // address of the table of symbols
	ClassPath, TemporaryClassPath, Attached uint64 // ids
	Execute                                 [2]Range
}

// Range is a stretch of code, as offsets in its file.
type Range struct{ Start, End uint64 }

// Read finds out what walks need to know of the Ruby in a process. It fails
// while the runtime is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	r, err := read(m)
	if err != nil {
		return nil, fmt.Errorf("read Ruby in %q: %w", m.Path, err)
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
	if !strings.HasPrefix(r.Version, supported) {
		return nil, fmt.Errorf("version %q is not supported, %sx is", r.Version, supported)
	}
	if err := checkLibc(m.PID); err != nil {
		return nil, err
	}
	execute, ok := f.Exports().Lookup(executor)
	parts := f.Parts(execute)
	if !ok || len(parts) == 0 {
		return nil, fmt.Errorf("the code of %s is missing", executor)
	}
	for i := range min(len(parts), len(r.parameters.Execute)) {
		r.parameters.Execute[i] = Range{parts[i].Offset, parts[i].Offset + parts[i].Size}
	}
	memory := memory{proc.Memory{PID: m.PID}}
	if err := r.findContext(f, memory, m.Bias); err != nil {
		return nil, err
	}
	table, err := findSymbols(f, memory, m.Bias)
	if err != nil {
		return nil, err
	}
	r.parameters.Symbols = table.at
	return r, table.ids(map[string]*uint64{
		"__classpath__":     &r.parameters.ClassPath,
		"__tmp_classpath__": &r.parameters.TemporaryClassPath,
		"__attached__":      &r.parameters.Attached,
	})
}

const maxVersion = 16

// version reads the constant that every Ruby exports.
func version(f *binfile.File) string {
	s, ok := f.Exports().Lookup("ruby_version")
	if !ok {
		return ""
	}
	text := make([]byte, maxVersion)
	n, _ := f.ReadAddress(text, s.Address)
	number, _, _ := strings.Cut(string(text[:n]), "\x00")
	return number
}

// checkLibc refuses a C library that keeps threads' storage otherwise.
func checkLibc(pid int) error {
	maps, err := proc.FS{}.Executable(pid)
	if err != nil {
		return err
	}
	for _, m := range maps {
		if strings.HasPrefix(path.Base(m.Path), "ld-musl-") {
			return errors.New("the C library musl is not supported, glibc is")
		}
	}
	return nil
}

// findContext finds where threads have their execution contexts: a library
// asks the loader for its module's number; a program knows its own.
func (r *Runtime) findContext(f *binfile.File, memory memory, bias uint64) error {
	variable, ok := f.Exports().Lookup(context)
	if !ok {
		return fmt.Errorf("the symbol %s is missing", context)
	}
	slot, ok := f.ThreadLocal(context)
	if !ok {
		if !isProgram(f) {
			return fmt.Errorf("%s is not where libraries have it", context)
		}
		r.parameters.Module, r.parameters.Context = programModule*moduleBytes, variable.Address
		return nil
	}
	var words [16]byte
	if _, err := memory.ReadAt(words[:], int64(bias+slot)); err != nil {
		return err
	}
	module, offset := binary.LittleEndian.Uint64(words[:]), binary.LittleEndian.Uint64(words[8:])
	if module == 0 || module > 1<<16 || offset != variable.Address {
		return errStarting
	}
	r.parameters.Module, r.parameters.Context = module*moduleBytes, offset
	return nil
}

func isProgram(f *binfile.File) bool { return f.Section(".interp") != nil }

// errStarting is met before the runtime is set up.
var errStarting = errors.New("it is still starting")
