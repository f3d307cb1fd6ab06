package agent

import (
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
)

// spool keeps the windows of one cut on disk. If some of earlier cuts are lost, one
// of them tells it: on disk, so that it does until somebody has taken it. What is
// on no disk tells nothing.
func (a *Agent) spool(records [][]byte, parts []*profile.Window) (spool.ID, error) {
	to := a.options.Spool
	if lost := to.Untold(); lost != (spool.Losses{}) {
		if all, teller := a.telling(records, parts, lost); all != nil {
			if id, err := to.AddTelling(all, teller, lost); err == nil {
				return id, nil
			}
		}
	}
	return to.Add(records)
}

// telling gives records with one that tells losses, in place of that of the
// machine itself. Where tasks select targets there is none: it is added. What was
// lost may have been of all that runs here, and that window speaks for it.
func (a *Agent) telling(records [][]byte, parts []*profile.Window, lost spool.Losses) (all [][]byte, teller int) {
	if len(records) != len(parts) { // one could not be sealed: the next cut tells it
		return nil, 0
	}
	machine := a.census.machine()
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
	if all[i] = a.seal(&w); all[i] == nil {
		return nil, 0
	}
	return all, i
}
