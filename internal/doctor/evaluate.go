package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Demands of a recording on the kernel's settings.
const (
	oldestMajor, oldestMinor = 6, 1
	maxFrequency             = 20_000
	kernelFrames             = 127
	ringKB                   = 260 // of each CPU's ring of process events, with its head
)

// kernel compares the release with the oldest one that is tested.
func (f Facts) kernel() Check {
	c := Check{Name: "kernel", State: OK, Found: f.Release}
	major, minor, ok := version(f.Release)
	if ok && (major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		c.State = Limited
		c.Cost = fmt.Sprintf("older than %d.%d, the oldest that is tested: what follows tells whether it works", oldestMajor, oldestMinor)
		c.Mend = "boot a newer kernel, on Debian 11: sudo apt-get install -t bullseye-backports linux-image-amd64"
	}
	return c
}

// version reads the first two numbers of a release such as 6.1.0-18-amd64.
func version(release string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(release, ".")
	second := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = rest[:i]
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}

func (f Facts) btf() Check {
	if f.BTF {
		return Check{Name: "BTF", State: OK, Found: "the kernel describes its types"}
	}
	return Check{Name: "BTF", State: Missing, Found: "no /sys/kernel/btf/vmlinux", Cost: "our programs cannot be fitted to this kernel: nothing can be recorded",
		Mend: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (the kernels of all larger distributions are)"}
}

func (f Facts) jit() Check {
	c := Check{Name: "BPF compiler", State: OK, Found: "on"}
	if value, known := f.Settings[jitEnable]; known && value == 0 {
		c.State, c.Found = Limited, jitEnable+" is 0"
		c.Cost = "BPF programs are interpreted: each sample takes several times as long"
		c.Mend = sysctl(jitEnable, 1)
	}
	return c
}

func (f Facts) lockdown() Check {
	c := Check{Name: "lockdown", State: OK, Found: "none"}
	switch f.Lockdown {
	case "", "none":
	case "confidentiality":
		c.State, c.Found = Missing, f.Lockdown
		c.Cost = "the kernel lets nobody look into other processes' stacks from BPF: nothing can be recorded"
		c.Mend = "boot with lockdown=integrity on the kernel's command line"
	default:
		c.Found = f.Lockdown + ", which does not hinder"
	}
	return c
}

func sysctl(name string, value int) string { return fmt.Sprintf("sudo sysctl %s=%d", name, value) }

// probes tells how far a recording of ourselves got.
func (f Facts) probes() []Check {
	var checks []Check
	for _, p := range f.Probes {
		c := Check{Name: p.Name, State: OK, Found: "yes, tried"}
		switch {
		case p.Skip:
			c.State, c.Found = Missing, "not tried: it needs the line above"
		case p.Err != nil:
			c.State, c.Found = Missing, p.Err.Error()
			c.Cost, c.Mend = "nothing can be recorded", f.mendProbe(p.Err)
		}
		checks = append(checks, c)
	}
	if f.probed() {
		checks = append(checks, f.tree(), f.sleepers())
	}
	return checks
}

func (f Facts) tree() Check {
	c := Check{Name: "new processes' code is found", State: OK, Found: "yes, in the kernel's own tree of mappings"}
	if f.Tree != nil {
		c.State, c.Found = Limited, f.Tree.Error()
		c.Cost = "stacks of a process's first milliseconds, and right after it loads a library, end early"
		c.Mend = "boot a kernel between 6.1 and 6.18, and report this one's version"
	}
	return c
}

func (f Facts) sleepers() Check {
	c := Check{Name: "sleeping threads can be read", State: OK, Found: "yes, tried"}
	if f.Sleepers != nil {
		c.State, c.Found, c.Cost = Limited, f.Sleepers.Error(), "atys dump does not work; record and top do"
		c.Mend = "boot a newer kernel: it takes one of 5.18 or later"
	}
	return c
}

func (f Facts) mendProbe(err error) string {
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	held := f.Capabilities.Has(unix.CAP_BPF) && f.Capabilities.Has(unix.CAP_PERFMON)
	switch {
	case denied && held && f.restricted() && f.Capabilities&(1<<unix.CAP_SYS_ADMIN) == 0:
		return sysctl(paranoid, 2)
	case denied && held && f.Seccomp:
		return "a filter of system calls is on this process: run it outside of the container, or with --security-opt seccomp=unconfined"
	case denied:
		return f.setcap()
	}
	return ""
}

// probed tells whether a recording works.
func (f Facts) probed() bool {
	for _, p := range f.Probes {
		if p.Err != nil || p.Skip {
			return false
		}
	}
	return len(f.Probes) > 0
}

func (f Facts) sampleRate() Check {
	value, known := f.Settings[maxSampleRate]
	c := Check{Name: "sampling rate", State: OK, Found: fmt.Sprintf("up to %d Hz", value)}
	if !known {
		c.Found = maxSampleRate + " cannot be read"
	} else if value < maxFrequency {
		c.State = Limited
		c.Cost = fmt.Sprintf("at -F above %d the kernel throttles: samples are missing", value)
		c.Mend = sysctl(maxSampleRate, maxFrequency)
	}
	return c
}

func (f Facts) cpuTime() Check {
	value, known := f.Settings[maxCPUPercent]
	c := Check{Name: "time for samples", State: OK, Found: fmt.Sprintf("%d%% of a CPU", value)}
	switch {
	case !known:
		c.Found = maxCPUPercent + " cannot be read"
	case value == 0 || value == 100:
		c.Found = "not limited"
	case value < 10:
		c.State = Limited
		c.Cost = "the kernel lowers its highest sampling rate as soon as samples take more than that"
		c.Mend = sysctl(maxCPUPercent, 25)
	}
	return c
}

// lockedMemory checks the room for the rings of process events. BPF maps are
// not charged to it since Linux 5.11.
func (f Facts) lockedMemory() Check {
	free, known := f.Settings[mlockKB]
	c := Check{Name: "locked memory", State: OK, Found: fmt.Sprintf("%d kB a CPU for rings", free)}
	if f.Capabilities.Has(unix.CAP_IPC_LOCK) || !known {
		c.Found = "not limited for us"
		return c
	}
	beyond := uint64(max(ringKB-free, 0)) * uint64(max(f.CPUs, 1))
	if beyond > f.Memlock>>10 {
		c.State = Missing
		c.Cost = fmt.Sprintf("a recording takes %d kB a CPU: it cannot follow processes", ringKB)
		c.Mend = sysctl(mlockKB, 516)
	} else if free < 2*ringKB-8 {
		c.State = Limited
		c.Cost = "one user's recordings share that: not many at a time"
		c.Mend = sysctl(mlockKB, 1032)
	}
	return c
}

func (f Facts) counters() Check {
	c := Check{Name: "hardware counters", State: Limited, Cost: "-e cycles, instructions, cache-misses and branch-misses do not work; cpu-clock does"}
	switch f.Counters {
	case "precise":
		return Check{Name: c.Name, State: OK, Found: "cycles, with the exact instruction"}
	case "yes":
		c.Found, c.Cost = "cycles, without the exact instruction", "samples of hardware events fall some instructions late"
	case "no":
		c.Found, c.Mend = "none", "on a virtual machine ask its host for a virtual PMU (libvirt: <pmu state='on'/>)"
	default:
		c.Found, c.Mend = f.Counters, f.mendProbe(unix.EACCES)
	}
	return c
}

func (f Facts) tracepoints() Check {
	c := Check{Name: "tracepoints", State: OK, Found: "tracefs can be read"}
	if f.Tracepoints == nil {
		return c
	}
	c.State, c.Cost = Limited, "-e subsystem:tracepoint does not work; other events do"
	if errors.Is(f.Tracepoints, fs.ErrPermission) {
		c.Found = "tracefs is root's, and cannot be read"
		c.Mend = f.setcap()
	} else {
		c.Found = "tracefs is not mounted"
		c.Mend = "sudo mount -t tracefs tracefs /sys/kernel/tracing"
	}
	return c
}

func (f Facts) cgroups() Check {
	c := Check{Name: "cgroups", State: OK, Found: "version 2 at " + f.Cgroup2}
	switch {
	case f.Cgroup2 == "":
		c.State, c.Found = Limited, "version 2 is not mounted"
		c.Cost = "-G does not work; -p with a cgroup's processes does"
		c.Mend = "sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
	case errors.Is(f.CgroupEvent, unix.EPERM) || errors.Is(f.CgroupEvent, unix.EACCES):
		c.State, c.Found, c.Cost, c.Mend = Limited, c.Found+", no event may be opened on it", "-G does not work", f.mendProbe(unix.EACCES)
	case f.CgroupEvent != nil:
		c.State, c.Found = Limited, fmt.Sprintf("%s, an event on it fails: %v", c.Found, f.CgroupEvent)
		c.Cost = "-G does not work; -p with a cgroup's processes does"
		c.Mend = "boot with cgroup_no_v1=perf_event on the kernel's command line"
	}
	return c
}

func (f Facts) kernelStacks() Check {
	value, known := f.Settings[maxStack]
	c := Check{Name: "kernel stacks", State: OK, Found: fmt.Sprintf("up to %d frames", value)}
	if !known {
		c.Found = maxStack + " cannot be read"
	} else if value < kernelFrames {
		c.State, c.Cost = Limited, "deeper stacks inside the kernel are cut off"
		c.Mend = sysctl(maxStack, kernelFrames)
	}
	return c
}

// kernelSymbols follows kallsyms_show_value of kernel/kallsyms.c.
func (f Facts) kernelSymbols() Check {
	c := Check{Name: "kernel symbols", State: OK, Found: "readable"}
	if f.KernelSymbols {
		return c
	}
	c.State, c.Found, c.Cost = Limited, "their addresses are hidden", "kernel functions have no names"
	switch f.Settings[kptrRestrict] {
	case 0:
		c.Found += " (" + paranoid + " is " + strconv.Itoa(f.Settings[paranoid]) + ")"
		c.Mend = sysctl(paranoid, 1)
	case 1:
		c.Mend = f.setcap()
	default:
		c.Found += " from everybody (" + kptrRestrict + " is 2)"
		c.Mend = sysctl(kptrRestrict, 1)
	}
	return c
}

func (f Facts) mapFiles() Check {
	c := Check{Name: "mapped files", State: OK, Found: "/proc/PID/map_files opens the very file"}
	if f.MapFiles == nil {
		return c
	}
	c.State = Limited
	c.Cost = "libraries are opened by their path: code of those deleted or replaced since has neither stacks nor names"
	if errors.Is(f.MapFiles, fs.ErrNotExist) {
		c.Found = "this kernel has no /proc/PID/map_files"
		c.Mend = "boot a kernel built with CONFIG_CHECKPOINT_RESTORE=y, or restart the processes after an upgrade"
	} else {
		c.Found = "/proc/PID/map_files may not be followed"
		c.Mend = f.setcap()
	}
	return c
}

func (f Facts) debuginfod() Check {
	if f.Debuginfod != "" {
		return Check{Name: "debuginfod", State: OK, Found: f.Debuginfod}
	}
	return Check{Name: "debuginfod", State: OK, Found: "not configured: names and lines come from installed files alone",
		Mend: "export DEBUGINFOD_URLS=https://debuginfod.elfutils.org"}
}
