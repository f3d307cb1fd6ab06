package pipeline

import (
	"math"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/spec"
)

// split divides a window by target. Threads are kept as the task says: each, by the
// pattern of their names, or not at all. What belongs to no process, such as idle time and
// samples that were lost before their process was known, goes to a window of the machine
// itself. Target i is that of thread i.
func split(w *profile.Window, targets []profile.Labels, machine profile.Labels, threads spec.Threads) []*profile.Window {
	s := splitter{whole: w, machine: machine, threads: threads, parts: map[string]*part{}}
	rest := s.part(machine)
	rest.Head().Idle, rest.Head().Watched = w.Idle, w.Watched
	parts := make([]*part, len(w.Threads))
	for i, t := range w.Threads {
		p := s.part(targets[i])
		parts[i] = p
		p.Head().Exact.Add(t.Exact)
		s.thread(p, t)
	}
	for _, row := range w.Rows.All() {
		p := rest
		if row.Thread != 0 {
			p = parts[row.Thread-1]
		}
		s.add(p, row)
	}
	for _, e := range w.Exemplars {
		p := rest
		if e.Thread != 0 {
			p = parts[e.Thread-1]
		}
		s.exemplar(p, e)
	}
	for _, l := range w.Losses {
		switch {
		case l.Reason == profile.LossUnsampled: // each target's balance adds its own
		case l.Reason == profile.LossDropped:
			s.lost(rest, l)
		case !l.Reason.OfSamples(): // the others are counted again, row by row
			rest.Head().AddLoss(l)
		}
	}
	return s.windows()
}

// lost assigns dropped samples to targets. The sampler did not record whose they were, so
// each target gets a share in proportion to the exact time that its samples lack; its
// balance then does not report that time again as not sampled. The rest goes to the
// machine.
func (s *splitter) lost(rest *part, l profile.Loss) {
	var short int64
	for _, p := range s.parts {
		short += p.short()
	}
	scale := 1 / float64(max(short, l.Value, 1))
	left := l
	for _, p := range s.parts {
		share := float64(p.short()) * scale
		own := profile.Loss{Reason: l.Reason, Detail: l.Detail,
			N: min(int64(math.Round(share*float64(l.N))), left.N), Value: min(int64(math.Round(share*float64(l.Value))), left.Value)}
		if own.N == 0 {
			continue
		}
		p.Head().AddLoss(own)
		left.N, left.Value = left.N-own.N, left.Value-own.Value
	}
	if left.N > 0 {
		rest.Head().AddLoss(left)
	}
}

// splitter finds the part of a target.
type splitter struct {
	whole   *profile.Window
	machine profile.Labels
	threads spec.Threads
	parts   map[string]*part
}

// part builds the window of one target.
type part struct {
	*profile.Builder
	sampled   int64 // what its rows weigh
	stacks    map[profile.StackID]profile.StackID
	locations map[profile.LocationID]profile.LocationID
}

func (s *splitter) part(target profile.Labels) *part {
	if target == nil {
		target = s.machine
	}
	key := target.String()
	p := s.parts[key]
	if p == nil {
		h := s.whole.Head
		h.Target, h.Exact, h.Idle, h.Watched, h.Losses = target, profile.Exact{}, 0, 0, nil
		h.Types, h.Comments = slices.Clone(h.Types), slices.Clone(h.Comments)
		p = &part{Builder: profile.NewBuilder(h), stacks: map[profile.StackID]profile.StackID{}, locations: map[profile.LocationID]profile.LocationID{}}
		s.parts[key] = p
	}
	return p
}

// thread adds a thread as it is shipped.
func (s *splitter) thread(p *part, t profile.Thread) profile.ThreadID {
	switch s.threads {
	case spec.ThreadsNone:
		return 0
	case spec.ThreadsEach:
		return p.Thread(t)
	}
	return p.Thread(profile.Thread{Process: t.Process, Name: t.Pattern(), Exact: t.Exact, Pruned: t.Pruned}) // its numbers change with each start
}

// place translates the thread and the context of a row.
func (s *splitter) place(p *part, thread profile.ThreadID, context profile.ContextID) (profile.ThreadID, profile.ContextID) {
	if thread != 0 {
		t := s.whole.Thread(thread)
		t.Exact = profile.Exact{} // it was counted with the threads
		thread = s.thread(p, t)
	}
	if context != 0 {
		context = p.Context(s.whole.Contexts[context-1])
	}
	return thread, context
}

func (s *splitter) exemplar(p *part, e profile.Exemplar) {
	e.Thread, e.Context = s.place(p, e.Thread, e.Context)
	e.Stack = p.stack(s.whole, e.Stack)
	p.AddExemplar(e)
}

func (s *splitter) add(p *part, row profile.Row) {
	w := s.whole
	row.Thread, row.Context = s.place(p, row.Thread, row.Context)
	end := w.Stacks[row.Stack].End
	if reason, ok := incomplete(end); ok && len(row.Values) > 0 {
		p.Head().AddLoss(profile.Loss{Reason: reason, Detail: end.String(), N: row.N, Value: row.Values[0]})
	}
	if stands(w, row.Stack) && len(row.Values) > 0 {
		p.Head().AddLoss(profile.Loss{Reason: profile.LossPruned, Detail: prunedBy(w), N: row.N, Value: row.Values[0]})
	}
	if len(row.Values) > 0 {
		p.sampled += row.Values[0]
	}
	row.Stack = p.stack(w, row.Stack)
	if row.Peer != 0 {
		row.Peer = profile.PeerID(p.stack(w, profile.StackID(row.Peer-1))) + 1
	}
	p.Add(row)
}

// stands reports whether pruning has cut a stack.
func stands(w *profile.Window, id profile.StackID) bool {
	stack := w.Stacks[id].Locations
	return len(stack) > 0 && prune.IsMarker(w.Locations[stack[len(stack)-1]])
}

// prunedBy returns what a window says about pruning.
func prunedBy(w *profile.Window) string {
	for _, l := range w.Losses {
		if l.Reason == profile.LossPruned {
			return l.Detail
		}
	}
	return ""
}

// incomplete returns the loss reason of a stack that was not walked completely.
func incomplete(end profile.End) (profile.LossReason, bool) {
	switch {
	case end == profile.EndStarting:
		return profile.LossStarting, true
	case end.Truncated():
		return profile.LossTruncated, true
	}
	return "", false
}

func (p *part) stack(w *profile.Window, id profile.StackID) profile.StackID {
	if known, ok := p.stacks[id]; ok {
		return known
	}
	s := w.Stacks[id]
	locations := make([]profile.LocationID, len(s.Locations))
	for i, l := range s.Locations {
		known, ok := p.locations[l]
		if !ok {
			known = p.Location(w.Locations[l], w.Names[l]...)
			p.locations[l] = known
		}
		locations[i] = known
	}
	own := p.Stack(locations, s.End)
	p.stacks[id] = own
	return own
}

// short returns the exact time that the samples lack.
func (p *part) short() int64 { return max(int64(p.Head().Exact.CPU)-p.sampled, 0) }

// windows returns the parts that are not empty, by target.
func (s *splitter) windows() (windows []*profile.Window) {
	keys := make([]string, 0, len(s.parts))
	for key := range s.parts {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		w := s.parts[key].Window()
		if w.Rows.Len() > 0 || w.Exact.CPU > 0 || w.Watched > 0 || len(w.Losses) > 0 {
			windows = append(windows, w)
		}
	}
	return windows
}
