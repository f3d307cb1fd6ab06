package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/store"
)

// List is windows as they were cut, by series and time.
type List struct {
	Windows []Kept
	More    bool // than were asked for
	Damaged int  // could not be read
	// Coverage counts those that are listed.
	Coverage Coverage
}

// Kept is a window without what was sampled.
type Kept struct {
	Head     profile.Head
	Run      profile.Run
	N, Value int64
	Pruned   int64         // of the value, what lost its callers as threads were pruned
	Period   time.Duration // between samples of a CPU; 0: they are not taken by time
	Stacks   int
}

// errEnough ends a scan.
var errEnough = errors.New("so many were asked for")

// Windows lists the windows that are selected and have values of the kind.
func (a Asker) Windows(ctx context.Context, s Selection, limit int) (*List, error) {
	about, q, list := s.raw(), a.question(s), &List{}
	err := q.noteDropped(ctx, []store.Query{about})
	if err != nil {
		return nil, err
	}
	err = a.Store.Scan(ctx, a.Tenant, about, func(w *profile.Window, run profile.Run) error {
		if len(list.Windows) == limit {
			list.More = true
			return errEnough
		}
		kept := Kept{Head: w.Head, Run: run, N: w.N(), Stacks: len(w.Stacks)}
		for i, t := range w.Types {
			if !about.Measures(t.Kind) {
				continue
			}
			kept.Value += w.Total(i)
			kept.Pruned += prune.Sum(w, i)
			if t.Unit == "nanoseconds" {
				kept.Period = time.Duration(t.Period)
			}
		}
		list.Windows = append(list.Windows, kept)
		q.list(&kept)
		return nil
	})
	var damaged *store.DamagedError
	switch {
	case errors.As(err, &damaged):
		q.damage.Add(damaged.Damage)
	case err != nil && !errors.Is(err, errEnough):
		return nil, fmt.Errorf("list windows: %w", err)
	}
	list.Damaged = q.damage.Count()
	list.Coverage, err = q.covered(ctx)
	return list, err
}

// list counts a window that is listed.
func (q *question) list(w *Kept) {
	q.heads.Add(w.Head.Target, &w.Head)
	c := &q.coverage
	c.Windows++
	c.N += w.N
	c.Value += w.Value
	c.Pruned += w.Pruned
	c.CPU += w.Head.Exact.CPU
	c.Cost.Add(w.Head.Cost)
	for _, l := range w.Head.Losses {
		if !l.Reason.OfWindows() { // those are counted with their machines: see covered
			addLoss(&c.Losses, l)
		}
	}
}
