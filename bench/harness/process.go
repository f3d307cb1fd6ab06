package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a server that a benchmark has started.
type Process struct {
	Command *exec.Cmd
	Address string
	Ended   chan error // how it ended, once
	Output  *os.File
}

// StartProcess starts a server, and waits until it takes connections at an
// address; "": it does not wait. What it says is in a file of the directory.
func StartProcess(dir, address, name string, args ...string) (*Process, error) {
	output, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		return nil, err
	}
	p := &Process{Command: exec.Command(name, args...), Ended: make(chan error, 1), Address: address, Output: output}
	p.Command.Stdout, p.Command.Stderr = output, output
	if err := p.Command.Start(); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	go func() { p.Ended <- p.Command.Wait() }()
	if address == "" {
		return p, nil
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			return p, c.Close()
		}
		if len(p.Ended) > 0 {
			break
		}
	}
	said, _ := os.ReadFile(output.Name()) // what it says explains, if anything does
	return nil, errors.Join(fmt.Errorf("%s does not answer: %s", name, lastLines(said)), p.End())
}

// End asks it to end, and waits.
func (p *Process) End() error {
	_ = p.Command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-p.Ended:
		return errors.Join(err, p.Output.Close())
	case <-time.After(time.Minute):
		_ = p.Command.Process.Kill()
		return errors.Join(fmt.Errorf("%s does not end", p.Command.Path), <-p.Ended, p.Output.Close())
	}
}

// OperatorToken is the file of the token that a server makes below its data directory.
// It takes connections a moment before it has.
func OperatorToken(data string) string {
	token := filepath.Join(data, "operator.token")
	for range 100 {
		if _, err := os.Stat(token); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return token
}

// Sleep waits, unless all is to end.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
