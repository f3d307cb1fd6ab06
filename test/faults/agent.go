package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/process"
)

// Agent is an agent that can be killed and started again: what it keeps, and
// what it is called, stay the same.
type Agent struct {
	*process.Process
	Program, Dir, Node string
	Args               []string
	Within             []string // what runs it
	Seen               *Witness // nil: nobody looks at its disk
}

// Every is how long a window of the agents is, in tests.
const Every = time.Second

// Task is the profile that agents are ordered: everything, often.
const Task = "faults"

// Order has a server's agents record everything, in short windows.
func (s *Server) Order(ctx context.Context) error {
	object := fmt.Sprintf(`{"kind":"Profile","name":%q,"kinds":["cpu"],"window":%q}`, Task, Every)
	_, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Apply(ctx, &atysv1.ApplyRequest{Objects: []string{object}})
	return err
}

// NewAgent starts an agent of a server. url is how it reaches it; within is what
// runs it.
func NewAgent(s *Server, url, dir, node string, within []string, args ...string) (*Agent, error) {
	args = append([]string{"agent", "--server", url, "--data", dir, "--node", node, "--token-file", filepath.Join(s.Dir, "operator.token"), "--verbose"}, args...)
	a := &Agent{Program: s.Program, Dir: dir, Node: node, Args: args, Within: within}
	return a, a.Again()
}

// Again starts it anew.
func (a *Agent) Again() (err error) {
	a.Process, err = start(a.Within, a.Program, a.Args...)
	return err
}

// Spooled are the windows that wait on an agent's disk. It must not run.
func (a *Agent) Spooled() (windows map[Cut]int64, err error) {
	dir, err := os.MkdirTemp("", "atys-spool") // to read a spool counts what is damaged in it
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, os.DirFS(a.spool())); err != nil {
		return nil, err
	}
	return windowsIn(dir)
}

// windowsIn reads a spool that nobody else has open.
func windowsIn(dir string) (windows map[Cut]int64, err error) {
	waiting, err := spool.Open(dir, 1<<40)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	windows = map[Cut]int64{}
	for _, id := range waiting.Oldest(1 << 20) {
		records, err := waiting.Read(id)
		if damaged := (*spool.DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
			return nil, err
		}
		for _, r := range records {
			s := &atysv1.Spooled{}
			if err := proto.Unmarshal(r, s); err != nil {
				return nil, err
			}
			w := s.GetWindow()
			n := int64(0)
			for _, one := range w.GetRows().GetN() {
				n += one
			}
			windows[Cut{profile.Labels(s.GetSeries().GetLabels()).String(), w.GetTask(), w.GetStartUnixNano()}] = n
		}
	}
	return windows, nil
}

func (a *Agent) spool() string { return filepath.Join(a.Dir, "spool") }

// Bundles are the files that wait on an agent's disk, oldest first.
func (a *Agent) Bundles() []string {
	names, _ := filepath.Glob(filepath.Join(a.spool(), "*.bundle")) // the pattern is right
	return names
}

// Cut is what tells windows apart: of what, for which task, and since when.
type Cut struct {
	Labels, Task string
	Start        int64
}

// Cuts are the windows of agents that a server has, with their samples.
func (s *Server) Cuts(ctx context.Context, from, to time.Time) (map[Cut]int64, error) {
	cuts := map[Cut]int64{}
	return cuts, s.cuts(ctx, from, to, cuts)
}

func (s *Server) cuts(ctx context.Context, from, to time.Time, into map[Cut]int64) error {
	const most = 10_000 // that a server lists at once
	asks := atysv1connect.NewQueryClient(s.Client(), s.URL())
	response, err := asks.Windows(ctx, &atysv1.WindowsRequest{Limit: most, Selection: everything(from, to)})
	if err != nil {
		return err
	}
	if response.GetMore() {
		middle := from.Add(to.Sub(from) / 2)
		return errors.Join(s.cuts(ctx, from, middle, into), s.cuts(ctx, middle, to, into))
	}
	for _, w := range response.GetWindows() {
		c := Cut{profile.Labels(w.GetLabels()).String(), w.GetTask(), w.GetStartUnixNano()}
		if _, twice := into[c]; twice {
			return fmt.Errorf("there are two windows of %s at %d", c.Labels, c.Start)
		}
		into[c] = w.GetN()
	}
	return nil
}

// Watched is when an agent recorded, as a server has it.
func (s *Server) Watched(ctx context.Context, node string, from, to time.Time) (*atysv1.NodeCoverage, error) {
	asks := atysv1connect.NewQueryClient(s.Client(), s.URL())
	response, err := asks.Top(ctx, &atysv1.TopRequest{Limit: 1, Selection: everything(from, to)})
	if err != nil {
		return nil, err
	}
	for _, c := range response.GetCoverage().GetNodes() {
		if c.GetNode() == node && c.GetTask() == Task {
			return c, nil
		}
	}
	return nil, fmt.Errorf("node %q is not known for task %q: %v", node, Task, response.GetCoverage())
}

func everything(from, to time.Time) *atysv1.Selection {
	return &atysv1.Selection{Select: `{node!=""}`, Task: Task, Kind: "cpu", FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano()}
}

// Known is what a server knows of an agent.
type Known struct {
	Offset time.Duration // by which its clock is ahead
	Lost   int           // windows
	// Address of the relay that it is to ship to; "": to the server.
	ShipsTo string
}

// Known asks a server for an agent; one that has not reported yet has nothing.
func (s *Server) Known(ctx context.Context, node string) (k Known, err error) {
	response, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Get(ctx, &atysv1.GetRequest{Kind: "agents", Name: node})
	if err != nil || len(response.GetObjects()) == 0 {
		return k, err
	}
	var object struct {
		Lost        int    `json:"lostWindows"`
		ClockOffset string `json:"clockOffset"`
		ShipsTo     string `json:"shipsTo"`
	}
	if err := json.Unmarshal([]byte(response.GetObjects()[0].GetJson()), &object); err != nil {
		return k, err
	}
	k.Lost, k.ShipsTo = object.Lost, object.ShipsTo
	k.Offset, err = time.ParseDuration(object.ClockOffset)
	return k, err
}

// exists tells whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
