package proc

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"cat", "", "a b", "(sd-pam)", ") R 1 (", "x) Z 9 9\n9 (", "tmux: server", "\xff\x1b[31m"} {
		t.Run(strconv.Quote(comm), func(t *testing.T) {
			want := Stat{PID: 42, Comm: comm, State: 'S', PPID: 7, Flags: 0x400000, User: 1500 * time.Millisecond,
				System: 200 * time.Millisecond, Threads: 3, Started: 3 * time.Second, CPU: 1, Stack: 140737441584288}
			got, err := ParseStat([]byte(statLine(42, comm, 'S', 7, 0x400000, 3)))
			if err != nil || got != want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	for _, text := range []string{"", "()", "1 (a", "1 a) S", "1 (a) S 1", ") 1 (", "1 (a)", strings.Replace(statLine(1, "a", 'S', 1, 0, 1), "150", "x", 1),
		strings.Replace(statLine(1, "a", 'S', 1, 0, 1), " 150 ", " 999999999999999999 ", 1), strings.Replace(statLine(1, "a", 'S', 1, 0, 1), " 150 ", " -1 ", 1)} {
		if got, err := ParseStat([]byte(text)); err == nil {
			t.Errorf("%q parsed: %+v", text, got)
		}
	}
}

// FuzzParseStat: no name can forge the columns after it.
func FuzzParseStat(f *testing.F) {
	f.Add("a) R 1 2 3 (b", 5, []byte("x"))
	f.Fuzz(func(t *testing.T, comm string, ppid int, raw []byte) {
		_, _ = ParseStat(raw)
		got, err := ParseStat([]byte(statLine(42, comm, 'R', ppid, flagKernelThread, 9)))
		if err != nil || got.Comm != comm || got.PPID != ppid || got.Threads != 9 || !got.KernelThread() || got.State != 'R' {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func TestParseStatus(t *testing.T) {
	const text = "Name:\ta\\nb\\\\c\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t30\nNgid:\t0\nPid:\t31\nPPid:\t1\nUid:\t1\t2\t3\t4\n" +
		"NStgid:\t30\t3\nNSpid:\t31\t4\t1\nVmRSS:\t     128 kB\nThreads:\t2\n"
	want := Status{Name: "a\nb\\c", TGID: 30, PID: 31, PPID: 1, UID: 2, NSPID: []int{31, 4, 1}, Threads: 2, RSS: 128 << 10}
	got, err := ParseStatus([]byte(text))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, text := range []string{"", "Tgid:\t1\n", "Pid:\tx\nTgid:\t1\n", "Pid:\t\nTgid:\t1\n", "Uid:\t1\n", "Pid:\t1\nTgid:\t1\nNSpid:\t" + strings.Repeat("1\t", 40)} {
		if got, err := ParseStatus([]byte(text)); err == nil {
			t.Errorf("%q parsed: %+v", text, got)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Pid:\t1\nTgid:\t1\nNSpid:\t1\t2\n"), "a\nb", 7)
	f.Fuzz(func(t *testing.T, raw []byte, name string, ppid int) {
		if s, err := ParseStatus(raw); err == nil && len(s.NSPID) > 33 {
			t.Fatalf("%d nested namespaces", len(s.NSPID))
		}
		escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(name)
		s, err := ParseStatus(fmt.Appendf(nil, "Name:\t%s\nPid:\t5\nTgid:\t5\nPPid:\t%d\n", escaped, ppid))
		if err != nil || s.Name != name || s.PPID != ppid {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}

func TestSchedStat(t *testing.T) {
	got, err := ParseSchedStat([]byte("1234567890 55 12\n"))
	if want := (SchedStat{Run: 1234567890, Wait: 55, Slices: 12}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "1", "1 2", "1 2 x", "-1 2 3", "18446744073709551615 1 1"} {
		if got, err := ParseSchedStat([]byte(text)); err == nil {
			t.Errorf("%q parsed: %+v", text, got)
		}
	}
}

// TestThreadTime burns CPU and expects the kernel to have counted it.
func TestThreadTime(t *testing.T) {
	before, err := FS{}.Threads(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var burnt time.Duration
	for start := cpuTime(t); burnt < 20*time.Millisecond; burnt = cpuTime(t) - start {
	}
	after, err := FS{}.Threads(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got := total(after) - total(before); got < burnt*9/10 {
		t.Errorf("%v were burnt, the threads' times grew by %v", burnt, got)
	}
	for _, th := range after {
		if th.TID == os.Getpid() && th.Comm != "proc.test" {
			t.Errorf("the first thread is called %q", th.Comm)
		}
	}
}

func total(threads []Thread) (sum time.Duration) {
	for _, th := range threads {
		sum += th.Run
	}
	return sum
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func TestSelf(t *testing.T) {
	f := FS{}
	self := os.Getpid()
	s, err := f.Check(self)
	if err != nil || s.PID != self || s.PPID != os.Getppid() || s.Comm != "proc.test" || s.Threads < 2 {
		t.Errorf("%+v, %v", s, err)
	}
	boot, err := BootTime()
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(boot.Add(s.Started)); age < -50*time.Millisecond || age > 10*time.Minute {
		t.Errorf("this process started %v ago", age)
	}
	st, err := f.Status(self)
	if err != nil || st.TGID != self || st.PID != self || st.UID != os.Geteuid() || len(st.NSPID) == 0 || st.NSPID[0] != self || st.RSS < 1<<20 {
		t.Errorf("%+v, %v", st, err)
	}
	args, err := f.Cmdline(self)
	if err != nil || !slices.Equal(args, os.Args) {
		t.Errorf("%q, %v, want %q", args, err, os.Args)
	}
	pids, err := f.PIDs()
	if err != nil || !slices.Contains(pids, self) {
		t.Errorf("PIDs: %v, %v", pids, err)
	}
	if id, err := f.Namespace(self, "pid"); err != nil || id == 0 {
		t.Errorf("PID namespace %d, %v", id, err)
	}
}

func TestParseCmdline(t *testing.T) {
	tests := map[string][]string{
		"": nil, "a\x00": {"a"}, "a\x00b c\x00\x00d\x00": {"a", "b c", "", "d"}, "nginx: worker": {"nginx: worker"}, "\x00": {""},
		strings.Repeat("x", 2*maxCmdline): {strings.Repeat("x", maxCmdline)},
	}
	for text, want := range tests {
		if got := ParseCmdline([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%.20q: %.20q", text, got)
		}
	}
}

func FuzzParseCmdline(f *testing.F) {
	f.Add([]byte("a\x00b\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > maxCmdline {
			return
		}
		args := ParseCmdline(data)
		if got := strings.Join(args, "\x00"); got != strings.TrimSuffix(string(data), "\x00") {
			t.Fatalf("%q became %q", data, args)
		}
	})
}

func TestFind(t *testing.T) {
	f := fake(t, map[string]string{
		"1/stat": statLine(1, "init", 'S', 0, 0, 1), "1/cmdline": "/sbin/init\x00",
		"20/stat": statLine(20, "bash", 'S', 1, 0, 1), "20/cmdline": "bash\x00-c\x00atys record --name postgres\x00",
		"21/stat": statLine(21, "sudo", 'S', 20, 0, 1), "21/cmdline": "sudo\x00atys\x00record\x00--name\x00postgres\x00",
		"22/stat": statLine(22, "atys", 'S', 21, 0, 1), "22/cmdline": "atys\x00record\x00--name\x00postgres\x00",
		"30/stat": statLine(30, "postgres", 'S', 1, 0, 1), "30/cmdline": "postgres: writer",
		"31/stat": statLine(31, "postgres", 'Z', 1, 0, 1), "31/cmdline": "",
		"32/stat": statLine(32, "kpostgres", 'S', 2, flagKernelThread, 1), "32/cmdline": "",
		"33/stat": statLine(33, "java", 'S', 1, 0, 1), "33/cmdline": "java\x00-jar\x00postgres-proxy.jar\x00",
		"34/stat": "garbage", "uptime": "1", "self/stat": statLine(22, "atys", 'S', 21, 0, 1),
	})
	tests := map[string][]int{"postgres": {30, 33}, "^postgres$": {30}, "bash": {20}, "writer": {30}, "-jar postgres": {33}, "nothing": nil}
	for pattern, want := range tests {
		found, err := f.find(regexp.MustCompile(pattern), 22)
		var got []int
		for _, p := range found {
			got = append(got, p.PID)
		}
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q found %v, %v, want %v", pattern, got, err, want)
		}
	}
}

func TestFindReal(t *testing.T) {
	path := t.TempDir() + "/rare-name"
	pid := cat(t, path)
	found, err := FS{}.Find(regexp.MustCompile("^rare-name$"))
	if err != nil || len(found) != 1 || found[0].PID != pid || found[0].Comm != "rare-name" || !slices.Equal(found[0].Cmdline, []string{path}) {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestPIDNamespace: a process knows itself under another id than we do.
func TestPIDNamespace(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to unshare a PID namespace: make test-root")
	}
	start(t, exec.Command("unshare", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", "echo ready; cat; :", "pid-namespace"))
	until(t, "the process appears", func() bool {
		found, err := FS{}.Find(regexp.MustCompile("^/bin/sh .* pid-namespace$"))
		if err != nil || len(found) != 1 {
			return false
		}
		st, err := FS{}.Status(found[0].PID)
		return err == nil && len(st.NSPID) >= 2 && st.NSPID[0] == found[0].PID && st.NSPID[len(st.NSPID)-1] == 1
	})
}
