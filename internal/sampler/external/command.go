package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long a tool may take before it is killed.
const (
	startTimeout = 30 * time.Second // py-spy reads the symbols of a large program
	stopTimeout  = 60 * time.Second // perf writes the last of its buffers
)

// command is a tool that runs as a child of ours. It has a process group of
// its own, so that Ctrl-C reaches us alone and we decide when it ends; and the
// kernel kills it when we die.
type command struct {
	cmd    *exec.Cmd
	said   said
	ended  chan struct{} // closed when it has been waited for
	err    error         // of waiting; read after ended
	cancel func() bool

	mu      sync.Mutex // guards asked
	asked   bool       // to end, by us
	expired bool       // killed by us, because it did not
}

// startCommand starts a program; the end of ctx kills it.
func startCommand(ctx context.Context, cmd *exec.Cmd) (*command, error) {
	c := &command{cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.said
	}
	cmd.Stderr = &c.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = time.Second // for the pipes of a tool that left a child behind
	// The tool speaks the language its messages are recognised in.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PYTHONPATH=", "RUST_BACKTRACE=0")
	started := make(chan error, 1)
	go c.wait(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	c.cancel = context.AfterFunc(ctx, func() { c.signal(unix.SIGKILL) })
	return c, nil
}

// wait starts the program and waits for it on one thread: Pdeathsig is sent
// when the thread that started it ends, not only the process.
func (c *command) wait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	c.err = c.cmd.Wait()
	close(c.ended)
}

func (c *command) signal(s os.Signal) {
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	_ = c.cmd.Process.Signal(s) // it may have ended: then Wait tells all there is to know
}

// halt asks the program to end its recording and write it.
func (c *command) halt() { c.signal(unix.SIGINT) }

func (c *command) done() <-chan struct{} { return c.ended }

// finish waits until the program has ended, for as long as it may take.
func (c *command) finish(most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
		c.expired = true
		c.signal(unix.SIGKILL)
		<-c.ended
	}
	c.cancel()
	return c.failure()
}

// kill ends the program without asking.
func (c *command) kill() {
	c.signal(unix.SIGKILL)
	<-c.ended
	c.cancel()
}

// errKilled says that a program did not end by itself, whoever killed it.
var errKilled = errors.New("was killed")

// failure explains an end that is none of success. An interrupt that we sent
// may end a program by that signal, or with its status.
func (c *command) failure() error {
	name := c.name()
	c.mu.Lock()
	asked := c.asked
	c.mu.Unlock()
	var exit *exec.ExitError
	switch {
	case c.expired:
		return fmt.Errorf("%s did not end in time and %w%s", name, errKilled, c.said.last())
	case c.err == nil, errors.Is(c.err, exec.ErrWaitDelay):
		return nil
	case !errors.As(c.err, &exit):
		return fmt.Errorf("%s: %w", name, c.err)
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == unix.SIGINT && asked, status.ExitStatus() == 128+int(unix.SIGINT) && asked:
		return nil
	case status.Signaled():
		return fmt.Errorf("%s %w by signal %d (%s)%s", name, errKilled, status.Signal(), status.Signal(), c.said.last())
	}
	return fmt.Errorf("%s failed with status %d%s", name, status.ExitStatus(), c.said.last())
}

func (c *command) name() string {
	path := c.cmd.Path
	return path[strings.LastIndexByte(path, '/')+1:]
}

// runCommand runs a program to its end and gives what it printed.
func runCommand(ctx context.Context, most time.Duration, path string, args ...string) (string, error) {
	c, err := startCommand(ctx, exec.Command(path, args...))
	if err != nil {
		return "", err
	}
	err = c.finish(most)
	return c.said.String(), err
}

// said keeps what a program prints: the beginning and the end of it.
type said struct {
	mu   sync.Mutex // guards all below
	text bytes.Buffer
	wake chan struct{}
}

// maxSaid bounds what is kept of a tool's messages.
const maxSaid = 64 << 10

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	if extra := s.text.Len() - maxSaid; extra > 0 { // the middle goes
		kept := s.text.Bytes()
		head := bytes.Clone(kept[:maxSaid/2])
		tail := bytes.Clone(kept[maxSaid/2+extra:])
		s.text.Reset()
		s.text.Write(head)
		s.text.Write(tail)
	}
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// next is closed when something more has been printed.
func (s *said) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// last gives the messages for an error: few lines, without a stack trace. Tools
// print paths as they are, which may be no text.
func (s *said) last() string {
	text, _, _ := strings.Cut(s.String(), "Stack backtrace:")
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	const most, longest = 4, 300
	lines = lines[max(0, len(lines)-most):]
	for i, line := range lines {
		line = strings.ToValidUTF8(line, "\uFFFD")
		lines[i] = strings.ToValidUTF8(line[:min(len(line), longest)], "") // not half a character
	}
	return ": " + strings.Join(lines, "; ")
}

// awaits waits until the program has printed the text; false if it ended first.
func (c *command) awaits(text string, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		more := c.said.next()
		if strings.Contains(c.said.String(), text) {
			return true
		}
		select {
		case <-more:
		case <-c.ended:
			return strings.Contains(c.said.String(), text)
		case <-timer.C:
			c.expired = true
			c.signal(unix.SIGKILL)
			<-c.ended
			return false
		}
	}
}

// maxOutput bounds a tool's text.
const maxOutput = 1 << 30

var errTooLong = errors.New("unreasonably long")

// bounded ends in an error, not silently, where a reader gives more than most.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
