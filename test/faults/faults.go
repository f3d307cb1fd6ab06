// Package faults runs a server and agents as processes of their own, and does to them what happens to machines: kills, full disks, cut networks, strangers.
//
//	Server   an "atys server" that can be killed and started again (server.go)
//	Relay    an "atys relay", likewise (relay.go)
//	Agent    an "atys agent", likewise (agent.go)
//	Witness  knows what lay on an agent's disk (witness.go)
//	Sender   sends windows as an agent does, and knows which were acknowledged (sender.go)
//
// What must hold is in the tests: a window that was acknowledged is there, and
// counted once; what is refused disturbs nothing else.
package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/test/vacant"
)

// Build builds atys into a directory.
func Build(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "atys")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "atys.dev/atys/cmd/atys").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build atys: %w\n%s", err, out)
	}
	return program, nil
}

// Process is an atys that runs.
type Process struct {
	command *exec.Cmd
	log     *log
	ended   chan struct{}
	err     error // once it has ended
}

// log keeps the end of what a process says.
type log struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 64 << 10
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-most):]
	return len(p), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Start runs a program until it is ended; within is what runs it, such as ip
// netns exec, if not we.
func Start(within []string, program string, args ...string) (*Process, error) {
	line := slices.Concat(within, []string{program}, args)
	p := &Process{command: exec.Command(line[0], line[1:]...), log: &log{}, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID is its number.
func (p *Process) PID() int { return p.command.Process.Pid }

// Log is the end of what it said.
func (p *Process) Log() string { return p.log.String() }

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
		return fmt.Errorf("it did not end within %v: %s", patience, p.Log())
	}
}

// Server is a server that can be killed and started again: what it keeps, and
// where it answers, stay the same.
type Server struct {
	*Process
	Program, Dir, Address string
	Args                  []string
	Within                []string // what runs it
}

// startWithin is how long a server or a relay may take to answer: on a busy machine
// that is long, and one that failed has ended before.
const startWithin = 2 * time.Minute

// NewServer starts one on a free port of this machine.
func NewServer(program, dir string, within ...string) (*Server, error) {
	s := &Server{Program: program, Dir: dir, Within: within}
	return s, s.Begin()
}

// Begin starts it on a free port of this machine.
func (s *Server) Begin() (err error) {
	if s.Address, err = vacant.Address(); err != nil {
		return err
	}
	return s.Again()
}

// URL is how it is asked.
func (s *Server) URL() string { return "http://" + s.Address }

// Token is what its operator asks with.
func (s *Server) Token() (string, error) {
	return auth.ReadSecret(filepath.Join(s.Dir, "operator.token"))
}

// Again starts it anew, and waits until it answers.
func (s *Server) Again() (err error) {
	args := append([]string{"server", "--data", s.Dir, "--listen", s.Address, "--request-rate", "0"}, s.Args...)
	if s.Process, err = Start(s.Within, s.Program, args...); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < startWithin; time.Sleep(5 * time.Millisecond) {
		if s.answers() {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", s.Log())
		default:
		}
	}
	s.Kill()
	return errors.New("the server does not answer: " + strings.TrimSpace(s.Log()))
}

// answers tells whether it takes requests; it does once its operator can ask.
func (s *Server) answers() bool {
	if _, err := s.Token(); err != nil {
		return false
	}
	c, err := net.Dial("tcp", s.Address)
	return err == nil && c.Close() == nil
}
