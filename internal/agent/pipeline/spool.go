package pipeline

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
)

// keep spools the parts of a window. If earlier windows are lost, one of the parts
// reports it: on disk, so that it does until somebody has taken it. Windows that are on
// no disk report nothing.
func (p *Pipeline) keep(records [][]byte, parts []*profile.Window) (spool.ID, error) {
	to := p.options.Spool
	if lost := to.Untold(); lost != (spool.Losses{}) {
		if all, teller := p.telling(records, parts, lost); all != nil {
			if id, err := to.AddTelling(all, teller, lost); err == nil {
				return id, nil
			}
		}
	}
	return to.Add(records)
}

// telling returns records of which one reports losses, in place of the record of the
// machine itself. Tasks that select targets have none: it is added. What was lost can have
// been of any target, and the machine's window stands for all of them.
func (p *Pipeline) telling(records [][]byte, parts []*profile.Window, lost spool.Losses) (all [][]byte, teller int) {
	if len(records) != len(parts) { // one could not be sealed: the next cut tells it
		return nil, 0
	}
	machine := p.options.Machine
	var w profile.Window
	i := slices.IndexFunc(parts, func(p *profile.Window) bool { return p.Target.String() == machine.String() })
	if i >= 0 {
		w = *parts[i]
		w.Losses = slices.Clone(w.Losses)
		all = slices.Clone(records)
	} else {
		w.Head = parts[0].Head
		w.Target, w.Exact, w.Cost, w.Losses, w.Comments = machine, profile.Exact{}, profile.Cost{}, nil, nil
		w.Farewell = false
		i, all = len(records), append(slices.Clone(records), nil)
	}
	for _, l := range []profile.Loss{{Reason: profile.LossSpoolLimit, N: int64(lost.Dropped)}, {Reason: profile.LossSpoolDamage, N: int64(lost.Damaged)},
		{Reason: profile.LossRefused, N: int64(lost.Refused)}, {Reason: profile.LossUnkept, N: int64(lost.Unkept)}} {
		w.AddLoss(l)
	}
	if all[i] = p.record(&w); all[i] == nil {
		return nil, 0
	}
	return all, i
}
