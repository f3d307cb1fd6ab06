package freq

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Function is a function's part of a window.
type Function struct {
	Name string
	N    float64 // samples it was running in: effective ones, where they differ in weight
}

// Window is what a policy is told of a service: all its instances, for one window.
type Window struct {
	Start     time.Time
	Length    time.Duration
	Hertz     float64    // at which it was sampled
	Functions []Function // in any order, each once
	Parts     []Window   // the same by when it was, one after the other, where that is known
}

// N is how many samples a window has.
func (w *Window) N() (n float64) {
	for _, f := range w.Functions {
		n += f.N
	}
	return n
}

// Reason is why a rate is what it is.
type Reason string

// Why rates change, or stay.
const (
	Began    Reason = "began"    // nothing is known yet
	Changed  Reason = "changed"  // the program does something else than before
	Returned Reason = "returned" // to something that it did before
	Steady   Reason = "steady"   // for so long that fewer samples do
	Stays    Reason = "stays"    // neither of them, yet
	More     Reason = "more"     // samples are needed than a window has: it uses less CPU time, or windows differ
	Few      Reason = "few"      // samples: too few to tell
)

// Decision is how often to sample from the next window on, and why.
type Decision struct {
	Hertz  float64
	Reason Reason
	Why    string // the same in words, with what was measured
}

// Policy decides by one window after the other. It is for one goroutine.
type Policy interface {
	// Next takes a window that has ended, the next one after that of the last call.
	Next(w Window) Decision
}

// The policies there are.
const (
	Auto = "auto" // what sampling noise cannot explain is a change; between changes as few samples as the wanted width needs
	Atys = "atys" // Algorithm 1 of the paper of that name
)

// Policies lists them.
func Policies() []string { return []string{Auto, Atys} }

// Options are what a profile says of how rates are chosen. What is zero stands for its default.
type Options struct {
	Policy   string
	Min, Max float64 // Hz

	// Of both.
	Top int // functions that are looked at; the rest are one more cell

	// Of policy atys.
	Theta       float64 // divergence, in nats, above which functions have changed
	Lambda      float64 // by which a rate is multiplied that may fall, and divided that has to rise
	Streak      int     // windows in a row without a change, before a rate falls
	Renormalise bool    // leave the rest out, as the paper does

	// Of policy auto.
	Width float64 // half of the 95% interval of a function's share that is wanted, such as 0.01
}

// The defaults: the paper's where it has any.
const (
	DefaultTop    = 10
	DefaultTheta  = 0.05
	DefaultLambda = 0.8
	DefaultStreak = 5
	DefaultWidth  = 0.005
)

// Limits of what may be asked for.
const (
	maxTop    = 100
	maxStreak = 1000
	mostNats  = 0.6931471805599453 // of a divergence: ln 2
)

// Fill puts defaults where nothing is said.
func (o *Options) Fill() {
	set := func(to *float64, value float64) {
		if *to == 0 {
			*to = value
		}
	}
	if o.Policy == "" {
		o.Policy = Auto
	}
	if o.Top == 0 {
		o.Top = DefaultTop
	}
	switch o.Policy {
	case Auto:
		set(&o.Width, DefaultWidth)
	case Atys:
		set(&o.Theta, DefaultTheta)
		set(&o.Lambda, DefaultLambda)
		if o.Streak == 0 {
			o.Streak = DefaultStreak
		}
	}
}

// Check says what is wrong with options that Fill has filled, by field.
func (o *Options) Check() (wrong []error) {
	no := func(field, format string, values ...any) {
		wrong = append(wrong, fmt.Errorf("%s: "+format, append([]any{field}, values...)...))
	}
	if !slices.Contains(Policies(), o.Policy) {
		no("policy", "%.40q: want %s", o.Policy, strings.Join(Policies(), " or "))
	}
	if !(o.Min > 0 && o.Min <= o.Max) { // nor is NaN
		no("min", "%v: want more than 0, and at most max, which is %v", o.Min, o.Max)
	}
	if o.Top < 1 || o.Top > maxTop {
		no("top", "%d: want 1 to %d functions", o.Top, maxTop)
	}
	if o.Policy == Atys {
		if !(o.Theta > 0 && o.Theta < mostNats) {
			no("theta", "%v: want a divergence above 0 and below ln 2 = 0.693, such as %v", o.Theta, DefaultTheta)
		}
		if !(o.Lambda > 0 && o.Lambda < 1) {
			no("lambda", "%v: want a number above 0 and below 1, such as %v", o.Lambda, DefaultLambda)
		}
		if o.Streak < 1 || o.Streak > maxStreak {
			no("streak", "%d: want 1 to %d windows", o.Streak, maxStreak)
		}
	} else if o.Theta != 0 || o.Lambda != 0 || o.Streak != 0 || o.Renormalise {
		no("policy", "theta, lambda, streak and renormalise are of policy %s: this is %.40q", Atys, o.Policy)
	}
	if o.Policy == Auto && !(o.Width > 0 && o.Width < 0.5) {
		no("width", "%v: want half of an interval above 0 and below 0.5, such as %v", o.Width, DefaultWidth)
	} else if o.Policy != Auto && o.Width != 0 {
		no("width", "it is of policy %s: this is %.40q", Auto, o.Policy)
	}
	return wrong
}

// New makes a policy of options that Check finds nothing wrong with.
func New(o Options) Policy {
	if o.Policy == Atys {
		return newDivergence(o)
	}
	return newStretches(o)
}

// clamp keeps a rate within bounds.
func (o *Options) clamp(hertz float64) float64 { return min(max(hertz, o.Min), o.Max) }
