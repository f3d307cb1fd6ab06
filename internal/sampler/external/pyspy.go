package external

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
)

// pySpy reads the interpreter's memory from outside, once a sample. It is run
// with --nonblocking: its default is to stop all of the process while it
// reads, which was measured to cost the process 8% at 1,000 Hz and two thirds
// of its speed at 5,000 Hz. Not stopping it means that a stack that changes
// under the reader may be read half old, half new; those that py-spy cannot
// make sense of it counts as errors, which we count as losses.
type pySpy struct{ tool }

func newPySpy(o Options) (*pySpy, error) {
	program, err := findTool(PySpy, "py-spy", o)
	if err != nil {
		return nil, err
	}
	if len(o.PIDs) > 1 {
		return nil, errors.Join(fmt.Errorf("py-spy records one process and its children, not %d at once: give one -p, or use --kernel bpf", len(o.PIDs)), program.release())
	}
	return &pySpy{program}, nil
}

func (p *pySpy) design() profile.Design { return profile.DesignRandomised }

func (p *pySpy) start(ctx context.Context, frequency float64) (run, error) {
	file, err := os.CreateTemp(p.folder, "*.raw")
	if err != nil {
		return nil, err
	}
	file.Close()
	args := []string{"record", "-p", strconv.Itoa(p.options.PIDs[0]), "-r", strconv.FormatFloat(frequency, 'f', 0, 64),
		"-f", "raw", "--full-filenames", "-t", "--nonblocking", "-o", filepath.Base(file.Name())}
	if !p.options.Apart {
		args = append(args, "-s") // children too
	}
	cmd := exec.Command(p.path, args...)
	cmd.Dir = p.folder // no name of ours is part of what it prints
	c, err := startCommand(ctx, cmd)
	if err != nil {
		return nil, err
	}
	r := &pySpyRun{command: c, pySpy: p, file: file.Name(), period: period(frequency)}
	if !c.awaits("Sampling process", startTimeout) {
		err := c.failure()
		r.abandon()
		if err == nil {
			err = fmt.Errorf("py-spy ended before it took a sample%s", c.said.last())
		}
		return nil, p.explain(err)
	}
	return r, nil
}

// explain adds the way out to a failure of py-spy.
func (p *pySpy) explain(err error) error {
	if err == nil {
		return nil
	}
	pid := p.options.PIDs[0]
	switch text := err.Error(); {
	case strings.Contains(text, "ermission"):
		return fmt.Errorf("%w (%s)", err, proc.AsRoot(", or with CAP_SYS_PTRACE", "CAP_SYS_PTRACE"))
	case strings.Contains(text, "find python version"), strings.Contains(text, "No python processes found"):
		return fmt.Errorf("process %d is no Python that py-spy knows: use --kernel perf or bpf: %w", pid, err)
	}
	return err
}

type pySpyRun struct {
	*command
	pySpy  *pySpy
	file   string
	period int64
}

func (r *pySpyRun) begin() error { return nil } // it has begun when it said so

func (r *pySpyRun) abandon() {
	r.kill()
	os.Remove(r.file)
}

// pySpySummary is its last word; pySpyLate it says now and then.
var (
	pySpySummary = regexp.MustCompile(`Samples: (\d+) Errors: (\d+)`)
	pySpyLate    = regexp.MustCompile(`py-spy> ([0-9.]+)(m?s) behind in sampling`)
)

func (r *pySpyRun) collect() (*profile.Window, error) {
	defer os.Remove(r.file)
	if err := r.finish(stopTimeout); err != nil {
		return nil, r.pySpy.explain(err)
	}
	text := r.said.String()
	summary := pySpySummary.FindStringSubmatch(text)
	if summary == nil {
		return nil, fmt.Errorf("py-spy did not write its samples%s", r.said.last())
	}
	file, err := os.Open(r.file)
	if err != nil {
		return nil, fmt.Errorf("read py-spy's samples: %w", err)
	}
	defer file.Close()
	o := textOptions{period: r.period, threads: r.pySpy.options.Threads, threadID: hostThreads(r.pySpy.options.FS)}
	if r.pySpy.options.Apart { // it does not say whose threads they are
		o.process = r.pySpy.options.PIDs[0]
	}
	w, err := readPySpy(&bounded{from: file, left: maxOutput}, o)
	if err != nil {
		return nil, fmt.Errorf("read py-spy's samples: %w", err)
	}
	if taken, _ := strconv.ParseInt(summary[1], 10, 64); w.N() > 0 != (taken > 0) {
		return nil, errors.New("read py-spy's samples: they are not those it says it wrote")
	}
	if failed, _ := strconv.ParseInt(summary[2], 10, 64); failed > 0 {
		w.AddLoss(profile.Loss{Reason: profile.LossDropped, Detail: "the process changed while py-spy read it", N: failed, Value: failed * r.period})
	}
	if late := pySpyLate.FindAllStringSubmatch(text, -1); late != nil {
		last := late[len(late)-1]
		by := " up to " + last[1] + last[2]
		if r.pySpy.options.Apart {
			by = ""
		}
		w.Comments = append(w.Comments, fmt.Sprintf("py-spy was%s behind: it cannot keep this rate here", by))
	}
	return w, nil
}
