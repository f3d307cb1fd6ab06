package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

const (
	// mostApart is how many instances are told apart at most: from 30 on eight groups
	// of them tell how they differ as well as is asked for (bench/service), and room
	// for each would be taken by every function.
	mostApart = 29
	// fewestApart are needed to tell how instances differ; see stats.Clusters.
	fewestApart = 3
	// mostWindows are read at most where some of the service would do but for telling
	// instances apart, in windows as they are cut: they take a tenth of a second.
	mostWindows = 20_000
)

// apart is what instances have of a column, by stack. Nil: they are not told apart.
type apart struct {
	instances int
	starts    []int32 // of each call's values, and behind the last
	values    []ofInstance
}

type ofInstance struct {
	instance int
	value    float64
}

// ofStack is what instances have of a stack. The zero value: they are not told apart.
type ofStack struct {
	instances int
	values    []ofInstance
}

func newApart(c *store.Column, f *profile.Forest) *apart {
	if len(c.Instances) == 0 {
		return nil
	}
	p := &apart{instances: len(c.Instances), starts: make([]int32, len(f.Calls)+1)}
	for i := range c.Instances {
		for _, v := range c.Instances[i].Values {
			p.starts[v.Call+1]++
		}
	}
	for call := range f.Calls {
		p.starts[call+1] += p.starts[call]
	}
	p.values = make([]ofInstance, p.starts[len(f.Calls)])
	next := slices.Clone(p.starts)
	for i := range c.Instances {
		for _, v := range c.Instances[i].Values {
			p.values[next[v.Call]] = ofInstance{i, float64(v.Value)}
			next[v.Call]++
		}
	}
	return p
}

func (p *apart) of(call int) ofStack {
	if p == nil {
		return ofStack{}
	}
	return ofStack{p.instances, p.values[p.starts[call]:p.starts[call+1]]}
}

// addApart adds what instances have of a stack.
func (a *amount) addApart(of ofStack) {
	if a.apart == nil && len(of.values) > 0 {
		a.apart = make([]float64, of.instances)
	}
	for _, v := range of.values {
		a.apart[v.instance] += v.value
	}
}

// clusters are an amount and its whole by instance or, where these are not told
// apart, by replicate group.
func (a *amount) clusters(whole *amount) stats.Clusters {
	switch {
	case whole.apart == nil:
		return stats.Clusters{Part: a.groups[:], Whole: whole.groups[:]}
	case a.apart == nil:
		return stats.Clusters{Part: make([]float64, len(whole.apart)), Whole: whole.apart, Apart: true}
	}
	return stats.Clusters{Part: a.apart, Whole: whole.apart, Apart: true}
}

// tellApart has a question about services read windows of their series, which are
// of one instance each, where that takes little more: what is added up of a service
// has its instances in eight groups. Of fewer than three there is nothing to tell.
func (q *question) tellApart(ctx context.Context, by string, step time.Duration) error {
	parts, err := q.parts(ctx, q.From, q.To, q.levels(by))
	if err != nil || !slices.ContainsFunc(parts, func(p store.Query) bool { return p.Level.Services() }) {
		return err
	}
	if parts, err = q.parts(ctx, q.From, q.To, ofSeries); err != nil {
		return err
	}
	lacks, err := q.droppedOf(ctx, parts, nil)
	windows := q.stands.windowsOf(q.From, q.To, step)
	if err != nil || len(lacks) > 0 || windows*fewestApart > mostWindows {
		return err
	}
	instances := map[string]bool{}
	_, err = q.series(ctx, parts, func(labels profile.Labels) { instances[store.Instance(labels)] = true })
	n := len(instances)
	q.bySeries = fewestApart <= n && n <= mostApart && n*windows <= mostWindows
	return err
}

// asManyAs is how many windows as they are cut take as long to read as one of a
// level: an hour of a series has twenty times the stacks, and each with more to say
// (63 in BenchmarkMerge of store/disk).
var asManyAs = map[store.Level]int{store.Raw: 1, store.Series10m: 20, store.Series1h: 60}

// windowsOf is about how many windows of a series are to be read of what is asked
// for, in steps or at once.
func (s *standing) windowsOf(from, to time.Time, step time.Duration) (n int) {
	if step == 0 {
		step = to.Sub(from)
	}
	for at := from; at.Before(to) && n <= mostWindows; at = at.Add(step) {
		for _, p := range s.plan(at, earlier(at.Add(step), to), ofSeries) {
			length := cmp.Or(p.Level.Length(), spec.DefaultWindow)
			n += asManyAs[p.Level] * int((p.To.Sub(p.From)+length-1)/length)
		}
	}
	return n
}
