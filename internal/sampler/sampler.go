// Package sampler is the contract between instruments that take samples and whatever asks for them, with what all instruments do between cuts.
package sampler

import (
	"context"
	"time"

	"atys.dev/atys/internal/profile"
)

// Sampler fills windows until it is closed. Its optional abilities are the other
// interfaces of this package.
type Sampler interface {
	// Cut ends the windows that are being filled and, unless the edge is the last one,
	// begins the next at that same instant. Most samplers return one window, those that
	// run several profilers one of each. It may take long: it is called apart from
	// whatever keeps time, but never twice at once. Names are not filled in.
	Cut(e Edge) ([]*profile.Window, error)
	// Close stops sampling. Samples since the last Cut are lost.
	Close() error
}

// Edge is the end of a window.
type Edge struct {
	First bool // of the first targets: the cut may wait a moment for them to be ready
	Last  bool // no window follows
}

// Aimer samples only the processes that it is aimed at.
type Aimer interface {
	// Aim adds and drops targets, from the next window on. It reports whether any of
	// them was not sampled before, as the child of a target is.
	Aim(add, drop []int) (fresh bool)
}

// Paced samples as often as it is told to.
type Paced interface {
	// SetFrequency changes the rate of all targets from the next window on.
	SetFrequency(hz float64) error
	// SetRates gives targets rates of their own from the next window on. Others keep theirs.
	SetRates(hz map[int]float64) error
}

// Relievable collects samples in tables that can fill up before the edge. Windows that
// are cut early to empty them can be merged.
type Relievable interface {
	// Full returns how full the tables are, from 0 to 1.
	Full() float64
}

// Costed measures what its samples cost outside of this process's CPU time.
type Costed interface {
	// Spent returns the costs since the sampler was opened.
	Spent() (bpf, interrupts time.Duration, err error)
}

// Namer fills in the names of its windows.
type Namer interface {
	// Name names a window that was cut, or several merged, and returns the result, which
	// can be another window. It may take minutes, unless the context ends.
	Name(ctx context.Context, w *profile.Window) (*profile.Window, error)
}

// Delayed takes long to cut, since it runs other profilers. Its windows cannot be
// cut early and merged: each profiler has its own time.
type Delayed interface {
	// Lead returns how long before the end of a window it has to be cut.
	Lead() time.Duration
	// Trouble returns what keeps it from recording all that it is aimed at.
	Trouble() Trouble
}

// Trouble is what keeps a sampler from recording all that it is aimed at.
type Trouble struct {
	Message string // "": nothing
	Failed  bool   // it records none of it
}
