package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// List is windows as they were cut, by series and time.
type List struct {
	Windows []Kept
	More    bool // than were asked for
	Damaged int  // could not be read
}

// Kept is a window without what was sampled.
type Kept struct {
	Head     profile.Head
	Run      profile.Run
	N, Value int64
	Period   time.Duration // between samples of a CPU; 0: they are not taken by time
	Stacks   int
}

// errEnough ends a scan.
var errEnough = errors.New("so many were asked for")

// Windows lists the windows that are selected and have values of the kind.
func (a Asker) Windows(ctx context.Context, s Selection, limit int) (*List, error) {
	about := store.Query{Level: store.Raw, From: s.From, To: s.To}
	s.choose(&about)
	list := &List{}
	err := a.Store.Scan(ctx, a.Tenant, about, func(w *profile.Window, run profile.Run) error {
		kind := w.TypeIndex(s.Kind)
		if kind < 0 {
			return nil
		}
		if len(list.Windows) == limit {
			list.More = true
			return errEnough
		}
		kept := Kept{Head: w.Head, Run: run, N: w.N(), Value: w.Total(kind), Stacks: len(w.Stacks)}
		if t := w.Types[kind]; t.Unit == "nanoseconds" {
			kept.Period = time.Duration(t.Period)
		}
		list.Windows = append(list.Windows, kept)
		return nil
	})
	var damaged *store.DamagedError
	switch {
	case errors.As(err, &damaged):
		list.Damaged = damaged.Parts
	case err != nil && !errors.Is(err, errEnough):
		return nil, fmt.Errorf("list windows: %w", err)
	}
	return list, nil
}
