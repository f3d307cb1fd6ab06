package agent

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/atomicfile"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// attend hears orders until the context ends.
func (a *Agent) attend(ctx context.Context) {
	request := &atysv1.AttendRequest{Node: a.options.Node, Run: a.run[:], Version: a.options.Version, Labels: a.options.Labels}
	remote.Stand(ctx, func(ctx context.Context, heard func()) error {
		return a.options.Fleet.AttendTo(ctx, request, func(o *atysv1.Orders) error {
			heard()
			if !o.GetUnchanged() {
				a.shipper.route.use(o.GetShipTo())
				a.remember(o)
				a.order(a.understand(o))
			}
			return nil
		})
	}, func(failures int, err error) { a.log.Warn("hear orders", "failures", failures, "error", err) })
}

// order hands the newest tasks over; older ones that wait are of no use.
func (a *Agent) order(tasks []*task) {
	for {
		select {
		case a.orders <- tasks:
			return
		case <-a.orders:
		}
	}
}

// understand reads orders. A task that makes no sense to us is told of, and not
// carried out: another one of our kind may be newer.
func (a *Agent) understand(o *atysv1.Orders) (tasks []*task) {
	for _, m := range o.GetTasks() {
		p, err := spec.ParseJSON([]byte(m.GetProfile()))
		if err != nil {
			a.log.Error("understand a task", "id", m.GetId(), "error", err)
			tasks = append(tasks, &task{id: m.GetId(), profile: &spec.Profile{}, limited: true, phase: phaseFailed,
				message: "this agent does not understand it: " + err.Error(), end: a.deadline(m.GetUntilUnixNano())})
			continue
		}
		t := newTask(m.GetId(), p, a.deadline(m.GetUntilUnixNano()))
		if t.limited = m.GetLimited(); t.limited {
			t.instances = profile.Instances{Recorded: int(m.GetRecorded()), Eligible: int(m.GetEligible())}
			t.chosen = map[string]bool{}
			for _, s := range m.GetChosen() {
				t.chosen[profile.Labels(s.GetLabels()).String()] = true
			}
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// deadline is when a time of the server's clock comes.
func (a *Agent) deadline(server int64) time.Time {
	if server == 0 {
		return time.Time{}
	}
	offset, _ := a.shipper.clock()
	return time.Now().Add(time.Unix(0, server).Add(offset).Sub(a.options.Now()))
}

// remember keeps orders for the next life of this agent.
func (a *Agent) remember(o *atysv1.Orders) {
	if a.options.State == "" {
		return
	}
	if err := writeOrders(a.options.State, o); err != nil {
		a.log.Error("keep orders", "error", err)
	}
}

func writeOrders(name string, o *atysv1.Orders) error {
	data, err := proto.Marshal(o)
	if err != nil {
		return err
	}
	return atomicfile.Write(name, bytes.NewReader(data))
}

// remembered are the orders of the last life: they hold until a server has others.
func (a *Agent) remembered() []*task {
	if a.options.State == "" {
		return nil
	}
	data, err := os.ReadFile(a.options.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	o := &atysv1.Orders{}
	if err == nil {
		err = proto.Unmarshal(data, o)
	}
	if err != nil {
		a.log.Error("read kept orders", "error", err)
		return nil
	}
	var tasks []*task
	for _, t := range a.understand(o) {
		if t.end.IsZero() || time.Now().Before(t.end) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
