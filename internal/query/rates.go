package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// Decided is how often a service was sampled by a task, and why, in one window or in
// several that follow each other.
type Decided struct {
	Task, Service   string
	Start           time.Time
	Duration        time.Duration
	Windows         int          // of all instances
	Instances       int          // most at a time
	Rate            profile.Rate // that most of them had
	Lowest, Highest float64      // Hz, of any of them
	N               int64        // samples
}

// mostRated is how many windows, or sums of some, are looked at: they are remembered
// meanwhile.
const mostRated = 500_000

// ErrTooManyWindows says that an answer is of more than can be looked at.
var ErrTooManyWindows = fmt.Errorf("these are more than %d windows: choose fewer of them, by a selector, by --task, or by a shorter time", mostRated)

// Rates tells how often services were sampled, by task, service and time: each window,
// or where the rate or its reason moved.
func (a Asker) Rates(ctx context.Context, s Selection, all bool) ([]Decided, Coverage, error) {
	part, q, h := s.raw(), a.question(s), newHistory()
	if err := q.noteDropped(ctx, []store.Query{part}); err != nil {
		return nil, Coverage{}, err
	}
	if err := q.readHeads(ctx, []store.Query{part}, h.add); errors.Is(err, ErrTooManyWindows) {
		return nil, Coverage{}, ErrTooManyWindows
	} else if err != nil {
		return nil, Coverage{}, err
	}
	c := &q.coverage
	c.Windows, c.N, c.CPU, c.Cost, c.Losses = h.windows, h.n, h.cpu, h.cost, h.losses
	why, damage, err := a.decisions(ctx, s, h)
	if err != nil {
		return nil, Coverage{}, err
	}
	q.damage.Add(damage)
	coverage, err := q.covered(ctx)
	if err != nil {
		return nil, Coverage{}, err
	}
	rows := h.rows(why)
	if !all {
		rows = moves(rows)
	}
	return rows, coverage, nil
}

// history gathers what windows tell of how often they were sampled.
type history struct {
	seed    maphash.Seed
	of      map[rated][]glance
	rates   map[profile.Rate]int // numbers of those
	kinds   []profile.Rate       // by number
	looked  int                  // windows, and sums of some
	windows int
	n       int64
	cpu     time.Duration
	cost    profile.Cost
	losses  []profile.Loss
}

// rated is a service that a task records.
type rated struct{ task, service string }

// glance is what is remembered of a window.
type glance struct {
	start    time.Time
	duration time.Duration
	n        int64
	of       int // windows that it was added up of
	rate     int
	series   uint64
}

func newHistory() *history {
	return &history{seed: maphash.MakeSeed(), of: map[rated][]glance{}, rates: map[profile.Rate]int{}}
}

// add notes a window, or what was added up of some. Those of machines themselves are of no
// service, and have none but their losses.
func (h *history) add(of store.Head) error {
	head := of.Head
	rate := head.Rate
	rate.Hertz = hertz(head)
	series := maphash.String(h.seed, of.Series.String())
	if h.looked++; h.looked > mostRated {
		return ErrTooManyWindows
	}
	h.windows += of.Of
	h.n += of.N
	h.cpu += head.Exact.CPU
	h.cost.Add(head.Cost)
	for _, l := range head.Losses {
		if !l.Reason.OfWindows() { // those are counted with their machines: see covered
			addLoss(&h.losses, l)
		}
	}
	service := of.Series[store.ServiceLabel]
	if service == "" || rate.Hertz <= 0 {
		return nil
	}
	number, known := h.rates[rate]
	if !known {
		number = len(h.kinds)
		h.rates[rate], h.kinds = number, append(h.kinds, rate)
	}
	key := rated{head.Task, service}
	h.of[key] = append(h.of[key], glance{head.Start, head.Duration, of.N, of.Of, number, series})
	return nil
}

// rows gives a row for each window of a task and a service, of all instances, with the reasons
// of decisions.
func (h *history) rows(why decisions) (rows []Decided) {
	byName := func(a, b rated) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.service, b.service))
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.of), byName) {
		all := h.of[key]
		length, intervals := usual(all), map[time.Time][]glance{}
		for _, g := range all {
			at := IntervalOf(&profile.Head{Start: g.start, Duration: g.duration}, length)
			intervals[at] = append(intervals[at], g)
		}
		for _, at := range slices.SortedFunc(maps.Keys(intervals), time.Time.Compare) {
			d := h.row(key, intervals[at])
			why.explain(key, d.Start, &d.Rate)
			rows = append(rows, d)
		}
	}
	return rows
}

// usual is how long most windows are, in whole seconds: some are cut early, or in
// two, and a profile may have been changed.
func usual(all []glance) (length time.Duration) {
	often := map[time.Duration]int{}
	for _, g := range all {
		often[max(g.duration.Round(time.Second), time.Second)]++
	}
	for _, d := range slices.Sorted(maps.Keys(often)) {
		if often[d] > often[length] {
			length = d
		}
	}
	return length
}

// row is of the windows of one interval.
func (h *history) row(key rated, all []glance) Decided {
	d := Decided{Task: key.task, Service: key.service}
	series, rates, end := map[uint64]bool{}, map[int]int{}, time.Time{}
	for i, g := range all {
		hertz := h.kinds[g.rate].Hertz
		if i == 0 {
			d.Start, d.Lowest, d.Highest = g.start, hertz, hertz
		}
		d.Start, end = earlier(d.Start, g.start), later(end, g.start.Add(g.duration))
		d.Lowest, d.Highest = min(d.Lowest, hertz), max(d.Highest, hertz)
		d.N += g.n
		d.Windows += g.of
		series[g.series] = true
		rates[g.rate] += g.of
	}
	d.Duration, d.Instances, d.Rate = end.Sub(d.Start), len(series), h.most(rates)
	return d
}

// most is the rate that most windows have; of two that as many have the higher. What
// each agent has measured for itself makes no other rate.
func (h *history) most(often map[int]int) profile.Rate {
	plain := func(number int) profile.Rate {
		rate := h.kinds[number]
		rate.Why = ""
		return rate
	}
	windows := map[profile.Rate]int{}
	for number, n := range often {
		windows[plain(number)] += n
	}
	number := slices.MaxFunc(slices.Collect(maps.Keys(often)), func(a, b int) int {
		x, y := h.kinds[a], h.kinds[b]
		return cmp.Or(cmp.Compare(windows[plain(a)], windows[plain(b)]), cmp.Compare(x.Hertz, y.Hertz), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.By, y.By), cmp.Compare(x.Why, y.Why))
	})
	return h.kinds[number]
}

// moves leaves the rows at which the rate or its reason moved, each with what followed
// it until the next.
func moves(rows []Decided) (moved []Decided) {
	for _, d := range rows {
		if n := len(moved) - 1; n >= 0 && moved[n].goesOn(&d) {
			moved[n].extend(&d)
			continue
		}
		moved = append(moved, d)
	}
	return moved
}

// goesOn tells whether another row is of the same, at the same rate and reason.
func (d *Decided) goesOn(o *Decided) bool {
	a, b := d.Rate, o.Rate
	a.Why, b.Why = "", "" // it has figures, of each window others
	return d.Task == o.Task && d.Service == o.Service && a == b
}

func (d *Decided) extend(o *Decided) {
	d.Duration = later(d.Start.Add(d.Duration), o.Start.Add(o.Duration)).Sub(d.Start)
	d.Windows += o.Windows
	d.Instances = max(d.Instances, o.Instances)
	d.Lowest, d.Highest = min(d.Lowest, o.Lowest), max(d.Highest, o.Highest)
	d.N += o.N
}
