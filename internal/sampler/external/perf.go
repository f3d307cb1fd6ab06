package external

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/perfscript"
)

// perf records with `perf record` and reads with `perf script`.
type perf struct {
	tool

	followed []int // by the run that was started last
}

func newPerf(o Options) (*perf, error) {
	program, err := findTool(Perf, "perf", o)
	if err != nil {
		return nil, err
	}
	return &perf{tool: program}, nil
}

func (p *perf) design() profile.Design { return profile.DesignPeriodic }

// dwarfUpTo is the rate up to which perf copies 8 kB of stack with each sample
// and unwinds it afterwards: right for code without frame pointers, but 1.6 MB
// a second and CPU at this rate. Above, it follows frame pointers.
const dwarfUpTo = 199

// record gives the arguments of a recording.
func (p *perf) record(file string, frequency float64) []string {
	graph := "fp"
	if frequency <= dwarfUpTo {
		graph = "dwarf,8192"
	}
	var pids []string
	for _, pid := range p.followed {
		pids = append(pids, strconv.Itoa(pid))
	}
	return []string{"record", "-e", "cpu-clock", "-F", strconv.FormatFloat(frequency, 'f', 0, 64),
		"--call-graph", graph, "-p", strings.Join(pids, ","),
		"-N",                                          // leaves no copies of programs in ~/.debug
		"-D", "-1", "--control", "fd:3,4", "-o", file} // begins when told
}

// vanished is what perf says where a thread is gone before its event was opened.
var vanished = regexp.MustCompile("No such process|Ignored open failure")

// start tries again where a thread or a process is.
func (p *perf) start(ctx context.Context, frequency float64) (r run, err error) {
	for range 3 {
		r, err = p.open(ctx, frequency)
		if err == nil || len(alive(p.options.FS, p.followed)) == len(p.followed) && !vanished.MatchString(err.Error()) {
			break
		}
	}
	if err != nil {
		return nil, p.explain(err)
	}
	return r, nil
}

func (p *perf) open(ctx context.Context, frequency float64) (*perfRun, error) {
	if p.options.Apart {
		p.followed = alive(p.options.FS, p.options.PIDs)
	} else {
		p.followed = descendants(p.options.FS, p.options.PIDs)
	}
	if len(p.followed) == 0 {
		return nil, errors.New("perf: its processes have ended")
	}
	file, err := os.CreateTemp(p.folder, "*.data")
	if err != nil {
		return nil, err
	}
	file.Close()
	toldRead, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answer, answerWrite, err := os.Pipe()
	if err != nil {
		toldRead.Close()
		told.Close()
		return nil, err
	}
	cmd := exec.Command(p.path, p.record(file.Name(), frequency)...)
	cmd.ExtraFiles = []*os.File{toldRead, answerWrite}
	c, err := startCommand(ctx, cmd)
	toldRead.Close()
	answerWrite.Close()
	r := &perfRun{perf: p, ctx: ctx, command: c, file: file.Name(), told: told, answer: answer, period: period(frequency), pids: p.followed}
	if err != nil {
		r.clean()
		return nil, err
	}
	// It answers once its events stand: a second word to begin then costs it
	// nothing but a system call.
	if err := r.tell("disable"); err != nil {
		r.abandon()
		return nil, err
	}
	return r, nil
}

// explain adds the way out to a failure of perf.
func (p *perf) explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "perf_event_paranoid"), strings.Contains(text, "ermission"), strings.Contains(text, "not permitted"):
		return fmt.Errorf("%w (%s)", err, proc.AsRoot(", or with CAP_PERFMON", "CAP_PERFMON"))
	case strings.Contains(text, "unknown option"):
		return fmt.Errorf("%w (perf 5.10 or newer is needed)", err)
	}
	return err
}

type perfRun struct {
	*command
	perf   *perf
	ctx    context.Context
	file   string
	told   *os.File
	answer *os.File
	period int64
	pids   []int
}

// tell gives perf an order and waits until it is carried out.
func (r *perfRun) tell(order string) error {
	if _, err := r.told.WriteString(order + "\n"); err != nil {
		return errors.Join(r.finish(time.Second), err)
	}
	deadline := time.Now().Add(startTimeout)
	if err := r.answer.SetReadDeadline(deadline); err != nil {
		return err
	}
	line, err := bufio.NewReader(r.answer).ReadString('\n')
	if err == nil && strings.Contains(line, "ack") {
		return nil
	}
	if failed := r.finish(time.Second); failed != nil {
		return failed
	}
	return fmt.Errorf("perf did not %s its events: %v%s", order, err, r.said.last())
}

func (r *perfRun) begin() error { return r.perf.explain(r.tell("enable")) }

func (r *perfRun) abandon() {
	r.kill()
	r.clean()
}

func (r *perfRun) clean() {
	r.told.Close()
	r.answer.Close()
	os.Remove(r.file)
}

func (r *perfRun) collect() (*profile.Window, error) {
	defer r.clean()
	if err := r.finish(stopTimeout); err != nil {
		return nil, r.perf.explain(err)
	}
	return r.script()
}

// script has perf print what it recorded, and reads that.
func (r *perfRun) script() (*profile.Window, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(r.perf.path, "script", "-i", r.file, "--no-inline", "--show-lost-events",
		"-F", "comm,pid,tid,time,period,event,ip,sym,dso")
	cmd.Stdout = in
	c, err := startCommand(r.ctx, cmd)
	in.Close()
	if err != nil {
		return nil, err
	}
	text := bufio.NewReader(&bounded{from: out, left: maxOutput})
	_, empty := text.Peek(1)
	if errors.Is(empty, io.EOF) {
		if err := c.finish(stopTimeout); err != nil {
			return nil, fmt.Errorf("read perf's recording: %w", err)
		}
		return &profile.Window{Head: profile.Head{Types: cpuTypes(r.period)}}, nil
	}
	w, err := perfscript.Read(text)
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("read perf's recording: %w%s", err, c.said.last())
	}
	if err := c.finish(stopTimeout); err != nil {
		return nil, fmt.Errorf("read perf's recording: %w", err)
	}
	if w.TypeIndex("cpu") != 0 || len(w.Types) != 1 {
		return nil, fmt.Errorf("read perf's recording: it holds %v, not CPU time", w.Types)
	}
	if r.perf.options.Apart {
		w = only(w, r.pids)
	}
	if !r.perf.options.Threads {
		return withoutThreads(w)
	}
	return w, nil
}

// withoutThreads keeps processes apart only.
func withoutThreads(w *profile.Window) (*profile.Window, error) {
	for i := range w.Threads {
		t := &w.Threads[i]
		*t = profile.Thread{PID: t.PID, TID: t.PID, Process: t.Process, Name: t.Process}
	}
	return profile.Merge(w) // adds up the rows that are one now
}
