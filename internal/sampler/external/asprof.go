package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// asyncProfiler has a JVM load a library, which samples from inside. It stays
// loaded when the recording ends, inactive: no JVM unloads an agent. Its file
// is removed again, and a later recording uses what is loaded.
type asyncProfiler struct {
	program  string
	options  Options
	pid      int
	process  string // its name
	folder   *folder
	library  string // as the JVM finds it
	threads  func(pid, tid int) int
	patience time.Duration // that an order may take
}

const (
	libraryName = "libasyncProfiler.so"
	outName     = "samples"
	logName     = "log"
	javaDepth   = 2048 // frames that async-profiler keeps of a stack
)

// An order to a JVM takes milliseconds, and is waited for this long: one that
// is stopped, or at its wit's end, would have us wait for ever.
const orderTimeout = 15 * time.Second

func newAsyncProfiler(o Options) (*asyncProfiler, error) {
	if !o.AllowAttach {
		return nil, fmt.Errorf("async-profiler loads a library into the process it records, which is %w without your consent: "+
			"give --allow-attach, or use --kernel bpf or perf, which stay outside", ErrConsent)
	}
	if len(o.PIDs) > 1 {
		return nil, fmt.Errorf("async-profiler records one process, not %d at once: give one -p, or use --kernel bpf", len(o.PIDs))
	}
	program, err := find(AsyncProfiler, "asprof")
	if err != nil {
		return nil, err
	}
	file, err := findLibrary(program)
	if err != nil {
		return nil, err
	}
	a := &asyncProfiler{program: program, options: o, pid: o.PIDs[0], threads: hostThreads(o.FS), patience: orderTimeout}
	loaded, err := attachable(o.FS, a.pid)
	if err != nil {
		return nil, err
	}
	a.process, _ = o.FS.ThreadComm(a.pid, a.pid)
	a.library = loaded
	if loaded != "" {
		file = "" // a second copy would stay loaded beside the first
	}
	if a.folder, err = makeFolder(o.FS, a.pid, file); err != nil {
		return nil, err
	}
	if loaded == "" {
		a.library = a.folder.path(libraryName)
	}
	return a, nil
}

// Bits of the signals a process handles.
const quitBit = 1 << 2 // SIGQUIT is 3

// attachable refuses processes that the order to attach would harm: it comes
// as SIGQUIT, which ends a program that does not handle it, and has a JVM that
// may not be attached to print its threads. It returns where the library is
// loaded already, if it is.
func attachable(fs proc.FS, pid int) (loaded string, err error) {
	names, err := mapped(fs, pid)
	if err != nil {
		return "", err
	}
	if names[hotspot] == "" {
		return "", fmt.Errorf("process %d is no Java: use --kernel perf or bpf", pid)
	}
	for name := range names {
		if strings.HasPrefix(name, "libj9vm") {
			return "", fmt.Errorf("process %d is OpenJ9, not HotSpot: use --kernel perf or bpf", pid)
		}
	}
	caught, err := caughtSignals(fs, pid)
	if err != nil {
		return "", err
	}
	if caught&quitBit == 0 {
		return "", fmt.Errorf("process %d does not take orders to attach: it is just starting, or runs with -Xrs", pid)
	}
	if forbids(fs, pid) {
		return "", fmt.Errorf("process %d runs with -XX:+DisableAttachMechanism: start it without, or use --kernel perf or bpf", pid)
	}
	return names[libraryName], nil
}

func caughtSignals(fs proc.FS, pid int) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(procRoot(fs), strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("read process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(data), "\nSigCgt:\t")
	line, _, _ := strings.Cut(rest, "\n")
	caught, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read process %d: no signals in its status", pid)
	}
	return caught, nil
}

// forbids looks where options of a JVM are given; one in a file is not seen.
func forbids(fs proc.FS, pid int) bool {
	const option = "-XX:+DisableAttachMechanism"
	args, _ := fs.Cmdline(pid)
	environ, _ := os.ReadFile(filepath.Join(procRoot(fs), strconv.Itoa(pid), "environ"))
	return strings.Contains(strings.Join(args, "\x00"), option) || strings.Contains(string(environ), option)
}

func (a *asyncProfiler) overlaps() bool         { return false } // there is one in a process
func (a *asyncProfiler) design() profile.Design { return profile.DesignPeriodic }
func (a *asyncProfiler) release() error         { return a.folder.remove() }

// files gives the arguments that name where the library writes: its messages
// too, which would else go to the JVM's output.
func (a *asyncProfiler) files() string {
	return ",threads,ann,collapsed,file=" + a.folder.path(outName) + ",log=" + a.folder.path(logName)
}

func (a *asyncProfiler) start(ctx context.Context, frequency float64) (run, error) {
	if _, err := attachable(a.options.FS, a.pid); err != nil { // it may have called exec
		return nil, err
	}
	interval := int64(math.Round(float64(time.Second) / frequency))
	limit := int64((a.options.Longest + time.Minute).Seconds())
	order := fmt.Sprintf("start,event=cpu,interval=%d,timeout=%d%s", interval, limit, a.files())
	err := a.order(ctx, order)
	if errors.Is(err, errKilled) {
		err = a.takeBack(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("start async-profiler in process %d: %w", a.pid, err)
	}
	r := &javaRun{asyncProfiler: a, ctx: ctx, period: interval, limit: time.Now().Add(time.Duration(limit) * time.Second), ended: make(chan struct{}), quit: make(chan struct{})}
	go r.watch()
	return r, nil
}

// takeBack follows an order to start that was not waited for any more: the JVM
// may have obeyed, or will once it comes to it, and would then sample until the
// limit, with its folder removed. It takes orders one after the other. Who
// cancelled ctx waits for this one too, as long as an order may take. It could
// end somebody else's recording only where that had not refused ours yet.
func (a *asyncProfiler) takeBack(ctx context.Context, unanswered error) error {
	if _, err := attachable(a.options.FS, a.pid); err != nil {
		return unanswered // it has ended, or called exec
	}
	// That it is not active, if the order never came to it, is as well.
	if err := a.order(context.WithoutCancel(ctx), "stop,log="+a.folder.path(logName)); errors.Is(err, errKilled) {
		return fmt.Errorf("%w; nor did it take the order to stop: it may sample for %v", unanswered, a.options.Longest+time.Minute)
	}
	return unanswered
}

// orderFailed are what asprof says when the JVM did not carry out an order.
var orderFailed = regexp.MustCompile(`(?m)^return code: ([1-9]\d*)$`)

// order has the JVM load the library, if it has not, and hands it arguments.
func (a *asyncProfiler) order(ctx context.Context, arguments string) error {
	_ = a.folder.discard(logName) // of an earlier order: it would explain the wrong one
	text, err := runCommand(ctx, a.patience, a.program, "load", strconv.Itoa(a.pid), a.library, "true", arguments)
	if err == nil && !orderFailed.MatchString(text) {
		return nil
	}
	a.sweep()
	log := a.log()
	switch {
	case strings.Contains(log, "already started"):
		return fmt.Errorf("async-profiler is at work in it already, for somebody else: stop that first (asprof stop %d)", a.pid)
	case errors.Is(err, errKilled): // what the JVM has done by then, its log does not tell
		return err
	case strings.Contains(log, "erf events unavailable"), strings.Contains(log, "perf_event"):
		return fmt.Errorf("%s (sysctl kernel.perf_event_paranoid=1, or --kernel bpf)", log)
	case log != "":
		return fmt.Errorf("async-profiler says: %s", log)
	case strings.Contains(text, "was not loaded"), strings.Contains(text, "cannot open shared object"):
		return fmt.Errorf("the JVM cannot load the library%s", lastOf(text))
	case err != nil:
		return err
	}
	return fmt.Errorf("the JVM refused%s", lastOf(text))
}

func lastOf(text string) string {
	var s said
	_, _ = s.Write([]byte(text)) // never fails
	return s.last()
}

// log reads and removes what the library said about an order.
func (a *asyncProfiler) log() (text string) {
	const most = 1000
	_ = a.folder.read(logName, func(r io.Reader) error { // there is none where the library never ran
		data, err := io.ReadAll(io.LimitReader(r, most))
		text = strings.TrimSpace(strings.ReplaceAll(string(data), "[ERROR] ", ""))
		return err
	})
	_ = a.folder.discard(logName) // else it goes with the folder
	return text
}

// sweep removes the file by which asprof knocks at a JVM, which stays behind
// where asprof was killed while it waited.
func (a *asyncProfiler) sweep() {
	status, err := a.options.FS.Status(a.pid)
	if err != nil || len(status.NSPID) == 0 {
		return
	}
	name := ".attach_pid" + strconv.Itoa(status.NSPID[len(status.NSPID)-1])
	_ = a.folder.as(func() error { return a.folder.root.Remove(path.Join("tmp", name)) })
	if cwd, err := os.OpenRoot(filepath.Join(procRoot(a.options.FS), strconv.Itoa(a.pid), "cwd")); err == nil {
		_ = a.folder.as(func() error { return cwd.Remove(name) })
		cwd.Close()
	}
}

// javaRun is async-profiler at work inside a JVM.
type javaRun struct {
	*asyncProfiler
	ctx    context.Context
	period int64
	limit  time.Time // when it stops by itself
	ended  chan struct{}
	quit   chan struct{}
	once   sync.Once
	halted error
}

// watch tells when the JVM has ended, or the profiler has by itself.
func (r *javaRun) watch() {
	defer close(r.ended)
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.quit:
			return
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := r.options.FS.Check(r.pid); err != nil || time.Now().After(r.limit) {
			return
		}
	}
}

func (r *javaRun) begin() error          { return nil }
func (r *javaRun) done() <-chan struct{} { return r.ended }

// halt has the library stop and write. Whoever cancelled ctx still wants the
// JVM left in peace: the order goes out all the same.
func (r *javaRun) halt() {
	r.once.Do(func() {
		close(r.quit)
		<-r.ended
		if _, err := r.options.FS.Check(r.pid); err != nil {
			return
		}
		ctx := context.WithoutCancel(r.ctx)
		if r.halted = r.order(ctx, "stop"+r.files()); r.halted != nil {
			// Where it cannot write, it does not stop either. That it is not
			// active any more is no failure, and of all others halted tells.
			_ = r.order(ctx, "stop,log="+r.folder.path(logName))
		}
	})
}

func (r *javaRun) collect() (w *profile.Window, err error) {
	defer r.folder.discard(outName)
	defer r.folder.discard(logName)
	if err := r.halted; err != nil {
		if _, gone := r.options.FS.Check(r.pid); gone == nil {
			return nil, fmt.Errorf("stop async-profiler in process %d: %w", r.pid, err)
		}
	}
	err = r.folder.read(outName, func(from io.Reader) error {
		whole := &ending{from: from}
		w, err = readCollapsed(whole, r.pid, r.process, textOptions{period: r.period, threads: r.options.Threads, threadID: r.threads})
		if err == nil && !whole.complete() {
			err = fmt.Errorf("the text ends in the middle of a line")
		}
		return err
	})
	switch {
	case err == nil && !r.folder.full():
		return w, nil
	case r.folder.full():
		return nil, fmt.Errorf("async-profiler's samples are not whole: no space left in %s of process %d", path.Dir(r.folder.path("")), r.pid)
	case os.IsNotExist(err):
		return nil, fmt.Errorf("process %d ended, and async-profiler in it wrote no samples: it was killed, or exited at once", r.pid)
	}
	return nil, fmt.Errorf("read async-profiler's samples: %w", err)
}

func (r *javaRun) abandon() { r.halt() }

// ending remembers the last byte read.
type ending struct {
	from io.Reader
	last byte
	some bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.from.Read(p)
	if n > 0 {
		e.last, e.some = p[n-1], true
	}
	return n, err
}

// complete tells whether the text ended with a line.
func (e *ending) complete() bool { return !e.some || e.last == '\n' }
