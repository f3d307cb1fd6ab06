package proc

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Memory reads the memory of a process while it runs. What is read together may
// never have been there together: callers check what they read.
type Memory struct{ PID int }

// ReadAt reads memory at an address, all of it or as much as is mapped.
func (m Memory) ReadAt(p []byte, address int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	n, err := unix.ProcessVMReadv(m.PID, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(p)}}, 0)
	switch {
	case errors.Is(err, unix.EFAULT):
		return 0, fmt.Errorf("nothing is mapped at %#x of process %d", address, m.PID)
	case err != nil:
		return 0, fmt.Errorf("read memory of process %d: %w", m.PID, err)
	case n < len(p):
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}
