package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
)

// SeriesOptions say what lines a Series has.
type SeriesOptions struct {
	Step  time.Duration
	By    string // a line for each value of this label; "": for each function, with its self values
	Limit int    // lines at most, besides the one of all others
}

// Line is values over time.
type Line struct {
	Name   string
	Other  bool // it is what all other lines are not
	Value  int64
	Points []Point // one for each step, by time
}

// Point is what a line has of a step. Its shares are of the step.
type Point struct {
	Start        time.Time
	N, Value     int64
	Share        stats.Interval // of this selection
	Service      stats.Interval // of the service; see Amount
	ServiceKnown bool
}

// SeriesAnswer is the answer of Series.
type SeriesAnswer struct {
	Lines    []Line // those with most first, the one of all others last
	Unit     string
	Coverage Coverage
}

// Series gives the values of functions, or of the values of a label, over time. Which lines
// there are is decided by what all of the time adds up to, in windows that are as long as
// possible; steps are then merged one after another.
func (a Asker) Series(ctx context.Context, s Selection, o SeriesOptions) (*SeriesAnswer, error) {
	l := &liner{options: o, answer: &SeriesAnswer{}, lines: map[string]int{}}
	if err := l.choose(ctx, a, s); err != nil {
		return nil, err
	}
	q := a.question(s)
	for at := s.From.Truncate(o.Step); at.Before(s.To); at = at.Add(o.Step) {
		if err := l.step(ctx, q, at, later(at, s.From), earlier(at.Add(o.Step), s.To)); err != nil {
			return nil, err
		}
	}
	if n := len(l.answer.Lines) - 1; n >= 0 && l.answer.Lines[n].Value == 0 && l.answer.Lines[n].Other {
		l.answer.Lines = l.answer.Lines[:n]
	}
	var err error
	l.answer.Coverage, err = q.covered(ctx)
	return l.answer, err
}

// liner adds the steps of a series.
type liner struct {
	options SeriesOptions
	answer  *SeriesAnswer
	lines   map[string]int // in the answer, by name; not the one of all others
	few     bool           // by label: lines are of all values that there are
}

// choose decides which lines there are.
func (l *liner) choose(ctx context.Context, a Asker, s Selection) error {
	values := map[string]int64{}
	if l.options.By == "" {
		q := a.question(s)
		m, err := q.merge(ctx, s.From, s.To, "", nil, store.Grouping{})
		if err != nil {
			return err
		}
		for i := range m.Columns {
			functions, _ := View{}.over(m.Forest).selfs(&m.Columns[i])
			for _, f := range functions {
				values[f.frame.Function] += f.self.value
			}
		}
	} else {
		p := &splitter{by: Split{By: l.options.By}}
		if err := p.step(ctx, a.question(s), time.Time{}, s.From, s.To); err != nil {
			return err
		}
		for _, part := range p.parts {
			values[part.By] += part.Value
		}
		l.few = len(values) <= atOnce
	}
	names := slices.SortedFunc(maps.Keys(values), func(x, y string) int { return cmp.Or(cmp.Compare(values[y], values[x]), cmp.Compare(x, y)) })
	for i, name := range names {
		if i == l.options.Limit || values[name] == 0 {
			break
		}
		l.lines[name] = i
		l.answer.Lines = append(l.answer.Lines, Line{Name: name})
	}
	l.answer.Lines = append(l.answer.Lines, Line{Other: true})
	return nil
}

// step adds a point to each line.
func (l *liner) step(ctx context.Context, q *question, start, from, to time.Time) error {
	lines := make([]amount, len(l.answer.Lines))
	var whole amount
	var instances profile.Instances
	var g store.Grouping
	if l.few {
		g.By = []store.Dimension{store.ByLabel(l.options.By)}
	}
	m, err := q.merge(ctx, from, to, l.options.By, nil, g)
	if err != nil {
		return err
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		t, err := commonType(c.Head.Types)
		if err != nil {
			return err
		}
		l.answer.Unit = t.Unit
		instances.Absorb(c.Head.Instances)
		if l.options.By != "" {
			of := sumOf(c)
			if whole.merge(of); l.few {
				l.lineOf(lines, c.By[0]).merge(of)
			}
			continue
		}
		functions, all := View{}.over(m.Forest).selfs(c)
		whole.merge(all)
		for _, f := range functions {
			l.lineOf(lines, f.frame.Function).merge(&f.self)
		}
	}
	if l.options.By != "" && !l.few {
		if err := l.some(ctx, q, lines, from, to); err != nil {
			return err
		}
	}
	other := &lines[len(lines)-1]
	*other = whole
	for i := range lines[:len(lines)-1] {
		other.takeAway(&lines[i])
	}
	for i := range lines {
		a, line := &lines[i], &l.answer.Lines[i]
		p := Point{Start: start, N: a.n, Value: a.value, Share: stats.Share(a.sums(), whole.sums())}
		if whole.n > 0 {
			p.Service, p.ServiceKnown = a.ofService(&whole, p.Share, instances)
		}
		line.Value += a.value
		line.Points = append(line.Points, p)
	}
	return nil
}

// some merges those values of a label that have lines. The whole of the step is counted
// already.
func (l *liner) some(ctx context.Context, q *question, lines []amount, from, to time.Time) error {
	for names := range slices.Chunk(slices.Collect(maps.Keys(l.lines)), atOnce) {
		only := spec.Selector{spec.OneOf(l.options.By, names)}
		m, err := q.Asker.question(q.Selection).merge(ctx, from, to, l.options.By, only, store.Grouping{By: []store.Dimension{store.ByLabel(l.options.By)}})
		if err != nil {
			return err
		}
		for i := range m.Columns {
			c := &m.Columns[i]
			l.lineOf(lines, c.By[0]).merge(sumOf(c))
		}
	}
	return nil
}

// lineOf finds the line of a name; those of no line go to the others.
func (l *liner) lineOf(lines []amount, name string) *amount {
	if at, ok := l.lines[name]; ok {
		return &lines[at]
	}
	return &lines[len(lines)-1]
}

// sumOf is all of a column.
func sumOf(c *store.Column) *amount {
	var all amount
	for i := range c.Sums {
		all.add(&c.Sums[i], ofStack{})
	}
	return &all
}
