package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/faults"
	"atys.dev/atys/test/levels"
)

// window is how long the windows of the agents are: rounds begin and end with one.
const window = time.Second

// The nodes, by how their windows reach the server.
const (
	direct  = "direct"  // as they are cut: of each instance one
	through = "through" // by a relay, which adds up all instances
)

// fleet is a server, a relay before it, and two agents of this machine.
type fleet struct {
	server *faults.Server
	relay  *faults.Relay
	agents map[string]*faults.Agent
}

func startFleet(ctx context.Context, atys, dir string) (f *fleet, err error) {
	f = &fleet{agents: map[string]*faults.Agent{}}
	defer func() {
		if err != nil {
			f.kill()
		}
	}()
	data, err := folder(dir, "server")
	if err != nil {
		return nil, err
	}
	server := &faults.Server{Program: atys, Dir: data, Args: []string{"--group-by", "zone"}}
	if err := server.Begin(); err != nil {
		return nil, err
	}
	f.server = server
	if data, err = folder(dir, "relay"); err != nil {
		return nil, err
	}
	if f.relay, err = faults.NewRelay(server, server, data, "relay", "--merge", "service,node", "--label", "zone=far"); err != nil {
		return nil, err
	}
	for node, url := range map[string]string{direct: server.URL(), through: f.relay.URL()} {
		if data, err = folder(dir, node); err != nil {
			return nil, err
		}
		var labels []string
		if node == through {
			labels = []string{"--label", "zone=far"} // the server has it ship to the relay there
		}
		if f.agents[node], err = faults.NewAgent(server, url, data, node, nil, labels...); err != nil {
			return nil, err
		}
	}
	object := fmt.Sprintf(`{"kind":"Profile","name":%q,"select":%q,"frequency":%d,"window":%q}`, service, selector(""), *frequency, window)
	_, err = atysv1connect.NewControlClient(server.Client(), server.URL()).Apply(ctx, &atysv1.ApplyRequest{Objects: []string{object}})
	return f, err
}

// selector chooses the service, on one node if it is named.
func selector(node string) string {
	if node == "" {
		return fmt.Sprintf("{service=%q}", service)
	}
	return fmt.Sprintf("{service=%q,node=%q}", service, node)
}

// asker asks the server about a time.
func (f *fleet) asker(from, to time.Time) *levels.Asker {
	return &levels.Asker{HTTPClient: f.server.Client(), URL: f.server.URL(), Function: sought, Kind: "cpu", From: from, To: to}
}

// kill ends what still runs.
func (f *fleet) kill() {
	for _, a := range f.agents {
		if a != nil {
			a.Kill()
		}
	}
	if f.relay != nil {
		f.relay.Kill()
	}
	if f.server != nil {
		f.server.Kill()
	}
}

// spent is what was used, and made, until a moment.
type spent struct {
	at                   time.Time
	agent, relay, server time.Duration // CPU time; of the agent whose windows go through as they are
	few, many            int64         // requests
}

func (f *fleet) spent(instances []*instance) (s spent, err error) {
	s.at = time.Now().Truncate(window)
	var errs [3]error
	s.agent, errs[0] = footprint.CPU(f.agents[direct].PID())
	s.relay, errs[1] = footprint.CPU(f.relay.PID())
	s.server, errs[2] = footprint.CPU(f.server.PID())
	for _, i := range instances {
		s.few += i.few.Load()
		s.many += i.many.Load()
	}
	return s, errors.Join(errs[:]...)
}

func (s spent) less(before spent) spent {
	return spent{s.at, s.agent - before.agent, s.relay - before.relay, s.server - before.server, s.few - before.few, s.many - before.many}
}
