package doctor

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities are a set, by number.
type Capabilities uint64

// Has tells whether the set holds a capability. CAP_SYS_ADMIN includes those
// that were split off it; CAP_SYSLOG only in part, and not in the part that
// shows kernel addresses.
func (c Capabilities) Has(number int) bool {
	if c&(1<<number) != 0 {
		return true
	}
	switch number {
	case unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE:
		return c&(1<<unix.CAP_SYS_ADMIN) != 0
	case unix.CAP_DAC_READ_SEARCH:
		return c&(1<<unix.CAP_DAC_OVERRIDE) != 0
	}
	return false
}

// effective is the set this process has now.
func effective() Capabilities {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0
	}
	return Capabilities(data[0].Effective) | Capabilities(data[1].Effective)<<32
}

// capability is one that atys makes use of.
type capability struct {
	number int
	name   string
	needed bool // no recording without it
	cost   string
	use    string // what it is good for
}

// wanted lists them all, the most needed first. Each cost is what a test in
// cmd/atys sees happen without it.
func wantedCapabilities() []capability {
	return []capability{
		{unix.CAP_BPF, "CAP_BPF", true,
			"no BPF map or program can be made: nothing can be recorded", "BPF maps and programs"},
		{unix.CAP_PERFMON, "CAP_PERFMON", true,
			"no program that looks at other processes can be loaded, and none of their events opened: nothing can be recorded",
			"events of other processes"},
		{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", false,
			"other users' processes cannot be read: with -p they are refused, with -a their stacks are one frame deep and without names",
			"mappings of other users' processes"},
		{unix.CAP_SYSLOG, "CAP_SYSLOG", false,
			"the kernel hides its addresses: kernel functions have no names", "names of kernel functions"},
		{unix.CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE", false,
			"libraries that were deleted or replaced while they are in use (after an upgrade, say), and programs of memory files, have neither stacks nor names",
			"deleted and replaced libraries"},
		{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false,
			"programs and libraries that you may not read have neither stacks nor names, nor have deleted ones of other users' processes; tracepoints cannot be found",
			"unreadable binaries, tracepoints"},
	}
}

// setcap is the command that gives the program all capabilities that it makes use
// of, by file or, where files' capabilities do not count, the whole of root's. It is
// the same for each that is missing: what it sets is all that the file then has.
func (f Facts) setcap() string {
	if f.NoFileCaps != "" || f.UserNS {
		return "sudo " + quote(f.executable()) + " doctor"
	}
	var names []string
	for _, c := range wantedCapabilities() {
		names = append(names, strings.ToLower(c.name))
	}
	return "sudo setcap " + strings.Join(names, ",") + "=ep " + quote(f.executable())
}

func (f Facts) executable() string {
	if f.Executable == "" {
		return "bin/atys"
	}
	return f.Executable
}

// quote makes a path one word of a shell command.
func quote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// capabilities gives a check for each.
func (f Facts) capabilities() []Check {
	var checks []Check
	if f.UserNS {
		checks = append(checks, Check{Name: "user namespace", State: Missing, Found: "inside one of its own, such as a rootless container's",
			Cost: "capabilities held here do not count for BPF and events of the machine",
			Mend: "run atys on the host, or in a container without a user namespace"})
	}
	for _, c := range wantedCapabilities() {
		check := Check{Name: c.name, State: OK, Found: "present: " + c.use}
		if !f.Capabilities.Has(c.number) {
			check.State, check.Found, check.Cost, check.Mend = Limited, "not held", c.cost, f.setcap()
			if f.NoFileCaps != "" {
				check.Found += "; setcap would not help: " + f.NoFileCaps
			}
			if c.needed {
				check.State = Missing
			}
			if c.number == unix.CAP_SYS_PTRACE && f.Others == nil { // newer kernels (6.18): CAP_PERFMON is enough for mappings
				check.Cost = "other users' programs and libraries in containers (another mount namespace) have neither stacks nor names"
			}
			if c.number == unix.CAP_SYSLOG && f.KernelSymbols {
				check = Check{Name: c.name, State: OK, Found: "not held, and not needed: this kernel shows its addresses without it"}
			}
		}
		checks = append(checks, check)
	}
	return checks
}

// restriction checks a setting of which only Debian's and Ubuntu's kernels know
// values above 2: then CAP_PERFMON is not enough for events (measured with
// Debian's 6.1, whose default is 3).
func (f Facts) restriction() Check {
	value, known := f.Settings[paranoid]
	c := Check{Name: paranoid, State: OK, Found: fmt.Sprintf("%d, which does not bind who has CAP_PERFMON", value)}
	switch {
	case !known:
		c.Found = "cannot be read"
	case !f.restricted():
	case f.Capabilities&(1<<unix.CAP_SYS_ADMIN) != 0:
		c.Found = fmt.Sprintf("%d, which does not bind who has CAP_SYS_ADMIN", value)
	case f.probed():
		c.Found = fmt.Sprintf("%d, which this kernel does not know", value)
	default:
		c.State, c.Found = Missing, fmt.Sprintf("%d: this kernel lets nobody without CAP_SYS_ADMIN open events", value)
		c.Cost, c.Mend = "nothing can be recorded without root", sysctl(paranoid, 2)
	}
	return c
}

func (f Facts) restricted() bool { return f.Settings[paranoid] > 2 }
