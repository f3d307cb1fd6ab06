// Package budget decides what an agent does to stay within its budget: pure, with what it cost passed in.
//
//	what each cause took since the last decision -> Governor.Decide
//	   over the budget: fewer windows, if that helps: short-lived commands as one target, then
//	      longer windows for tiny targets
//	   still over: the largest cause is restrained by its own knob, then the next
//	      other          -> garbage is collected less often, where there is memory
//	      tables, naming -> a share of a core, which a token bucket hands out
//	      following      -> longer pauses between readings of process events
//	      sampling       -> a lower rate, never below the least that a profile asks for
//	      memory         -> caches, the length of windows, rates
//	   room again: what was restrained comes back, the rate first
//	-> Decisions, with their reasons; Governor.Limits is what holds now
package budget

import (
	"fmt"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// Budget is what an agent may take of its machine. Zero is as much as it likes.
type Budget struct {
	Cores  float64 // CPU time, of one core
	Memory int64   // bytes, of the process and its BPF maps
}

// Ask is the rate that a recording was asked for.
type Ask struct {
	Hertz float64
	Least float64 // that it is lowered to at most; one that was asked for less stays as it is
}

// Rate is what a cap leaves of the rate; 0 caps nothing.
func (a Ask) Rate(limit float64) float64 {
	if limit == 0 || a.Hertz <= limit {
		return a.Hertz
	}
	return max(limit, a.floor())
}

func (a Ask) floor() float64 { return min(a.Hertz, a.Least) }

// Load is what an agent took since the last decision, with all limits in force.
type Load struct {
	For    time.Duration             // that long
	Spent  map[cputime.Cause]float64 // of a core
	Memory int64                     // bytes, now
	Asks   []Ask
	Most   float64 // Hz that one may be asked for at once, by a policy; 0: none of them has one
	Shipped
}

// Shipped counts windows of targets since the last decision.
type Shipped struct {
	Windows int // that were shipped
	Brief   int // of commands that are gone within a window, whether or not these are one target
	Tiny    int // of targets with few samples, before they are made longer
}

// Add adds windows.
func (s *Shipped) Add(o Shipped) {
	s.Windows, s.Brief, s.Tiny = s.Windows+o.Windows, s.Brief+o.Brief, s.Tiny+o.Tiny
}

// Cores is what all causes took together.
func (l *Load) Cores() (sum float64) {
	for _, cores := range l.Spent {
		sum += cores
	}
	return sum
}

// rates adds up what a cap leaves of all that was asked for.
func (l *Load) rates(limit float64) (sum float64) {
	for _, a := range l.Asks {
		sum += a.Rate(limit)
	}
	return sum
}

// floors adds up the least rates.
func (l *Load) floors() (sum float64) {
	for _, a := range l.Asks {
		sum += a.floor()
	}
	return sum
}

// Scarce is what there was too little of.
type Scarce string

// What there can be too little of.
const (
	Nothing Scarce = ""
	CPU     Scarce = "CPU time"
	Memory  Scarce = "memory"
)

// Knob is what a decision turns.
type Knob string

// The knobs. None is what a decision turns that finds nothing left to turn.
const (
	Frequency Knob = "frequency"            // Hz that no recording is above
	Tables    Knob = "tables"               // of a core, for building unwinding tables
	Naming    Knob = "naming"               // of a core, for symbolizing
	Events    Knob = "events"               // seconds between two readings of process events
	Windows   Knob = "windows"              // part of their length that windows have
	Caches    Knob = "caches"               // are dropped
	Collector Knob = "garbage collector"    // percent of the live heap that is allocated between two collections
	Commands  Knob = "short-lived commands" // 1: those of a unit or container are one target
	Tiny      Knob = "tiny targets"         // how many times as long as others their windows may be
	None      Knob = "none"
)

// Knobs lists all of them.
func Knobs() []Knob {
	return []Knob{Frequency, Tables, Naming, Events, Windows, Caches, Collector, Commands, Tiny, None}
}

// Decision is one step, and why. From and To are in the knob's own terms; 0 is
// no limit.
type Decision struct {
	At       time.Time
	Cause    string // a cputime.Cause, or memory
	Knob     Knob
	From, To float64
	Why      string
}

// Relaxes tells whether a decision gives back what was restrained.
func (d *Decision) Relaxes() bool {
	switch d.Knob {
	case Frequency, Tables, Naming:
		return d.To == 0 || d.From != 0 && d.To > d.From
	case Events:
		return d.To < d.From
	case Windows:
		return d.To > d.From
	case Collector, Commands, Tiny:
		return d.To == 0
	case None:
		return d.From != 0
	}
	return false
}

// String returns a decision in one line.
func (d *Decision) String() string { return d.Setting() + ": " + d.Why }

// Setting returns what a decision changes, without the reason.
func (d *Decision) Setting() string {
	switch d.Knob {
	case None:
		if d.Relaxes() {
			return "within the budget again"
		}
		return "over the budget with nothing left to restrain"
	case Caches:
		return "caches dropped"
	}
	return fmt.Sprintf("%s %s -> %s", d.Knob, d.Knob.value(d.From), d.Knob.value(d.To))
}

// value is a setting of a knob, in words.
func (k Knob) value(v float64) string {
	switch {
	case k == Frequency && v == 0:
		return "as asked for"
	case k == Commands && v == 0:
		return "each a target"
	case k == Commands:
		return "one target"
	case k == Tiny && v != 0:
		return fmt.Sprintf("windows up to %g times as long", v)
	case k == Tiny, k == Collector && v == 0, k == Tables && v == 0, k == Naming && v == 0, k == Events && v == 0:
		return "as usual"
	case k == Collector:
		return fmt.Sprintf("%g%%", v)
	case k == Frequency:
		return fmt.Sprintf("%.3g Hz", v)
	case k == Tables, k == Naming:
		return percent(v)
	case k == Events:
		return time.Duration(v * float64(time.Second)).String()
	}
	return fmt.Sprintf("%.3g", v)
}

func percent(cores float64) string { return fmt.Sprintf("%.2g%% of a core", 100*cores) }

// Limits are what holds now.
type Limits struct {
	Cap    float64       // Hz that no recording is to be above; 0: none
	Tables float64       // of a core, for building tables; 0: no bound
	Naming float64       // the same, for symbolizing
	Events time.Duration // between two readings of process events; 0: as is usual
	Heap   int           // percent that the heap may grow by between two collections of garbage; 0: as is usual
	Short  bool          // windows are half as long: they are in memory until they are cut

	Together bool // short-lived commands of a unit or container are one target
	Long     int  // how many times as long windows of tiny targets may be; 0: as long as all
}
