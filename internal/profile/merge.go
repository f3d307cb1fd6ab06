package profile

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrDifferentTypes means that two windows do not measure the same things.
var ErrDifferentTypes = errors.New("windows have different value types")

// Merge adds windows up: rows, exact times and losses are summed, dictionaries
// united. The result does not depend on grouping, and only in the order of its
// rows on the order of its arguments. Value types must agree in kind and unit.
func Merge(windows ...*Window) (*Window, error) {
	if len(windows) == 0 {
		return nil, errors.New("merge windows: none given")
	}
	b := NewBuilder(mergedHead(windows))
	for _, w := range windows {
		if err := sameTypes(windows[0].Types, w.Types); err != nil {
			return nil, fmt.Errorf("merge windows: %w", err)
		}
		b.addWindow(w, 1)
	}
	return b.Window(), nil
}

// Subtract removes from a what b holds: rows, exact times and losses. Rows that
// come to nothing are left out; a difference below zero is kept, so that a-b+b
// is a again. A difference has no samples at points of time.
func Subtract(a, b *Window) (*Window, error) {
	if err := sameTypes(a.Types, b.Types); err != nil {
		return nil, fmt.Errorf("subtract windows: %w", err)
	}
	head := a.Head
	head.Types = slices.Clone(a.Types)
	head.Losses = slices.Clone(a.Losses)
	head.Comments = slices.Clone(a.Comments)
	head.Exact.Add(b.Exact.negative())
	head.Idle -= b.Idle
	head.Watched -= b.Watched
	for _, l := range b.Losses {
		l.N, l.Value = -l.N, -l.Value
		head.AddLoss(l)
	}
	head.Losses = slices.DeleteFunc(head.Losses, func(l Loss) bool { return l.N == 0 && l.Value == 0 })
	out := NewBuilder(head)
	out.addWindow(a, 1)
	out.addWindow(b, -1)
	w := out.Window()
	w.Samples = nil
	w.Rows = slices.DeleteFunc(w.Rows, func(r Row) bool {
		return r.N == 0 && !slices.ContainsFunc(r.Values, func(v int64) bool { return v != 0 })
	})
	return w, nil
}

// addWindow adds all rows of w, times sign, translating its identifiers.
func (b *Builder) addWindow(w *Window, sign int64) {
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
		if sign < 0 {
			t.Exact = t.Exact.negative()
		}
		threads[i+1] = b.Thread(t)
	}
	contexts := make([]ContextID, len(w.Contexts)+1)
	for i, c := range w.Contexts {
		contexts[i+1] = b.Context(c)
	}
	for _, r := range w.Rows {
		values := make([]int64, len(r.Values))
		for j, v := range r.Values {
			values[j] = sign * v
		}
		b.Add(Row{Stack: stacks[r.Stack], Thread: threads[r.Thread], Context: contexts[r.Context], Slot: r.Slot,
			N: sign * r.N, Values: values, Squares: float64(sign) * r.Squares})
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
	h.Types = slices.Clone(h.Types)
	h.Losses, h.Comments = nil, nil
	h.Exact, h.Idle, h.Watched = Exact{}, 0, 0
	h.Start, h.Duration = span(windows)
	h.ClockOffset, h.ClockError = clocks(windows)
	for _, w := range windows {
		h.Target = commonLabels(h.Target, w.Target)
		if w.Task != h.Task {
			h.Task = ""
		}
		if w.Design != h.Design {
			h.Design = DesignUnknown
		}
		h.Exact.Add(w.Exact)
		h.Idle += w.Idle
		h.Watched += w.Watched
		mergePeriods(h.Types, w.Types)
		for _, l := range w.Losses {
			h.AddLoss(l)
		}
		for _, c := range w.Comments {
			if !slices.Contains(h.Comments, c) {
				h.Comments = append(h.Comments, c)
			}
		}
	}
	return h
}

// span covers all windows whose start is known. Where none is, it is as long
// as the longest.
func span(windows []*Window) (start time.Time, length time.Duration) {
	var end time.Time
	for _, w := range windows {
		if w.Start.IsZero() {
			continue
		}
		if start.IsZero() || w.Start.Before(start) {
			start = w.Start
		}
		if e := w.Start.Add(w.Duration); e.After(end) {
			end = e
		}
	}
	if !start.IsZero() {
		return start, max(end.Sub(start), 0)
	}
	for _, w := range windows {
		length = max(length, w.Duration)
	}
	return start, length
}

// clocks keeps an offset that all share. Where they differ there is none to
// correct by, and the largest is part of the error.
func clocks(windows []*Window) (offset, uncertain time.Duration) {
	offset = windows[0].ClockOffset
	largest, same := time.Duration(0), true
	for _, w := range windows {
		same = same && w.ClockOffset == offset
		largest = max(largest, w.ClockOffset.Abs())
		uncertain = max(uncertain, w.ClockError)
	}
	if same {
		return offset, uncertain
	}
	return 0, max(uncertain, largest)
}

// mergePeriods forgets a period that is not the same everywhere.
func mergePeriods(into, from []ValueType) {
	for i := range into {
		if i < len(from) && into[i].Period != from[i].Period {
			into[i].Period = 0
		}
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
	same := slices.EqualFunc(a, b, func(x, y ValueType) bool { return x.Kind == y.Kind && x.Unit == y.Unit })
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
	}
	return s
}
