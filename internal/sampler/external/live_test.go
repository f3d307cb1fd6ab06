package external

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/test/testwait"
)

// needs skips where a program is missing. Peers are looked for where .ci/peers
// puts them, too.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs other profilers: not in short tests")
	}
	if cache, err := os.UserCacheDir(); err == nil {
		t.Setenv("PATH", os.Getenv("PATH")+":"+filepath.Join(cache, "atys", "peers", "bin"))
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here: .ci/peers or make deps installs it", program)
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// victim starts a program in a folder and waits until it says that it is ready.
func victim(t *testing.T, dir string, command ...string) int {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%v said %q: %v", command, line, err)
	}
	return cmd.Process.Pid
}

func build(t *testing.T, command ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, word := range command {
		command[i] = strings.ReplaceAll(word, "DIR", dir)
	}
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return dir
}

// classes is where Victim.java is compiled to, once for all tests.
var classes = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "atys-victim-"); err != nil {
		return "", err
	}
	if out, err := exec.Command("javac", "-d", dir, "testdata/Victim.java").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, os.Chmod(dir, 0o755) // tests run it as other users, too
})

func javaClasses(t *testing.T) string {
	t.Helper()
	needs(t, "java", "javac", "asprof")
	dir, err := classes()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMain(m *testing.M) {
	status := m.Run()
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "atys-victim-*", "Victim.class")); len(left) > 0 {
		dir, err := classes()
		if err == nil {
			os.RemoveAll(dir)
		}
	}
	os.Exit(status)
}

// java is the command of the Java victim, in the folder of its classes.
func java(options ...string) []string {
	return append(append([]string{"java", "-XX:+UseSerialGC"}, options...), "-cp", ".", "Victim")
}

func javaVictim(t *testing.T, options ...string) int {
	t.Helper()
	return victim(t, javaClasses(t), java(options...)...)
}

// isolated runs a command in mount and PID namespaces of its own, and a user
// namespace if asked, with folders of the given size instead of the host's.
func isolated(t *testing.T, dir, size string, user bool, command ...string) int {
	t.Helper()
	needsRoot(t)
	needs(t, "unshare")
	const script = `mount -t tmpfs tmpfs /mnt && cp -r . /mnt && for d in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs -o size=$0 tmpfs $d; done
cd /mnt && exec "$@"`
	args := []string{"unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc"}
	if user {
		args = append(args, "-U", "-r")
	}
	outer := victim(t, dir, append(append(args, "sh", "-c", script, size), command...)...)
	inner := descendants(proc.FS{}, []int{outer})
	if len(inner) != 2 {
		t.Fatalf("processes of unshare: %v", inner)
	}
	return inner[1]
}

func open(t *testing.T, o Options) *Sampler {
	t.Helper()
	if o.Frequency == 0 {
		o.Frequency = 499
	}
	o.Threads = true
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// gather cuts windows until they hold some samples.
func gather(t *testing.T, s *Sampler, n int64) *profile.Window {
	t.Helper()
	var whole *profile.Window
	for deadline := time.Now().Add(testwait.Longest(t)); ; {
		time.Sleep(300 * time.Millisecond)
		w, err := s.Cut()
		if err != nil {
			t.Fatal(err)
		}
		if whole == nil {
			whole = w
		} else if !w.Start.Equal(whole.Start.Add(whole.Duration)) {
			t.Errorf("a window begins at %v, the one before ended at %v", w.Start, whole.Start.Add(whole.Duration))
		}
		if whole, err = profile.Merge(whole, w); err != nil {
			t.Fatal(err)
		}
		if whole.N() >= n {
			return whole
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d samples in a minute", whole.N())
		}
	}
}

// under counts the samples below a function.
func under(w *profile.Window, function string) (n int64) {
	for _, r := range w.Rows.All() {
		if slices.ContainsFunc(w.AppendStack(nil, r.Stack), func(f profile.Frame) bool { return f.Function == function }) {
			n += r.N
		}
	}
	return n
}

// wants checks what every victim's window must hold.
func wants(t *testing.T, w *profile.Window, prefix string, pid int) {
	t.Helper()
	light, heavy := under(w, prefix+"light"), under(w, prefix+"heavy")
	if heavy == 0 {
		heavy = under(w, "Shop.heavy") // CPython from 3.11 on has qualified names
	}
	if heavy <= light || light == 0 || 2*(light+heavy) < w.N() {
		t.Errorf("%d samples in light, %d in heavy, of %d: want a third as many, and nearly all:\n%s", light, heavy, w.N(), dump(w))
	}
	if w.Exact.CPU <= 0 || w.Types[0].Kind != "cpu" || w.Duration <= 0 || w.Start.IsZero() {
		t.Errorf("head %+v", w.Head)
	}
	tids, err := proc.FS{}.ThreadIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.Threads, func(th profile.Thread) bool { return th.PID == pid && slices.Contains(tids, th.TID) }) {
		t.Errorf("no thread of process %d, which has %v, in %+v", pid, tids, w.Threads)
	}
}

// clean checks that a target's folders, and our children, are as before.
func clean(t *testing.T, pid int) {
	t.Helper()
	for _, place := range places {
		for _, pattern := range []string{"atys-*/" + libraryName, "atys-*/samples", ".attach_pid*"} {
			left, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "root", place, pattern))
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	}
	for _, child := range descendants(proc.FS{}, []int{os.Getpid()}) {
		comm, _ := proc.FS{}.ThreadComm(child, child)
		if comm == "perf" || comm == "py-spy" || comm == "asprof" {
			t.Errorf("%s %d still runs, or nobody has waited for it", comm, child)
		}
	}
}
