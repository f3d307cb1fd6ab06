package query

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// worn is a shelf whose tables are damaged, and all windows of one series.
type worn struct {
	*shelf
	hidden profile.Labels
}

var tables = map[string]int{"tenant": 3, "stacks of shop": 2}

func (w *worn) damage(parts ...store.Query) (d store.Damage) {
	d.Tables = tables
	for _, q := range parts {
		if q.Level == store.Raw && q.Select.Matches(w.hidden) {
			d.Parts++
		}
	}
	return d
}

func (w *worn) Merge(ctx context.Context, tenant string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	m, err := w.shelf.Merge(ctx, tenant, parts, g)
	if err == nil {
		m.Damaged = w.damage(parts...)
	}
	return m, err
}

func (w *worn) Series(ctx context.Context, tenant string, q store.Query) ([]profile.Labels, error) {
	all, err := w.shelf.Series(ctx, tenant, q)
	return all, errors.Join(err, w.damage(q).Err())
}

func (w *worn) Scan(ctx context.Context, tenant string, q store.Query, each func(*profile.Window, profile.Run) error) error {
	err := w.shelf.Scan(ctx, tenant, q, func(window *profile.Window, run profile.Run) error {
		window.Types = []profile.ValueType{{Kind: "cpu"}}
		return each(window, run)
	})
	return errors.Join(err, w.damage(q).Err())
}

// TestDamageOnce has each answer count damaged tables once, into however many
// parts it is taken, and each damaged window once.
func TestDamageOnce(t *testing.T) {
	a := shop()
	kept := &worn{a.Store.(*shelf), profile.Labels{"service": "shop", "instance": "hidden", "node": "n"}}
	for i := range 2 * atOnce { // so that not all are merged at once
		kept.windows = append(kept.windows, written{profile.Labels{"service": "shop", "instance": fmt.Sprint("i", i%5), "many": fmt.Sprint(i)}, head(0), "", map[string]int64{"main": 1}})
	}
	a.Store = kept
	s := about(t, `{service="shop",instance!="none"}`) // as they were cut, minute by minute
	steps := int(s.To.Sub(s.From) / time.Minute)
	const ofTables = 5
	for name, test := range map[string]struct {
		damaged int
		ask     func() (Coverage, error)
	}{
		"merge":     {1, func() (Coverage, error) { _, c, err := a.Merge(t.Context(), s); return c, err }},
		"by label":  {1, func() (Coverage, error) { _, c, err := a.Split(t.Context(), s, Split{By: "many"}); return c, err }},
		"by series": {1, func() (Coverage, error) { _, c, err := a.Split(t.Context(), s, Split{By: "instance"}); return c, err }},
		"steps": {steps, func() (Coverage, error) {
			_, c, err := a.Split(t.Context(), s, Split{Step: time.Minute})
			return c, err
		}},
		"steps by label": {steps, func() (Coverage, error) {
			_, c, err := a.Split(t.Context(), s, Split{Step: time.Minute, By: "many"})
			return c, err
		}},
		"labels":       {1, func() (Coverage, error) { _, c, err := a.Labels(t.Context(), s); return c, err }},
		"windows":      {1, func() (Coverage, error) { return listed(t, a, s, 1000) }},
		"some windows": {1, func() (Coverage, error) { return listed(t, a, s, 2) }},
	} {
		if c, err := test.ask(); err != nil || c.Damaged != test.damaged+ofTables {
			t.Errorf("%s: %d parts are damaged, want %d, %v", name, c.Damaged, test.damaged+ofTables, err)
		}
	}
}

func listed(t *testing.T, a Asker, s Selection, limit int) (Coverage, error) {
	list, err := a.Windows(t.Context(), s, limit)
	if err != nil {
		return Coverage{}, err
	}
	if list.Damaged != list.Coverage.Damaged || len(list.Windows) > limit {
		t.Errorf("%d windows are listed, %d parts damaged, %d by the coverage", len(list.Windows), list.Damaged, list.Coverage.Damaged)
	}
	return list.Coverage, nil
}

// TestDamageWhenAddedUp has what was damaged when windows were added up be told as
// if they were asked for as they were cut. What is of none is no part.
func TestDamageWhenAddedUp(t *testing.T) {
	kept := &added{shop().Store.(*shelf)}
	a := Asker{Store: kept, Tenant: "default"}
	parts, c, err := a.Split(t.Context(), about(t, `{service="shop"}`), Split{By: "service"})
	if err != nil || len(parts) != 1 || parts[0].By != "shop" {
		t.Errorf("%+v, %v", parts, err)
	}
	if h := (profile.Head{Losses: c.Losses}); c.Damaged != 1+4+7 || h.LossOf(profile.LossStoreDamage).N != 0 {
		t.Errorf("%d parts are damaged, and lost is %+v", c.Damaged, c.Losses)
	}
}

// added is a shelf whose columns say that something was damaged.
type added struct{ *shelf }

func (a *added) Merge(ctx context.Context, tenant string, parts []store.Query, g store.Grouping) (*store.Merged, error) {
	m, err := a.shelf.Merge(ctx, tenant, parts, g)
	if err != nil || len(m.Columns) == 0 {
		return m, err
	}
	h := &m.Columns[0].Head
	h.Losses = append(h.Losses[:len(h.Losses):len(h.Losses)], profile.Loss{Reason: profile.LossStoreDamage, N: 4})
	none := store.Column{By: []string{"bank"}, Head: profile.Head{Losses: []profile.Loss{{Reason: profile.LossStoreDamage, N: 7}}}}
	m.Columns = append(m.Columns, none)
	return m, nil
}
