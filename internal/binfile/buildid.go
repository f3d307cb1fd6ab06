package binfile

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

const (
	noteGNU       = "GNU\x00"
	noteGNUID     = 3
	noteGo        = "Go\x00\x00"
	noteGoID      = 4
	maxNotes      = 64      // segments and sections of notes looked at; files have 2 or 3
	maxNoteBytes  = 1 << 16 // of all of them; build-ids stand in the first kB
	maxID         = 64      // bytes of a GNU build-id; linkers write 8 to 32
	maxGoID       = 1 << 10
	idHashBytes   = 20
	idSampleBytes = 4096
	substitute    = "txt-"
)

// BuildID identifies the file's content, never empty: the GNU build-id in hex;
// without one "go-" and a hash of Go's build id; without that "txt-" and a hash
// over the executable segments' places, sizes, first and last 4 KiB. The last is
// cheap to take of a 100 MB file, and tells builds apart because a linker that
// moves anything changes addresses near both ends; it is no defence against
// files made to collide, nor is a build-id.
func (f *File) BuildID() string {
	f.idOnce.Do(func() { f.id = f.readBuildID() })
	return f.id
}

func (f *File) readBuildID() string {
	if id := f.note(noteGNU, noteGNUID); len(id) > 0 && len(id) <= maxID {
		return hex.EncodeToString(id)
	}
	if id := f.goBuildID(); id != "" {
		sum := sha256.Sum256([]byte(id))
		return "go-" + hex.EncodeToString(sum[:idHashBytes])
	}
	h := sha256.New()
	for _, s := range f.exec {
		var head [24]byte
		binary.LittleEndian.PutUint64(head[0:], s.Offset)
		binary.LittleEndian.PutUint64(head[8:], s.Address)
		binary.LittleEndian.PutUint64(head[16:], s.Size)
		h.Write(head[:])
		n := min(s.Size, idSampleBytes)
		f.hashAt(h, s.Offset, n)
		f.hashAt(h, s.Offset+s.Size-n, n)
	}
	return substitute + hex.EncodeToString(h.Sum(nil)[:idHashBytes])
}

// IsSubstitute tells whether what BuildID gave is but a hash of places in a
// file that says nothing of itself.
func IsSubstitute(id string) bool { return strings.HasPrefix(id, substitute) }

// A build-id is a hint that anybody can copy. Where files differ that have the
// same one, all but one are told apart by what Qualify appends.
const qualifier = "~"

// Qualify gives the build-id that tells a file from another one with the same.
func Qualify(id, by string) string { return id + qualifier + by }

// Unqualified gives the build-id that is in the file.
func Unqualified(id string) string {
	id, _, _ = strings.Cut(id, qualifier)
	return id
}

// Own identifies the program that asks: what it makes of a file, another version
// of it may not.
func Own() (string, error) {
	f, err := Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("identify this program: %w", err)
	}
	defer f.Close()
	if id := f.BuildID(); !IsSubstitute(id) {
		return id, nil
	}
	sum, err := f.Digest()
	if err != nil {
		return "", fmt.Errorf("identify this program: %w", err)
	}
	return hex.EncodeToString(sum[:]), nil
}

func (f *File) hashAt(h hash.Hash, off, n uint64) {
	buf := make([]byte, n)
	got, _ := f.r.ReadAt(buf, int64(off))
	h.Write(buf[:got])
}

func (f *File) goBuildID() string {
	id := f.note(noteGo, noteGoID)
	if len(id) > maxGoID {
		return ""
	}
	return string(id)
}

// note finds a note by owner and type, first in the segments, which strippers
// leave alone, then in the sections.
func (f *sections) note(name string, kind uint32) []byte {
	left := noteRoom{places: maxNotes, bytes: maxNoteBytes}
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_NOTE {
			if d := f.noteAt(&left, p.Off, p.Filesz, p.Align, name, kind); d != nil {
				return d
			}
		}
	}
	for _, s := range f.ELF.Sections {
		if s.Type == elf.SHT_NOTE {
			if d := f.noteAt(&left, s.Offset, s.FileSize, s.Addralign, name, kind); d != nil {
				return d
			}
		}
	}
	return nil
}

// noteRoom is what may still be looked at.
type noteRoom struct {
	places int
	bytes  uint64
}

func (f *sections) noteAt(left *noteRoom, off, size, align uint64, name string, kind uint32) []byte {
	if off > uint64(f.size) || left.places == 0 || left.bytes == 0 {
		return nil
	}
	data := make([]byte, min(size, uint64(f.size)-off, left.bytes))
	left.places--
	left.bytes -= uint64(len(data))
	n, _ := f.r.ReadAt(data, int64(off))
	return FindNote(data[:n], align, name, kind)
}

// FindNote finds a note by owner (with its NULs) and type in the bytes of a note
// segment, such as /sys/kernel/notes. Without one it gives nil.
func FindNote(data []byte, align uint64, name string, kind uint32) []byte {
	if align != 8 { // 0, 1 and 4 all mean 4
		align = 4
	}
	round := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(data) >= 12 {
		nameSize := uint64(binary.LittleEndian.Uint32(data))
		descSize := uint64(binary.LittleEndian.Uint32(data[4:]))
		descStart := round(12 + nameSize)
		if descStart+descSize > uint64(len(data)) {
			return nil
		}
		if binary.LittleEndian.Uint32(data[8:]) == kind && string(data[12:12+nameSize]) == name {
			return data[descStart : descStart+descSize]
		}
		data = data[min(round(descStart+descSize), uint64(len(data))):]
	}
	return nil
}
