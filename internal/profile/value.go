package profile

import "time"

// ValueType describes one column of values.
type ValueType struct {
	Kind        string // cpu, page-faults, sched:sched_switch ...
	Unit        string // nanoseconds, count, bytes
	Period      int64  // units per sample, 0 where it varies or is unknown
	Temporality Temporality
	Base        Base
	Variance    Variance // what the squares of rows are
}

// Temporality says how values of a type add up.
type Temporality uint8

const (
	Delta Temporality = iota // adds over time: CPU time, allocated bytes
	Level                    // a state at a moment, such as the size of a heap: averaged over time, summed over instances
)

var temporalityNames = [...]string{"delta", "level"}

// String returns the name that files have.
func (t Temporality) String() string {
	return nameOf(temporalityNames[:], t)
}

// ParseTemporality is the inverse of String. An unknown name is Delta, which is what
// versions without temporality measured.
func ParseTemporality(name string) Temporality {
	return parseName[Temporality](temporalityNames[:], name)
}

// Variance says how the variance of a row's sum is known. Both variances add up.
type Variance uint8

const (
	// FromWeights is of samples at random moments: the variance is the sum of their squared
	// weights (the Horvitz-Thompson estimator for Poisson sampling). 0 means unknown: Known
	// replaces it by that of samples of equal weight.
	FromWeights Variance = iota
	// Measured is of events that are kept with a known probability p: the variance is the sum
	// of (1-p) times their squared weights. It is 0 if all of them were certain to be kept.
	Measured
)

var varianceNames = [...]string{"from weights", "measured"}

// String returns the name that files have.
func (v Variance) String() string { return nameOf(varianceNames[:], v) }

// ParseVariance is the inverse of String. An unknown name is FromWeights.
func ParseVariance(name string) Variance { return parseName[Variance](varianceNames[:], name) }

// Absorb clears what differs between two types of one kind: period and base. The variance of
// a sum is measured if that of one part is.
func (t *ValueType) Absorb(o ValueType) {
	if t.Period != o.Period {
		t.Period = 0
	}
	if t.Base != o.Base {
		t.Base = BaseNone
	}
	t.Variance = max(t.Variance, o.Variance)
}

// Base names the exact total that a value type is a part of. Sampled shares are multiplied
// by it.
type Base string

// The bases. A later version may have others, for which Exact has no total.
const (
	BaseNone     Base = "" // nothing keeps an exact total
	BaseCPU      Base = "cpu"
	BaseWall     Base = "wall"
	BaseRunQueue Base = "run queue"
	BaseBytes    Base = "bytes"
)

// baseNone is BaseNone where an encoding leaves out the usual base.
const baseNone = "none"

// usualBase returns the base of types that do not name one. Versions before bases
// existed measured CPU time and counted events.
func usualBase(kind, unit string) Base {
	if kind == "cpu" && unit == "nanoseconds" {
		return BaseCPU
	}
	return BaseNone
}

// CPUTime is the type of CPU time with an exact total.
func CPUTime(period int64) ValueType {
	return ValueType{Kind: "cpu", Unit: "nanoseconds", Period: period, Base: BaseCPU}
}

// EncodedBase returns the base as formats write it: nothing where it is the usual one of
// the kind and unit, so that older versions read what they know.
func (t *ValueType) EncodedBase() string {
	switch {
	case t.Base == usualBase(t.Kind, t.Unit):
		return ""
	case t.Base == BaseNone:
		return baseNone
	}
	return string(t.Base)
}

// DecodeBase sets the base from what EncodedBase returned.
func (t *ValueType) DecodeBase(encoded string) {
	switch encoded {
	case "":
		t.Base = usualBase(t.Kind, t.Unit)
	case baseNone:
		t.Base = BaseNone
	default:
		t.Base = Base(encoded)
	}
}

// Exact holds totals that the kernel or a runtime accounted, as opposed to sampled.
type Exact struct {
	CPU, User, System time.Duration
	Wall, RunQueue    time.Duration // of all threads together
	Bytes             int64
	Source            string // which figures these are
	IncludesInterrupt bool   // interrupt time is part of the CPU time
}

// Of returns the total of a base, in the base's unit; 0 if it is not known.
func (e *Exact) Of(b Base) int64 {
	switch b {
	case BaseCPU:
		return int64(e.CPU)
	case BaseWall:
		return int64(e.Wall)
	case BaseRunQueue:
		return int64(e.RunQueue)
	case BaseBytes:
		return e.Bytes
	}
	return 0
}

// Empty reports whether all totals are zero, whatever their source.
func (e Exact) Empty() bool {
	e.Source, e.IncludesInterrupt = "", false
	return e == Exact{}
}

// Add sums two exact totals of the same source.
func (e *Exact) Add(o Exact) {
	e.CPU += o.CPU
	e.User += o.User
	e.System += o.System
	e.Wall += o.Wall
	e.RunQueue += o.RunQueue
	e.Bytes += o.Bytes
	e.IncludesInterrupt = e.IncludesInterrupt || o.IncludesInterrupt
	if e.Source == "" {
		e.Source = o.Source
	} else if o.Source != "" && o.Source != e.Source {
		e.Source = "mixed"
	}
}

// Kind returns what the window measured: the kind of its first value type.
func (h *Head) Kind() string {
	if len(h.Types) == 0 {
		return ""
	}
	return h.Types[0].Kind
}
