package query

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
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
	t := &teller{Intervals: in, rates: make([]map[float64]time.Duration, in.Count)}
	part := store.Query{Level: store.Raw, Service: in.Service, Task: in.Task,
		From: in.First.Add(-in.Length / 2), To: in.First.Add(time.Duration(in.Count) * in.Length)}
	m, err := a.Store.Merge(ctx, a.Tenant, []store.Query{part}, spec.KindCPU, store.Grouping{Key: t.column})
	if err != nil {
		return nil, fmt.Errorf("merge windows: %w", err)
	}
	for i := range m.Columns {
		c := &m.Columns[i]
		n, err := strconv.Atoi(c.Key)
		if err != nil || c.Windows == 0 { // it is of another interval, or all of it is damaged
			continue
		}
		windows = append(windows, freq.Window{Start: in.First.Add(time.Duration(n) * in.Length), Length: in.Length,
			Hertz: mean(t.rates[n]), Functions: running(m.Forest, c.Sums)})
	}
	slices.SortFunc(windows, func(a, b freq.Window) int { return a.Start.Compare(b.Start) })
	return windows, nil
}

// teller tells windows apart by interval, and notes at which rates they were sampled.
type teller struct {
	Intervals

	mu    sync.Mutex                  // guards rates: windows are added up by several at once
	rates []map[float64]time.Duration // of each interval: how much CPU time was sampled at which
}

// column names the column of a window by its interval's number.
func (t *teller) column(_ profile.Labels, h *profile.Head) string {
	after := IntervalOf(h, t.Length).Sub(t.First)
	n := int(after / t.Length)
	if after < 0 || n >= t.Count {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rates[n] == nil {
		t.rates[n] = map[float64]time.Duration{}
	}
	used := h.Exact.CPU // by which an instance has samples
	if used <= 0 {
		used = h.Duration
	}
	t.rates[n][hertz(h, spec.KindCPU)] += used
	return strconv.Itoa(n)
}

// hertz is how often a window was sampled; 0: nobody knows.
func hertz(h *profile.Head, kind string) float64 {
	if h.Rate.Hertz > 0 {
		return h.Rate.Hertz
	}
	for _, t := range h.Types {
		if t.Kind == kind && t.Unit == "nanoseconds" && t.Period > 0 {
			return float64(time.Second) / float64(t.Period)
		}
	}
	return 0
}

// mean is that of rates, each for as much as was used at it: where some instances have
// heard of a new one already, or have a budget, they count by their samples. What is added up in
// order does not depend on who came first.
func mean(rates map[float64]time.Duration) float64 {
	var sum, time float64
	for _, hertz := range slices.Sorted(maps.Keys(rates)) {
		if hertz > 0 {
			sum += hertz * rates[hertz].Seconds()
			time += rates[hertz].Seconds()
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
