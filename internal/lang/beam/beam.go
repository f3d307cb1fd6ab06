// Package beam finds out how to walk the stacks of Erlang's processes, and what the functions on them are called.
//
// The JIT writes before each function's code what it is (struct ErtsCodeInfo):
//
//	call ...           8 bytes: to where a clause that matches nothing ends
//	breakpoints        8, mostly 0
//	module, function   8 each: atoms, that is index<<6 | 11
//	arity              8
//	code
//
// Atoms are found in the runtime's table of them. Both are read when a function
// is to be named, so the process must still be there.
package beam

import (
	"encoding/binary"
	"errors"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
)

// What the runtime exports.
const (
	atomTable    = "erts_atom_table"
	processTable = "erts_proc"
	bottom       = "beam_normal_exit"
	scheduler    = "erts_schedule"
)

// Where things are in Erlang/OTP 25; Read checks the last three.
const (
	atomSegments = 0x78 // in the table of atoms
	processes    = 192  // in the table of processes
	heapOf       = 128  // in a process: begin and end, one word more, then how many words
	stopOf       = 88   // where its stack was left
)

// Holds tells whether a file holds BEAM with its JIT.
func Holds(f *binfile.File) bool { return lang.Holds(f, lang.BEAM) }

// Runtime is the BEAM of a process.
type Runtime struct {
	parameters Parameters
	memory     reader
	segments   uint64 // address of the table of atoms' segments
}

// Parameters are struct beam_process of beam.h.
type Parameters struct {
	Bottom uint64
	Idle   uint64
	Heap   uint32
	Stop   uint32
}

// Parameters are what walks need: a *Parameters.
func (r *Runtime) Parameters() any { return &r.parameters }

// reader reads memory by address.
type reader interface {
	ReadAt(p []byte, address int64) (int, error)
}

// Read finds the runtime in a process. It fails while the runtime is starting.
func Read(m lang.Mapped) (lang.Walked, error) {
	return lang.Read(m, "BEAM", readFile, readProcess)
}

// file is what the runtime's file tells: where it has what it exports.
type file struct {
	atoms, processes, bottom uint64
	scheduler                uint64 // 0: not exported
}

func readFile(f *binfile.File) (told file, err error) {
	if _, err := lang.Told(f, "", lang.BEAM); err != nil {
		return told, err
	}
	if told.atoms, err = lang.Exported(f, atomTable); err != nil {
		return told, err
	}
	if told.processes, err = lang.Exported(f, processTable); err != nil {
		return told, err
	}
	if told.bottom, err = lang.Exported(f, bottom); err != nil {
		return told, err
	}
	s, _ := f.Exports().Lookup(scheduler)
	told.scheduler = s.Address
	return told, nil
}

func readProcess(m lang.Mapped, f file) (lang.Walked, error) {
	r, err := find(proc.Memory{PID: m.PID}, m.Bias+f.atoms, m.Bias+f.processes, m.Bias+f.bottom)
	if err != nil {
		return nil, err
	}
	if f.scheduler != 0 {
		r.parameters.Idle = r.callOf(m.Bias + f.scheduler)
	}
	return r, nil
}

// callOf finds where a function of the runtime is called in the code that all
// Erlang code shares, which begins some pages before bottom, and gives where it
// returns to: call [rip+n], where n leads to its address. 0: nowhere.
func (r *Runtime) callOf(function uint64) uint64 {
	const before = 2 * page
	end := r.parameters.Bottom
	for begin := end - end%page - before; begin < end; begin += page { // the first may be no code
		code := make([]byte, end-begin)
		if _, err := r.memory.ReadAt(code, int64(begin)); err != nil {
			continue
		}
		for i := 0; i+6 <= len(code); i++ {
			if code[i] != 0xff || code[i+1] != 0x15 {
				continue
			}
			next := begin + uint64(i) + 6
			target, err := r.word(next + uint64(int64(int32(binary.LittleEndian.Uint32(code[i+2:])))))
			if err == nil && target == function {
				return next
			}
		}
		return 0
	}
	return 0
}

var errStarting = errors.New("it is still starting")

// find reads what is needed of the tables at the addresses given.
func find(memory reader, atoms, table, end uint64) (*Runtime, error) {
	r := &Runtime{memory: memory, parameters: Parameters{Heap: heapOf, Stop: stopOf}}
	var err error
	if r.segments, err = r.word(atoms + atomSegments); err != nil {
		return nil, err
	}
	if r.parameters.Bottom, err = r.word(end); err != nil {
		return nil, err
	}
	first, err := r.word(table + processes)
	if err != nil {
		return nil, err
	}
	if r.segments == 0 || r.parameters.Bottom == 0 || first == 0 {
		return nil, errStarting
	}
	return r, r.checkProcesses(first)
}

// checkProcesses asserts that Erlang's processes are laid out as expected. The
// first of the table are those of the system, which last.
func (r *Runtime) checkProcesses(table uint64) error {
	sound := 0
	for i := range uint64(64) {
		process, err := r.word(table + 8*i)
		if err != nil {
			return err
		}
		if process == 0 || process&7 != 0 {
			continue
		}
		if r.isProcess(process) {
			sound++
		}
	}
	if sound == 0 {
		return errors.New("its processes are laid out otherwise than in Erlang/OTP 25, or it is still starting")
	}
	return nil
}

// isProcess tells whether a process has a heap and a stack whose oldest word
// leads to where processes end.
func (r *Runtime) isProcess(at uint64) bool {
	var heap [4]uint64
	for i := range heap {
		var err error
		if heap[i], err = r.word(at + heapOf + 8*uint64(i)); err != nil {
			return false
		}
	}
	stop, err := r.word(at + stopOf)
	if err != nil || heap[1] <= heap[0] || (heap[1]-heap[0])/8 != heap[3] || stop < heap[0] || stop >= heap[1] {
		return false
	}
	oldest, err := r.word(heap[1] - 8)
	return err == nil && oldest == r.parameters.Bottom
}

func (r *Runtime) word(address uint64) (uint64, error) {
	var b [8]byte
	if _, err := r.memory.ReadAt(b[:], int64(address)); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
