package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/symbol"
)

// healthy is a machine on which everything works, for a user with all rights.
func healthy() Facts {
	all := Capabilities(0)
	for _, c := range wantedCapabilities() {
		all |= 1 << c.number
	}
	return Facts{Release: "6.1.0-18-amd64", BTF: true, Lockdown: "none", Capabilities: all, Executable: "/opt/atys",
		Settings: map[string]int{paranoid: 2, kptrRestrict: 0, maxSampleRate: 100000, maxCPUPercent: 25, mlockKB: 516, maxStack: 127, jitEnable: 1},
		Memlock:  8 << 20, CPUs: 4, Counters: "precise", Cgroup2: "/sys/fs/cgroup", KernelSymbols: true,
		Probes: []Probe{{Name: "maps"}, {Name: "programs"}}, Debuginfod: "https://debuginfod.example"}
}

func without(f *Facts, capability int) { f.Capabilities &^= 1 << capability }

func TestEvaluate(t *testing.T) {
	denied := fmt.Errorf("load the sampler: %w", unix.EPERM)
	for _, c := range []struct {
		name   string
		change func(*Facts)
		check  string // whose
		state  State  // is this,
		found  string // finding and cost hold this,
		mend   string // and remedy this
		works  bool
	}{
		{"healthy", func(*Facts) {}, "kernel", OK, "6.1.0", "", true},
		{"old kernel", func(f *Facts) { f.Release = "5.10.0-28-amd64" }, "kernel", Limited, "older than 6.1", "newer kernel", true},
		{"odd release", func(f *Facts) { f.Release = "mainline" }, "kernel", OK, "mainline", "", true},
		{"no BTF", func(f *Facts) { f.BTF = false; f.Probes[1].Err = errors.New("no BTF") }, "BTF", Missing, "nothing can be recorded", "CONFIG_DEBUG_INFO_BTF", false},
		{"interpreted", func(f *Facts) { f.Settings[jitEnable] = 0 }, "BPF compiler", Limited, "interpreted", "sudo sysctl net.core.bpf_jit_enable=1", true},
		{"locked down", func(f *Facts) { f.Lockdown = "confidentiality" }, "lockdown", Missing, "nothing can be recorded", "lockdown=integrity", true},
		{"integrity", func(f *Facts) { f.Lockdown = "integrity" }, "lockdown", OK, "does not hinder", "", true},
		{"no CAP_BPF", func(f *Facts) { without(f, unix.CAP_BPF); f.Probes[0].Err = denied; f.Probes[1].Skip = true },
			"CAP_BPF", Missing, "nothing can be recorded", "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog,cap_checkpoint_restore,cap_dac_read_search=ep /opt/atys", false},
		{"no CAP_PERFMON", func(f *Facts) { without(f, unix.CAP_PERFMON); f.Probes[1].Err = denied }, "CAP_PERFMON", Missing, "nothing can be recorded", "cap_perfmon", false},
		{"CAP_SYS_ADMIN holds both", func(f *Facts) { without(f, unix.CAP_BPF); f.Capabilities |= 1 << unix.CAP_SYS_ADMIN }, "CAP_BPF", OK, "present", "", true},
		{"no CAP_SYS_PTRACE", func(f *Facts) { without(f, unix.CAP_SYS_PTRACE); f.Others = unix.EACCES }, "CAP_SYS_PTRACE", Limited, "other users' processes", "cap_sys_ptrace", true},
		{"no CAP_SYS_PTRACE, newer kernel", func(f *Facts) { without(f, unix.CAP_SYS_PTRACE) }, "CAP_SYS_PTRACE", Limited, "in containers", "cap_sys_ptrace", true},
		{"no CAP_SYSLOG, hidden", func(f *Facts) { without(f, unix.CAP_SYSLOG); f.KernelSymbols = false }, "CAP_SYSLOG", Limited, "kernel functions have no names", "cap_syslog", true},
		{"no CAP_SYSLOG, shown", func(f *Facts) { without(f, unix.CAP_SYSLOG) }, "CAP_SYSLOG", OK, "not needed", "", true},
		{"no CAP_CHECKPOINT_RESTORE", func(f *Facts) { without(f, unix.CAP_CHECKPOINT_RESTORE) }, "CAP_CHECKPOINT_RESTORE", Limited, "deleted or replaced", "cap_checkpoint_restore", true},
		{"no CAP_DAC_READ_SEARCH", func(f *Facts) { without(f, unix.CAP_DAC_READ_SEARCH) }, "CAP_DAC_READ_SEARCH", Limited, "may not read", "cap_dac_read_search", true},
		{"CAP_DAC_OVERRIDE will do", func(f *Facts) {
			without(f, unix.CAP_DAC_READ_SEARCH)
			f.Capabilities |= 1 << unix.CAP_DAC_OVERRIDE
		}, "CAP_DAC_READ_SEARCH", OK, "present", "", true},
		{"nosuid", func(f *Facts) { without(f, unix.CAP_SYS_PTRACE); f.NoFileCaps = "/opt is mounted nosuid" }, "CAP_SYS_PTRACE", Limited, "setcap would not help", "sudo /opt/atys doctor", true},
		{"user namespace", func(f *Facts) { f.UserNS = true; f.Probes[0].Err = denied }, "user namespace", Missing, "do not count", "on the host", false},
		{"seccomp", func(f *Facts) { f.Seccomp = true; f.Probes[0].Err = denied }, "maps", Missing, "not permitted", "seccomp=unconfined", false},
		{"events are root's", func(f *Facts) { f.Settings[paranoid] = 3; f.Probes[1].Err = denied }, paranoid, Missing, "CAP_SYS_ADMIN", "sudo sysctl kernel.perf_event_paranoid=2", false},
		{"what mends it", func(f *Facts) { f.Settings[paranoid] = 3; f.Probes[1].Err = denied }, "programs", Missing, "not permitted", "sudo sysctl kernel.perf_event_paranoid=2", false},
		{"events are root's, and we are", func(f *Facts) { f.Settings[paranoid] = 3; f.Capabilities |= 1 << unix.CAP_SYS_ADMIN }, paranoid, OK, "does not bind", "", true},
		{"3 means nothing", func(f *Facts) { f.Settings[paranoid] = 3 }, paranoid, OK, "does not know", "", true},
		{"dump cannot", func(f *Facts) { f.Sleepers = errors.New("unknown func bpf_copy_from_user_task") }, "sleeping threads can be read", Limited, "atys dump does not work", "5.18", true},
		{"another tree", func(f *Facts) { f.Tree = errors.New("another layout") }, "new processes' code is found", Limited, "end early", "report", true},
		{"throttled", func(f *Facts) { f.Settings[maxSampleRate] = 8000 }, "sampling rate", Limited, "above 8000", "sudo sysctl kernel.perf_event_max_sample_rate=20000", true},
		{"little time", func(f *Facts) { f.Settings[maxCPUPercent] = 1 }, "time for samples", Limited, "lowers", "=25", true},
		{"unlimited time", func(f *Facts) { f.Settings[maxCPUPercent] = 0 }, "time for samples", OK, "not limited", "", true},
		{"no room for rings", func(f *Facts) { f.Settings[mlockKB] = 64; f.Memlock = 64 << 10 }, "locked memory", Missing, "cannot follow", "perf_event_mlock_kb=516", true},
		{"rings fit the limit", func(f *Facts) { f.Settings[mlockKB] = 256 }, "locked memory", Limited, "not many at a time", "=1032", true},
		{"no PMU", func(f *Facts) { f.Counters = "no" }, "hardware counters", Limited, "cpu-clock does", "virtual PMU", true},
		{"imprecise PMU", func(f *Facts) { f.Counters = "yes" }, "hardware counters", Limited, "instructions late", "", true},
		{"no tracefs", func(f *Facts) { f.Tracepoints = fs.ErrNotExist }, "tracepoints", Limited, "not mounted", "mount -t tracefs", true},
		{"tracefs is root's", func(f *Facts) { f.Tracepoints = fs.ErrPermission; without(f, unix.CAP_DAC_READ_SEARCH) }, "tracepoints", Limited, "cannot be read", "cap_dac_read_search", true},
		{"no cgroup2", func(f *Facts) { f.Cgroup2 = "" }, "cgroups", Limited, "-G does not work", "mount -t cgroup2", true},
		{"perf_event in v1", func(f *Facts) { f.CgroupEvent = unix.EBADF }, "cgroups", Limited, "-G does not work", "cgroup_no_v1=perf_event", true},
		{"shallow kernel stacks", func(f *Facts) { f.Settings[maxStack] = 16 }, "kernel stacks", Limited, "cut off", "perf_event_max_stack=127", true},
		{"kptr_restrict 2", func(f *Facts) { f.KernelSymbols = false; f.Settings[kptrRestrict] = 2 }, "kernel symbols", Limited, "from everybody", "kptr_restrict=1", true},
		{"kptr_restrict 1", func(f *Facts) { f.KernelSymbols = false; f.Settings[kptrRestrict] = 1 }, "kernel symbols", Limited, "hidden", "cap_syslog", true},
		{"kptr_restrict 0", func(f *Facts) { f.KernelSymbols = false }, "kernel symbols", Limited, "perf_event_paranoid is 2", "perf_event_paranoid=1", true},
		{"no map_files right", func(f *Facts) { f.MapFiles = unix.EPERM; without(f, unix.CAP_CHECKPOINT_RESTORE) }, "mapped files", Limited, "deleted or replaced", "cap_checkpoint_restore", true},
		{"no map_files", func(f *Facts) { f.MapFiles = fs.ErrNotExist }, "mapped files", Limited, "no /proc/PID/map_files", "CONFIG_CHECKPOINT_RESTORE", true},
		{"no debuginfod", func(f *Facts) { f.Debuginfod = "" }, "debuginfod", OK, "not configured", "DEBUGINFOD_URLS", true},
		{"nothing was tried", func(f *Facts) { f.Probes = nil }, "kernel", OK, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.change(&f)
			r := Evaluate(f)
			if r.Works != c.works {
				t.Errorf("works: %v, want %v", r.Works, c.works)
			}
			got := find(t, r, c.check)
			if got.State != c.state || !strings.Contains(got.Found+" "+got.Cost, c.found) || !strings.Contains(got.Mend, c.mend) {
				t.Errorf("%+v, want %s with %q, mended by %q", got, c.state, c.found, c.mend)
			}
			complete(t, r)
		})
	}
}

func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, r)
	return Check{}
}

// complete fails a check that says something is wrong and not what it costs.
func complete(t *testing.T, r Report) {
	t.Helper()
	for _, c := range r.Checks {
		if c.Group == "" || c.Name == "" || c.Found == "" {
			t.Errorf("incomplete: %+v", c)
		}
		if c.State == Limited && c.Cost == "" {
			t.Errorf("says not what it costs: %+v", c)
		}
	}
}

func TestEvaluateProcess(t *testing.T) {
	plain := func() *Process {
		return &Process{PID: 7, Name: "server", Threads: 3, Files: []File{
			{Path: "/usr/bin/server", Rows: 10, Symbols: SymbolsFull}, {Path: "/usr/lib/libc.so.6", Rows: 99, Symbols: SymbolsDebug}}}
	}
	runs := func(runtimes ...lang.Runtime) func(*Process, *Facts) {
		return func(p *Process, _ *Facts) {
			for _, r := range runtimes {
				r.Walked, r.Why = lang.Support(r)
				p.Runtimes = append(p.Runtimes, r)
			}
		}
	}
	for _, c := range []struct {
		name        string
		change      func(*Process, *Facts)
		check       string
		state       State
		found, mend string
		works       bool
	}{
		{"plain", func(*Process, *Facts) {}, "readable", OK, "2 files", "", true},
		{"gone", func(p *Process, _ *Facts) { p.Err = "process 7 does not exist (any more)" }, "readable", Missing, "does not exist", "", false},
		{"denied", func(p *Process, f *Facts) {
			p.Err, p.Denied = "permission denied", true
			without(f, unix.CAP_SYS_PTRACE)
		},
			"readable", Missing, "denied", "cap_sys_ptrace", false},
		{"unreadable file", func(p *Process, f *Facts) { p.Files[0].Err = "denied"; without(f, unix.CAP_DAC_READ_SEARCH) },
			"files", Limited, "server", "cap_dac_read_search", true},
		{"deleted file", func(p *Process, f *Facts) {
			p.Files[0].Err, p.Files[0].Gone = "gone", true
			without(f, unix.CAP_CHECKPOINT_RESTORE)
		}, "files", Limited, "server", "cap_checkpoint_restore", true},
		{"no unwind information", func(p *Process, _ *Facts) { p.Files[0].Rows = 0 }, "unwind information", Limited, "none in server", "asynchronous-unwind-tables", true},
		{"keeps frame pointers", func(p *Process, _ *Facts) { p.Files[0].Rows, p.Files[0].Keeps = 0, true }, "unwind information", OK, "every", "", true},
		{"stripped", func(p *Process, _ *Facts) { p.Files[0].Symbols = SymbolsExported }, "symbols", Limited, "stripped: server", "DEBUGINFOD_URLS", true},
		{"Python", runs(lang.Runtime{Kind: lang.Python, Vendor: "CPython", Version: "3.11.7", Path: "/lib/libpython3.11.so.1.0"}),
			"languages", OK, "python 3.11.7 of CPython in libpython3.11.so.1.0: its frames are walked in the kernel", "", true},
		{"Python of the future", runs(lang.Runtime{Kind: lang.Python, Vendor: "CPython", Version: "3.15.0", Path: "/bin/python3.15"}),
			"languages", Limited, "not walked Python 3.15.0 is not supported (3.6 to 3.14 is)", "--kernel py-spy -p 7", true},
		{"PyPy", runs(lang.Runtime{Kind: lang.Python, Vendor: "PyPy", Version: "3.9", Path: "/bin/pypy"}), "languages", Limited, "pypy 3.9 in pypy: its frames are not walked", "", true},
		{"untested Java", runs(lang.Runtime{Kind: lang.HotSpot, Vendor: "Debian", Version: "20.0.1", Path: "/jvm/libjvm.so"}),
			"languages", Limited, "java 20.0.1 (Debian) in libjvm.so: its frames are walked in the kernel Java 20.0.1 is walked by what it tells of itself, but untested", "", true},
		{"Java of the future", runs(lang.Runtime{Kind: lang.HotSpot, Version: "26", Path: "/jvm/libjvm.so"}), "languages", Limited, "not supported (8 to 25 is)", "--kernel async-profiler --allow-attach -p 7", true},
		{".NET", runs(lang.Runtime{Kind: lang.DotNet, Vendor: ".NET", Version: "3.1.23", Path: "/libcoreclr.so"}), "languages", Limited, "walked in the kernel", "--allow-attach -p 7", true},
		{"LuaJIT", runs(lang.Runtime{Kind: lang.LuaJIT, Vendor: "LuaJIT", Version: "2.1.0", Path: "/bin/luajit"}), "languages", Limited, "not walked LuaJIT is not supported", "", true},
		{"ZTS", runs(lang.Runtime{Kind: lang.PHP, Vendor: "PHP", Version: "8.2.1", Feature: "ZTS", Path: "/bin/php"}), "languages", Limited, "(ZTS) is not supported", "NTS", true},
		{"Perl without threads", runs(lang.Runtime{Kind: lang.Perl, Vendor: "Perl", Version: "5.36.0", Path: "/bin/perl"}), "languages", Limited, "(ithreads) is not supported", "usethreads", true},
		{"stripped", runs(lang.Runtime{Kind: lang.Node, Vendor: "Node.js", Version: "24.1.0", Lacks: "its file is stripped", Path: "/bin/node"}), "languages", Limited, "is stripped", "not stripped", true},
		{"a runtime that cannot be read", func(p *Process, f *Facts) {
			p.Files[0].Err = "denied"
			runs(lang.Runtime{Kind: lang.HotSpot, Path: p.Files[0].Path, Lacks: "all"})(p, f)
		}, "languages", Limited, "not walked", "", true},
		{"runtimes unknown", func(p *Process, _ *Facts) { p.Unknown = "denied" }, "languages", Limited, "not known: denied", "", true},
		{"Go", runs(lang.Runtime{Kind: lang.Go, Version: "1.26.0"}), "languages", OK, "go 1.26.0", "", true},
		{"code of Java", func(p *Process, f *Facts) {
			p.Made = 1 << 20
			runs(lang.Runtime{Kind: lang.HotSpot, Version: "17.0.1", Path: "/libjvm.so"})(p, f)
		}, "code made at run time", OK, "1024 kB, walked as that of java 17.0.1", "", true},
		{"code of Node that is refused", func(p *Process, f *Facts) {
			p.Made = 1 << 20
			runs(lang.Runtime{Kind: lang.Node, Version: "16.0.0", Path: "/bin/node"})(p, f)
		}, "code made at run time", Limited, "without a perf map or jitdump it has no names; stacks may be cut there", "--perf-basic-prof", true},
		{"code beside that of Java", func(p *Process, f *Facts) {
			p.Made, p.Names = 1<<20, "perf map"
			runs(lang.Runtime{Kind: lang.HotSpot, Version: "17.0.1", Path: "/libjvm.so"}, lang.Runtime{Kind: lang.LuaJIT, Path: "/libluajit.so"})(p, f)
		}, "code made at run time", Limited, "named by the perf map of the process stacks may be cut there, and are marked then", "", true},
		{"code of Python's libffi", func(p *Process, f *Facts) {
			p.Made = 4096
			runs(lang.Runtime{Kind: lang.Python, Version: "3.11.7", Path: "/bin/python3"})(p, f)
		}, "code made at run time", Limited, "4 kB, without a perf map", "map for perf", true},
		{"another's map", func(p *Process, _ *Facts) { p.Made, p.Wrong = 4096, "it belongs to another user" },
			"code made at run time", Limited, "not read: it belongs to another user", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.Process = plain()
			c.change(f.Process, &f)
			r := Evaluate(f)
			if r.Works != c.works {
				t.Errorf("works: %v, want %v", r.Works, c.works)
			}
			got := find(t, r, c.check)
			if got.State != c.state || !strings.Contains(got.Found+" "+got.Cost, c.found) || !strings.Contains(got.Mend, c.mend) {
				t.Errorf("%+v, want %s with %q, mended by %q", got, c.state, c.found, c.mend)
			}
			complete(t, r)
		})
	}
}

func TestReadings(t *testing.T) {
	for _, c := range []struct {
		release      string
		major, minor int
		ok           bool
	}{{"6.1.0-18-amd64", 6, 1, true}, {"6.18.44", 6, 18, true}, {"5.4", 5, 4, true}, {"6.1-rc1", 6, 1, true}, {"x.y", 0, 0, false}, {"", 0, 0, false}} {
		major, minor, ok := version(c.release)
		if ok != c.ok || ok && (major != c.major || minor != c.minor) {
			t.Errorf("version(%q): %d %d %v", c.release, major, minor, ok)
		}
	}
	if got := chosen("none [integrity] confidentiality"); got != "integrity" {
		t.Errorf("chosen lockdown %q", got)
	}
	mounts := []string{"22 1 0:5 / /proc rw - proc proc rw", "34 25 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw"}
	if got := cgroup2Mount(mounts); got != "/sys/fs/cgroup/unified" {
		t.Errorf("cgroup2 at %q", got)
	}
	if initialNamespace("         0     100000      65536") || !initialNamespace("         0          0 4294967295") {
		t.Error("user namespaces are confused")
	}
	if got := quote("/a b/it's"); got != `'/a b/it'\''s'` {
		t.Errorf("quote: %s", got)
	}
}

// TestGather looks at this machine and this very process: what it finds must
// agree with what the test itself can do.
func TestGather(t *testing.T) {
	f := Gather(os.Getpid())
	r := Evaluate(f)
	complete(t, r)
	if f.Process == nil || f.Process.Err != "" || len(f.Process.Files) == 0 {
		t.Fatalf("this process: %+v", f.Process)
	}
	if f.Process.Files[0].Symbols != SymbolsGo || f.Process.Files[0].Rows == 0 {
		t.Errorf("the test binary: %+v", f.Process.Files[0])
	}
	if len(f.Process.Runtimes) != 1 || f.Process.Runtimes[0].Kind != lang.Go {
		t.Errorf("what runs in it: %+v", f.Process.Runtimes)
	}
	if os.Geteuid() == 0 && !f.UserNS && !r.Works {
		t.Errorf("root cannot record: %+v", f.Probes)
	}
}

// TestGatherMade makes room for code as compilers do, in memory and in a file
// without a name, and writes a map of it.
func TestGatherMade(t *testing.T) {
	before := gatherProcess(proc.FS{}, os.Getpid())
	fd, err := unix.MemfdCreate("made", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const room = 1 << 16
	if err := unix.Ftruncate(fd, room); err != nil {
		t.Fatal(err)
	}
	for _, in := range []struct{ fd, flags int }{{-1, unix.MAP_PRIVATE | unix.MAP_ANON}, {fd, unix.MAP_SHARED}} {
		memory, err := unix.Mmap(in.fd, 0, room, unix.PROT_READ|unix.PROT_EXEC, in.flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(memory) })
	}
	list := symbol.PerfMapPath("/proc", os.Getpid())
	if err := os.WriteFile(list, []byte("1000 10 made\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(list)
	after := gatherProcess(proc.FS{}, os.Getpid())
	if got := after.Made - before.Made; got != 2*room || len(after.Files) != len(before.Files) {
		t.Errorf("%d bytes of code made, want %d; %+v", got, 2*room, after.Files)
	}
	if before.Names != "" || after.Names != "perf map" {
		t.Errorf("named by %q, then by %q", before.Names, after.Names)
	}
}
