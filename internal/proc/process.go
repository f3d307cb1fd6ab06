package proc

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Check returns the stat of a process that has user code, and an *Error for
// one that has none: ErrNotFound, ErrKernelThread, ErrZombie.
func (f FS) Check(pid int) (Stat, error) {
	if pid <= 0 {
		return Stat{}, &Error{PID: pid, Err: ErrNotFound}
	}
	s, err := f.Stat(pid)
	switch {
	case err != nil:
		return s, err
	case s.KernelThread():
		return s, &Error{PID: pid, Comm: s.Comm, Err: ErrKernelThread}
	case s.Zombie():
		return s, &Error{PID: pid, Comm: s.Comm, PPID: s.PPID, Err: ErrZombie}
	}
	return s, nil
}

// survivor returns a thread of a process whose first thread has exited: what
// the kernel shows under the first thread's id is then gone, but stands under
// the others' too.
func (f FS) survivor(s Stat) (tid int, ok bool) {
	if s.State != 'Z' {
		return 0, false
	}
	tids, err := f.ThreadIDs(s.PID)
	if err != nil {
		return 0, false
	}
	for _, tid := range tids {
		if t, err := f.Stat(tid); err == nil && t.State != 'Z' && t.State != 'X' {
			return tid, true
		}
	}
	return 0, false
}

// PIDs returns every process there is, kernel threads and zombies included,
// in no order.
func (f FS) PIDs() ([]int, error) {
	pids, err := listIDs(cmp.Or(f.Root, "/proc"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return pids, nil
}

// Inode is that of the directory that shows a process. As long as it is the same
// so is the process, a zombie perhaps; another one says nothing.
func (f FS) Inode(pid int) (uint64, error) {
	var s unix.Stat_t
	_, err := retry(func() (int, error) { return 0, unix.Stat(f.path(pid, ""), &s) })
	if err != nil && gone(err) {
		err = &Error{PID: pid, Err: ErrNotFound}
	}
	return s.Ino, err
}

// ThreadIDs returns the threads of a process.
func (f FS) ThreadIDs(pid int) ([]int, error) {
	tids, err := listIDs(f.path(pid, "task"))
	if err != nil {
		if gone(err) {
			err = f.explain(pid, err)
		}
		return nil, fmt.Errorf("list threads: %w", err)
	}
	return tids, nil
}

// listIDs returns the entries of a directory that are numbers.
func listIDs(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	ids := make([]int, 0, len(names))
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil && id > 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Thread is one thread of a process.
type Thread struct {
	TID  int
	Comm string
	SchedStat
}

// Threads returns the threads of a process with their names and exact CPU
// times. Threads that end meanwhile are left out.
func (f FS) Threads(pid int) ([]Thread, error) {
	tids, err := f.ThreadIDs(pid)
	if err != nil {
		return nil, err
	}
	threads := make([]Thread, 0, len(tids))
	for _, tid := range tids {
		comm, err := f.ThreadComm(pid, tid)
		if err != nil {
			continue
		}
		times, err := f.ThreadTime(pid, tid)
		if err != nil {
			continue
		}
		threads = append(threads, Thread{TID: tid, Comm: comm, SchedStat: times})
	}
	return threads, nil
}

// ThreadComm returns the name of a thread.
func (f FS) ThreadComm(pid, tid int) (comm string, err error) {
	err = read(f.path(pid, taskFile(tid, "comm")), func(data []byte) error {
		comm = string(bytes.TrimSuffix(data, []byte{'\n'}))
		return nil
	})
	return comm, err
}

// taskFile names a file of a thread below the directory of its process.
func taskFile(tid int, file string) string { return "task/" + strconv.Itoa(tid) + "/" + file }

// maxCmdline bounds the command lines that are kept: an argument list may
// have megabytes.
const maxCmdline = 64 << 10

// Cmdline returns the arguments a process was started with, or what it has
// put in their place. A kernel thread and a zombie have none.
func (f FS) Cmdline(pid int) (args []string, err error) {
	err = f.readPID(pid, "cmdline", func(data []byte) error {
		args = ParseCmdline(data)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read command line: %w", err)
	}
	return args, nil
}

// ParseCmdline splits the bytes of a cmdline file: each argument ends in a
// NUL, the last one's may be missing.
func ParseCmdline(data []byte) []string {
	data = data[:min(len(data), maxCmdline)]
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Exe is the program a process runs.
type Exe struct {
	Path    string // in the mount namespace of the process
	Deleted bool   // another file, or none, is at that path now
}

// Exe returns the program a process runs.
func (f FS) Exe(pid int) (Exe, error) {
	path, err := os.Readlink(f.path(pid, "exe"))
	if err != nil {
		if gone(err) {
			err = f.explain(pid, err)
		}
		return Exe{}, fmt.Errorf("read program: %w", err)
	}
	path, deleted := strings.CutSuffix(path, " (deleted)")
	return Exe{Path: path, Deleted: deleted}, nil
}

// Namespace returns the number of a process's namespace of the given kind
// ("mnt", "pid", "net", ...): equal numbers, one namespace.
func (f FS) Namespace(pid int, kind string) (uint64, error) {
	link, err := os.Readlink(f.path(pid, "ns/"+kind))
	if err != nil {
		if gone(err) {
			err = f.explain(pid, err)
		}
		return 0, fmt.Errorf("read namespace: %w", err)
	}
	number, ok := strings.CutPrefix(link, kind+":[")
	if id, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); ok && err == nil {
		return id, nil
	}
	return 0, fmt.Errorf("%w namespace %q", errMalformed, link)
}

// Process is one that Find found.
type Process struct {
	PID     int
	Comm    string
	Cmdline []string
}

// Find returns the processes whose name or command line, joined by spaces,
// matches, without kernel threads, zombies and the caller itself. The
// caller's ancestors must match by name: the command lines of a shell or sudo
// hold the pattern only because they started the caller with it.
func (f FS) Find(re *regexp.Regexp) ([]Process, error) {
	return f.find(re, unix.Getpid())
}

func (f FS) find(re *regexp.Regexp, self int) ([]Process, error) {
	pids, err := f.PIDs()
	if err != nil {
		return nil, err
	}
	stats := make(map[int]Stat, len(pids))
	for _, pid := range pids {
		if s, err := f.Check(pid); err == nil { // else it ended meanwhile, or has no code
			stats[pid] = s
		}
	}
	ancestors := map[int]bool{}
	for pid := stats[self].PPID; pid > 0 && !ancestors[pid]; pid = stats[pid].PPID {
		ancestors[pid] = true
	}
	var found []Process
	for _, pid := range pids {
		s, ok := stats[pid]
		if !ok || pid == self {
			continue
		}
		args, err := f.Cmdline(pid)
		if err != nil {
			continue
		}
		if re.MatchString(s.Comm) || !ancestors[pid] && re.MatchString(strings.Join(args, " ")) {
			found = append(found, Process{PID: pid, Comm: s.Comm, Cmdline: args})
		}
	}
	return found, nil
}
