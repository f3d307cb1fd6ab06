package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// userTick is the unit of times in /proc: USER_HZ is 100 on every Linux on x86.
const userTick = 10 * time.Millisecond

// flagKernelThread is PF_KTHREAD of linux/sched.h.
const flagKernelThread = 0x00200000

// Stat is a stat file: of a process, or of one of its threads.
type Stat struct {
	PID    int
	Comm   string
	State  byte // R, S, D, Z, T, t, X, I
	PPID   int
	Flags  uint64        // PF_* of linux/sched.h
	User   time.Duration // in steps of 10 ms; SchedStat is exact
	System time.Duration
	// Children is what processes that it started and waited for had used, theirs
	// included.
	ChildrenUser, ChildrenSystem time.Duration

	Threads int
	Started time.Duration // since boot; with PID it names the process for good
	CPU     int           // that it last ran on
	// Stack is where the stack of the program began, at a random place for each exec; 0
	// where that is not ours to know, or there is no program any more.
	Stack uint64
}

// KernelThread reports whether it is a thread of the kernel's own.
func (s *Stat) KernelThread() bool { return s.Flags&flagKernelThread != 0 }

// Zombie reports whether it has exited. A process whose first thread has
// exited while others run still lives.
func (s *Stat) Zombie() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// Stat reads the stat file of a process.
func (f FS) Stat(pid int) (s Stat, err error) {
	return readOf(f.path(pid, "stat"), pid, ParseStat)
}

// ParseStat parses a stat file. The name of the program comes in parentheses
// and may hold any byte, parentheses and newlines too: the last one counts.
func ParseStat(data []byte) (s Stat, err error) {
	open, shut := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || shut < open {
		return s, fmt.Errorf("%w stat %q", errMalformed, clip(data))
	}
	fields := strings.Fields(string(data[shut+1:]))
	if len(fields) < 37 || len(fields[0]) != 1 {
		return s, fmt.Errorf("%w stat %q", errMalformed, clip(data))
	}
	s.Comm, s.State = string(data[open+1:shut]), fields[0][0]
	var bad error
	number := func(text string) int64 {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			bad = err
		}
		return v
	}
	ticks := func(text string) time.Duration {
		v := number(text)
		if v < 0 || v > int64(1<<63-1)/int64(userTick) {
			bad = strconv.ErrRange
			return 0
		}
		return time.Duration(v) * userTick
	}
	column := func(i int) string { return fields[i-3] } // as proc(5) counts them
	s.PID = int(number(string(bytes.TrimSpace(data[:open]))))
	s.PPID = int(number(column(4)))
	s.Flags = uint64(number(column(9)))
	s.User = ticks(column(14))
	s.System = ticks(column(15))
	s.ChildrenUser, s.ChildrenSystem = ticks(column(16)), ticks(column(17))
	s.Threads = int(number(column(20)))
	s.Started = ticks(column(22))
	s.Stack = uint64(number(column(28)))
	s.CPU = int(number(column(39)))
	if bad != nil {
		return Stat{}, fmt.Errorf("%w stat: %w", errMalformed, bad)
	}
	return s, nil
}

// Status is what a status file says beyond stat.
type Status struct {
	Name    string
	TGID    int // the process a thread belongs to
	PID     int
	PPID    int
	UID     int   // effective
	NSPID   []int // its id in each PID namespace it is in, outermost first
	Threads int
	RSS     int64 // bytes of memory in use; 0 for kernel threads
}

// Status reads the status file of a process.
func (f FS) Status(pid int) (s Status, err error) {
	return readOf(f.path(pid, "status"), pid, ParseStatus)
}

// ParseStatus parses a status file: "Key:\tvalue" per line. Keys that are
// missing, because the kernel is older, leave their zero.
func ParseStatus(data []byte) (s Status, err error) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		key, value, _ := bytes.Cut(line, []byte(":\t"))
		fields := func(i int) (v int) {
			columns := bytes.Fields(value)
			if i < len(columns) {
				v, err = strconv.Atoi(string(columns[i]))
			} else {
				err = strconv.ErrSyntax
			}
			return v
		}
		switch string(key) {
		case "Name":
			s.Name = unescapeName(string(value))
		case "Tgid":
			s.TGID = fields(0)
		case "Pid":
			s.PID = fields(0)
		case "PPid":
			s.PPID = fields(0)
		case "Uid":
			s.UID = fields(1)
		case "Threads":
			s.Threads = fields(0)
		case "VmRSS":
			s.RSS = int64(fields(0)) << 10
		case "NSpid":
			s.NSPID, err = parsePIDs(value)
		}
		if err != nil {
			return Status{}, fmt.Errorf("%w status line %q: %w", errMalformed, clip(line), err)
		}
	}
	if s.TGID == 0 || s.PID == 0 {
		return Status{}, fmt.Errorf("%w status: no Tgid or Pid", errMalformed)
	}
	return s, nil
}

// parsePIDs reads a list; PID namespaces nest 32 deep at most.
func parsePIDs(value []byte) (pids []int, err error) {
	for _, column := range bytes.Fields(value) {
		pid, err := strconv.Atoi(string(column))
		if err != nil || len(pids) == 33 {
			return nil, strconv.ErrSyntax
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// unescapeName undoes what the kernel does to names in status files only:
// a newline is written \n and a backslash \\.
func unescapeName(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n").Replace(s)
}

// SchedStat is what the scheduler counted for one thread, exactly.
type SchedStat struct {
	Run    time.Duration // on a CPU, user and system
	Wait   time.Duration // runnable, waiting for a CPU
	Slices uint64        // times it was put on a CPU
}

// ThreadTime returns the exact CPU time of one thread.
func (f FS) ThreadTime(pid, tid int) (s SchedStat, err error) {
	return readOf(f.path(pid, taskFile(tid, "schedstat")), tid, ParseSchedStat)
}

// ParseSchedStat parses a schedstat file: "run wait slices\n" in ns.
func ParseSchedStat(data []byte) (SchedStat, error) {
	sc := scanner{rest: bytes.TrimSuffix(data, []byte{'\n'})}
	run, wait, slices := sc.decimal(' '), sc.decimal(' '), sc.decimal(' ')
	if sc.bad || run > 1<<63-1 || wait > 1<<63-1 {
		return SchedStat{}, fmt.Errorf("%w schedstat %q", errMalformed, clip(data))
	}
	return SchedStat{Run: time.Duration(run), Wait: time.Duration(wait), Slices: slices}, nil
}
