package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Service is what one service used of a selection.
type Service struct {
	Name    string
	Windows int
	N       int64
	CPU     time.Duration // by the kernel's account
	// Brief services are short-lived commands: each of their processes had ended
	// before its agent looked at what it was.
	Brief bool
}

// Services lists the services of a selection, those first that used most CPU time.
// It reads the heads of windows and no stacks, which takes a fraction of the time
// that a Split takes.
func (a Asker) Services(ctx context.Context, s Selection) ([]Service, Coverage, error) {
	q, t := a.question(s), &tally{of: map[string]*Service{}}
	parts, err := q.parts(ctx, s.From, s.To, q.levels(store.ServiceLabel))
	if err != nil {
		return nil, Coverage{}, err
	}
	if err := q.noteDropped(ctx, parts); err != nil {
		return nil, Coverage{}, err
	}
	if err := q.readHeads(ctx, parts, t.add); err != nil {
		return nil, Coverage{}, err
	}
	c := &q.coverage
	c.Windows, c.N, c.CPU, c.Cost = t.windows, t.n, t.cpu, t.cost
	q.countLosses(t.losses)
	lasting, err := q.lasting(ctx)
	if err != nil {
		return nil, Coverage{}, err
	}
	coverage, err := q.covered(ctx)
	if err != nil {
		return nil, Coverage{}, err
	}
	var services []Service
	for name, service := range t.of {
		service.Brief = lasting != nil && !lasting[name]
		services = append(services, *service)
	}
	slices.SortFunc(services, func(x, y Service) int { return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(x.Name, y.Name)) })
	return services, coverage, nil
}

// tally adds up what windows say of services.
type tally struct {
	of      map[string]*Service
	windows int
	n       int64
	cpu     time.Duration
	cost    profile.Cost
	losses  []profile.Loss
}

func (t *tally) add(h store.Head) error {
	t.windows += h.Of
	t.n += h.N
	t.cpu += h.Head.Exact.CPU
	t.cost.Add(h.Head.Cost)
	for _, l := range h.Head.Losses {
		addLoss(&t.losses, l)
	}
	name := h.Series[store.ServiceLabel]
	if name == "" && h.N == 0 { // a machine's own window
		return nil
	}
	service := t.of[name]
	if service == nil {
		service = &Service{Name: name}
		t.of[name] = service
	}
	service.Windows += h.Of
	service.N += h.N
	service.CPU += h.Head.Exact.CPU
	return nil
}

// lasting tells which services have a process that lived for long enough to be
// looked at: its series says more than its machine's does. Nil: no machine tells.
func (q *question) lasting(ctx context.Context) (map[string]bool, error) {
	parts, err := q.parts(ctx, q.From, q.To, ofSeries)
	if err != nil {
		return nil, err
	}
	for i := range parts {
		parts[i].Select = nil
	}
	machines, of := map[string]int{}, map[string][]profile.Labels{}
	_, err = q.series(ctx, parts, func(labels profile.Labels) {
		if name := labels[store.ServiceLabel]; name != "" {
			of[name] = append(of[name], labels)
		} else {
			machines[labels["node"]] = len(labels)
		}
	})
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	lasting := map[string]bool{}
	for name, all := range of {
		lasting[name] = name == kernelService || slices.ContainsFunc(all, func(l profile.Labels) bool {
			own, known := machines[l["node"]]
			return !known || len(l) > own+1
		})
	}
	return lasting, nil
}

// kernelService is what agents call the kernel's own threads, which are no program.
const kernelService = "kernel"
