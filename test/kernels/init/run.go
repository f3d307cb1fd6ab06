package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"atys.dev/atys/test/kernels"
)

// grace is how long a background command may take to end after SIGTERM, and
// how long output may come from children a killed command left behind.
const grace = 10 * time.Second

// runner works through a script.
type runner struct {
	script  kernels.Script
	records *kernels.Recorder

	background map[string]*started
	ends       sync.WaitGroup // one per background command
}

// started is a background command; done is closed once it was recorded.
type started struct {
	process *os.Process
	done    chan struct{}
}

// runScript runs every command and records it. Its error is about the
// machine; commands may fail as they like.
func runScript(path string, line io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r := runner{records: kernels.NewRecorder(line), background: map[string]*started{}}
	if err := json.Unmarshal(text, &r.script); err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	for i := range r.script.Commands {
		r.run(i)
	}
	r.stopBackground()
	if err := r.records.Done(); err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	return nil
}

func (r *runner) run(i int) {
	command := r.script.Commands[i]
	args, err := r.expand(i)
	if err != nil {
		r.records.End(i, -1, 0, "not started: "+err.Error())
		return
	}
	timeout := r.script.Timeout
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if command.Name == "" {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = r.records.Output(i, 1), r.records.Output(i, 2)
	// A time-out must also end the children of the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		cancel()
		r.records.End(i, -1, 0, "not started: "+err.Error())
		return
	}
	finish := func() {
		defer cancel()
		err := cmd.Wait()
		exit, status := cmd.ProcessState.ExitCode(), cmd.ProcessState.String()
		switch {
		case ctx.Err() != nil && exit == -1:
			status = fmt.Sprintf("timed out after %v", timeout)
		case errors.Is(err, exec.ErrWaitDelay):
			status += ", and a child kept its output open"
		}
		r.records.End(i, exit, time.Since(begin), status)
	}
	if command.Name == "" {
		finish()
		return
	}
	s := &started{process: cmd.Process, done: make(chan struct{})}
	r.background[command.Name] = s
	r.ends.Go(func() {
		defer close(s.done)
		finish()
	})
}

// expand puts pids in the place of $name.
func (r *runner) expand(i int) ([]string, error) {
	args := slices.Clone(r.script.Commands[i].Args)
	for j, arg := range args {
		name := r.script.PIDOf(i, arg)
		if name == "" {
			continue
		}
		s := r.background[name]
		if s == nil || s.ended() {
			return nil, fmt.Errorf("background command %q is not running", name)
		}
		args[j] = strconv.Itoa(s.process.Pid)
	}
	return args, nil
}

func (s *started) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// stopBackground ends what still runs: the process gets the chance to write
// its results, its whole group does not get to stay.
func (r *runner) stopBackground() {
	deadline := time.After(grace)
	for _, s := range r.background {
		// It may have ended meanwhile; then there is nothing to signal.
		_ = s.process.Signal(syscall.SIGTERM)
	}
	for _, s := range r.background {
		select {
		case <-s.done:
		case <-deadline:
			deadline = time.After(0)
			_ = syscall.Kill(-s.process.Pid, syscall.SIGKILL)
		}
	}
	r.ends.Wait()
}
