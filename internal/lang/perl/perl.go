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
)

// supported is the version whose layouts perl.h has.
var supported = [2]byte{5, 36}

// Holds tells whether a file holds Perl's interpreter.
func Holds(f *binfile.File) bool {
	s, ok := f.Exports().Lookup(runner)
	return ok && s.Address != 0
}

// Runtime is the Perl of a process.
type Runtime struct {
	parameters Parameters
}

// Parameters are what walks need: a *Parameters.
func (r *Runtime) Parameters() any { return &r.parameters }

// Parameters are struct perl_process of perl.h.
type Parameters struct {
	Block, Slot uint64 // where a thread has its interpreter
	Run         Range
}

// Range is a stretch of code, as offsets in its file.
type Range struct{ Start, End uint64 }

// Read finds out what walks need to know of the Perl in a process. It fails
// while the interpreter is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	r, err := read(m)
	if err != nil {
		return nil, fmt.Errorf("read Perl in %q: %w", m.Path, err)
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
	if err := checkVersion(f); err != nil {
		return nil, err
	}
	run, ok := f.Exports().Lookup(runner)
	offset, inFile := f.Offset(run.Address)
	if !ok || !inFile || run.Size == 0 {
		return nil, fmt.Errorf("the code of %s is missing", runner)
	}
	at, ok := f.Exports().Lookup(key)
	if !ok {
		return nil, errors.New("a build without threads (ithreads) is not supported")
	}
	interpreter, ok := f.Exports().Lookup("PL_curinterp")
	if !ok {
		return nil, errors.New("the symbol PL_curinterp is missing")
	}
	memory := proc.Memory{PID: m.PID}
	var number [4]byte
	if _, err := memory.ReadAt(number[:], int64(m.Bias+at.Address)); err != nil {
		return nil, err
	}
	var first [8]byte
	if _, err := memory.ReadAt(first[:], int64(m.Bias+interpreter.Address)); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint64(first[:]) == 0 {
		return nil, errors.New("it is still starting") // the key may not have been asked for
	}
	r := &Runtime{parameters: Parameters{Run: Range{offset, offset + run.Size}}}
	r.parameters.Block, r.parameters.Slot, err = slot(binary.LittleEndian.Uint32(number[:]))
	return r, err
}

// checkVersion reads the three constants, of a byte each, that Perl exports.
func checkVersion(f *binfile.File) error {
	var version [3]byte
	for i, name := range []string{"PL_revision", "PL_version", "PL_subversion"} {
		s, ok := f.Exports().Lookup(name)
		if n, _ := f.ReadAddress(version[i:i+1], s.Address); !ok || n != 1 {
			return fmt.Errorf("the symbol %s is missing", name)
		}
	}
	if [2]byte(version[:2]) != supported {
		return fmt.Errorf("version %d.%d.%d is not supported, %d.%d.x is", version[0], version[1], version[2], supported[0], supported[1])
	}
	return nil
}

// glibc keeps what a thread has by keys in its descriptor, at the thread
// pointer: a first block of 32, and pointers to blocks of as many.
//
//	0x310  {sequence, value} for keys 0 to 31
//	0x510  pointers to such blocks: keys 0 to 31, 32 to 63, ...
const (
	firstBlock = 0x310
	blocks     = 0x510
	blockKeys  = 32
	maxKeys    = 1024
	keyBytes   = 16
)

// slot tells where a thread has the value of a key: at the thread pointer +
// slot; with block, at the address that lies at the thread pointer + block, +
// slot.
func slot(key uint32) (block, slot uint64, err error) {
	if key >= maxKeys {
		return 0, 0, fmt.Errorf("no thread has a key %d", key)
	}
	within := uint64(key)%blockKeys*keyBytes + 8
	if key < blockKeys {
		return 0, firstBlock + within, nil
	}
	return blocks + uint64(key)/blockKeys*8, within, nil
}
