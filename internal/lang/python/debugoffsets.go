package python

import (
	"encoding/binary"
	"errors"
	"fmt"

	"atys.dev/atys/internal/lang"
)

// _PyRuntime of 3.13 and later begins with _Py_DebugOffsets, where CPython
// tells its own layout, one u64 each; which ones, differs between versions:
//
//	"xdebugpy" | version | free-threaded | offsets ...
const (
	debugCookie       = "xdebugpy"
	debugVersion      = 8
	debugFreeThreaded = 16
	debugBytes        = 1024
	maxOffset         = 1 << 20 // no structure is larger
)

// minorOf reads PY_VERSION_HEX.
func minorOf(hex uint32) (int, error) {
	if major := hex >> 24; major != 3 {
		return 0, fmt.Errorf("version %d.%d is not 3", major, hex>>16&0xff)
	}
	return int(hex >> 16 & 0xff), nil
}

// told are the fields of a layout that _Py_DebugOffsets tells.
func (l *layout) told() []*uint32 {
	return []*uint32{&l.Interpreters, &l.NextInterpreter, &l.Threads, &l.NextThread, &l.ThreadPointer, &l.Top,
		&l.FrameCode, &l.FramePrevious, &l.FrameInstruction, &l.FrameEnd,
		&l.CodeFirstLine, &l.CodeFile, &l.CodeName, &l.CodeLines, &l.CodeBytes,
		&l.StringLength, &l.StringState, &l.StringASCII, &l.BytesLength, &l.BytesData, &l.Type}
}

// adopt takes from the process what it tells of its layout.
func (p *process) adopt() error {
	if _, ok := debugOffsets[p.minor]; !ok {
		return nil
	}
	at, ok := p.runtime()
	if !ok {
		return lang.Never(errors.New("the symbol _PyRuntime is missing"))
	}
	var raw [debugBytes]byte
	if _, err := p.memory.ReadAt(raw[:], int64(at)); err != nil {
		return err
	}
	return p.layout.adopt(p.minor, raw[:])
}

// adopt takes a layout from the bytes of _Py_DebugOffsets.
func (l *layout) adopt(minor int, raw []byte) error {
	if len(raw) < debugBytes || string(raw[:len(debugCookie)]) != debugCookie {
		return errStarting
	}
	hex := binary.LittleEndian.Uint64(raw[debugVersion:])
	if found, err := minorOf(uint32(hex)); err != nil || found != minor {
		return lang.Never(fmt.Errorf("it tells the layout of version %#x, not of 3.%d", hex, minor))
	}
	if binary.LittleEndian.Uint64(raw[debugFreeThreaded:]) != 0 {
		return lang.Never(errors.New("it is built without the GIL (free-threaded): its frames are not walked"))
	}
	where := debugOffsets[minor]
	known := l.told()
	for i, at := range where.told() {
		offset := binary.LittleEndian.Uint64(raw[*at:])
		if offset > maxOffset {
			return lang.Never(fmt.Errorf("its table of offsets is damaged: %#x at %d", offset, *at))
		}
		*known[i] = uint32(offset)
	}
	return nil
}
