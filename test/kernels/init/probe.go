package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

const (
	probeRate = 199 // Hz; prime, so that no timer of the kernel divides it
	probeFor  = time.Second
)

// probe checks the ground atys stands on here: BTF that parses, the
// cpu-clock event, and a BPF program that runs on it.
func probe([]string) error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("kernel BTF: %w", err)
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return fmt.Errorf("kernel BTF: %w", err)
	}
	fmt.Printf("btf task_struct %d bytes\n", task.Size)

	counter, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("create BPF map: %w", err)
	}
	defer counter.Close()
	program, err := ebpf.NewProgram(countProgram(counter))
	if err != nil {
		return fmt.Errorf("load BPF program: %w", err)
	}
	defer program.Close()
	samples, err := sampleSelf(program)
	if err != nil {
		return err
	}
	var runs uint64
	if err := counter.Lookup(uint32(0), &runs); err != nil {
		return fmt.Errorf("read BPF map: %w", err)
	}
	fmt.Printf("cpu-clock counted %v\n", samples)
	fmt.Printf("bpf runs %d at %d Hz\n", runs, probeRate)
	if runs == 0 {
		return errors.New("the BPF program never ran")
	}
	return nil
}

// countProgram adds one to the map's only value at each event.
func countProgram(counter *ebpf.Map) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Type:    ebpf.PerfEvent,
		License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counter.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	}
}

// sampleSelf burns CPU on this thread under a cpu-clock event that runs the
// program, and returns the CPU time the event counted.
func sampleSelf(program *ebpf.Program) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: probeRate,
		Bits:   unix.PerfBitFreq | unix.PerfBitDisabled,
	}, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("open cpu-clock event: %w", err)
	}
	event := os.NewFile(uintptr(fd), "cpu-clock")
	defer event.Close()
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD()); err != nil {
		return 0, fmt.Errorf("attach BPF program: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return 0, fmt.Errorf("enable cpu-clock event: %w", err)
	}
	burn(probeFor)
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		return 0, fmt.Errorf("disable cpu-clock event: %w", err)
	}
	var value [8]byte
	if _, err := event.Read(value[:]); err != nil {
		return 0, fmt.Errorf("read cpu-clock event: %w", err)
	}
	return time.Duration(binary.NativeEndian.Uint64(value[:])), nil
}
