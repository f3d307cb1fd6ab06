// Package bpf is what every BPF loader of ours needs: memory shared with
// programs, and what this kernel can and cannot do.
package bpf

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Mapped is the single value of a mmapable array map, shared with BPF programs.
// Writes are seen by programs at once; who writes must order its own stores.
type Mapped[T any] struct {
	Value  *T
	memory []byte
}

// Map maps the value of m, whose size must hold a T.
func Map[T any](m *ebpf.Map) (*Mapped[T], error) {
	var zero T
	if size := int(unsafe.Sizeof(zero)); int(m.ValueSize()) < size {
		return nil, fmt.Errorf("map %s: its value has %d bytes, not %d", m, m.ValueSize(), size)
	}
	memory, err := mapValue(m)
	if err != nil {
		return nil, err
	}
	return &Mapped[T]{Value: (*T)(unsafe.Pointer(&memory[0])), memory: memory}, nil
}

// MappedSlice is Mapped where the loader chose the value's size.
type MappedSlice[T any] struct {
	Values []T
	memory []byte
}

// MapSlice maps the value of m as so many Ts as it holds.
func MapSlice[T any](m *ebpf.Map) (*MappedSlice[T], error) {
	memory, err := mapValue(m)
	if err != nil {
		return nil, err
	}
	var zero T
	n := int(m.ValueSize()) / int(unsafe.Sizeof(zero))
	return &MappedSlice[T]{Values: unsafe.Slice((*T)(unsafe.Pointer(&memory[0])), n), memory: memory}, nil
}

func mapValue(m *ebpf.Map) ([]byte, error) {
	length := (int(m.ValueSize()) + 4095) &^ 4095
	memory, err := unix.Mmap(m.FD(), 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the memory of %s: %w", m, err)
	}
	return memory, nil
}

// Close unmaps the values; they must not be used afterwards.
func (m *MappedSlice[T]) Close() error {
	if m == nil {
		return nil
	}
	m.Values = nil
	return unmap(&m.memory)
}

// Close unmaps the value; it must not be used afterwards.
func (m *Mapped[T]) Close() error {
	if m == nil {
		return nil
	}
	m.Value = nil
	return unmap(&m.memory)
}

// unmap unmaps memory once.
func unmap(memory *[]byte) error {
	if *memory == nil {
		return nil
	}
	mapped := *memory
	*memory = nil
	return unix.Munmap(mapped)
}

// Clock reads a kernel clock in ns, as programs see it: CLOCK_MONOTONIC is
// bpf_ktime_get_ns.
func Clock(id int32) uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return uint64(t.Nano())
}

// RaiseLimits lifts the locked-memory limit on kernels that charge maps to it.
func RaiseLimits() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the locked-memory limit, which takes CAP_SYS_RESOURCE: %w", err)
	}
	return nil
}

// Explain turns a load error into one that names the cause and the way out.
func Explain(what string, err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return &deniedError{what, err}
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%s: %w: this kernel is too old or lacks BPF or BTF (\"atys doctor\" shows what)", what, err)
	case errors.As(err, &verifier):
		return fmt.Errorf("%s: the kernel's verifier refused our program, please report it with this text: %+v", what, verifier)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// deniedError is a refusal for want of privilege. What the library guesses of it
// is left out: no kernel that we run on counts locked memory for BPF.
type deniedError struct {
	what string
	err  error
}

func (e *deniedError) Error() string {
	return e.what + ": operation not permitted: " + howPermitted()
}

func (e *deniedError) Unwrap() error { return e.err }

// howPermitted says how to be allowed to load programs; root is not told to be root.
func howPermitted() string {
	if os.Geteuid() == 0 {
		return "this root lacks CAP_BPF or CAP_PERFMON, as root of a container does, or a filter of system calls is in the way (\"atys doctor\" shows which)"
	}
	return "run as root, or give atys CAP_BPF and CAP_PERFMON (\"atys doctor\" shows how)"
}
