package disk

import (
	"context"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Scan gives windows one by one; see store.Store.
func (s *Store) Scan(ctx context.Context, tenant string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	t, err := s.tenant(tenant)
	if err != nil {
		return err
	}
	numbers, all := t.chosen(q)
	slices.SortFunc(numbers, func(a, b uint32) int { return strings.Compare(all[a].written, all[b].written) })
	for _, n := range numbers {
		t.mu.Lock()
		d, err := s.dictionary(t, all[n].service)
		t.mu.Unlock()
		if err != nil {
			return err
		}
		err = s.windows(ctx, t, q, n, all[n], func(_ []byte, data window, start time.Time, task string, run profile.Run) error {
			kept, ok := decodeWindow(data)
			calls := d.all()
			if rows := kept.Rows.Stack; !ok || len(rows) > 0 && int64(rows[len(rows)-1]) >= int64(len(calls)) {
				s.log.Error("a window is damaged", "series", all[n].written, "start", start)
				return nil
			}
			kept.Head.Start, kept.Head.Task, kept.Head.Target = start, task, all[n].labels
			return each(t.open(&kept, calls), run)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// open makes a window of what is kept: its rows' calls become stacks again.
func (t *tenant) open(kept *store.Window, calls []call) *profile.Window {
	b := profile.NewBuilder(kept.Head)
	locations := map[uint32]profile.LocationID{}
	stacks := make([]profile.StackID, len(kept.Rows.Stack))
	var stack []profile.LocationID
	for i, leaf := range kept.Rows.Stack {
		stack = stack[:0]
		at := leaf
		for ; calls[at].caller != nobody; at = calls[at].caller {
			number := calls[at].place
			id, ok := locations[number]
			if !ok {
				place := t.places.at(number)
				id = b.Location(place.Location, place.Names...)
				locations[number] = id
			}
			stack = append(stack, id)
		}
		stacks[i] = b.Stack(stack, profile.End(calls[at].place))
	}
	w := b.Window()
	w.Threads, w.Contexts = kept.Threads, kept.Contexts
	w.Rows = kept.OpenRows(stacks)
	return w
}
