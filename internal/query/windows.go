package query

import (
	"context"
	"errors"
	"fmt"

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
		list.Windows = append(list.Windows, Kept{Head: w.Head, Run: run, N: w.N(), Value: w.Total(kind), Stacks: len(w.Stacks)})
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
