package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
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
		return nil, &unstartedError{args[0], err}
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

// status is that of a command that has ended, for atys to exit with; nil where the
// command succeeded, or goes on.
func (c *child) status() error {
	var err error
	select {
	case err = <-c.exited:
	default:
		fmt.Fprintf(os.Stderr, "atys: the command goes on as process %d\n", c.pid)
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitStatus(128 + int(status.Signal()))
	}
	return exitStatus(exit.ExitCode())
}

// startsCommand tells whether a command line has atys start a command.
func startsCommand(c *cobra.Command, args []string) bool {
	return c.Name() == "record" && (c.Flags().NArg() > 0 || slices.Contains(args, "--"))
}

// ownFailure is the status of atys where it was to start a command, and failed itself.
func ownFailure(err error) int {
	var unstarted *unstartedError
	switch {
	case !errors.As(err, &unstarted):
		return exitSelf
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return exitNotFound
	}
	return exitNotRun
}

// unstartedError says why a command was not started.
type unstartedError struct {
	name string
	err  error
}

func (e *unstartedError) Error() string { return fmt.Sprintf("start %q: %v", e.name, e.err) }
func (e *unstartedError) Unwrap() error { return e.err }
