package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

// Top is a selection's functions.
type Top struct {
	Functions []Function // those with most self first
	N         int64
	Value     int64
	Exact     profile.Exact
	Unit      string
	Coverage  Coverage

	base      profile.Base      // of the values
	instances profile.Instances // that were recorded, where not all were
}

// Function is one of a Top. Seconds are what its share is of the exact time
// used; where that is not known they are what was sampled.
type Function struct {
	Frame       profile.Frame
	Self, Total Amount
}

// Amount is what was sampled of a function.
type Amount struct {
	N       int64
	Value   int64
	Seconds float64
	// Share has the interval of this selection: what sampling leaves open.
	Share stats.Interval
	// Service has that of the service: what other instances would be like or,
	// where some of those that were eligible were recorded, all of them. It needs
	// three instances or, where they are not told apart, three replicate groups.
	Service      stats.Interval
	ServiceKnown bool
}

type amount struct {
	n, value int64
	squares  float64
	groups   [store.Groups]float64
	apart    []float64 // by instance; nil: they are not told apart, or have nothing of it
}

// add adds a sum, with what instances have of it or, where they are not told apart,
// groups: there may be a million of these, of functions on stacks.
func (a *amount) add(s *store.Sum, of ofStack) {
	a.n += s.N
	a.value += s.Value
	a.squares += s.Squares
	if of.instances > 0 {
		a.addApart(of)
		return
	}
	a.addGroups(s)
}

// merge adds another amount, of which instances are not told apart.
func (a *amount) merge(o *amount) {
	a.n, a.value, a.squares = a.n+o.n, a.value+o.value, a.squares+o.squares
	for g, v := range o.groups {
		a.groups[g] += v
	}
}

// takeAway takes a part of an amount away. Sums of squares may differ in their last bits.
func (a *amount) takeAway(o *amount) {
	a.n, a.value, a.squares = a.n-o.n, a.value-o.value, max(a.squares-o.squares, 0)
	for g, v := range o.groups {
		a.groups[g] -= v
	}
}

func (a *amount) addGroups(s *store.Sum) {
	for g, v := range s.Groups {
		a.groups[g] += float64(v)
	}
}

// sums are what intervals of the selection are made of.
func (a *amount) sums() stats.Sums {
	return stats.Sums{N: a.n, Weight: float64(a.value), Squares: a.squares}
}

// ofService is the share that a has in the service, of which some instances were
// recorded.
func (a *amount) ofService(whole *amount, selection stats.Interval, i profile.Instances) (stats.Interval, bool) {
	c := a.clusters(whole)
	c.Recorded, c.Eligible = i.Recorded, i.Eligible
	share, why := c.ServiceShare(selection)
	return share, why == ""
}

// Top gives the functions of a selection, as many as limit; 0: all.
func (a Asker) Top(ctx context.Context, s Selection, view View, limit int) (*Top, error) {
	q := a.question(s)
	if err := q.tellApart(ctx, "", 0); err != nil {
		return nil, err
	}
	m, err := q.merge(ctx, s.From, s.To, "", nil, store.Grouping{MaxInstances: mostApart})
	if err != nil {
		return nil, err
	}
	top := &Top{}
	if top.Coverage, err = q.covered(ctx); err != nil {
		return nil, err
	}
	if len(m.Columns) == 0 {
		return top, nil
	}
	c := &m.Columns[0]
	top.Exact, top.instances = c.Head.Exact, c.Head.Instances
	t, err := commonType(c.Head.Types)
	if err != nil {
		return nil, err
	}
	top.Unit, top.base = t.Unit, t.Base
	v := view.over(m.Forest)
	functions, whole := v.fold(c)
	top.N, top.Value = whole.n, whole.value
	slices.SortFunc(functions, func(x, y *function) int {
		return cmp.Or(cmp.Compare(y.self.value, x.self.value), cmp.Compare(y.total.value, x.total.value), cmp.Compare(x.frame.Function, y.frame.Function))
	})
	if limit > 0 && len(functions) > limit {
		functions = functions[:limit]
	}
	for _, f := range functions {
		if !v.classed() {
			f.frame.Class = v.class(f.frame)
		}
		top.Functions = append(top.Functions, Function{f.frame, top.amount(&f.self, whole), top.amount(&f.total, whole)})
	}
	return top, nil
}

func (t *Top) amount(a, whole *amount) Amount {
	out := Amount{N: a.n, Value: a.value, Share: stats.Share(a.sums(), whole.sums())}
	out.Service, out.ServiceKnown = a.ofService(whole, out.Share, t.instances)
	switch exact := time.Duration(t.Exact.Of(t.base)); {
	case t.Unit == "nanoseconds" && exact > 0:
		out.Seconds = stats.TotalFromShare(out.Share, exact.Seconds()).Value
	case t.Unit == "nanoseconds":
		out.Seconds = time.Duration(a.value).Seconds()
	}
	return out
}
