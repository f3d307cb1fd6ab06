package cfi

import (
	"bytes"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// afterSyscall makes the rows of the code that signal handlers return to hold
// for the pc after it, too, where nothing else does. The code is no longer than
// its system call, rt_sigreturn, which does not come back; but while the kernel
// is in it, that is where the pc stands, and the stack is still the signal's.
func afterSyscall(im *image, all []rows.Row) []rows.Row {
	const syscall = "\x0f\x05"
	for i := 1; i < len(all); i++ {
		end := all[i].Offset()
		if all[i-1].Rule().Type() != rows.Signal || all[i].Rule().Type() != rows.Gap || !bytes.Equal(im.before(end, len(syscall)), []byte(syscall)) {
			continue
		}
		if i+1 < len(all) && all[i+1].Offset() == end+1 {
			all = append(all[:i], all[i+1:]...)
			continue
		}
		all[i] = rows.NewRow(end+1, all[i].Rule())
	}
	return all
}

// before is the n bytes of code before that at a file offset, nil if either is
// not there.
func (im *image) before(off uint32, n int) []byte {
	for _, s := range im.exec {
		if at := uint64(off) - s.off; uint64(off) >= s.off+uint64(n) && at < s.size {
			b := make([]byte, n)
			if got, _ := s.r.ReadAt(b, int64(at)-int64(n)); got == n {
				return b
			}
		}
	}
	return nil
}
