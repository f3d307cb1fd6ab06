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
	"debug/elf"
	"errors"
	"fmt"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

const (
	executor = "rb_vm_exec"
	context  = "ruby_current_ec"
	// programModule is the number of a program's own thread-local storage.
	programModule = 1
	// moduleBytes are what glibc's DTV has for each module.
	moduleBytes = 16
)

// Holds tells whether a file holds CRuby's virtual machine.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.Ruby) }

// Parameters are struct ruby_process of ruby.h.
type Parameters struct {
	Module, Context                         uint64 // offsets in the DTV, and in the TLS block
	Symbols                                 uint64 // address of the table of symbols
	ClassPath, TemporaryClassPath, Attached uint64 // ids
	Execute                                 [2]lang.Range
}

// Read finds out what walks need to know of the Ruby in a process. It fails
// while the runtime is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "Ruby", readFile, readProcess)
}

// file is what Ruby's file tells: its addresses are the file's own.
type file struct {
	execute []lang.Range
	context uint64 // offset of a thread's context in the TLS block
	slot    uint64 // address where the loader puts the module's number; 0: that of a program
	data    []area
}

// area is memory of the runtime that can be written to, in words.
type area struct{ start, words uint64 }

func readFile(f *binfile.File) (told file, err error) {
	if _, err := lang.Told(f, "", lang.Ruby); err != nil {
		return told, err
	}
	if told.execute, err = lang.CodeOf(f, executor, len(Parameters{}.Execute)); err != nil {
		return told, err
	}
	if told.context, err = lang.Exported(f, context); err != nil {
		return told, err
	}
	slot, ok := f.ThreadLocal(context)
	if !ok && !isProgram(f) {
		return told, fmt.Errorf("%s is not where libraries have it", context)
	}
	told.slot = slot
	told.data = dataOf(f.ELF.Progs)
	return told, nil
}

// dataOf lists what of a file is searched for the table of symbols.
func dataOf(segments []*elf.Prog) (data []area) {
	for _, p := range segments {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_W == 0 || p.Memsz < 8 || p.Memsz > maxData || len(data) == maxAreas {
			continue
		}
		odd := -p.Vaddr & 7 // bytes before the first whole word
		data = append(data, area{p.Vaddr + odd, (p.Memsz - odd) / 8})
	}
	return data
}

func isProgram(f *binfile.File) bool { return f.Section(".interp") != nil }

func readProcess(m lang.Mapped, f file) (lang.Walked, error) {
	if err := lang.RequireGlibc(m.PID); err != nil {
		return nil, err
	}
	r := &lang.Known[Parameters]{}
	copy(r.Needs.Execute[:], f.execute)
	memory := memory{proc.Memory{PID: m.PID}}
	var err error
	if r.Needs.Module, err = f.module(memory, m.Bias); err != nil {
		return nil, err
	}
	r.Needs.Context = f.context
	table, err := findSymbols(f.data, memory, m.Bias)
	if err != nil {
		return nil, err
	}
	r.Needs.Symbols = table.at
	err = table.ids(map[string]*uint64{
		"__classpath__":     &r.Needs.ClassPath,
		"__tmp_classpath__": &r.Needs.TemporaryClassPath,
		"__attached__":      &r.Needs.Attached,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// module gives the offset in the DTV of the module that holds threads'
// contexts: the loader tells a library its number; a program knows its own.
func (f *file) module(memory memory, bias uint64) (uint64, error) {
	if f.slot == 0 {
		return programModule * moduleBytes, nil
	}
	var words [2]uint64 // the number, and the variable's offset
	if err := memory.words(bias+f.slot, words[:]); err != nil {
		return 0, err
	}
	if words[0] == 0 || words[0] > 1<<16 || words[1] != f.context {
		return 0, errStarting
	}
	return words[0] * moduleBytes, nil
}

// errStarting is met before the runtime is set up.
var errStarting = errors.New("it is still starting")
