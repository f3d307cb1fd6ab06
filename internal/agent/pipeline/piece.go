package pipeline

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

// Piece is what one cut of a recording has brought: a whole window, or a part of one
// that was cut before its edge.
type Piece struct {
	Cuts []*Cut
	// Ends has what is known of the window that ends with this piece: instances, clock,
	// cost, farewell. nil: the window goes on.
	Ends *profile.Head
	Last bool // no window of the recording follows
	Long Long // how long windows of tiny targets may be; zero: as long as all

	windows int // that end with it
	brief   int // targets in it that are of short-lived commands only
}

// Cut is a window as it came from a sampler.
type Cut struct {
	Window  *profile.Window
	Targets Targets       // of its processes, soon after it was cut; nil: Identify finds them
	Kept    []*Kept       // targets whose samples are kept are kept by one of these; none: all are
	Rates   *Rates        // at which it was sampled; nil: not by time
	Namer   sampler.Namer // nil: it has its names

	// Identify returns the targets of threads: target i is that of thread i. brief is how many
	// of them are, or would be without that, of short-lived commands only. It may take long.
	Identify func([]profile.Thread) (targets []profile.Labels, brief int)

	// Apart means that each window of a cut is of a profiler of its own: it covers its own
	// time, and has lost what its one target has.
	Apart bool

	unknown bool // its processes could not be identified: Targets knows them by their names
}

// Kept says which targets' samples are kept. Cuts for which the same holds share one, so that
// those of hours can become one cut.
type Kept struct{ Means func(profile.Labels) bool }

// Rates are those of a window's targets.
type Rates struct {
	All profile.Rate
	Of  map[string]profile.Rate // by target; nil: all have the same
}

// absorb adds a piece of the same line that comes next. It reports whether two windows
// have become one.
func (p *Piece) absorb(next *Piece) (merged bool) {
	for _, c := range next.Cuts {
		if !p.add(c) {
			p.Cuts = append(p.Cuts, c)
		}
	}
	p.windows, p.brief = p.windows+next.windows, p.brief+next.brief
	p.Last, p.Long = p.Last || next.Last, next.Long
	switch {
	case p.Ends == nil:
		p.Ends = next.Ends
	case next.Ends != nil:
		p.Ends.Absorb(next.Ends)
		return true
	}
	return false
}

// add merges a cut into one of the same processes.
func (p *Piece) add(c *Cut) bool {
	for _, o := range p.Cuts {
		if o.absorb(c) {
			return true
		}
	}
	return false
}

// absorb merges a later cut into c, if that loses nothing: not if a process has become
// one of another target, or if other things were measured. Processes that have not been
// identified yet are as in a longer window.
func (c *Cut) absorb(o *Cut) bool {
	if c.Apart != o.Apart || c.Namer != o.Namer || (c.Kept == nil) != (o.Kept == nil) || c.unknown != o.unknown || !c.sameTargets(o) {
		return false
	}
	w, err := profile.Merge(c.Window, o.Window)
	if err != nil {
		return false
	}
	c.Window = w
	if c.Targets != nil {
		maps.Copy(c.Targets, o.Targets)
	}
	for _, k := range o.Kept {
		if !slices.Contains(c.Kept, k) {
			c.Kept = append(c.Kept, k)
		}
	}
	if c.Rates != nil && o.Rates != nil {
		c.Rates.absorb(o.Rates)
	}
	return true
}

// sameTargets reports whether the targets of both cuts can be those of one window.
func (c *Cut) sameTargets(o *Cut) bool {
	switch {
	case (c.Targets == nil) != (o.Targets == nil):
		return false
	case c.Targets == nil:
		return !c.Apart || maps.Equal(programsOf(c.Window.Threads), programsOf(o.Window.Threads))
	}
	return c.Targets.agree(o.Targets, c.Apart)
}

// absorb keeps what both have in common, target by target.
func (r *Rates) absorb(o *Rates) {
	r.All.Absorb(o.All)
	for key, rate := range o.Of {
		if mine, ok := r.Of[key]; ok {
			mine.Absorb(rate)
			rate = mine
		}
		r.Of[key] = rate
	}
}

// set has the parts of a window say how often they were sampled, and why. Another
// profiler has said by itself how often, which may not be what it was asked for. The rate
// of what was not aimed at, such as a child that lived for less than a second, is unknown.
func (r *Rates) set(parts []*profile.Window) {
	for _, part := range parts {
		rate, itself := r.All, part.Rate.Hertz
		varies := false
		if r.Of != nil {
			rate, varies = r.Of[part.Target.String()]
		}
		part.Rate = rate
		switch {
		case itself > 0:
			part.Rate.Hertz = itself
		case varies && rate.Hertz > 0: // the sampler says what the fastest target has
			part.Types[0].Period = int64(float64(time.Second) / rate.Hertz)
		case varies:
			part.Types[0].Period = 0
		}
	}
}
