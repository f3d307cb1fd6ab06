// Command init is the first process of a machine that package kernels boots:
// it mounts what Linux programs expect, lets a child of itself run the
// script, and powers the machine off.
//
// The flow:
//
//  1. As pid 1 it mounts, opens the record line, starts itself as "run" and
//     then only reaps: orphans of commands end here, and os/exec in the
//     child never competes with it for a wait status.
//  2. As "run" it works through the script and writes records.
//  3. Under the name of an applet (cat, ls, probe ...) it is that small
//     program, so that a machine without any other file can be questioned.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"atys.dev/atys/test/kernels"
)

const (
	recordLine = "/dev/ttyS1"
	recordFD   = 3 // of the child that runs the script
)

func main() {
	name := filepath.Base(os.Args[0])
	if applet, ok := applets()[name]; ok {
		if err := applet(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "run" {
		if err := runScript(kernels.ScriptPath, os.NewFile(recordFD, recordLine)); err != nil {
			fmt.Fprintf(os.Stderr, "init: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a test machine; it does nothing elsewhere")
		os.Exit(2)
	}
	if err := first(); err != nil {
		fmt.Fprintf(os.Stderr, "init: %v\n", err)
	}
	// Whatever failed, a machine that stays on would only wait for its
	// time-out. The records say how far it came.
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintf(os.Stderr, "init: power off: %v\n", err)
		os.Exit(1)
	}
}

// first is the life of pid 1.
func first() error {
	if err := mountAll(); err != nil {
		return err
	}
	line, err := openRecordLine()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	runner, err := os.StartProcess(kernels.InitPath, []string{"init", "run"}, &os.ProcAttr{
		Files: []*os.File{null, os.Stdout, os.Stderr, line},
		Env:   []string{"PATH=/bin", "HOME=/home", "TMPDIR=/tmp", "LANG=C"},
		Dir:   "/home",
	})
	if err != nil {
		return fmt.Errorf("start the script: %w", err)
	}
	status, err := reapUntil(runner.Pid)
	if err != nil {
		return err
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("script ended with wait status %#x", uint32(status))
	}
	return nil
}

// reapUntil collects every orphan until the given child has ended.
func reapUntil(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the script: %w", err)
		}
		if got == pid {
			return status, nil
		}
	}
}

// mountAll mounts in order: a later one may lie inside an earlier one.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tracefs", "/sys/kernel/tracing"},
		{"debugfs", "/sys/kernel/debug"},
		{"cgroup2", "/sys/fs/cgroup"},
		{"bpf", "/sys/fs/bpf"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/dev/shm"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil && !os.IsExist(err) {
			return fmt.Errorf("mount %q: %w", m.at, err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %q on %q: %w", m.kind, m.at, err)
		}
	}
	return os.Chmod("/tmp", fs.ModeSticky|0o777)
}

// openRecordLine opens the second serial port and stops the terminal layer
// from changing bytes on it.
func openRecordLine() (*os.File, error) {
	line, err := os.OpenFile(recordLine, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the record line: %w", err)
	}
	t, err := unix.IoctlGetTermios(int(line.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the mode of %q: %w", recordLine, err)
	}
	t.Oflag &^= unix.OPOST
	t.Cflag = t.Cflag&^unix.CBAUD | unix.B115200
	if err := unix.IoctlSetTermios(int(line.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("set the mode of %q: %w", recordLine, err)
	}
	return line, nil
}
