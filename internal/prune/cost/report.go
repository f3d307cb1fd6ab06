package cost

import (
	"context"
	"errors"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/stats"
)

// ErrNoThreads says that nothing of a recording can be pruned.
var ErrNoThreads = errors.New("nothing in it tells which thread was sampled")

// Levels are those of Figure 6 of the paper of Atys, and Tops how many of the largest
// functions its errors are of.
func Levels() []float64 { return []float64{80, 85, 90, 95, 99, 99.9} }
func Tops() []int       { return []int{5, 10, 20, 50} }

// Report is what pruning does to a recording.
type Report struct {
	Skew      *prune.Skew
	Functions int   // there are
	Pruned    int64 // of the samples' weight: on stacks that were cut before
	Levels    []Level
	Rounds    int // that times are of; 0: none were measured
	Unpruned  Times
	Measured  *Measured // nil: no times
}

// Level is what one level of pruning does.
type Level struct {
	Percent float64
	Threads int       // that are sampled and stay
	Samples int64     // of whose stacks something is cut
	MostOff float64   // share that no function's can be off by more than
	MAPE    []float64 // of each of Tops; 0.01 is 1%
	Times
	// Saved are parts of what stages took without pruning, and SavedAll of all of
	// them together, the time to prune counted; SavedBytes of what is sent.
	Saved      [Stages]stats.Interval
	SavedAll   stats.Interval
	SavedBytes float64
}

// Times are medians of rounds.
type Times struct {
	Took  [Stages]time.Duration
	All   time.Duration
	Bytes int
}

// Of measures a recording as if it were one window of an agent, with times of so many
// rounds; total has functions ranked with all they called.
func Of(ctx context.Context, w *profile.Window, rounds int, total bool) (*Report, error) {
	r := &Report{Skew: prune.SkewOf(w), Pruned: prune.Sum(w, 0), Rounds: rounds}
	if r.Skew.Sampled == 0 {
		return nil, ErrNoThreads
	}
	full, err := prune.Rank(w, total)
	if err != nil {
		return nil, err
	}
	r.Functions = full.Len()
	for _, percent := range Levels() {
		l, err := At(w, full, percent, total)
		if err != nil {
			return nil, err
		}
		r.Levels = append(r.Levels, l)
	}
	if rounds > 0 {
		err = r.measure(ctx, w)
	}
	return r, err
}

// At tells what one level of pruning does to a recording, whose functions have been
// ranked. It measures no times.
func At(w *profile.Window, full *prune.Ranking, percent float64, total bool) (l Level, err error) {
	pruned := copyOf(w)
	prune.Window(pruned, percent, nil)
	ranking, err := prune.Rank(pruned, total)
	if err != nil {
		return l, err
	}
	l = Level{Percent: percent, Threads: prune.Kept(pruned), MostOff: prune.Share(pruned, 0),
		Samples: pruned.LossOf(profile.LossPruned).N - w.LossOf(profile.LossPruned).N}
	for _, n := range Tops() {
		l.MAPE = append(l.MAPE, full.MAPE(ranking, n))
	}
	return l, nil
}

// copyOf is a window that can be pruned while the other stays as it is.
func copyOf(w *profile.Window) *profile.Window {
	c := *w
	c.Losses, c.Names, c.Locations, c.Samples = slices.Clone(w.Losses), slices.Clone(w.Names), slices.Clone(w.Locations), slices.Clone(w.Samples)
	c.Rows, c.Stacks = w.Rows.Clone(), slices.Clone(w.Stacks)
	for i := range c.Stacks {
		c.Stacks[i].Locations = slices.Clone(c.Stacks[i].Locations)
	}
	return &c
}

// measure adds what is saved.
func (r *Report) measure(ctx context.Context, w *profile.Window) (err error) {
	if r.Measured, err = Measure(ctx, w, append([]float64{prune.MaxLevel}, Levels()...), r.Rounds); err != nil {
		return err
	}
	unpruned := r.Measured.Runs[0]
	r.Unpruned = timesOf(unpruned)
	for i := range r.Levels {
		l, runs := &r.Levels[i], r.Measured.Runs[i+1]
		l.Times = timesOf(runs)
		for s := Naming; s < Stages; s++ {
			l.Saved[s] = saved(unpruned, runs, func(r Run) time.Duration { return r.Took[s] })
		}
		l.SavedAll = saved(unpruned, runs, Run.All)
		l.SavedBytes = 1 - float64(l.Bytes)/float64(max(r.Unpruned.Bytes, 1))
	}
	return nil
}

func timesOf(runs []Run) (t Times) {
	median := func(of func(Run) float64) float64 {
		values := make([]float64, len(runs))
		for i, r := range runs {
			values[i] = of(r)
		}
		return stats.Median(values)
	}
	for s := range Stages {
		t.Took[s] = time.Duration(median(func(r Run) float64 { return float64(r.Took[s]) }))
	}
	t.All = time.Duration(median(func(r Run) float64 { return float64(r.All()) }))
	t.Bytes = int(median(func(r Run) float64 { return float64(r.Bytes) }))
	return t
}

// saved is what part of a time is saved, by rounds in pairs; a stage that took no
// time saves none.
func saved(before, after []Run, of func(Run) time.Duration) stats.Interval {
	a, b := make([]float64, len(before)), make([]float64, len(before))
	for i := range before {
		a[i], b[i] = float64(of(after[i])), float64(of(before[i]))
	}
	left, _, err := stats.RatioInterval(a, b)
	if err != nil {
		return stats.Interval{}
	}
	return stats.Interval{Value: 1 - left.Value, Low: 1 - left.High, High: 1 - left.Low}
}
