// Package perl reads Perl 5.36 as it runs: where its threads keep their contexts, and what subs are called.
//
//	Holds    a file that has the interpreter
//	Read     version -> key of the interpreter = parameters of walks;
//	         bpf/include/perl.h has the picture
//	Album    photographs of subs -> package, sub, file, line
//
// The process is only read, never stopped, and no code runs in it.
package perl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

const (
	runner = "Perl_runops_standard"
	key    = "PL_thr_key"
	first  = "PL_curinterp"
)

// Holds tells whether a file holds Perl's interpreter.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.Perl) }

// Parameters are struct perl_process of perl.h.
type Parameters struct {
	Block, Slot uint64 // where a thread has its interpreter
	Run         lang.Range
}

// Read finds out what walks need to know of the Perl in a process. It fails
// while the interpreter is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "Perl", readFile, readProcess)
}

// file is what Perl's file tells: its addresses are the file's own.
type file struct {
	run         lang.Range
	key         uint64 // of the number by which threads have their interpreters
	interpreter uint64 // of the first of them
}

func readFile(f *binfile.File) (told file, err error) {
	if _, err := lang.Told(f, "", lang.Perl); err != nil {
		return told, err
	}
	run, err := lang.CodeOf(f, runner, 1)
	if err != nil {
		return told, err
	}
	told.run = run[0]
	if told.key, err = lang.Exported(f, key); err != nil {
		return told, err
	}
	told.interpreter, err = lang.Exported(f, first)
	return told, err
}

func readProcess(m lang.Mapped, f file) (lang.Walked, error) {
	if err := lang.RequireGlibc(m.PID); err != nil {
		return nil, err
	}
	memory := proc.Memory{PID: m.PID}
	var interpreter [8]byte
	if _, err := memory.ReadAt(interpreter[:], int64(m.Bias+f.interpreter)); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(interpreter[:]) == 0 {
		return nil, errors.New("it is still starting") // the key may not have been asked for
	}
	var number [4]byte
	if _, err := memory.ReadAt(number[:], int64(m.Bias+f.key)); err != nil {
		return nil, err
	}
	slot, ok := lang.SlotOf(binary.LittleEndian.Uint32(number[:]))
	if !ok {
		return nil, fmt.Errorf("no thread has a key %d", binary.LittleEndian.Uint32(number[:]))
	}
	return &lang.Known[Parameters]{Needs: Parameters{Block: uint64(slot.Block), Slot: uint64(slot.Slot), Run: f.run}}, nil
}
