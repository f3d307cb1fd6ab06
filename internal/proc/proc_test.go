package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/test/testwait"
)

// role makes the test binary play a process to look at: it prints a line when
// it is ready and ends with its standard input.
const role = "ATYS_PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "maps":
		manyMappings()
	case "leaderless":
		exitFirstThread()
	case "read-maps":
		_, err := FS{}.Maps(unix.Getppid())
		fmt.Println(err)
		os.Exit(0)
	}
	waitForEnd()
}

func waitForEnd() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// manyMappings maps 1,000 pieces of the test binary itself: every second page
// has other rights, so that the kernel cannot join them.
func manyMappings() {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	for i := range 1000 {
		prot := unix.PROT_READ
		if i%2 == 0 {
			prot |= unix.PROT_EXEC
		}
		if _, err := unix.Mmap(int(f.Fd()), int64(i)*4096, 4096, prot, unix.MAP_PRIVATE); err != nil {
			panic(err)
		}
	}
}

// exitFirstThread leaves the process to its other threads.
func exitFirstThread() {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		panic("main does not run on the first thread")
	}
	go waitForEnd()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// start runs cmd, waits until it has said something and ends it with the test.
func start(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	// A child of another test may have been forked while this program was
	// still open for writing: exec is refused until it has run its own exec.
	until(t, "start "+cmd.Path, func() bool {
		err := cmd.Start()
		if err != nil && !errors.Is(err, unix.ETXTBSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.WriteString(in, "ready\n"); err != nil { // which cat repeats
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s said %q: %v", cmd, line, err)
	}
	return cmd.Process.Pid
}

func play(t testing.TB, what string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role+"="+what)
	return start(t, cmd)
}

// cat runs a copy of cat at path.
func cat(t testing.TB, path string) int {
	t.Helper()
	copyFile(t, "/bin/cat", path)
	return start(t, exec.Command(path))
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition that another process brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, what, ok)
}

// fake writes a proc file system of the given files.
func fake(t testing.TB, files map[string]string) FS {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return FS{Root: dir}
}

func statLine(pid int, comm string, state byte, ppid int, flags uint64, threads int) string {
	return fmt.Sprintf("%d (%s) %c %d 0 0 0 -1 %d 0 0 0 0 150 20 0 0 20 0 %d 0 300 0 0 18446744073709551615 0 0 140737441584288 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		pid, comm, state, ppid, flags, threads)
}

func TestWhatCannotBeRead(t *testing.T) {
	f := fake(t, map[string]string{
		"7/stat": statLine(7, "kworker/0:0", 'I', 2, flagKernelThread, 1), "7/maps": "", "7/cmdline": "",
		"8/stat": statLine(8, "sh", 'Z', 5, 0, 1), "8/maps": "", "8/cmdline": "",
		"9/stat": statLine(9, "odd", 'S', 5, 0, 1), "9/maps": "", "9/task/9/maps": "",
	})
	tests := []struct {
		pid  int
		want error
		text string
	}{
		{6, ErrNotFound, "process 6 does not exist"},
		{0, ErrNotFound, "process 0 does not exist"},
		{-4, ErrNotFound, "process -4 does not exist"},
		{7, ErrKernelThread, `process 7 ("kworker/0:0") is a kernel thread`},
		{8, ErrZombie, `process 8 ("sh") is a zombie: it has exited, and its parent 5`},
		{9, nil, "process 9 has none"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.pid), func(t *testing.T) {
			_, err := f.Maps(tt.pid)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Maps: %v, want %q", err, tt.text)
			}
			if _, err := f.Exe(tt.pid); tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Exe: %v", err)
			}
			if _, err := f.Namespace(tt.pid, "mnt"); tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Namespace: %v", err)
			}
		})
	}
}

func TestDead(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	until(t, "become a zombie", func() bool { s, err := (FS{}).Stat(pid); return err == nil && s.Zombie() })
	_, err := FS{}.Maps(pid)
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrZombie) || e.PPID != os.Getpid() || e.Comm != "true" {
		t.Errorf("zombie: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, read := range readers(pid) {
		if err := read(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of a dead process: %v", name, err)
		}
	}
}

// readers returns everything that reads one process.
func readers(pid int) map[string]func() error {
	f := FS{}
	return map[string]func() error{
		"Check":     func() error { _, err := f.Check(pid); return err },
		"Stat":      func() error { _, err := f.Stat(pid); return err },
		"Status":    func() error { _, err := f.Status(pid); return err },
		"Maps":      func() error { _, err := f.Maps(pid); return err },
		"Threads":   func() error { _, err := f.Threads(pid); return err },
		"Time":      func() error { _, err := f.ThreadTime(pid, pid); return err },
		"Cmdline":   func() error { _, err := f.Cmdline(pid); return err },
		"Exe":       func() error { _, err := f.Exe(pid); return err },
		"Namespace": func() error { _, err := f.Namespace(pid, "mnt"); return err },
		"Cgroups":   func() error { _, err := f.Cgroups(pid); return err },
		"VDSO":      func() error { _, _, err := f.VDSO(pid); return err },
		"MapFile": func() error {
			_, err := f.MapFile(pid, Mapping{Start: 4096, End: 8192, Backing: BackingFile, Path: "/bin/cat"})
			return err
		},
	}
}

func TestKernelThread(t *testing.T) {
	pids, err := FS{}.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if _, err := (FS{}).Check(pid); errors.Is(err, ErrKernelThread) {
			if _, err := (FS{}).Maps(pid); !errors.Is(err, ErrKernelThread) {
				t.Errorf("Maps(%d): %v", pid, err)
			}
			if _, err := (FS{}).Exe(pid); !errors.Is(err, ErrKernelThread) {
				t.Errorf("Exe(%d): %v", pid, err)
			}
			return
		}
	}
	t.Skip("no kernel thread is visible in this PID namespace")
}

func TestFirstThreadExited(t *testing.T) {
	pid := play(t, "leaderless")
	until(t, "the first thread exits", func() bool { s, err := (FS{}).Stat(pid); return err == nil && s.State == 'Z' })
	s, err := FS{}.Check(pid)
	if err != nil {
		t.Fatalf("a process whose first thread exited still lives: %v", err)
	}
	if s.Threads < 2 {
		t.Errorf("%d threads", s.Threads)
	}
	maps, err := FS{}.Maps(pid)
	if err != nil || len(maps) == 0 {
		t.Fatalf("%d mappings, %v", len(maps), err)
	}
	for _, m := range maps {
		if m.Executable() && m.Backing == BackingFile {
			f, err := FS{}.MapFile(pid, m)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			return
		}
	}
	t.Error("no executable mapping")
}

func TestNotAllowed(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to become someone else: make test-root")
	}
	exe := filepath.Join("/tmp", fmt.Sprintf("atys-proc-test-%d", os.Getpid())) // TempDir is closed to others
	copyFile(t, "/proc/self/exe", exe)
	defer os.Remove(exe)
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", exe)
	cmd.Env = append(os.Environ(), role+"=read-maps")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{fmt.Sprintf("/proc/%d/maps", os.Getpid()), "permission denied", "CAP_SYS_PTRACE"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q does not say %q", out, want)
		}
	}
}
