package python

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/arch/x86/x86asm"
)

// memory reads words of a process. What it reads may be anything.
type memory struct{ io.ReaderAt }

func (m memory) word(address uint64) (uint64, error) {
	var b [8]byte
	_, err := m.ReadAt(b[:], int64(address))
	return binary.LittleEndian.Uint64(b[:]), err
}

// glibc keeps what a thread has by keys in its descriptor, at the thread
// pointer: a first block of 32, and pointers to blocks of as many.
//
//	0x310  {sequence, value} for keys 0 to 31
//	0x510  pointers to such blocks: keys 0 to 31, 32 to 63, ...
const (
	glibcFirstBlock = 0x310
	glibcBlocks     = 0x510
	glibcBlockKeys  = 32
	glibcMaxKeys    = 1024
	glibcKeyBytes   = 16
)

// threadSlot is where a thread has the pointer to its state: at the thread
// pointer + slot; with block, at the address that lies at the thread pointer +
// block, + slot.
type threadSlot struct{ block, slot uint32 }

func slotOf(key uint32) threadSlot {
	within := key%glibcBlockKeys*glibcKeyBytes + 8
	if key < glibcBlockKeys {
		return threadSlot{slot: glibcFirstBlock + within}
	}
	return threadSlot{block: glibcBlocks + key/glibcBlockKeys*8, slot: within}
}

// read gives the state of a thread.
func (s threadSlot) read(m memory, threadPointer uint64) (uint64, error) {
	if s.block != 0 {
		block, err := m.word(threadPointer + uint64(s.block))
		if err != nil {
			return 0, err
		}
		return m.word(block + uint64(s.slot))
	}
	return m.word(threadPointer + uint64(s.slot))
}

// threadState finds where threads keep their state, and proves it on one: the
// interpreter lists its threads, each with its thread pointer, where the very
// state must be found. So a wrong offset, version or C library shows at once.
func (p *process) threadState() (threadSlot, error) {
	threads, err := p.threads()
	if err != nil {
		return threadSlot{}, err
	}
	for _, at := range p.keys() {
		word, err := p.memory.word(at)
		key := uint32(word)
		if err != nil || key >= glibcMaxKeys {
			continue
		}
		slot := slotOf(key)
		for _, t := range threads {
			pointer, err := p.memory.word(t + uint64(p.layout.ThreadPointer))
			if err != nil || pointer == 0 {
				continue
			}
			if found, err := slot.read(p.memory, pointer); err == nil && found == t {
				return slot, nil
			}
		}
	}
	return threadSlot{}, errStarting
}

const maxListed = 64 // interpreters, and threads of each, that are looked at

// threads lists thread states.
func (p *process) threads() (threads []uint64, err error) {
	head, err := p.interpreters()
	if err != nil {
		return nil, err
	}
	interpreter, err := p.memory.word(head)
	for range maxListed {
		if err != nil || interpreter == 0 {
			break
		}
		thread, err2 := p.memory.word(interpreter + uint64(p.layout.Threads))
		for range maxListed {
			if err2 != nil || thread == 0 {
				break
			}
			threads = append(threads, thread)
			thread, err2 = p.memory.word(thread + uint64(p.layout.NextThread))
		}
		interpreter, err = p.memory.word(interpreter + uint64(p.layout.NextInterpreter))
	}
	if len(threads) == 0 {
		return nil, errStarting
	}
	return threads, nil
}

// interpreters tells where the list of interpreters begins.
func (p *process) interpreters() (uint64, error) {
	if p.layout.Interpreters != 0 {
		runtime, err := p.address("_PyRuntime")
		return runtime + uint64(p.layout.Interpreters), err
	}
	for _, o := range p.operands("PyInterpreterState_Head") {
		if o.absolute {
			return o.value, nil
		}
	}
	return 0, fmt.Errorf("PyInterpreterState_Head does not tell where interpreters are listed")
}

// keys lists where the number of the thread state's key may be: where the
// layout says, and where PyGILState_GetThisThreadState takes it from.
func (p *process) keys() (at []uint64) {
	runtime, err := p.address("_PyRuntime")
	if err == nil && p.layout.Key != 0 {
		at = append(at, runtime+uint64(p.layout.Key)+4)
	}
	for _, o := range p.operands("PyGILState_GetThisThreadState") {
		switch {
		case o.absolute && !o.wide: // mov edi, [the key]
			at = append(at, o.value)
		case !o.absolute && err == nil: // lea rdi, [_PyRuntime + key]
			at = append(at, runtime+o.value+4)
		}
	}
	return at
}

// operand is a place in memory that an instruction names: an address, or a
// distance from a register.
type operand struct {
	value    uint64
	absolute bool
	wide     bool // eight bytes are read there
}

const maxInstructions = 24 // of a function that are looked at

// operands lists what the first instructions of a function of the runtime load.
func (p *process) operands(function string) (found []operand) {
	s, ok := p.exports.Lookup(function)
	if !ok {
		return nil
	}
	code := make([]byte, min(s.Size, 256))
	n, _ := p.file.ReadAddress(code, s.Address)
	code = bytes.TrimPrefix(code[:n], []byte{0xf3, 0x0f, 0x1e, 0xfa}) // endbr64
	at := s.Address + uint64(n-len(code))
	for range maxInstructions {
		in, err := x86asm.Decode(code, 64)
		if err != nil {
			break
		}
		code, at = code[in.Len:], at+uint64(in.Len)
		m, ok := in.Args[1].(x86asm.Mem)
		if !ok || in.Op != x86asm.MOV && in.Op != x86asm.LEA || m.Disp == 0 {
			continue
		}
		switch {
		case m.Base == x86asm.RIP && in.Op == x86asm.MOV:
			found = append(found, operand{p.bias + at + uint64(m.Disp), true, in.MemBytes == 8})
		case m.Base != x86asm.RIP && in.Op == x86asm.LEA && m.Disp > 0:
			found = append(found, operand{value: uint64(m.Disp)})
		}
	}
	return found
}
