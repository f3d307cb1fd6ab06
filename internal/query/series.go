package query

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

// Split says into what parts a selection is taken.
type Split struct {
	Step     time.Duration // parts of this length; 0: all of the time
	By       string        // a part for each value of this label, or of ByThread; "": none
	Context  string        // a part for each value of this part of contexts, see store.ContextParts; "": none
	Function string        // of what is in, or was called by, functions of this name; "": of all
	Pooled   bool          // have steps of the function say what they know of each other
	Width    float64       // half of the interval that makes a pooled step final; 0: freq.DefaultWidth
}

// ByThread splits by the patterns of threads' names.
const ByThread = "thread"

// Part is one of a selection.
type Part struct {
	Start   time.Time // of its step; zero where there are none
	By      string
	Windows int
	N       int64
	Value   int64
	CPU     time.Duration // exactly used by all of the part, whatever function is asked for
	// Share is the function's of the part or, where none is asked for, the part's
	// of all: with the interval of this selection.
	Share stats.Interval
	// Service is the same with that of the service: what other instances would be
	// like. It needs three instances of the part or, where they are not told apart,
	// three replicate groups.
	Service      stats.Interval
	ServiceKnown bool
	Pooled       *Pooled // nil: it was not asked for, or nothing was sampled
	instances    profile.Instances
}

// Split takes a selection apart. Parts come in the order of time, then of what
// they are split by. Steps are merged one after another, and of a label's values
// some at a time: all at once they could take more memory than there is.
func (a Asker) Split(ctx context.Context, s Selection, by Split) ([]Part, Coverage, error) {
	if by.Pooled && (by.Step == 0 || by.By != "" || by.Context != "" || by.Function == "") {
		return nil, Coverage{}, ErrNotPooled
	}
	q := a.question(s)
	p := &splitter{by: by, instances: map[string]float64{}}
	if err := q.tellApart(ctx, by.By, by.Step); err != nil {
		return nil, Coverage{}, err
	}
	if by.Step == 0 {
		if err := p.step(ctx, q, time.Time{}, s.From, s.To); err != nil {
			return nil, Coverage{}, err
		}
	} else {
		for at := s.From.Truncate(by.Step); at.Before(s.To); at = at.Add(by.Step) {
			if err := p.step(ctx, q, at, later(at, s.From), earlier(at.Add(by.Step), s.To)); err != nil {
				return nil, Coverage{}, err
			}
		}
	}
	if by.Function == "" {
		p.shareOfAll()
	}
	if by.Pooled {
		pool(p.parts, p.steps, by.Width)
	}
	coverage, err := q.covered(ctx)
	return p.parts, coverage, err
}

// share has a part, of which all is given, tell what is a's of the whole. One that
// is of one instance, or of one group, is no sample of such parts.
func (p *Part) share(a, whole, all *amount) {
	p.Share = stats.Share(a.sums(), whole.sums())
	used := 0
	for _, v := range all.clusters(whole).Part {
		if v > 0 {
			used++
		}
	}
	if used >= fewestApart {
		p.Service, p.ServiceKnown = a.ofService(whole, p.Share, p.instances)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// atOnce is how many parts are merged at a time. Each has room for all stacks of
// its service, whether it has samples of them or not.
const atOnce = 16

// splitter gathers parts.
type splitter struct {
	by        Split
	parts     []Part
	wholes    []whole // of each part
	all       amount
	instances map[string]float64 // what each has of all; nil: they are not told apart
	steps     []pooledStep       // that parts are, where they are pooled
}

// whole is all of a part. Which instances these are differs from part to part.
type whole struct {
	amount
	names []string // of the instances
}

// step adds the parts of a step.
func (p *splitter) step(ctx context.Context, q *question, start, from, to time.Time) error {
	if p.by.By == "" || p.by.By == ByThread {
		return p.merge(ctx, q, start, from, to, nil)
	}
	values, err := q.values(ctx, p.by.By, from, to)
	if err != nil {
		return err
	}
	chunks := slices.Collect(slices.Chunk(values, atOnce))
	if len(chunks) == 0 {
		chunks = [][]string{nil}
	}
	for i, some := range chunks {
		only := spec.OneOf(p.by.By, some)
		if i == len(chunks)-1 {
			// Values that are not listed have nothing that can be read: of what they have
			// the answer is to say that it is damaged.
			only = spec.NoneOf(p.by.By, values[:len(values)-len(some)])
		}
		err := p.merge(ctx, q, start, from, to, spec.Selector{only})
		if err != nil {
			return err
		}
	}
	return nil
}

// merge adds the parts of a step, or those that a selector restricts it to.
func (p *splitter) merge(ctx context.Context, q *question, start, from, to time.Time, only spec.Selector) error {
	g := store.Grouping{MaxInstances: mostApart}
	switch p.by.By {
	case "":
	case ByThread:
		g.By = []store.Dimension{store.ByThread}
	default:
		g.By = []store.Dimension{store.ByLabel(p.by.By)}
	}
	if p.by.Context != "" {
		g.By = append(g.By, store.ByContext(p.by.Context))
	}
	m, err := q.merge(ctx, from, to, p.by.By, only, g)
	if err != nil {
		return err
	}
	within := stacksOf(m.Forest, p.by.Function)
	for i := range m.Columns {
		c := &m.Columns[i]
		part := Part{Start: start, By: strings.Join(c.By, ""), Windows: c.Windows, CPU: c.Head.Exact.CPU, instances: c.Head.Instances}
		var sums amount
		var all whole
		apart := newApart(c, m.Forest)
		for i := range c.Sums {
			sum := &c.Sums[i]
			of := apart.of(sum.Call)
			all.add(sum, of)
			if of.instances > 0 { // other parts may have more of them
				all.addGroups(sum)
			}
			if within == nil || within[sum.Call] {
				sums.add(sum, of)
			}
		}
		part.N, part.Value = sums.n, sums.value
		part.share(&sums, &all.amount, &all.amount)
		p.take(&all, c)
		p.parts, p.wholes = append(p.parts, part), append(p.wholes, all)
		if p.by.Pooled {
			s := pooledStep{window: freq.Window{Start: start, Length: to.Sub(from), Functions: running(m.Forest, c.Sums)}}
			if err := s.tellParts(ctx, q, from, to, p.by.Function); err != nil {
				return err
			}
			p.steps = append(p.steps, s)
		}
	}
	return nil
}

// take adds a part, which is a column, to all.
func (p *splitter) take(part *whole, c *store.Column) {
	p.all.merge(&part.amount)
	if c.Instances == nil && part.n > 0 {
		p.instances = nil
	}
	if p.instances == nil || part.apart == nil {
		return
	}
	for i, v := range part.apart {
		part.names = append(part.names, c.Instances[i].Name)
		p.instances[c.Instances[i].Name] += v
	}
	if len(p.instances) > mostApart {
		p.instances = nil
	}
}

// shareOfAll has each part tell what it is of all.
func (p *splitter) shareOfAll() {
	all, at := p.all, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(p.instances)) {
		at[name] = len(all.apart)
		all.apart = append(all.apart, p.instances[name])
	}
	for i := range p.parts {
		part := p.wholes[i].amount
		part.apart = nil
		if all.apart != nil {
			part.apart = make([]float64, len(all.apart))
			for n, name := range p.wholes[i].names {
				part.apart[at[name]] = p.wholes[i].apart[n]
			}
		}
		p.parts[i].share(&part, &all, &part)
	}
}

// stacksOf tells which stacks have a function on them; nil: all do.
func stacksOf(f *profile.Forest, function string) []bool {
	if function == "" {
		return nil
	}
	named := make([]bool, len(f.Places))
	for i := range f.Places {
		named[i] = slices.ContainsFunc(f.Places[i].Names, func(frame profile.Frame) bool { return frame.Function == function })
	}
	within := make([]bool, len(f.Calls))
	for i, c := range f.Calls { // callers come first
		within[i] = c.Caller >= 0 && within[c.Caller] || c.Place >= 0 && named[c.Place]
	}
	return within
}
