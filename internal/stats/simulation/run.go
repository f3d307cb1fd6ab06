package simulation

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
)

// Options of a run; zero values are the paper's.
type Options struct {
	Seed        uint64
	Repetitions int
}

// Row is what repeated profiles found of one task, and what was expected.
// Fields in JSON are stable; what was not simulated or is not modelled is left out.
type Row struct {
	Place       string  `json:"place"` // of the paper
	Design      Design  `json:"design"`
	Task        int     `json:"task"` // from 1 on
	Share       float64 `json:"share"`
	Granularity int     `json:"granularity"`
	R           float64 `json:"r"`
	Class       Class   `json:"class"`
	Jitter      float64 `json:"interval_variance,omitempty"`
	Noise       float64 `json:"unit_variance,omitempty"`
	Samples     float64 `json:"samples"` // of a profile, on average

	Real          float64 `json:"real"` // share that the task had, on average over states
	Mean          float64 `json:"mean"` // of what profiles found
	StandardError float64 `json:"standard_error"`
	Variance      float64 `json:"variance"` // around the real share
	Min           float64 `json:"min"`
	Max           float64 `json:"max"`
	// Deciles are those of what profiles found, from the least to the greatest:
	// of the setting whose distribution the paper draws.
	Deciles []float64 `json:"deciles,omitempty"`

	ModelMean     float64 `json:"model_mean"`
	ModelVariance float64 `json:"model_variance"`
	Paper         string  `json:"paper"` // what it has here, or NotInOurCopy
}

// Bias is by how many standard errors the mean is off.
func (r *Row) Bias() float64 {
	if r.StandardError == 0 {
		return 0
	}
	return (r.Mean - r.Real) / r.StandardError
}

// Deviation is that of a profile around the real share.
func (r *Row) Deviation() float64 { return math.Sqrt(r.Variance) }

// Report is all that a run found.
type Report struct {
	Seed        uint64    `json:"seed"`
	Repetitions int       `json:"repetitions"`
	Stretches   []Stretch `json:"stretches"`
	Rows        []Row     `json:"rows"`
	Intervals   Intervals `json:"figure_10"`
	States      []Spread  `json:"real_shares"`
	Claims      []Claim   `json:"claims"`
}

// Stretch is what the model says of the samples that hit one stretch, under a
// constant interval.
type Stretch struct {
	Granularity int     `json:"granularity"`
	R           float64 `json:"r"`
	Class       Class   `json:"class"`
	Fewer       int     `json:"fewer"`    // so many samples hit it,
	OneMore     float64 `json:"one_more"` // or, with this probability, one more
	Mean        float64 `json:"mean"`
	Variance    float64 `json:"variance"`
}

func stretches() (all []Stretch) {
	for _, g := range granularities() {
		m := Model{float64(g), interval, 0}
		fewer, more := m.Counts()
		all = append(all, Stretch{g, m.R(), m.Class(), fewer, more, m.CountMean(), m.CountVariance()})
	}
	return all
}

// Run simulates every setting of the paper. The same options give the same
// report on any number of CPUs. It ends early, with an error, when ctx does.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Repetitions == 0 {
		o.Repetitions = Repetitions
	}
	if o.Repetitions < 2 {
		return nil, fmt.Errorf("simulate %d repetitions: want 2 or more, a variance needs them", o.Repetitions)
	}
	all := settings()
	rows := make([][]Row, len(all))
	eachOf(ctx, len(all), func(i int) {
		rows[i] = all[i].run(ctx, o.random(uint64(i)), o.Repetitions)
	})
	r := &Report{Seed: o.Seed, Repetitions: o.Repetitions, Stretches: stretches(), Rows: slices.Concat(rows...)}
	r.Intervals = figure10(o.random(1 << 32))
	r.States = realShares(ctx, o.random(1<<32+1))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.Claims = r.claims()
	return r, nil
}

// random is the source of one setting's randomness, its own.
func (o Options) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, stream)) }

// eachOf calls do for 0 to n-1, on all CPUs, and waits until all are done.
func eachOf(ctx context.Context, n int, do func(int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
}

// run profiles again and again; each task of the setting is a row.
func (s *Setting) run(ctx context.Context, rng *rand.Rand, repetitions int) []Row {
	var state State
	truth, found := make([]float64, len(s.Mix)), make([]float64, len(s.Mix))
	var samples Summary
	tallies := make([]tally, s.Tasks)
	for i := 0; i < repetitions && ctx.Err() == nil; i++ {
		if i == 0 || s.Design == NewStates {
			s.Mix.Draw(rng, s.Units, &state)
			s.real(&state, truth)
		}
		samples.Add(float64(s.Profile(rng, &state, found)))
		for task := range tallies {
			tallies[task].add(truth[task], found[task])
		}
	}
	rows := make([]Row, s.Tasks)
	for task := range rows {
		rows[task] = s.row(task, &tallies[task], samples.Mean)
	}
	return rows
}

// real gives the shares that profiles are held against: those that the state
// has, but where it is no longer than a few samples, those it is drawn with.
func (s *Setting) real(state *State, shares []float64) {
	if s.Samples == 0 {
		state.Shares(0, s.Units, shares)
		return
	}
	for i, t := range s.Mix {
		shares[i] = t.Share
	}
}

// tally is what profiles found of one task.
type tally struct {
	real, found, off Summary
	all              []float64 // found, one by one
}

func (t *tally) add(truth, found float64) {
	t.real.Add(truth)
	t.found.Add(found)
	t.off.Add(found - truth)
	t.all = append(t.all, found)
}

// deciles are the least, the greatest, and what lies at each tenth between.
func (t *tally) deciles() (out []float64) {
	slices.Sort(t.all)
	for tenth := range 11 {
		out = append(out, t.all[tenth*(len(t.all)-1)/10])
	}
	return out
}

func (s *Setting) row(task int, t *tally, samples float64) Row {
	of := s.Mix[task]
	m := Model{float64(of.Granularity), float64(s.Interval), s.Jitter}
	r := Row{Place: s.Place, Design: s.Design, Task: task + 1, Share: of.Share, Granularity: of.Granularity, R: m.R(), Class: m.Class(),
		Jitter: s.Jitter, Noise: s.Noise, Samples: samples,
		Real: t.real.Mean, Mean: t.found.Mean, StandardError: t.off.StandardError(), Variance: t.off.Variance(), Min: t.found.Min, Max: t.found.Max,
		ModelMean: of.Share, ModelVariance: s.modelVariance(task, m), Paper: s.Paper}
	if r.Paper == "" {
		r.Paper = NotInOurCopy
	}
	if s.drawn() {
		r.Deciles = t.deciles()
	}
	return r
}

// modelVariance is what the model expects of a task's profiles.
func (s *Setting) modelVariance(task int, m Model) float64 {
	of, n := s.Mix[task], s.Units/s.Interval
	noise := noiseVariance(of.Share, s.Noise, n)
	switch {
	case s.Samples > 0:
		return m.MeanVariance(of.Share, s.Samples)
	case s.Tasks > 1:
		return s.Mix.ErrorVariance(task, s.Interval, n) + noise
	}
	return m.ErrorVariance(of.Share, n) + noise
}

// noiseVariance is what noise on the events of each sample adds to the
// variance of a share of n samples: n*share of them are the task's.
func noiseVariance(share, noise float64, n int) float64 {
	return share * noise / (interval * interval * float64(n))
}

// Intervals is the paper's Figure 10: which share of each sampling interval a
// task of granularity 30 and 80% really has.
type Intervals struct {
	N             int     `json:"n"`
	Mean          float64 `json:"mean"`
	StandardError float64 `json:"standard_error"`
	Variance      float64 `json:"variance"`
	ModelVariance float64 `json:"model_variance"`
	Counts        [11]int `json:"counts"` // of intervals, by tenths: that of 0 to under 0.1, ... the last is of those that are full
	Paper         string  `json:"paper"`
}

func figure10(rng *rand.Rand) Intervals {
	const share, granularity = 0.8, 30
	var state State
	Single(share, granularity).Draw(rng, allUnits, &state)
	out := Intervals{Paper: NotInOurCopy, ModelVariance: Model{granularity, interval, 0}.IntervalVariance(share)}
	var sum Summary
	real := make([]float64, 2)
	for from := 0; from < allUnits; from += interval {
		state.Shares(from, from+interval, real)
		sum.Add(real[0])
		out.Counts[int(math.Round(real[0]*interval))*10/interval]++
	}
	out.N, out.Mean, out.StandardError, out.Variance = sum.N, sum.Mean, sum.StandardError(), sum.Variance()
	return out
}

// Spread is how much the real share of a task differs between running states.
type Spread struct {
	Task      int     `json:"task"`
	Units     int     `json:"units"` // of a state
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// shortUnits is how long a state is that 500 samples cover.
const shortUnits = 500 * interval

// realShares are those of the mixed system, over a thousand such states.
func realShares(ctx context.Context, rng *rand.Rand) (all []Spread) {
	mix := mixed()
	var state State
	sums, shares := make([]Summary, len(mix)), make([]float64, len(mix))
	for i := 0; i < Repetitions && ctx.Err() == nil; i++ {
		mix.Draw(rng, shortUnits, &state)
		state.Shares(0, shortUnits, shares)
		for task, share := range shares {
			sums[task].Add(share)
		}
	}
	for task := range mixedTasks {
		all = append(all, Spread{task + 1, shortUnits, sums[task].Mean, math.Sqrt(sums[task].Variance())})
	}
	return all
}
