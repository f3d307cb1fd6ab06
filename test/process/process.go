// Package process runs servers and agents of tests and benchmarks, and keeps the end of what they print.
package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Build builds atys into a directory.
func Build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "atys")
	c := exec.CommandContext(ctx, "go", "build", "-o", program, "atys.dev/atys/cmd/atys")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build atys: %w\n%s", err, out)
	}
	return program, nil
}

// Closed reports whether a channel was closed: what it stands for has ended.
func Closed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// Process is a program that runs until it is ended.
type Process struct {
	command *exec.Cmd
	output  *output
	ended   chan struct{}
	err     error // once it has ended
}

// output keeps the end of what a process prints.
type output struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const most = 64 << 10
	o.text = append(o.text, p...)
	o.text = o.text[max(0, len(o.text)-most):]
	return len(p), nil
}

// Start starts a program.
func Start(program string, args ...string) (*Process, error) {
	p := &Process{command: exec.Command(program, args...), output: &output{}, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = p.output, p.output
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// StartServer starts a program, and waits until it takes connections at an address.
func StartServer(address, program string, args ...string) (*Process, error) {
	p, err := Start(program, args...)
	if err == nil {
		err = p.Await(time.Minute, func() bool { return Answers(address) })
	}
	return p, err
}

// Answers reports whether connections are taken at an address.
func Answers(address string) bool {
	c, err := net.Dial("tcp", address)
	return err == nil && c.Close() == nil
}

// Await waits until the process is ready. One that is not in time is killed.
func (p *Process) Await(patience time.Duration, ready func() bool) error {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		if ready() {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", p.name(), p.Log())
		default:
		}
	}
	p.Kill()
	return fmt.Errorf("%s does not answer: %s", p.name(), p.Log())
}

func (p *Process) name() string { return filepath.Base(p.command.Path) }

// PID is its number.
func (p *Process) PID() int { return p.command.Process.Pid }

// Log is the end of what it printed.
func (p *Process) Log() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return strings.TrimSpace(string(p.output.text))
}

// Ended is closed once it has ended, and Err says how then.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is how it ended.
func (p *Process) Err() error { return p.err }

// Signal sends it a signal; one that has ended gets none.
func (p *Process) Signal(s os.Signal) {
	_ = p.command.Process.Signal(s)
}

// Kill ends it as a crash would, and waits.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.ended
}

// End asks it to end, as Ctrl-C does, and waits.
func (p *Process) End(patience time.Duration) error {
	p.Signal(os.Interrupt)
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("%s did not end within %v: %s", p.name(), patience, p.Log())
	}
}
