package python

import (
	"encoding/binary"
	"errors"
	"io"

	"atys.dev/atys/internal/lang"
)

// memory reads words of a process. What it reads may be anything.
type memory struct{ io.ReaderAt }

func (m memory) word(address uint64) (uint64, error) {
	var b [8]byte
	_, err := m.ReadAt(b[:], int64(address))
	return binary.LittleEndian.Uint64(b[:]), err
}

// stateOf gives the state of a thread.
func (m memory) stateOf(threadPointer uint64, s lang.ThreadSlot) (uint64, error) {
	if s.Block != 0 {
		block, err := m.word(threadPointer + uint64(s.Block))
		if err != nil {
			return 0, err
		}
		return m.word(block + uint64(s.Slot))
	}
	return m.word(threadPointer + uint64(s.Slot))
}

// threadState finds where threads keep their state, and proves it on one: the
// interpreter lists its threads, each with its thread pointer, where the very
// state must be found. So a wrong offset, version or C library shows at once.
func (p *process) threadState() (lang.ThreadSlot, error) {
	threads, err := p.threads()
	if err != nil {
		return lang.ThreadSlot{}, err
	}
	for _, at := range p.keys() {
		word, err := p.memory.word(at)
		slot, ok := lang.SlotOf(uint32(word))
		if err != nil || !ok {
			continue
		}
		for _, t := range threads {
			pointer, err := p.memory.word(t + uint64(p.layout.ThreadPointer))
			if err != nil || pointer == 0 {
				continue
			}
			if found, err := p.memory.stateOf(pointer, slot); err == nil && found == t {
				return slot, nil
			}
		}
	}
	return lang.ThreadSlot{}, errStarting
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
		runtime, ok := p.runtime()
		if !ok {
			return 0, lang.Never(errors.New("the symbol _PyRuntime is missing"))
		}
		return runtime + uint64(p.layout.Interpreters), nil
	}
	for _, o := range p.file.heads {
		if o.absolute {
			return p.bias + o.value, nil
		}
	}
	return 0, lang.Never(errors.New("PyInterpreterState_Head does not tell where interpreters are listed"))
}

// keys lists where the number of the thread state's key may be: where the
// layout says, and where PyGILState_GetThisThreadState takes it from.
func (p *process) keys() (at []uint64) {
	runtime, ok := p.runtime()
	if ok && p.layout.Key != 0 {
		at = append(at, runtime+uint64(p.layout.Key)+4)
	}
	for _, o := range p.file.keys {
		switch {
		case o.absolute && !o.wide: // mov edi, [the key]
			at = append(at, p.bias+o.value)
		case !o.absolute && ok: // lea rdi, [_PyRuntime + key]
			at = append(at, runtime+o.value+4)
		}
	}
	return at
}
