package freq

import (
	"fmt"
	"math"
	"time"
)

// stretches is policy auto: windows that chance alone cannot explain by those before
// begin a new stretch. Of each, as much is learned as the wanted width needs, and
// then so much is sampled that a change shows.
type stretches struct {
	options Options
	hertz   float64
	resumed bool // at a rate that is right, for all that is known, until a change

	now     *stretch
	latest  []Window        // of the stretch, with functions by name: what a new one would begin with
	spreads overdispersions // priors of a new stretch
	short   int             // stretches in a row that were short
	phases  phases

	waiting  Window  // too few samples to tell, until there are more
	waits    int     // windows that it is of
	perHertz float64 // samples of a window, by its rate, of late
}

const (
	leastSamples = 50 // that tell anything
	mostLatest   = 4  // windows
	mostNamed    = 64 // functions of each

	// noticeSamples show in one window that a fifth of the time has moved: G is then some
	// 60 above what chance makes of it. Several windows show less than that.
	noticeSamples = 400

	// worthOf is how many times the samples that the wanted width needs a window is to
	// be worth: half of the variance may come from what is known of its stretch, half
	// from how windows differ.
	worthOf = 2.0
	// learnIn is how many windows that may take.
	learnIn = 3.0

	sameRate = 0.1 // a rate that differs by less is not worth an order
)

func newStretches(o Options) *stretches {
	return &stretches{options: o, hertz: o.Max, spreads: overdispersions{unknown, unknown}}
}

// Next takes a window.
func (s *stretches) Next(w Window) Decision {
	w, enough := s.gather(w)
	if !enough {
		return s.wait()
	}
	s.measureYield(&w, s.waits)
	s.waits = 0
	if s.now == nil {
		s.begin([]Window{w}, nil)
		return s.decide(Began, "nothing is known yet")
	}
	t := tallyOf(s.now.cells.counts(&w))
	ago, found := s.now.change(t)
	s.latest = append(s.latest, w)
	if len(s.latest) > mostLatest {
		s.latest = s.latest[1:]
	}
	if ago == 0 {
		s.now.add(t)
		return s.decide("", "")
	}
	why := fmt.Sprintf("G %.0f where chance has at most %.0f, of %.0f degrees of freedom, for %s", found.g, changeLimit(found.freedom), found.freedom, plural(ago))
	s.now.drop(ago - 1) // the last one was not added
	return s.turn(w.Start, s.latest[len(s.latest)-min(ago, len(s.latest)):], why)
}

// turn ends a stretch, of which the last windows are of the next one already.
func (s *stretches) turn(at time.Time, fresh []Window, why string) Decision {
	s.inherit()
	s.phases.leave(s.now, at)
	spread, _ := s.spreads.any.value()
	old := s.phases.find(fresh, spread, s.now.cells)
	s.begin(fresh, old)
	s.resumed = false
	if old != nil {
		return s.decide(Returned, why+": as until "+old.last.UTC().Format(time.DateTime))
	}
	return s.decide(Changed, why)
}

// How long a stretch is that tells how windows differ, and how many in a row that are
// shorter tell that this was not known: one is there wherever a change was within a
// window, and many where windows vary by more than the prior says.
const (
	shortStretch = 3 // windows
	manyShort    = 3
)

// inherit chooses the prior of the next stretch.
func (s *stretches) inherit() {
	if s.now.windows() >= shortStretch {
		s.short, s.spreads = 0, s.now.spreads.inherited()
	} else if s.short++; s.short >= manyShort {
		s.spreads = s.now.spreads.doubled()
	}
}

// begin begins a stretch, of a phase that has returned if there is one.
func (s *stretches) begin(windows []Window, old *phase) {
	s.latest = windows
	s.now = &stretch{spreads: s.spreads.atLeast(leastSpread(s.options))}
	if old != nil {
		s.now.cells, s.now.spreads = old.cells, old.spreads
		s.now.known.add(old.tally)
	} else {
		all := make([]*Window, len(windows))
		for i := range windows {
			all[i] = &windows[i]
		}
		s.now.cells = newCells(largest(s.options.Top, all...))
	}
	for i := range windows {
		s.now.add(tallyOf(s.now.cells.counts(&windows[i])))
	}
}

// gather puts windows of too few samples together until they tell something.
func (s *stretches) gather(w Window) (together Window, enough bool) {
	if w.N() > 0 { // a program that sleeps has no rate of samples
		s.waits++
	}
	if s.waiting.Functions == nil {
		s.waiting = w.head(mostNamed)
	} else {
		s.waiting.absorb(&w)
	}
	if s.waiting.N() < leastSamples {
		return w, false
	}
	together, s.waiting = s.waiting, Window{}
	return together, true
}

// wait leaves a rate as it is until there are more samples.
func (s *stretches) wait() Decision {
	return Decision{s.hertz, Few, fmt.Sprintf("%.0f samples, and %d tell something", s.waiting.N(), leastSamples)}
}

// measureYield measures how many samples a window has for each hertz: what CPU time
// the service uses, in all its instances.
func (s *stretches) measureYield(w *Window, windows int) {
	if w.Hertz <= 0 {
		return
	}
	yield := w.N() / w.Hertz / float64(windows)
	if s.perHertz == 0 {
		s.perHertz = yield
	}
	s.perHertz += (yield - s.perHertz) / 2
}

// decide chooses the rate. A reason that is empty is found by what becomes of it.
func (s *stretches) decide(reason Reason, why string) Decision {
	samples, wants := s.samples()
	hertz := s.options.Max
	if s.perHertz > 0 {
		hertz = s.options.clamp(samples / s.perHertz)
	}
	if s.resumed {
		return Decision{s.hertz, Stays, "the rate that was decided before, until a change"}
	}
	before := s.hertz
	if math.Abs(hertz-before) > sameRate*before || hertz == s.options.Min || hertz == s.options.Max {
		s.hertz = hertz
	}
	if reason == "" {
		switch reason = Stays; {
		case s.hertz < before:
			reason = Steady
		case s.hertz > before:
			reason = More
		}
	}
	if why != "" {
		why += "; "
	}
	return Decision{s.hertz, reason, why + wants}
}

// samples is how many the next window is to have, and what for.
func (s *stretches) samples() (n float64, what string) {
	all := s.now.all()
	need := worthOf * neededFor(all, s.options.Width)
	low, high := s.now.spreads.large.bounds()
	switch {
	case 1/low < need && s.now.windows() > int(learnIn):
		n = max(need/worthOf, noticeSamples)
		return n, fmt.Sprintf("windows differ by themselves, and each needs %.0f samples for +-%.2g%%", n, 100*s.options.Width)
	case s.short > 0 && s.now.windows() == 1:
		n = max(need/worthOf, noticeSamples)
		return n, fmt.Sprintf("one change follows another, and each window needs %.0f samples for +-%.2g%%", n, 100*s.options.Width)
	case all.n < need || 1/high < need:
		n = max(need/learnIn, noticeSamples)
		return n, fmt.Sprintf("%.0f samples in %s are known, windows are alike to %.2g%%, and +-%.2g%% need %.0f", all.n, plural(s.now.windows()), 100*math.Sqrt(high)/2, 100*s.options.Width, need)
	}
	return noticeSamples, fmt.Sprintf("%s alike with %.0f samples: %d in each show a change", plural(s.now.windows()), all.n, noticeSamples)
}

// neededFor is how many samples a window is to be worth for the wanted width of the
// share that needs most.
func neededFor(t tally, width float64) float64 {
	variance := 0.0
	for _, x := range t.counts {
		p := x / max(t.n, 1)
		variance = max(variance, p*(1-p))
	}
	return samplesFor(variance, width)
}

// samplesFor is how many samples give an interval, half of which is the width, to a
// share p of the variance p(1-p).
func samplesFor(variance, width float64) float64 {
	const deviate = 1.96
	return variance * (deviate / width) * (deviate / width)
}

// leastSpread is by how much windows may differ and be the same: a fraction of the
// width that is wanted.
func leastSpread(o Options) float64 {
	const fraction = 4
	return 1 / (fraction * max(samplesFor(0.25, o.Width), 1))
}

func plural(windows int) string {
	if windows == 1 {
		return "1 window"
	}
	return fmt.Sprintf("%d windows", windows)
}
