package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// IntervalOf is when the interval begins that a window of a task lies in, by its
// middle. Agents cut at edges of the clock, some moments late, and their clocks may be
// a second off; what has begun or ended within an interval, and half of a window that
// was cut in two, lies in it all the same.
func IntervalOf(h *profile.Head, length time.Duration) time.Time {
	return h.Start.Add(h.Duration / 2).Truncate(length).UTC()
}

// Intervals are times that follow each other, of a task's windows of one service.
type Intervals struct {
	Task, Service string
	First         time.Time // when the first one begins, as IntervalOf has it
	Length        time.Duration
	Count         int
}

// Told gives what policies are told of a service: of each interval a window, of all
// instances together. Intervals of which nothing is kept are left out. Nothing else is
// read: how whole it is tells no policy anything.
func (a Asker) Told(ctx context.Context, in Intervals) (windows []freq.Window, err error) {
	part := store.Query{Level: store.Raw, Select: spec.Selector{{Label: store.ServiceLabel, Op: spec.Equal, Value: in.Service}}, Task: in.Task,
		Kinds: []string{spec.KindCPU}, From: in.First.Add(-in.Length / 2), To: in.First.Add(time.Duration(in.Count) * in.Length)}
	parts, g, sampled := []store.Query{part}, store.Grouping{Start: in.First, Step: in.Length}, map[int64]rates{}
	err = a.Store.Heads(ctx, a.Tenant, parts, func(h store.Head) error {
		at := g.StepOf(h.Head).UnixNano()
		if sampled[at] == nil {
			sampled[at] = rates{}
		}
		used := h.Head.Exact.CPU // by which an instance has samples
		if used <= 0 {
			used = h.Head.Duration
		}
		sampled[at][hertz(h.Head)] += used
		return nil
	})
	if err != nil && !errors.As(err, new(*store.DamagedError)) {
		return nil, fmt.Errorf("read the heads of windows: %w", err)
	}
	m, err := a.Store.Merge(ctx, a.Tenant, parts, g)
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		if n := c.Start.Sub(in.First) / in.Length; n < 0 || n >= time.Duration(in.Count) || c.Windows == 0 {
			continue // it is of another interval, or all of it is damaged
		}
		windows = append(windows, freq.Window{Start: c.Start, Length: in.Length,
			Hertz: sampled[c.Start.UnixNano()].mean(), Functions: running(m.Forest, c.Sums)})
	}
	return windows, nil
}

// rates says how much CPU time was sampled at which rate.
type rates map[float64]time.Duration

// hertz is how often a window was sampled; 0: nobody knows.
func hertz(h *profile.Head) float64 {
	if h.Rate.Hertz > 0 {
		return h.Rate.Hertz
	}
	for _, t := range h.Types {
		if t.Unit == "nanoseconds" && t.Period > 0 {
			return float64(time.Second) / float64(t.Period)
		}
	}
	return 0
}

// mean is that of rates, each for as much as was used at it: where some instances have
// heard of a new one already, or have a budget, they count by their samples. What is added up in
// order does not depend on who came first.
func (r rates) mean() float64 {
	var sum, time float64
	for _, hertz := range slices.Sorted(maps.Keys(r)) {
		if hertz > 0 {
			sum += hertz * r[hertz].Seconds()
			time += r[hertz].Seconds()
		}
	}
	if time == 0 {
		return 0
	}
	return sum / time
}

// running counts how often each function was found running itself, in effective
// samples: as many as would tell as much if all weighed the same (Kish). They are
// rounded to thousandths, since sums of squares differ in their last bits by the order
// in which windows are added up, and decisions are not to.
func running(forest *profile.Forest, sums []store.Sum) (functions []freq.Function) {
	values, whole, squares := map[string]int64{}, int64(0), 0.0
	for i := range sums {
		values[leaf(forest, sums[i].Call)] += sums[i].Value
		whole += sums[i].Value
		squares += sums[i].Squares
	}
	if whole <= 0 || squares <= 0 {
		return nil
	}
	perValue := float64(whole) / squares
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if n := math.Round(1000*float64(values[name])*perValue) / 1000; n > 0 {
			functions = append(functions, freq.Function{Name: name, N: n})
		}
	}
	return functions
}

// leaf names what ran where a stack ends.
func leaf(f *profile.Forest, call int) string {
	c := &f.Calls[call]
	if c.Caller < 0 {
		return "[" + c.End.String() + "]"
	}
	p := &f.Places[c.Place]
	if len(p.Names) > 0 {
		return p.Names[0].Function
	}
	return profile.Unnamed(p.Location.Kind, p.Location.BuildID, p.Location.Offset).Function
}
