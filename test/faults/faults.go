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
	"path/filepath"
	"slices"
	"time"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/vacant"
)

// start runs a program; within is what runs it, such as ip netns exec, if not we.
func start(within []string, program string, args ...string) (*process.Process, error) {
	line := slices.Concat(within, []string{program}, args)
	return process.Start(line[0], line[1:]...)
}

// Server is a server that can be killed and started again: what it keeps, and
// where it answers, stay the same.
type Server struct {
	*process.Process
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
	if s.Process, err = start(s.Within, s.Program, args...); err != nil {
		return err
	}
	return s.Await(startWithin, s.answers)
}

// answers tells whether it takes requests; it does once its operator can ask.
func (s *Server) answers() bool {
	_, err := s.Token()
	return err == nil && process.Answers(s.Address)
}
