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
	// Service has that of the service: what other instances would be like. It
	// needs two replicate groups.
	Service      stats.Interval
	ServiceKnown bool
}

// sums is what is added up of a function.
type sums struct {
	frame       profile.Frame
	self, total amount
}

type amount struct {
	n, value int64
	squares  float64
	groups   [store.Groups]float64
}

func (a *amount) add(s *store.Sum) {
	a.n += s.N
	a.value += s.Value
	a.squares += s.Squares
	for g, v := range s.Groups {
		a.groups[g] += float64(v)
	}
}

// Top gives the functions of a selection, as many as limit; 0: all.
func (a Asker) Top(ctx context.Context, s Selection, limit int) (*Top, error) {
	q := a.question(s)
	m, err := q.merge(ctx, s.From, s.To, "", store.Grouping{})
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
	top.Exact = c.Head.Exact
	for _, t := range c.Head.Types {
		if t.Kind == s.Kind {
			top.Unit = t.Unit
		}
	}
	functions, whole := fold(m.Forest, c.Sums)
	top.N, top.Value = whole.n, whole.value
	slices.SortFunc(functions, func(x, y *sums) int {
		return cmp.Or(cmp.Compare(y.self.value, x.self.value), cmp.Compare(y.total.value, x.total.value), cmp.Compare(x.frame.Function, y.frame.Function))
	})
	if limit > 0 && len(functions) > limit {
		functions = functions[:limit]
	}
	for _, f := range functions {
		top.Functions = append(top.Functions, Function{f.frame, top.amount(&f.self, whole), top.amount(&f.total, whole)})
	}
	return top, nil
}

// fold adds sums up by function. A stack counts once for a function, however
// often that is on it.
func fold(forest *profile.Forest, all []store.Sum) ([]*sums, *amount) {
	frames := make([][]*sums, len(forest.Places)) // of each place, innermost first
	index := map[profile.FrameKey]*sums{}
	var functions []*sums
	of := func(place int) []*sums {
		if frames[place] != nil {
			return frames[place]
		}
		p := &forest.Places[place]
		names := p.Names
		if len(names) == 0 {
			names = []profile.Frame{profile.Unnamed(p.Location.Kind, p.Location.BuildID, p.Location.Offset)}
		}
		for _, frame := range names {
			key := frame.Key()
			f := index[key]
			if f == nil {
				f = &sums{frame: frame}
				index[key] = f
				functions = append(functions, f)
			}
			frames[place] = append(frames[place], f)
		}
		return frames[place]
	}
	whole := &amount{}
	seen := map[*sums]int{} // the last stack that counted for it
	for i := range all {
		s := &all[i]
		whole.add(s)
		leaf := true
		for call := s.Call; call >= 0; call = forest.Calls[call].Caller {
			if forest.Calls[call].Place < 0 {
				continue
			}
			for _, f := range of(forest.Calls[call].Place) {
				if leaf {
					f.self.add(s)
					leaf = false
				}
				if seen[f] != i+1 {
					seen[f] = i + 1
					f.total.add(s)
				}
			}
		}
	}
	return functions, whole
}

func (t *Top) amount(a, whole *amount) Amount {
	out := Amount{N: a.n, Value: a.value,
		Share: stats.Share(stats.Sums{N: a.n, Weight: float64(a.value), Squares: a.squares}, stats.Sums{N: whole.n, Weight: float64(whole.value), Squares: whole.squares})}
	out.Service, out.ServiceKnown = stats.JackknifeShare(a.groups[:], whole.groups[:])
	switch {
	case t.Unit == "nanoseconds" && t.Exact.CPU > 0:
		out.Seconds = stats.TotalFromShare(out.Share, t.Exact.CPU.Seconds()).Value
	case t.Unit == "nanoseconds":
		out.Seconds = time.Duration(a.value).Seconds()
	}
	return out
}
