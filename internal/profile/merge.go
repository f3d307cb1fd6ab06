package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrDifferentTypes means that two windows do not measure the same things.
var ErrDifferentTypes = errors.New("windows have different value types")

// Merge adds windows up: rows, exact times and losses are summed, dictionaries are united.
// Neither grouping nor the order of the arguments changes the result, except for the order of
// its rows. Value types must agree in kind and unit.
//
// Levels are averaged over the windows of one target, weighted by their durations, and summed
// over targets. For these, merge the windows of each target first. A store averages by minute:
// see Coverage in package store.
func Merge(windows ...*Window) (*Window, error) {
	if len(windows) == 0 {
		return nil, errors.New("merge windows: none given")
	}
	b := NewBuilder(mergedHead(windows))
	watched := map[string]time.Duration{} // by target
	for _, w := range windows {
		if err := sameTypes(windows[0].Types, w.Types); err != nil {
			return nil, fmt.Errorf("merge windows: %w", err)
		}
		watched[w.Target.String()] += max(w.Duration, 1) // a window without a length is a moment
	}
	for _, w := range windows {
		b.addWindow(w.averaged(watched[w.Target.String()]))
	}
	return b.Window(), nil
}

// averaged returns the window with its levels weighted by its part of the time that its
// target was watched.
func (w *Window) averaged(watched time.Duration) *Window {
	if watched <= max(w.Duration, 1) || !slices.ContainsFunc(w.Types, func(t ValueType) bool { return t.Temporality == Level }) {
		return w
	}
	part := *w
	part.Rows = w.Rows.Clone()
	for t, of := range w.Types {
		if of.Temporality == Level {
			part.Rows.weigh(t, float64(max(w.Duration, 1))/float64(watched))
		}
	}
	return &part
}

// addWindow adds all rows of w, translating its identifiers.
func (b *Builder) addWindow(w *Window) {
	locations := make([]LocationID, len(w.Locations))
	for i, l := range w.Locations {
		locations[i] = b.Location(l, w.Names[i]...)
	}
	stacks := make([]StackID, len(w.Stacks))
	var buf []LocationID
	for i, s := range w.Stacks {
		buf = buf[:0]
		for _, l := range s.Locations {
			buf = append(buf, locations[l])
		}
		stacks[i] = b.Stack(buf, s.End)
	}
	threads := make([]ThreadID, len(w.Threads)+1)
	for i, t := range w.Threads {
		threads[i+1] = b.Thread(t)
	}
	contexts := make([]ContextID, len(w.Contexts)+1)
	for i, c := range w.Contexts {
		contexts[i+1] = b.Context(c)
	}
	for _, r := range w.Rows.All() {
		r.Stack, r.Thread, r.Context, r.Slot = stacks[r.Stack], threads[r.Thread], contexts[r.Context], b.Head().SlotOf(&w.Head, r.Slot)
		if r.Peer != 0 {
			r.Peer = PeerID(stacks[r.Peer-1]) + 1
		}
		b.Add(r)
	}
	for _, e := range w.Exemplars {
		e.Stack, e.Thread, e.Context = stacks[e.Stack], threads[e.Thread], contexts[e.Context]
		if e.Time != 0 {
			e.Time += w.Start.Sub(b.w.Start)
		}
		b.AddExemplar(e)
	}
	b.addSamples(w, stacks, threads)
}

// addSamples keeps w's timed samples on the merged window's time axis. Those of
// a window that does not know when it began have no place on one that does:
// they stay in the rows only.
func (b *Builder) addSamples(w *Window, stacks []StackID, threads []ThreadID) {
	if w.Start.IsZero() && !b.w.Start.IsZero() {
		return
	}
	shift := w.Start.Sub(b.w.Start)
	for _, s := range w.Samples {
		s.Time += shift
		s.Stack, s.Thread = stacks[s.Stack], threads[s.Thread]
		b.AddSample(s)
	}
}

func mergedHead(windows []*Window) Head {
	h := windows[0].Head
	h.Types, h.Target = slices.Clone(h.Types), maps.Clone(h.Target)
	h.Losses, h.Comments = nil, nil
	h.addLossesAndComments(&windows[0].Head)
	for _, w := range windows[1:] {
		h.Absorb(&w.Head)
	}
	return h
}

// Absorb makes h the head of its own window and o's added up: sums of what is
// used and lost, and of the rest what both share.
func (h *Head) Absorb(o *Head) {
	h.Target = commonLabels(h.Target, o.Target)
	if o.Task != h.Task {
		h.Task = ""
	}
	if o.Design != h.Design {
		h.Design = DesignUnknown
	}
	h.Exact.Add(o.Exact)
	h.Idle += o.Idle
	h.Watched += o.Watched
	h.Cost.Add(o.Cost)
	h.span(o)
	h.clocks(o)
	h.Instances.Absorb(o.Instances)
	h.Rate.Absorb(o.Rate)
	if h.Slot != o.Slot {
		h.Slot = 0
	}
	h.Origin = max(h.Origin, o.Origin)
	h.Farewell = h.Farewell || o.Farewell
	for i := range min(len(h.Types), len(o.Types)) {
		h.Types[i].Absorb(o.Types[i])
	}
	h.addLossesAndComments(o)
}

func (h *Head) addLossesAndComments(o *Head) {
	for _, l := range o.Losses {
		h.AddLoss(l)
	}
	for _, c := range o.Comments {
		h.AddComment(c)
	}
}

// span covers both, as far as their starts are known. Where neither is, it is
// as long as the longer one.
func (h *Head) span(o *Head) {
	switch {
	case h.Start.IsZero() && o.Start.IsZero():
		h.Duration = max(h.Duration, o.Duration)
	case h.Start.IsZero():
		h.Start, h.Duration = o.Start, o.Duration
	case o.Start.IsZero():
	default:
		end := h.Start.Add(h.Duration)
		if e := o.Start.Add(o.Duration); e.After(end) {
			end = e
		}
		if o.Start.Before(h.Start) {
			h.Start = o.Start
		}
		h.Duration = end.Sub(h.Start)
	}
}

// clocks keeps an offset that both share. Where they differ there is none to
// correct by, and the larger is part of the error.
func (h *Head) clocks(o *Head) {
	h.ClockError = max(h.ClockError, o.ClockError)
	if h.ClockOffset != o.ClockOffset {
		h.ClockError = max(h.ClockError, h.ClockOffset.Abs(), o.ClockOffset.Abs())
		h.ClockOffset = 0
	}
}

func commonLabels(a, b Labels) Labels {
	common := Labels{}
	for k, v := range a {
		if other, ok := b[k]; ok && other == v {
			common[k] = v
		}
	}
	return common
}

func sameTypes(a, b []ValueType) error {
	same := slices.EqualFunc(a, b, func(x, y ValueType) bool {
		return x.Kind == y.Kind && x.Unit == y.Unit && x.Temporality == y.Temporality
	})
	if !same {
		return fmt.Errorf("%w: %s and %s", ErrDifferentTypes, typeNames(a), typeNames(b))
	}
	return nil
}

func typeNames(types []ValueType) string {
	s := ""
	for i, t := range types {
		if i > 0 {
			s += "+"
		}
		s += t.Kind + "/" + t.Unit
		if t.Temporality != Delta {
			s += "/" + t.Temporality.String()
		}
	}
	return s
}
