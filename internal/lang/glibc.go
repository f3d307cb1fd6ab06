package lang

import (
	"errors"
	"path"
	"strings"

	"atys.dev/atys/internal/proc"
)

// RequireGlibc refuses a process whose C library keeps the storage of threads
// otherwise than glibc.
func RequireGlibc(pid int) error {
	maps, err := proc.FS{}.Executable(pid)
	if err != nil {
		return err
	}
	for _, m := range maps {
		if isMusl(pid, m) {
			return Never(errors.New("the C library musl is not supported, glibc is"))
		}
	}
	return nil
}

// isMusl asks a file only where its name does not say whose C library it is.
func isMusl(pid int, m proc.Mapping) bool {
	if path.Base(m.Path) != "libc.so" {
		return nameOfMusl(path.Base(m.Path))
	}
	file, err := proc.FS{}.MapFile(pid, m)
	if err != nil {
		return false
	}
	defer file.Close()
	return inspect(file, m.Path, false, nil).libc == "musl"
}

func nameOfMusl(base string) bool {
	return strings.HasPrefix(base, "ld-musl-") || strings.HasPrefix(base, "libc.musl-")
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

// ThreadSlot is where a thread has its value of a key: at the thread pointer +
// Slot; with Block, at the address that lies at the thread pointer + Block, +
// Slot.
type ThreadSlot struct{ Block, Slot uint32 }

// SlotOf finds the slot of a key; false where no thread has such a key.
func SlotOf(key uint32) (ThreadSlot, bool) {
	within := key%blockKeys*keyBytes + 8
	switch {
	case key >= maxKeys:
		return ThreadSlot{}, false
	case key < blockKeys:
		return ThreadSlot{Slot: firstBlock + within}, true
	}
	return ThreadSlot{Block: blocks + key/blockKeys*8, Slot: within}, true
}
