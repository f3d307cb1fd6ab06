package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Facts are what was found, without judgement.
type Facts struct {
	Release      string // of the kernel
	BTF          bool
	Lockdown     string // none, integrity, confidentiality; empty: this kernel has none
	Capabilities Capabilities
	UserNS       bool // not the first user namespace: capabilities there are not those asked for
	Seccomp      bool // a filter of system calls is on us
	Executable   string
	NoFileCaps   string // why capabilities of the file would not count; empty: they would

	Settings map[string]int // of the kernel, by sysctl name; those that could be read
	Memlock  uint64         // RLIMIT_MEMLOCK, bytes
	CPUs     int

	Counters    string // cycles: "precise", "yes", "no", or why they could not be tried
	Tracepoints error  // reading a tracepoint's number
	Cgroup2     string // where it is mounted
	CgroupEvent error  // opening an event on it

	Probes        []Probe
	Sleepers      error // loading the programs that read threads off their CPUs
	Tree          error // looking up mappings in the kernel's own tree
	KernelSymbols bool  // their addresses are shown to us
	MapFiles      error
	Others        error  // reading the mappings of the first process, which is root's
	Debuginfod    string // DEBUGINFOD_URLS

	Process *Process
}

// Probe is one step of what a recording does, tried.
type Probe struct {
	Name string
	Err  error
	Skip bool // not tried, because an earlier one failed
}

// Settings of the kernel that are looked at.
const (
	paranoid      = "kernel.perf_event_paranoid"
	kptrRestrict  = "kernel.kptr_restrict"
	maxSampleRate = "kernel.perf_event_max_sample_rate"
	maxCPUPercent = "kernel.perf_cpu_time_max_percent"
	mlockKB       = "kernel.perf_event_mlock_kb"
	maxStack      = "kernel.perf_event_max_stack"
	jitEnable     = "net.core.bpf_jit_enable"
)

// Gather looks at this machine, and at a process if pid is not 0.
func Gather(pid int) Facts {
	f := Facts{Settings: map[string]int{}, Debuginfod: os.Getenv("DEBUGINFOD_URLS")}
	f.gatherSelf()
	for _, name := range []string{paranoid, kptrRestrict, maxSampleRate, maxCPUPercent, mlockKB, maxStack, jitEnable} {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if value, convErr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && convErr == nil {
			f.Settings[name] = value
		}
	}
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	f.BTF = err == nil
	f.Lockdown = chosen(readLine("/sys/kernel/security/lockdown"))
	f.Counters = cycles()
	f.Tracepoints = readTracepoint()
	if f.Cgroup2 = cgroup2Mount(readLines("/proc/self/mountinfo")); f.Cgroup2 != "" {
		f.CgroupEvent = openOnCgroup(f.Cgroup2)
	}
	f.KernelSymbols = kernelAddressesShown()
	f.MapFiles = openMapFile()
	_, f.Others = proc.FS{}.Executable(1)
	f.Probes, f.Sleepers, f.Tree = tryRecording()
	if pid != 0 {
		f.Process = gatherProcess(proc.FS{}, pid)
	}
	return f
}

// gatherSelf finds what this process may do.
func (f *Facts) gatherSelf() {
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		f.Release = unix.ByteSliceToString(name.Release[:])
	}
	f.Capabilities = effective()
	f.UserNS = !initialNamespace(readLine("/proc/self/uid_map"))
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		f.Memlock = limit.Cur
	}
	if cpus, err := (proc.Machine{}).OnlineCPUs(); err == nil {
		f.CPUs = len(cpus)
	}
	noNewPrivileges := false
	for _, line := range readLines("/proc/self/status") {
		switch key, value, _ := strings.Cut(line, ":\t"); key {
		case "Seccomp":
			f.Seccomp = value == "2"
		case "NoNewPrivs":
			noNewPrivileges = value == "1"
		}
	}
	f.Executable, _ = os.Executable()
	var mount unix.Statfs_t
	switch {
	case noNewPrivileges:
		f.NoFileCaps = "processes here may not gain privileges (no_new_privs)"
	case f.Executable != "" && unix.Statfs(f.Executable, &mount) == nil && mount.Flags&unix.ST_NOSUID != 0:
		f.NoFileCaps = filepath.Dir(f.Executable) + " is mounted nosuid"
	}
}

func readLines(name string) []string {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func readLine(name string) string {
	if lines := readLines(name); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// chosen gives the bracketed one of a list such as "none [integrity] confidentiality".
func chosen(list string) string {
	_, rest, _ := strings.Cut(list, "[")
	choice, _, _ := strings.Cut(rest, "]")
	return choice
}

// initialNamespace tells whether a uid_map is the one every machine starts
// with: "0 0 4294967295".
func initialNamespace(line string) bool {
	fields := strings.Fields(line)
	return line == "" || len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}

// cgroup2Mount finds where cgroup version 2 is mounted.
func cgroup2Mount(mountinfo []string) string {
	for _, line := range mountinfo {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) >= 5 {
			return fields[4]
		}
	}
	return ""
}

// kernelAddressesShown tells whether kallsyms has other addresses than zero.
// The first symbols may lie at zero by right (per-CPU data).
func kernelAddressesShown() bool {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	in := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for in.Scan() {
		address, _, _ := bytes.Cut(in.Bytes(), []byte{' '})
		if len(bytes.Trim(address, "0")) > 0 {
			return true
		}
	}
	return false
}

// openMapFile opens the file behind a mapping of our own by its address.
func openMapFile() error {
	maps, err := proc.FS{}.Executable(os.Getpid())
	if err != nil {
		return err
	}
	for _, m := range maps {
		if m.HasFile() {
			f, err := os.Open(fmt.Sprintf("/proc/self/map_files/%x-%x", m.Start, m.End))
			if err == nil {
				f.Close()
			}
			return err
		}
	}
	return fs.ErrNotExist
}

// readTracepoint reads the number of one that every kernel has.
func readTracepoint() error {
	var first error
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		_, err := os.ReadFile(filepath.Join(root, "events/sched/sched_switch/id"))
		if err == nil {
			return nil
		}
		if first == nil || errors.Is(err, fs.ErrPermission) {
			first = err
		}
	}
	return first
}

// cycles tells whether this machine counts them, and as precisely as possible.
func cycles() string {
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: 1 << 20,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	open := func() error {
		fd, err := unix.PerfEventOpen(attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	switch err := open(); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return "no"
	case err != nil:
		return err.Error()
	}
	attr.Bits |= unix.PerfBitPreciseIPBit2
	if open() == nil {
		return "precise"
	}
	return "yes"
}

// openOnCgroup opens an event for a cgroup, which fails where another
// hierarchy (version 1) holds the perf_event controller.
func openOnCgroup(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitDisabled}
	fd, err := unix.PerfEventOpen(attr, int(d.Fd()), 0, -1, unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
