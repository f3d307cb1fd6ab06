package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"atys.dev/atys/internal/freq"
)

// fixedRates are those that the issue asks for.
const fixedRates = "50,99,250,500,800,1000,5000,10000"

// replaying says how recordings are replayed.
type replaying struct {
	repetitions int
	seed        uint64
	rates       []float64
	lag         int           // whole windows from a policy's decision to the one it is in force in
	slot        time.Duration // of which length parts are that windows of policies are told apart into
	policies    []freq.Options
	par         par // where it is not the workload's own
	json        string
	cost        string
}

// replay replays recordings of one workload.
func replay(ctx context.Context, args []string) error {
	p, dirs, err := parseReplay(args)
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return errors.New("name the folders of recordings")
	}
	var all []*recording
	for _, dir := range dirs {
		r, err := open(dir)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	replayed, err := p.replay(ctx, all)
	if err != nil {
		return err
	}
	return p.report(replayed, args)
}

func parseReplay(args []string) (p replaying, dirs []string, err error) {
	f := flag.NewFlagSet("replay", flag.ExitOnError)
	f.IntVar(&p.repetitions, "R", 20, "repetitions, each with samples drawn anew")
	f.Uint64Var(&p.seed, "seed", 1, "of what is drawn")
	f.IntVar(&p.lag, "lag", 1, "whole windows between the one that a policy has seen and the one its decision is in force in")
	f.DurationVar(&p.slot, "slot", time.Second, "length of the parts that a policy's windows are pooled in")
	rates := f.String("rates", fixedRates, "fixed rates")
	f.IntVar(&p.par.Reference, "reference", 0, "the fixed rate that policies are to be on a par with; 0: what the issue asks of the workload")
	f.IntVar(&p.par.Scale, "scale", 0, "a tenth of the error at this fixed rate may be missing to that; 0: the same")
	least, most := f.Float64("min", 50, "least rate of policies"), f.Float64("max", 10000, "highest rate of policies; they begin at it")
	var o freq.Options
	f.IntVar(&o.Top, "top", 0, "functions that policies look at; 0: the default, here and below")
	f.Float64Var(&o.Theta, "theta", 0, "divergence of policy atys; the paper has 0.5 for SPECjbb and 0.05 for VGG16")
	f.Float64Var(&o.Lambda, "lambda", 0, "decay rate of policy atys; the paper has 0.8")
	f.IntVar(&o.Streak, "streak", 0, "windows in a row of policy atys; the paper has 5")
	f.Float64Var(&o.Width, "width", 0, "half of the interval that policy auto wants")
	f.StringVar(&p.json, "json", "", "file to write all that was found to, window by window too")
	f.StringVar(&p.cost, "cost", "", "file of costs by rate, which cost -o has written")
	_ = f.Parse(args) // it exits where it fails
	if p.rates, err = parseRates(*rates); err != nil {
		return p, nil, err
	}
	if p.repetitions < 1 || p.lag < 0 || p.slot < time.Millisecond {
		return p, nil, errors.New("-R is 1 or more, -lag 0 or more, -slot a millisecond or more")
	}
	o.Min, o.Max = *least, *most
	p.policies, err = policies(o)
	return p, f.Args(), err
}

// policies are the options of each policy, with what is its own.
func policies(o freq.Options) (all []freq.Options, err error) {
	for _, name := range freq.Policies() {
		own := freq.Options{Policy: name, Min: o.Min, Max: o.Max, Top: o.Top}
		if name == freq.Atys {
			own.Theta, own.Lambda, own.Streak = o.Theta, o.Lambda, o.Streak
		} else {
			own.Width = o.Width
		}
		own.Fill()
		if wrong := own.Check(); wrong != nil {
			return nil, errors.Join(wrong...)
		}
		all = append(all, own)
	}
	return all, nil
}

func parseRates(text string) (rates []float64, err error) {
	for word := range strings.SplitSeq(text, ",") {
		var hz float64
		if _, err := fmt.Sscan(word, &hz); err != nil || hz < 1 {
			return nil, fmt.Errorf("-rates %s: want Hz, separated by commas", text)
		}
		rates = append(rates, hz)
	}
	return rates, nil
}

// stream is a rate that is fixed, or follows a policy.
type stream struct {
	name   string
	hertz  float64
	policy *freq.Options // nil: fixed
}

func (p *replaying) streams() (all []stream) {
	for _, hz := range p.rates {
		all = append(all, stream{name: rateName(hz), hertz: hz})
	}
	for i := range p.policies {
		all = append(all, stream{name: p.policies[i].Policy, hertz: p.policies[i].Max, policy: &p.policies[i]})
	}
	return all
}

func rateName(hz float64) string { return fmt.Sprintf("%g Hz", hz) }

// lane is a stream in one repetition.
type lane struct {
	sieve  *sieve
	policy freq.Policy // nil: the rate is fixed
	rates  []float64   // of the next windows, as far as they are decided

	// By window.
	hertz   []float64
	samples []float64     // effective ones
	told    []freq.Window // to the policy, of functions by themselves; their parts are not
	own     [][]float64   // by function of the workload first: its share, by the window's samples alone
	ofParts [][][]float64 // the same, of each part
}

func (p *replaying) newLane(r *recording, s stream) *lane {
	functions := len(r.workload.hot)
	l := &lane{own: make([][]float64, functions), ofParts: make([][][]float64, functions)}
	if s.policy == nil {
		l.sieve = newSieve(r.Window, r.Window, functions, 0)
		l.rates = []float64{s.hertz}
		return l
	}
	l.policy = freq.New(*s.policy)
	l.sieve = newSieve(r.Window, p.slot, functions, len(r.Self))
	for range p.lag + 1 {
		l.rates = append(l.rates, s.hertz)
	}
	return l
}

// take ends a window: what was sampled is kept, and a policy told of it.
func (l *lane) take(start time.Time, r *recording) {
	hertz, whole := l.rates[0], l.sieve.whole()
	l.hertz = append(l.hertz, hertz)
	l.samples = append(l.samples, whole.effective())
	for f := range l.own {
		l.own[f] = append(l.own[f], whole.share(f))
	}
	if l.policy == nil {
		return
	}
	told := whole.window(start, r.Window, hertz, r.Self)
	l.rates = append(l.rates[1:], l.policy.Next(told).Hertz)
	l.takeParts(&told, r)
	l.told = append(l.told, told)
}

// takeParts keeps what was sampled by when it was.
func (l *lane) takeParts(w *freq.Window, r *recording) {
	shares := make([][]float64, len(l.own))
	for i := range l.sieve.parts {
		p := &l.sieve.parts[i]
		w.Parts = append(w.Parts, p.window(w.Start.Add(time.Duration(i)*l.sieve.slot), l.sieve.slot, w.Hertz, r.Self))
		for f := range shares {
			shares[f] = append(shares[f], p.share(f))
		}
	}
	for f := range shares {
		l.ofParts[f] = append(l.ofParts[f], shares[f])
	}
}

// thinned is a recording at all rates.
type thinned struct {
	moments []moment
	places  []int     // of each moment, among the windows that were sampled
	lanes   [][]*lane // by repetition and stream
}

// thin replays a recording, window by window.
func (p *replaying) thin(ctx context.Context, r *recording, streams []stream, block int) (*thinned, error) {
	t := &thinned{}
	random := make([]*rand.Rand, p.repetitions)
	for i := range random {
		random[i] = rand.New(rand.NewPCG(p.seed, uint64(i)))
		var lanes []*lane
		for _, s := range streams {
			lanes = append(lanes, p.newLane(r, s))
		}
		t.lanes = append(t.lanes, lanes)
	}
	windows := 0
	err := r.each(func(start int64, samples []sample) error {
		for i, lanes := range t.lanes {
			pour(lanes, samples, r.Hertz, random[i])
			for _, l := range lanes {
				l.take(time.Unix(0, start), r)
			}
		}
		if shares := r.truth.windows[start].shares(); shares != nil {
			t.moments = append(t.moments, moment{start: start, truth: shares})
			t.places = append(t.places, windows)
		}
		windows++
		return ctx.Err()
	})
	mark(t.moments, r.truth.changes, int64(r.Window), block)
	return t, err
}

// pour thins a window for all lanes at once.
func pour(lanes []*lane, samples []sample, base float64, r *rand.Rand) {
	sieves := make([]*sieve, len(lanes))
	for i, l := range lanes {
		l.sieve.ready(l.rates[0] / base)
		sieves[i] = l.sieve
	}
	thin(samples, sieves, r)
}

// row is one line of the table: a stream, and how shares are made of it.
type row struct {
	Stream, Estimate string
	fixed            float64 // Hz; 0: a policy
	errors, rates    series  // by repetition and moment
	samples          series  // effective ones
}

// replayed is what all recordings of a workload came to.
type replayed struct {
	workload   workload
	name       string
	recordings []*recording // those that were thinned
	moments    []moment
	rows       []*row
	checks     []check
}

// replay thins the recordings at the highest rate of our own kernel, or of another where
// there is none of ours, and scores all.
func (p *replaying) replay(ctx context.Context, all []*recording) (*replayed, error) {
	kernel, base := all[0].Kernel, 0.0
	for _, r := range all {
		if r.Workload != all[0].Workload || r.Window != all[0].Window {
			return nil, fmt.Errorf("%s and %s: replay recordings of one workload and one length of windows", all[0].dir, r.dir)
		}
		if r.Kernel == ours {
			kernel = ours
		}
	}
	for _, r := range all {
		if r.Kernel == kernel {
			base = max(base, r.Hertz)
		}
	}
	out := &replayed{workload: all[0].workload, name: all[0].Workload}
	streams := p.streams()
	for _, r := range all {
		if r.Kernel != kernel || r.Hertz < base {
			c, err := checkOf(r)
			if err != nil {
				return nil, err
			}
			out.checks = append(out.checks, c)
			continue
		}
		block := 0
		if n := len(out.moments); n > 0 {
			block = out.moments[n-1].block + 1
		}
		t, err := p.thin(ctx, r, streams, block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.dir, err)
		}
		out.recordings = append(out.recordings, r)
		out.add(t, streams)
	}
	if len(out.moments) == 0 {
		return nil, errors.New("no window of the recordings has a truth")
	}
	return out, nil
}

// add scores a recording that was thinned.
func (o *replayed) add(t *thinned, streams []stream) {
	at := 0
	for j, s := range streams {
		for _, way := range ways(s.policy) {
			if at == len(o.rows) {
				o.rows = append(o.rows, newRow(s, way.name, len(t.lanes)))
			}
			o.rows[at].score(t, j, s.policy, way.estimate)
			at++
		}
	}
	o.moments = append(o.moments, t.moments...)
}

func newRow(s stream, way string, repetitions int) *row {
	w := &row{Stream: s.name, Estimate: way, errors: make(series, repetitions), rates: make(series, repetitions), samples: make(series, repetitions)}
	if s.policy == nil {
		w.fixed = s.hertz
	}
	return w
}

// score adds the errors of a stream's windows.
func (w *row) score(t *thinned, stream int, policy *freq.Options, estimate estimator) {
	var options freq.Options
	if policy != nil {
		options = *policy
	}
	for i, lanes := range t.lanes {
		l := lanes[stream]
		best := estimate(l, options)
		shares := make([][]float64, len(l.own))
		for f := range shares {
			shares[f] = best(f)
		}
		for j, m := range t.moments {
			place := t.places[j]
			found := make([]float64, len(shares))
			for f := range shares {
				found[f] = shares[f][place]
			}
			w.errors[i] = append(w.errors[i], meanError(found, m.truth))
			w.rates[i] = append(w.rates[i], l.hertz[place])
			w.samples[i] = append(w.samples[i], l.samples[place])
		}
	}
}

// check is a recording as it is: of a lower rate, or by an external kernel.
type check struct {
	recording *recording
	windows   int
	empty     int // of them: nothing was sampled, though the program ran; they are left out
	moments   []moment
	errors    series
}

func checkOf(r *recording) (c check, err error) {
	c.recording = r
	c.errors = make(series, 1)
	err = r.each(func(start int64, samples []sample) error {
		c.windows++
		shares := r.truth.windows[start].shares()
		if shares == nil {
			return nil
		}
		if len(samples) == 0 {
			c.empty++
			return nil
		}
		s := newSieve(r.Window, r.Window, len(r.workload.hot), 0)
		for _, in := range samples {
			s.keep(in)
		}
		c.moments = append(c.moments, moment{start: start, truth: shares})
		c.errors[0] = append(c.errors[0], meanError(s.parts[0].hot[1:], shares))
		return nil
	})
	mark(c.moments, r.truth.changes, int64(r.Window), 0)
	return c, err
}
