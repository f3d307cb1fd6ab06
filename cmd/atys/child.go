package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is a command started for a recording. It waits before its first
// instruction until the sampler is ready, so that nothing of it is missed.
type child struct {
	cmd    *exec.Cmd
	pid    int
	begun  bool
	letGo  chan struct{} // closed when it may run
	exited chan error
}

// startStopped starts a command such that it stops right after exec.
func startStopped(args []string) (*child, error) {
	if len(args) == 0 {
		return nil, nil
	}
	c := &child{cmd: exec.Command(args[0], args[1:]...), letGo: make(chan struct{}), exited: make(chan error, 1)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	started := make(chan error)
	go c.hold(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %q: %w", args[0], err)
	}
	return c, nil
}

// hold starts the command and keeps it from running until it is let go; only
// the thread that started it may do either. Should we be killed meanwhile, the
// kernel ends it: it is not left behind, stopped for ever.
func (c *child) hold(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	c.pid = c.cmd.Process.Pid
	var status unix.WaitStatus
	for { // the stop at exec
		_, err := unix.Wait4(c.pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	err := unix.PtraceSetOptions(c.pid, unix.PTRACE_O_EXITKILL)
	if err != nil {
		unix.Kill(c.pid, unix.SIGKILL)
	}
	started <- err
	if err == nil {
		<-c.letGo
		_ = unix.PtraceDetach(c.pid) // fails if it was killed, which its end will tell
	}
}

// run lets the command go; done is called when it has exited.
func (c *child) run(done func()) {
	c.begun = true
	close(c.letGo)
	go func() {
		c.exited <- c.cmd.Wait()
		done()
	}()
}

// release ends a command that was never let go: what cannot be recorded is not
// run, as if it had been refused at once.
func (c *child) release() {
	if c.begun {
		return
	}
	c.begun = true
	unix.Kill(c.pid, unix.SIGKILL)
	close(c.letGo)
	_ = c.cmd.Wait() // that it was killed is no news
}

// status passes the command's exit status on.
func (c *child) status() error {
	err := <-c.exited
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return exitStatus(code)
		}
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return exitStatus(128 + int(status.Signal()))
		}
	}
	return err
}
