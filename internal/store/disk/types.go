package disk

import (
	"context"
	"errors"
	"math"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Types lists value types; see store.Store.
func (s *Store) Types(ctx context.Context, tenant string, parts []store.Query) ([]profile.ValueType, error) {
	db, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer db.release()
	t, err := s.tenant(db, tenant)
	if err != nil {
		return nil, err
	}
	var all typeCollector
	damaged := 0
	for _, q := range parts {
		c := s.cursor(db, t, q)
		if err := errors.Join(c.types(ctx, &all), c.close()); err != nil {
			return nil, err
		}
		damaged += c.damaged
	}
	return all.Sorted(), t.damage(damaged).Err()
}

// typeCollector collects the types of windows that it reads.
type typeCollector struct {
	store.Types
	columns columns
}

// types adds the types of all windows that the query chooses.
func (c *cursor) types(ctx context.Context, all *typeCollector) error {
	days, err := c.days()
	if err != nil {
		return err
	}
	for _, of := range c.tenant.chosen(c.query) {
		err := c.series(ctx, days, of, func(f *found) error {
			if !all.read(f.data, c.query.Level) {
				c.report(of, f.start, errDamaged)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// read adds the types of a window; false if it is damaged. Rows are read only if the types
// are described behind them, as in version 4, or by a comment, as in version 3.
func (a *typeCollector) read(data []byte, level store.Level) bool {
	r := reader{data: data}
	var w store.Window
	r.types(&w)
	types := w.Head.Types
	_, _, has := r.shape(len(types))
	r.descriptions(has, types, false)
	if level != store.Raw && has&hasOf == 0 {
		return !r.bad // nothing was merged into it: it only reports what was lost
	}
	if !r.bad && r.version < 5 && (r.version == oldestVersion || has&hasTypes != 0) {
		for i, t := range types {
			if !a.columns.read(data, t.Kind, math.MaxInt, parts{}) {
				return false
			}
			types[i] = a.columns.head.Types[0]
		}
	}
	for _, t := range types {
		a.Add(t)
	}
	return !r.bad
}
