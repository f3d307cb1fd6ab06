package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// child is a command started for a recording. It waits before its first
// instruction until the sampler is ready, so that nothing of it is missed.
type child struct {
	cmd    *exec.Cmd
	pid    int
	begun  bool
	exited chan error
}

// startStopped starts a command such that it stops right after exec.
func startStopped(args []string) (*child, error) {
	if len(args) == 0 {
		return nil, nil
	}
	c := &child{cmd: exec.Command(args[0], args[1:]...), exited: make(chan error, 1)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	started := make(chan error)
	go c.start(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %q: %w", args[0], err)
	}
	c.pid = c.cmd.Process.Pid
	return c, nil
}

// start runs on a thread of its own: only the tracer's thread may let go.
func (c *child) start(started chan<- error) {
	runtime.LockOSThread()
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	var status unix.WaitStatus
	for { // the stop at exec
		_, err := unix.Wait4(c.cmd.Process.Pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// Detach, but leave it stopped: from here on it is an ordinary stopped process.
	err := unix.Kill(c.cmd.Process.Pid, unix.SIGSTOP)
	if err == nil {
		err = unix.PtraceDetach(c.cmd.Process.Pid)
	}
	started <- err
	runtime.UnlockOSThread()
}

// run lets the command go; done is called when it has exited.
func (c *child) run(done func()) {
	c.begun = true
	unix.Kill(c.pid, unix.SIGCONT)
	go func() {
		c.exited <- c.cmd.Wait()
		done()
	}()
}

// release lets a command that never ran go its way without us.
func (c *child) release() {
	if !c.begun {
		unix.Kill(c.pid, unix.SIGCONT)
		c.begun = true
	}
}

// status passes the command's exit status on.
func (c *child) status() error {
	err := <-c.exited
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return exitStatus(code)
		}
		return exitStatus(128 + int(exit.Sys().(unix.WaitStatus).Signal()))
	}
	return err
}
