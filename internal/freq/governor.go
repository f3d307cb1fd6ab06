// Package freq decides how often to sample: pure, with what was measured passed in.
//
//	what a service's functions had, window by window -> Policy.Next
//	   -> a rate for the windows to come, and why: Algorithm 1 of the paper (atys.go), or
//	      stretches in which chance explains all differences (auto.go, stretch.go), and phases
//	      that return (phase.go)
//	all windows, afterwards -> Pool -> what those of one stretch say of each (cut.go, mixed.go)
//
//	what an agent took of its machine, and may -> Governor.Decide
//	   -> a cap on the rates of all recordings, and what else is to be given up
//	a rate that was asked for -> Governor.Rate -> the rate under the cap
package freq

import (
	"math"
	"slices"
	"time"
)

// Budget is what an agent may take of its machine. Zero is as much as it likes.
type Budget struct {
	Cores  float64 // CPU time, of one core
	Memory int64   // bytes, of the process and its BPF maps
}

// Load is what it takes.
type Load struct {
	Cores  float64   // mean since the last decision
	Memory int64     // now
	Wanted []float64 // Hz that each recording was asked for
	Most   float64   // Hz that one may be asked for at once, by a policy; 0: none of them has one
}

// Lowest is the rate that no recording is taken below, in Hz. One that was asked
// for less stays as it is.
const Lowest = 1.0

// How rates move. Cost has a part that does not follow the rate, and the rest is
// in proportion at most: so a rate that is raised by grow can make it grow by no
// more, and one that is raised only where that still fits is not lowered at once.
const (
	aim  = 0.85 // of the budget, where rates are lowered
	most = 0.5  // of the rates is left, where they are lowered: one odd time is not the rule
	grow = 1.1  // by so much rates are raised at once
	fits = 0.95 // of the budget, that it may be after that at most
	roof = 0.9  // of the memory, above which nothing is raised

	patience     = 2  // decisions in a row that find room, before rates are raised
	mostPatience = 32 // the same, where what was raised had to be lowered again
)

// When to decide. A new program is costly for a moment, whatever the rates.
const (
	Period = 30 * time.Second
	Soon   = 10 * time.Second // where it is far too much
)

// Due tells whether so much time is enough to decide by.
func (b Budget) Due(since time.Duration, l Load) bool {
	return since >= Period || since >= Soon && (b.Cores > 0 && l.Cores > 2*b.Cores || b.Memory > 0 && l.Memory > b.Memory)
}

// Scarce is what there was too little of.
type Scarce string

// What there can be too little of.
const (
	Nothing Scarce = ""
	CPU     Scarce = "CPU time"
	Memory  Scarce = "memory"
)

// Verdict is what to do next; the rates are Governor.Rate's.
type Verdict struct {
	Lowered, Raised bool // rates, or the length of windows
	Shed            bool // give up what is kept in memory to save time
	Stop            bool // nothing is left to lower: end the recording that came last, of those for a while
	For             Scarce
}

// Governor keeps an agent within its budget. Its zero value has none and leaves
// all rates as they are.
type Governor struct {
	Budget Budget
	Cap    float64 // Hz that no recording is to be above; 0: none
	Short  bool    // cut windows in half: they are in memory until they are cut
	For    Scarce  // why there is a cap, or was Short

	room     int // decisions in a row that found room
	patience int // how many it takes; 0: as at first
	raised   bool
	full     int // decisions in a row with too much memory
}

// Rate is the rate of a recording that was asked for another.
func (g *Governor) Rate(wanted float64) float64 { return under(wanted, g.Cap) }

func under(wanted, limit float64) float64 {
	if limit == 0 || wanted <= limit {
		return wanted
	}
	return max(limit, min(wanted, Lowest))
}

// Decide takes what an agent has taken since the last decision, with all rates in
// force.
func (g *Governor) Decide(l Load) (d Verdict) {
	b := g.Budget
	if b.Memory > 0 && l.Memory > b.Memory {
		g.full++
		d.Shed, d.For = true, Memory
		if g.full > 1 { // what was shed was not enough
			d.Lowered = !g.Short
			g.Short = true
			g.lower(&d, l.Wanted, most)
		}
		return d
	}
	g.full = 0
	if b.Cores > 0 && l.Cores > b.Cores {
		d.For = CPU
		g.lower(&d, l.Wanted, max(most, aim*b.Cores/l.Cores))
		return d
	}
	if g.Cap == 0 && !g.Short {
		return d
	}
	if b.Cores > 0 && l.Cores*grow > fits*b.Cores || b.Memory > 0 && float64(l.Memory) > roof*float64(b.Memory) {
		g.room = 0
		return d
	}
	if g.room++; g.room >= max(g.patience, patience) {
		g.raise(&d, l.Wanted, l.Most)
	}
	return d
}

// lower leaves a part of the rates, the fastest being lowered first.
func (g *Governor) lower(d *Verdict, wanted []float64, left float64) {
	if g.raised {
		g.patience = min(2*max(g.patience, patience), mostPatience)
	}
	g.room, g.raised, g.For = 0, false, d.For
	sum, least := 0.0, 0.0
	for _, w := range wanted {
		sum += under(w, g.Cap)
		least += min(w, Lowest)
	}
	if len(wanted) == 0 || sum <= least*(1+1e-9) {
		d.Stop = !d.Lowered
		return
	}
	g.Cap = max(Lowest, capFor(wanted, left*sum))
	d.Lowered = true
}

// raise lets rates, and windows, be a little more of what was asked for. The cap is
// forgotten where it is above all that can be asked for before the next decision.
func (g *Governor) raise(d *Verdict, wanted []float64, most float64) {
	g.room, g.raised, d.Raised = 0, true, true
	g.Short = false
	if g.Cap *= grow; g.Cap == 0 || len(wanted) == 0 || g.Cap >= max(slices.Max(wanted), most) {
		g.Cap, g.patience, g.raised, g.For = 0, 0, false, Nothing
	}
}

// capFor is the cap under which rates add up to a sum: slow ones keep what they
// have, the others share the rest.
func capFor(wanted []float64, sum float64) float64 {
	sorted := slices.Sorted(slices.Values(wanted))
	for i, w := range sorted {
		rest := float64(len(sorted) - i)
		if w*rest >= sum {
			return sum / rest
		}
		sum -= w
	}
	return math.Inf(1)
}
