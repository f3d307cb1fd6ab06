// Package kernels boots a Debian kernel in qemu, runs commands in it and
// returns what they printed: how atys is tested on kernels older than the
// one underneath.
//
// The flow:
//
//  1. Fetch finds the newest packaged kernel of a series and unpacks its
//     image into the user's cache; nothing is installed.
//  2. Build compiles static Go programs; other static programs are taken
//     as they are.
//  3. Run packs an initramfs (the init of test/kernels/init, the files, the
//     script of commands), boots it with software emulation only, and
//     collects the records that init writes while it runs the script.
//
// Two serial lines leave the machine. The first is the kernel's console: it
// is for people, and its tail is in every error. The second carries records
// only, so that a kernel message never lands inside a command's output.
package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	initPackage = "atys.dev/atys/test/kernels/init"

	imageName  = "initramfs.cpio"
	recordName = "records"

	consoleTail = 8 << 10
	mebibyte    = 1 << 20
)

// VM is a machine to boot and what to run in it. Kernel is required; the
// other zero values mean what their comments say.
type VM struct {
	Kernel Kernel

	// Files maps absolute paths in the machine to files of this host.
	// Programs must be static unless their loader and libraries are here
	// too. PATH in the machine is /bin.
	Files map[string]string

	// Commands run one after another, each as its own Result; see
	// ParseCommands for their syntax.
	Commands []string

	CPUs   int // default 2
	Memory int // MiB; default 1024, or more where the files need it

	// CommandTimeout ends one command and lets the next run: default 60 s.
	CommandTimeout time.Duration

	// Timeout ends the machine: default 30 s for the boot plus
	// CommandTimeout for each command.
	Timeout time.Duration

	// Console, when set, also receives the kernel's console as it comes.
	Console io.Writer
}

// Result is what one command did.
type Result struct {
	Command string // as it was given

	Stdout, Stderr []byte
	Dropped        int64 // bytes over the limit of OutputLimit per stream

	Exit     int    // exit code; -1 when the command did not exit by itself
	Status   string // "exit status 0", "signal: killed", "not started: ...", Unfinished
	Duration time.Duration
}

// Err is nil when the command exited with 0, else it names the command, how
// it ended, and the end of what it said on standard error.
func (r Result) Err() error {
	if r.Exit == 0 {
		return nil
	}
	said := bytes.TrimSpace(r.Stderr)
	if len(said) > 2048 {
		said = said[len(said)-2048:]
	}
	if len(said) == 0 {
		return fmt.Errorf("command %q: %s", r.Command, r.Status)
	}
	return fmt.Errorf("command %q: %s: %q", r.Command, r.Status, said)
}

// Run boots the machine, runs its commands and waits until it has powered
// off. A command that fails is not an error of Run: see Result.Err. When the
// machine itself fails (panic, timeout, records missing or damaged) Run
// returns what arrived (Unfinished marks the commands cut off) and an error
// that ends with the console's tail. Cancelling ctx kills the machine.
func Run(ctx context.Context, vm VM) ([]Result, error) {
	commands, err := ParseCommands(vm.Commands)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(vm.Kernel.Image); err != nil {
		return nil, fmt.Errorf("machine without a kernel image (Fetch gives one): %w", err)
	}
	qemu, err := find("qemu-system-x86_64", `run "make deps" (Debian package qemu-system-x86)`)
	if err != nil {
		return nil, err
	}
	vm = vm.withDefaults()
	dir, err := os.MkdirTemp("", "atys-kernels-")
	if err != nil {
		return nil, fmt.Errorf("create machine folder: %w", err)
	}
	defer os.RemoveAll(dir)

	initProgram, err := Build(ctx, dir, initPackage)
	if err != nil {
		return nil, err
	}
	script := Script{Commands: commands, Timeout: vm.CommandTimeout}
	image := filepath.Join(dir, imageName)
	size, err := writeImage(image, initProgram, vm.Files, script)
	if err != nil {
		return nil, err
	}
	vm.Memory = max(vm.Memory, needMemory(size))

	ctx, cancel := context.WithTimeout(ctx, vm.Timeout)
	defer cancel()
	console := &tail{limit: consoleTail, next: vm.Console}
	failed := boot(ctx, qemu, dir, vm, console)

	results, err := readRecords(filepath.Join(dir, recordName), vm.Commands)
	if failed != nil {
		err = failed
	}
	if err != nil {
		return results, machineError(err, vm.Kernel, results, console.kept)
	}
	return results, nil
}

func (vm VM) withDefaults() VM {
	if vm.CPUs == 0 {
		vm.CPUs = 2
	}
	if vm.Memory == 0 {
		vm.Memory = 1024
	}
	if vm.CommandTimeout == 0 {
		vm.CommandTimeout = 60 * time.Second
	}
	if vm.Timeout == 0 {
		vm.Timeout = 30*time.Second + time.Duration(len(vm.Commands))*vm.CommandTimeout
	}
	return vm
}

// needMemory leaves room for the image twice (as loaded, and unpacked) in
// the half of memory that the kernel lets its root file system fill.
func needMemory(image int64) int {
	return int(4*image/mebibyte) + 256
}

// boot runs qemu in dir until the machine powers off.
func boot(ctx context.Context, qemu, dir string, vm VM, console io.Writer) error {
	cmd := exec.CommandContext(ctx, qemu, qemuArgs(vm)...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = console, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("machine did not power off in time: %w", ctx.Err())
		}
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("run %q: %w: %q", qemu, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// qemuArgs describes the machine. File names are relative to the folder qemu
// runs in, because qemu reads commas in them as options.
func qemuArgs(vm VM) []string {
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		// A panic reboots at once (panic=-1), and a reboot ends qemu.
		"-no-reboot",
		"-machine", "pc",
		"-accel", "tcg,thread=multi",
		// Five-level page tables make every emulated page walk longer.
		"-cpu", "max,la57=off",
		"-smp", strconv.Itoa(vm.CPUs),
		"-m", strconv.Itoa(vm.Memory),
		"-kernel", vm.Kernel.Image,
		"-initrd", imageName,
		// qemu's CPUs share one time stamp counter, but the kernel only
		// believes that when told; without it every clock read of every
		// program goes to the emulated HPET instead of the vdso.
		"-append", "console=ttyS0 rdinit=/init panic=-1 mitigations=off tsc=reliable",
		"-serial", "stdio",
		"-serial", "file:" + recordName,
	}
}

// readRecords reads what init wrote, as far as it is whole.
func readRecords(path string, commands []string) ([]Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	return ParseRecords(f, commands)
}

// machineError says what was running and what the console showed last.
func machineError(err error, k Kernel, results []Result, console []byte) error {
	at := ""
	for _, r := range results {
		if r.Status == Unfinished {
			at += fmt.Sprintf(", during %q", r.Command)
			break
		}
	}
	return fmt.Errorf("kernel %q%s: %w\nconsole:\n%s", k.Release, at, err, console)
}

// tail keeps the last limit bytes written to it and passes all of them on.
type tail struct {
	limit int
	next  io.Writer
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	if t.next != nil {
		return t.next.Write(p)
	}
	return len(p), nil
}
