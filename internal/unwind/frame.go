package unwind

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
)

var le = binary.LittleEndian

const vdsoPath = "[vdso]"

// Frame is what a program recorded for one activation, decoded.
type Frame struct {
	Executable uint32 // of a file, else 0: see Unwinder.File
	Offset     uint64 // in that file; else the address
	Kernel     bool
	Unmapped   bool // nothing was known to be mapped there

	Language Language // of a frame of two words: what is Offset,
	Where    uint64   // and where, as the language's walker means it
}

// DecodeFrames reads the first frame of some words in the encoding of unwind.h,
// and how many words it takes.
func DecodeFrames(words []uint64) (Frame, int) {
	word := words[0]
	if word>>60 != frameLanguage>>60 {
		return DecodeFrame(word), 1
	}
	f := Frame{Language: Language(word >> languageKind & 15), Offset: word & (1<<languageKind - 1)}
	if len(words) > 1 {
		f.Where = words[1]
		return f, 2
	}
	return f, 1
}

// FrameKey tells the frames of a walk apart as they are encoded, which is
// cheaper than to read them.
type FrameKey struct {
	word, where uint64
	pid         uint32 // where the frame means something in its process only
}

// Hash spreads keys; some have the same.
func (k FrameKey) Hash() uint64 {
	h := (k.word ^ bits.RotateLeft64(k.where, 32) ^ uint64(k.pid)) * 0x9E3779B97F4A7C15
	return h >> 32
}

// KeyOf gives the key of the first frame of some words, and how many words it
// takes.
func KeyOf(words []uint64, pid uint32) (FrameKey, int) {
	word := words[0]
	switch {
	case word>>60 == frameLanguage>>60 && len(words) > 1:
		return FrameKey{word, words[1], pid}, 2
	case word>>63 == 0 && word>>frameOffsetBits != 0 || word&frameKernel == frameKernel:
		return FrameKey{word: word}, 1
	}
	return FrameKey{word: word, pid: pid}, 1
}

// DecodeFrame reads a frame of one word: of native or kernel code.
func DecodeFrame(word uint64) Frame {
	switch {
	case word>>63 == 0:
		return Frame{Executable: uint32(word >> frameOffsetBits), Offset: word & (1<<frameOffsetBits - 1)}
	case word&frameKernel == frameKernel:
		return Frame{Offset: word, Kernel: true}
	default:
		return Frame{Offset: word &^ frameUnmapped, Unmapped: word&frameUnmapped == frameUnmapped}
	}
}

// File is the file of an executable's code.
type File struct {
	BuildID string
	Path    string
	// Open opens the very file, even if its name is gone. The caller closes it.
	Open func() (*os.File, error)
}

// File tells which file an executable's frames point into.
func (u *Unwinder) File(id uint32) (File, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	number, identity := id&(1<<idBits-1), id>>idBits
	if number == 0 || int(number) >= len(u.executables.byID) {
		return File{}, false
	}
	e := u.executables.byID[number]
	if e == nil || e.identity != identity {
		return File{}, false // it was forgotten since, and another may have its number
	}
	u.identify(e)
	return e.source(), true
}

// source tells where the file can be opened.
func (e *executable) source() File {
	handle := e.handle
	return File{BuildID: e.buildID, Path: e.path, Open: func() (*os.File, error) {
		if handle == nil {
			return nil, fmt.Errorf("open %q: %w", e.path, os.ErrNotExist)
		}
		return os.Open(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()))
	}}
}
