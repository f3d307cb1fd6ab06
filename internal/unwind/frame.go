package unwind

import (
	"encoding/binary"
	"math/bits"
	"os"
)

var le = binary.LittleEndian

const vdsoPath = "[vdso]"

// Frame encoding of bpf/include/unwind.h.
const (
	frameOffsetBits = 40
	frameAnonymous  = 1 << 63
	frameUnmapped   = 1<<63 | 1<<61
	frameKernel     = 7 << 61
	frameLanguage   = 12 << 60
	languageKind    = 56
)

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

// File returns the file that an executable's frames point into.
func (u *Unwinder) File(id uint32) (File, bool) { return u.tables.file(id) }
