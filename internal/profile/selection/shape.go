package selection

import (
	"cmp"
	"fmt"
	"slices"

	"atys.dev/atys/internal/profile"
)

// Only returns a window with one of its value types.
func Only(w *profile.Window, kind string) (*profile.Window, error) {
	index := w.TypeIndex(kind)
	if index < 0 {
		return nil, fmt.Errorf("no value type %q: there is %s", kind, kinds(w.Types))
	}
	out := *w
	out.Types = w.Types[index : index+1 : index+1]
	out.Rows = w.Rows.Only(index)
	return &out, nil
}

// kinds lists value types for a message; their names are foreign, so quoted.
func kinds(types []profile.ValueType) string {
	if len(types) == 0 {
		return "none"
	}
	list := ""
	for i, t := range types {
		switch {
		case i > 0 && i == len(types)-1:
			list += " and "
		case i > 0:
			list += ", "
		}
		list += fmt.Sprintf("%q", t.Kind)
	}
	return list
}

// Reverse turns every stack round, so that callers stand below what they
// call. The note on missing frames stays beside where they are missing.
func Reverse(w *profile.Window) *profile.Window {
	r := newRewriter(w, w.Head, func(t profile.Thread) profile.Thread { return t })
	for i, names := range r.names {
		r.names[i] = slices.Clone(names)
		slices.Reverse(r.names[i])
	}
	return r.rewrite(func(stack profile.Stack) ([]profile.LocationID, profile.End, bool) {
		var locations []profile.LocationID
		for _, f := range endFrames(stack.End) {
			locations = append(locations, r.b.Named(f))
		}
		for _, id := range slices.Backward(stack.Locations) {
			locations = append(locations, r.location(id))
		}
		if stack.End.Truncated() {
			return locations, profile.EndUnknown, true
		}
		return locations, stack.End, true
	})
}

// NameThreads gives every row a thread with a name and a process, so that
// each stack led by them has as many leading frames as the next: a thread that
// ended before anyone could ask for its name goes by its number.
func NameThreads(w *profile.Window) *profile.Window {
	out := *w
	out.Threads = slices.Clone(w.Threads)
	for i := range out.Threads {
		t := &out.Threads[i]
		t.Name = cmp.Or(t.Name, numbered("thread", t.TID))
		t.Process = cmp.Or(t.Process, numbered("process", t.PID))
	}
	out.Rows = w.Rows.Clone()
	unknown := profile.ThreadID(0)
	for i, r := range w.Rows.All() {
		if r.Thread != 0 {
			continue
		}
		if unknown == 0 {
			out.Threads = append(out.Threads, profile.Thread{Name: numbered("thread", 0), Process: numbered("process", 0)})
			unknown = profile.ThreadID(len(out.Threads))
		}
		out.Rows.SetThread(i, unknown)
	}
	return &out
}

// TellApart puts their numbers behind the names of processes, or of threads of
// one process, that share one: led by their names, they would be one.
func TellApart(w *profile.Window, processes, threads bool) *profile.Window {
	type named struct {
		pid           int
		process, name string
	}
	pids, tids := map[string]map[int]bool{}, map[named]map[int]bool{}
	for _, t := range w.Threads {
		note(pids, t.Process, t.PID)
		note(tids, named{t.PID, t.Process, t.Name}, t.TID)
	}
	out := *w
	out.Threads = slices.Clone(w.Threads)
	for i, t := range w.Threads {
		if processes && t.Process != "" && len(pids[t.Process]) > 1 {
			out.Threads[i].Process = fmt.Sprintf("%s (%d)", t.Process, t.PID)
		}
		if threads && t.Name != "" && len(tids[named{t.PID, t.Process, t.Name}]) > 1 {
			out.Threads[i].Name = fmt.Sprintf("%s (%d)", t.Name, t.TID)
		}
	}
	return &out
}

func note[K comparable](to map[K]map[int]bool, key K, id int) {
	if to[key] == nil {
		to[key] = map[int]bool{}
	}
	to[key][id] = true
}

func numbered(what string, id int) string {
	if id == 0 {
		return "[" + what + " unknown]"
	}
	return fmt.Sprintf("[%s %d]", what, id)
}

// ThreadWindow is what of a window belongs to one thread.
type ThreadWindow struct {
	Thread profile.Thread // the zero Thread for rows without one
	Window *profile.Window
}

// Threads splits a window by thread, the one with the largest value first. The
// head's exact times are the thread's own; losses are of the whole window and
// stay there.
func Threads(w *profile.Window) []ThreadWindow {
	rows := make([]profile.Rows, len(w.Threads)+1)
	for _, r := range w.Rows.All() {
		if int(r.Thread) >= len(rows) {
			r.Thread = 0
		}
		rows[r.Thread].Types = w.Rows.Types
		rows[r.Thread].Append(r)
	}
	var out []ThreadWindow
	for i := range rows {
		if rows[i].Len() == 0 {
			continue
		}
		part, id := *w, profile.ThreadID(i)
		part.Rows, part.Samples, part.Losses = rows[i], nil, nil
		part.Exact, part.Idle, part.Watched, part.Cost = w.Thread(id).Exact, 0, 0, profile.Cost{}
		out = append(out, ThreadWindow{w.Thread(id), &part})
	}
	slices.SortStableFunc(out, func(a, b ThreadWindow) int {
		return cmp.Compare(b.Window.Total(0), a.Window.Total(0))
	})
	return out
}

// Whole sums a window's rows in its first value type, as the root of its tree does.
func Whole(w *profile.Window) (sum profile.Sum) {
	return w.Rows.Total(0)
}

// Bound leaves the n largest nodes of a tree. What it takes away stands in
// one node beside the ones that stay, so that sums remain sums.
func Bound(t *profile.Tree, n int) {
	var sizes []int64
	t.Walk(func(node *profile.Node, depth int) {
		if depth > 0 {
			sizes = append(sizes, weight(node))
		}
	})
	if n <= 0 || len(sizes) <= n {
		return
	}
	slices.SortFunc(sizes, func(a, b int64) int { return cmp.Compare(b, a) })
	b := bounder{least: sizes[n-1]}
	for _, s := range sizes[:n] {
		if s == b.least {
			b.ties++
		}
	}
	b.bound(t.Root)
}

// weight is what nodes compete with; a parent never has less than its child.
func weight(n *profile.Node) (w int64) {
	for _, s := range n.Total {
		w += s.Value
	}
	return w
}

// bounder keeps nodes above the least weight, and so many of exactly it.
type bounder struct {
	least int64
	ties  int
}

func (b *bounder) bound(n *profile.Node) {
	var kept []*profile.Node
	rest := &profile.Node{Self: make([]profile.Sum, len(n.Total)), Total: make([]profile.Sum, len(n.Total))}
	cut := 0
	for _, c := range n.Children {
		w := weight(c)
		if w < b.least || w == b.least && b.ties == 0 {
			cut++
			add(rest, c)
			continue
		}
		if w == b.least {
			b.ties--
		}
		b.bound(c)
		kept = append(kept, c)
	}
	n.Children = kept
	if cut > 0 {
		rest.Frame.Function = fmt.Sprintf("[%d smaller]", cut)
		n.Children = append(n.Children, rest)
	}
}

// add puts all of a node into another one's own share.
func add(into, n *profile.Node) {
	for i, s := range n.Total {
		for _, sum := range []*profile.Sum{&into.Self[i], &into.Total[i]} {
			sum.N += s.N
			sum.Value += s.Value
			sum.Squares += s.Squares
		}
	}
}
