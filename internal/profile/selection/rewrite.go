package selection

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// rewriter copies a window while its stacks change. Locations that no stack
// needs any more are not copied.
type rewriter struct {
	from     *profile.Window
	b        *profile.Builder
	names    [][]profile.Frame // of each location of from
	threads  []profile.ThreadID
	contexts []profile.ContextID
}

// newRewriter begins a copy under a head; thread tells what becomes of a thread.
func newRewriter(w *profile.Window, head profile.Head, thread func(profile.Thread) profile.Thread) *rewriter {
	head.Types = slices.Clone(head.Types)
	head.Losses = slices.Clone(head.Losses)
	head.Comments = slices.Clone(head.Comments)
	r := &rewriter{from: w, b: profile.NewBuilder(head), names: slices.Clone(w.Names),
		threads: make([]profile.ThreadID, len(w.Threads)+1), contexts: make([]profile.ContextID, len(w.Contexts)+1)}
	for i, t := range w.Threads {
		r.threads[i+1] = r.b.Thread(thread(t))
	}
	for i, c := range w.Contexts {
		r.contexts[i+1] = r.b.Context(c)
	}
	return r
}

// rewrite gives the window in which each stack of the old one is what change
// makes of it, in locations of the new one; false leaves it out.
func (r *rewriter) rewrite(change func(profile.Stack) ([]profile.LocationID, profile.End, bool)) *profile.Window {
	ids := make([]profile.StackID, len(r.from.Stacks))
	kept := make([]bool, len(r.from.Stacks))
	for i, stack := range r.from.Stacks {
		if locations, end, ok := change(stack); ok {
			ids[i], kept[i] = r.b.Stack(locations, end), true
		}
	}
	for _, row := range r.from.Rows.All() {
		if kept[row.Stack] {
			row.Stack, row.Thread, row.Context = ids[row.Stack], r.threads[row.Thread], r.contexts[row.Context]
			if row.Peer != 0 && kept[row.Peer-1] { // a peer that is not selected is not shown
				row.Peer = profile.PeerID(ids[row.Peer-1]) + 1
			} else {
				row.Peer = 0
			}
			r.b.Add(row)
		}
	}
	for _, e := range r.from.Exemplars {
		if kept[e.Stack] {
			e.Stack, e.Thread, e.Context = ids[e.Stack], r.threads[e.Thread], r.contexts[e.Context]
			r.b.AddExemplar(e)
		}
	}
	for _, s := range r.from.Samples {
		if kept[s.Stack] {
			s.Stack, s.Thread = ids[s.Stack], r.threads[s.Thread]
			r.b.AddSample(s)
		}
	}
	return r.b.Window()
}

// location copies a location to the new window.
func (r *rewriter) location(id profile.LocationID) profile.LocationID {
	return r.b.Location(r.from.Locations[id], r.names[id]...)
}
