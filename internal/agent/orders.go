package agent

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/atomicfile"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// attend receives orders until the context ends.
func (a *Agent) attend(ctx context.Context) {
	request := &atysv1.AttendRequest{Node: a.options.Node, Run: a.run[:], Version: a.options.Version, Labels: a.options.Labels}
	remote.Stand(ctx, func(ctx context.Context, heard func()) error {
		return a.options.Fleet.AttendTo(ctx, request, func(o *atysv1.Orders) error {
			heard()
			a.hear()
			if !o.GetUnchanged() {
				a.shipper.route.use(o.GetShipTo())
				a.remember(o)
				a.order(a.understand(o))
			}
			return nil
		})
	}, func(failures int, err error) { a.log.Warn("hear orders", "failures", failures, "error", err) })
}

// order hands over the newest tasks, in place of older ones that still wait.
func (a *Agent) order(tasks []*task) {
	for {
		select {
		case a.orders <- tasks:
			return
		case <-a.orders:
		}
	}
}

// understand parses orders. A task that this agent does not understand is reported and not
// carried out: it may be for newer agents.
func (a *Agent) understand(o *atysv1.Orders) (tasks []*task) {
	for _, m := range o.GetTasks() {
		p, unknown, err := spec.ParseKept([]byte(m.GetProfile()))
		if err != nil {
			a.log.Error("understand a task", "id", m.GetId(), "error", err)
			tasks = append(tasks, &task{id: m.GetId(), profile: &spec.Profile{}, limited: true, phase: phaseFailed,
				message: "this agent does not understand it: " + err.Error(), until: m.GetUntilUnixNano()})
			tasks[len(tasks)-1].date(a.shipper.reading(), a.options.Now())
			continue
		}
		if a.options.OffCPU {
			p = p.WithOffCPU()
		}
		t := newTask(m.GetId(), p, time.Time{})
		if len(unknown) > 0 {
			t.caveat = "this agent does not know, and ignores: " + strings.Join(unknown, ", ")
		}
		t.until, t.rates = m.GetUntilUnixNano(), orderedRates(m, p)
		t.date(a.shipper.reading(), a.options.Now())
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

// withBuiltin adds the built-in task unless a standing one is ordered. Tasks of limited
// duration run beside it, and so do those that this agent does not understand: else it
// might record nothing.
func withBuiltin(tasks []*task, builtin *spec.Profile) []*task {
	for _, t := range tasks {
		if t.end.IsZero() && t.understood() {
			return tasks
		}
	}
	return append(tasks, newTask(builtinID, builtin, time.Time{}))
}

// compareWithin is how long a task cannot end before the clocks have been compared. The
// first report, which compares them, is answered well within it.
const compareWithin = 5 * time.Second

// plausible returns when a task ends. Before the clocks are compared, a wrong one may put
// that long ago, or far away: but no task ends later than if it had been asked for when it
// came.
func (t *task) plausible() time.Time {
	if !t.unsure || t.profile.Duration == 0 {
		return t.end
	}
	latest := t.lasting(t.came.Add(t.profile.Duration))
	return laterOf(earlier(t.end, latest), earlier(t.came.Add(compareWithin), latest))
}

// remember saves orders for the next start of this agent.
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

// remembered returns the saved orders. They apply until the server sends others.
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
