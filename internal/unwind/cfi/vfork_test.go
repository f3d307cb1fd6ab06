package cfi

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/unwind/cfi/rows"
	"atys.dev/atys/test/testwait"
)

// TestVfork walks the stack of a parent that waits in vfork, where the return
// address is in a register. Such a process cannot be stopped, but it blocks in
// a system call, and /proc/PID/syscall tells its registers.
func TestVfork(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			out := build(t, cc, "-O2", "-static", "-o", "OUT", "testdata/vfork.c")
			cmd := exec.Command(out)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() }()
			regs, ok := waiting(t, cmd.Process.Pid)
			if !ok {
				t.Skip("the registers of a blocked process cannot be read")
			}
			v := newVictim(t, cmd.Process.Pid)
			frames, end := v.walk(regs)
			names := strings.Join(frames, " < ")
			if end != "end" || !strings.Contains(names, fmt.Sprintf("(%d) < start+", rows.ReturnReg)) || !strings.Contains(names, " < main+") {
				t.Errorf("%s: %s", end, names)
			}
		})
	}
}

// waiting reads the registers of a process once it waits in vfork.
func waiting(t *testing.T, pid int) (r syscall.PtraceRegs, ok bool) {
	for deadline := time.Now().Add(testwait.Longest(t)); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			return r, false
		}
		var nr uint64
		n, _ := fmt.Sscanf(string(b), "%d 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x 0x%x",
			&nr, &r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9, &r.Rsp, &r.Rip)
		if n == 9 && nr == syscall.SYS_VFORK {
			return r, true
		}
	}
	return r, false
}
