package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/doctor"
	"atys.dev/atys/test/victims"
)

// nobody runs atys without root, and with the capabilities it is given only.
type nobody struct {
	dir, binary string                   // both readable by all
	reports     map[string]doctor.Report // what doctor said already, by how it was asked
}

const nobodyID = 65534

// everyday are the capabilities that doctor recommends.
func everyday() []uintptr {
	return []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_SYSLOG}
}

func newNobody(t *testing.T) nobody {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program with capabilities of our choice")
	}
	dir, err := os.MkdirTemp("", "atys-capabilities")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := nobody{dir: dir, binary: filepath.Join(dir, "atys"), reports: map[string]doctor.Report{}}
	if err := errors.Join(os.Mkdir(n.home(), 0o700), os.Chown(n.home(), nobodyID, nobodyID)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable() // which is atys, by that name: see TestMain
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, n.binary, 0o755)
	return n
}

// home is where nobody keeps symbols from one recording to the next.
func (n nobody) home() string { return filepath.Join(n.dir, "home") }

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close(), os.Chmod(to, mode))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// command makes one that runs as nobody.
func (n nobody) command(capabilities []uintptr, path string, args ...string) *exec.Cmd {
	c := exec.Command(path, args...)
	c.Dir, c.Env = "/", []string{"HOME=" + n.home(), "PATH=/usr/bin:/bin", "TMPDIR=" + n.dir}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID},
		AmbientCaps: capabilities, Pdeathsig: syscall.SIGKILL}
	return c
}

// atys runs atys as nobody.
func (n nobody) atys(t *testing.T, capabilities []uintptr, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return n.run(t, n.command(capabilities, n.binary, args...))
}

func (n nobody) run(t *testing.T, c *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", c.Args, err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// doctor gives what doctor says of a check, and whether it says that recording works.
func (n nobody) doctor(t *testing.T, capabilities []uintptr, check string, args ...string) (doctor.Check, bool) {
	t.Helper()
	r := n.report(t, capabilities, args...)
	for _, c := range r.Checks {
		if c.Name == check {
			return c, r.Works
		}
	}
	t.Fatalf("doctor does not speak of %s: %+v", check, r)
	return doctor.Check{}, false
}

// report has doctor look, which takes seconds, once at each thing.
func (n nobody) report(t *testing.T, capabilities []uintptr, args ...string) (r doctor.Report) {
	t.Helper()
	asked := fmt.Sprint(capabilities, args)
	if r, ok := n.reports[asked]; ok {
		return r
	}
	out, errs, code := n.atys(t, capabilities, append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("doctor: %v\n%s%s", err, out, errs)
	}
	if r.Works != (code == 0) {
		t.Errorf("doctor says works: %v, and exits with %d", r.Works, code)
	}
	n.reports[asked] = r
	return r
}

// sampled records a process for a moment and gives its folded stacks. On a
// crowded machine a moment may pass without the process having run.
func (n nobody) sampled(t *testing.T, capabilities []uintptr, pid int) string {
	t.Helper()
	defer awake(t, pid)()
	for range 10 {
		out, errs, code := n.atys(t, capabilities, "record", "-p", strconv.Itoa(pid), "-F", "499", "-d", "700ms", "-o", "-")
		if code != 0 {
			t.Fatalf("record: exit %d: %s", code, errs)
		}
		if out != "" {
			return out
		}
	}
	t.Fatalf("no samples of process %d", pid)
	return ""
}

// awake has a process run until the returned function is called.
func awake(t *testing.T, pid int) (asleep func()) {
	t.Helper()
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGCONT)
	return func() { signal(syscall.SIGSTOP) }
}

// start runs a program until the test ends, as nobody or as root. It stands still
// but where it is awake, so that all else does not wait for a core.
func start(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	if filepath.Base(c.Path) != "dd" {
		if _, err := out.Read(make([]byte, 1)); err != nil { // its ready line
			t.Fatalf("%v: %v", c.Args, err)
		}
	}
	awake(t, c.Process.Pid)()
	return c.Process.Pid
}

// portion is how many of the samples lie on stacks that satisfy a condition.
func portion(t *testing.T, folded string, condition func(stack string) bool) float64 {
	t.Helper()
	all, some := 0, 0
	for line := range strings.Lines(folded) {
		i := strings.LastIndexByte(line, ' ')
		count, err := strconv.Atoi(strings.TrimSpace(line[i+1:]))
		if err != nil {
			t.Fatalf("not folded: %q", line)
		}
		all += count
		if condition(line[:i]) {
			some += count
		}
	}
	if all == 0 {
		t.Fatal("no samples")
	}
	return float64(some) / float64(all)
}

// whole: from the program's start, through a function of its own.
func whole(stack string) bool { return strings.HasPrefix(stack, "_start;") && named(stack) }

// named: in a victim's loop, or what it calls. On a busy machine the mixed one
// also spends some time in its book-keeping, below its namesake.
func named(stack string) bool {
	return strings.Contains(stack, ";run;") || strings.Contains(stack, ";mixed;")
}

func kernelNamed(stack string) bool { return strings.Contains(stack, "do_syscall_64_[k]") }

func minus(set []uintptr, gone uintptr) []uintptr {
	return slices.DeleteFunc(slices.Clone(set), func(c uintptr) bool { return c == gone })
}

// trial is what atys is tried on.
type trial struct {
	nobody
	mixed        string // the victim
	foreign, own int    // processes of it: root's, and nobody's
}

// TestCapabilities takes from atys one capability after the other and compares
// what it then can do with what doctor says.
func TestCapabilities(t *testing.T) {
	if testing.Short() {
		t.Skip("some thirty recordings")
	}
	n := trial{nobody: newNobody(t)}
	var err error
	if n.mixed, err = victims.Build(n.dir, "mixed", victims.Options{}); err != nil {
		t.Fatal(err)
	}
	n.foreign = start(t, exec.Command(n.mixed, "600"))
	n.own = start(t, n.command(nil, n.mixed, "600"))
	t.Run("Everyday", n.withEveryday)
	t.Run("CAP_BPF", func(t *testing.T) { n.withoutNeeded(t, "CAP_BPF", unix.CAP_BPF) })
	t.Run("CAP_PERFMON", func(t *testing.T) { n.withoutNeeded(t, "CAP_PERFMON", unix.CAP_PERFMON) })
	t.Run("CAP_SYS_PTRACE", n.withoutPtrace)
	t.Run("CAP_SYSLOG", n.withoutSyslog)
	t.Run("CAP_CHECKPOINT_RESTORE", n.deletedLibrary)
	t.Run("CAP_DAC_READ_SEARCH", n.unreadable)
	t.Run("Setcap", n.setcap)
}

// withEveryday: the recommended capabilities are enough for other users' processes.
func (n trial) withEveryday(t *testing.T) {
	for _, name := range []string{"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_SYSLOG", "sleeping threads can be read", "kernel symbols"} {
		if c, works := n.doctor(t, everyday(), name); c.State != doctor.OK || !works {
			t.Errorf("doctor: %+v, works: %v", c, works)
		}
	}
	if s := portion(t, n.sampled(t, everyday(), n.foreign), whole); s < 0.99 {
		t.Errorf("%.3f of root's process's stacks are whole and named", s)
	}
	defer awake(t, n.foreign)()
	if out, errs, code := n.atys(t, everyday(), "dump", "-p", strconv.Itoa(n.foreign)); code != 0 || !strings.Contains(out, "main (") {
		t.Errorf("dump: exit %d: %s%s", code, out, errs)
	}
	if out, errs, code := n.atys(t, everyday(), "top", "-a", "--once"); code != 0 || !strings.Contains(out, "FUNCTION") {
		t.Errorf("top: exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := n.atys(t, everyday(), "record", "-d", "200ms", "-o", "-", "--", n.mixed, "1"); code != 0 {
		t.Errorf("record a command: exit %d: %s", code, errs)
	}
}

// withoutNeeded: nothing works, and everything says why.
func (n trial) withoutNeeded(t *testing.T, name string, capability uintptr) {
	t.Helper()
	rest := minus(everyday(), capability)
	if c, works := n.doctor(t, rest, name); c.State != doctor.Missing || works || !strings.Contains(c.Mend, strings.ToLower(name)) {
		t.Errorf("doctor: %+v, works: %v", c, works)
	}
	for _, args := range [][]string{{"record", "-a", "-d", "100ms", "-o", "-"}, {"dump", "-p", strconv.Itoa(n.own)}, {"top", "-a", "--once"}} {
		if _, errs, code := n.atys(t, rest, args...); code != 1 || !strings.Contains(errs, name) || !strings.Contains(errs, "atys doctor") {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
}

// withoutPtrace: our own processes work, and others as far as this kernel lets us look.
func (n trial) withoutPtrace(t *testing.T) {
	rest := minus(everyday(), unix.CAP_SYS_PTRACE)
	if c, works := n.doctor(t, rest, "CAP_SYS_PTRACE"); c.State != doctor.Limited || !works {
		t.Errorf("doctor: %+v, works: %v", c, works)
	}
	if s := portion(t, n.sampled(t, rest, n.own), whole); s < 0.99 {
		t.Errorf("%.3f of our own process's stacks are whole and named", s)
	}
	// On newer kernels (6.18) CAP_PERFMON is enough for another user's mappings.
	c, works := n.doctor(t, rest, "readable", "-p", strconv.Itoa(n.foreign))
	if works != (c.State == doctor.OK) || !works && !strings.Contains(c.Mend, "cap_sys_ptrace") {
		t.Errorf("doctor of root's process: %+v, works: %v", c, works)
	}
	if !works {
		_, errs, code := n.atys(t, rest, "record", "-p", strconv.Itoa(n.foreign), "-d", "100ms", "-o", "-")
		if code == 0 || !strings.Contains(errs, "CAP_SYS_PTRACE") {
			t.Errorf("root's process is not refused: exit %d: %s", code, errs)
		}
		return
	}
	if s := portion(t, n.sampled(t, rest, n.foreign), whole); s < 0.99 {
		t.Errorf("%.3f of root's process's stacks are whole and named", s)
	}
	contained := start(t, n.contained(t, n.mixed))
	if s := portion(t, n.sampled(t, rest, contained), named); s > 0.01 {
		t.Errorf("%.3f of the stacks of another mount namespace have names", s)
	}
	if s := portion(t, n.sampled(t, everyday(), contained), whole); s < 0.99 {
		t.Errorf("%.3f of the stacks of another mount namespace are whole with it", s)
	}
}

// withoutSyslog: kernel functions have names where doctor says so.
func (n trial) withoutSyslog(t *testing.T) {
	zero := start(t, n.command(nil, "/usr/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=4k"))
	rest := minus(everyday(), unix.CAP_SYSLOG)
	c, works := n.doctor(t, rest, "CAP_SYSLOG")
	symbols, _ := n.doctor(t, rest, "kernel symbols")
	if !works || c.State != symbols.State {
		t.Errorf("doctor: %+v, %+v, works: %v", c, symbols, works)
	}
	with, without := portion(t, n.sampled(t, everyday(), zero), kernelNamed), portion(t, n.sampled(t, rest, zero), kernelNamed)
	if with == 0 || (without > 0) != (symbols.State == doctor.OK) {
		t.Errorf("%.2f of the stacks have kernel names with it, %.2f without, and doctor says %s", with, without, symbols.State)
	}
}

// deletedLibrary: the file is reached through map_files only.
func (n trial) deletedLibrary(t *testing.T) {
	program, library := n.withLibrary(t)
	deleted := start(t, n.command(nil, program))
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	n.gains(t, "CAP_CHECKPOINT_RESTORE", deleted, unix.CAP_CHECKPOINT_RESTORE)
}

// unreadable: a program that its own user may run, not read; and tracefs.
func (n trial) unreadable(t *testing.T) {
	path := filepath.Join(n.dir, "mixed-unreadable")
	copyFile(t, n.mixed, path, 0o711)
	n.gains(t, "CAP_DAC_READ_SEARCH", start(t, n.command(nil, path, "600")), unix.CAP_DAC_READ_SEARCH)
	args := []string{"record", "-a", "-e", "sched:sched_switch", "-d", "100ms", "-o", "-"}
	if _, errs, code := n.atys(t, everyday(), args...); code == 0 || !strings.Contains(errs, "CAP_DAC_READ_SEARCH") {
		t.Errorf("a tracepoint without it: exit %d: %s", code, errs)
	}
	if _, errs, code := n.atys(t, append(everyday(), unix.CAP_DAC_READ_SEARCH), args...); code != 0 {
		t.Errorf("a tracepoint with it: exit %d: %s", code, errs)
	}
}

// setcap: a file's capabilities make a process that /proc gives to root.
func (n trial) setcap(t *testing.T) {
	path := filepath.Join(n.dir, "setcap", "atys")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, n.binary, path, 0o755)
	if err := setFileCapabilities(path, everyday()); err != nil {
		t.Fatal(err)
	}
	defer awake(t, n.foreign)()
	out, errs, code := n.run(t, n.command(nil, path, "record", "-p", strconv.Itoa(n.foreign), "-F", "499", "-d", "700ms", "-o", "-"))
	if code != 0 {
		t.Fatalf("record: exit %d: %s", code, errs)
	}
	if s := portion(t, out, whole); s < 0.99 {
		t.Errorf("%.3f of root's process's stacks are whole and named:\n%s", s, out)
	}
}

// contained runs the victim, as root, at a path that only its own mount
// namespace has.
func (n nobody) contained(t *testing.T, mixed string) *exec.Cmd {
	t.Helper()
	inside := filepath.Join(n.dir, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", `mount --make-rprivate / && mount -t tmpfs -o mode=755 tmpfs "$1" && cp "$0" "$1"/mixed && exec "$1"/mixed 600`, mixed, inside)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return c
}

// withLibrary builds a program that burns in a library of its own.
func (n nobody) withLibrary(t *testing.T) (program, library string) {
	t.Helper()
	program, library = filepath.Join(n.dir, "linked"), filepath.Join(n.dir, "libburn.so")
	for source, text := range map[string]string{
		"burn.c":   "volatile long sink;\n__attribute__((noinline)) static void spin(void) { for (;;) sink++; }\nvoid run(void) { spin(); sink++; }\n",
		"linked.c": "#include <stdio.h>\nvoid run(void);\nint main(void) { puts(\"ready\"); fflush(stdout); run(); return 0; }\n",
	} {
		if err := os.WriteFile(filepath.Join(n.dir, source), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"-shared", "-fPIC", "-o", library, "burn.c"}, {"-o", program, "linked.c", library}} {
		c := exec.Command("cc", append([]string{"-O2", "-fomit-frame-pointer"}, args...)...)
		c.Dir = n.dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	return program, library
}

// gains checks that a process has no names without a capability, and names with
// it, and that doctor says so.
func (n nobody) gains(t *testing.T, name string, pid int, capability uintptr) {
	t.Helper()
	if c, works := n.doctor(t, everyday(), name); c.State != doctor.Limited || !works || !strings.Contains(c.Mend, strings.ToLower(name)) {
		t.Errorf("doctor: %+v, works: %v", c, works)
	}
	if c, works := n.doctor(t, everyday(), "files", "-p", strconv.Itoa(pid)); c.State != doctor.Limited || !works || !strings.Contains(c.Mend, strings.ToLower(name)) {
		t.Errorf("doctor of the process without %s: %+v, works: %v", name, c, works)
	}
	if s := portion(t, n.sampled(t, everyday(), pid), named); s > 0.01 {
		t.Errorf("%.2f of the stacks have names without %s", s, name)
	}
	more := append(everyday(), capability)
	if c, _ := n.doctor(t, more, "files", "-p", strconv.Itoa(pid)); c.State != doctor.OK {
		t.Errorf("doctor of the process with %s: %+v", name, c)
	}
	if s := portion(t, n.sampled(t, more, pid), whole); s < 0.99 {
		t.Errorf("%.3f of the stacks are whole and named with %s", s, name)
	}
}

// setFileCapabilities gives a file capabilities, effective and permitted: struct
// vfs_cap_data of linux/capability.h, revision 2.
func setFileCapabilities(path string, capabilities []uintptr) error {
	const revision2, effective = 0x02000000, 1
	var permitted [2]uint32
	for _, c := range capabilities {
		permitted[c/32] |= 1 << (c % 32)
	}
	var data []byte
	for _, word := range []uint32{revision2 | effective, permitted[0], 0, permitted[1], 0} {
		data = binary.LittleEndian.AppendUint32(data, word)
	}
	return unix.Setxattr(path, "security.capability", data, 0)
}
