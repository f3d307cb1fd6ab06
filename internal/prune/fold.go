package prune

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// process is whose threads one row stands for.
type process struct {
	pid  int
	name string
}

// place is what rows that stand for threads are told apart by.
type place struct {
	thread profile.ThreadID
	slot   uint32
}

// folder takes what was sampled on some threads out of a window, where it is: what
// stays must cost next to nothing, or less is saved than is spent where threads are
// much alike.
type folder struct {
	w        *profile.Window
	pruned   []bool // of the threads there were
	standing standing
	threads  []profile.ThreadID // of the threads there were: what they have become
	rest     map[process]profile.ThreadID
	places   map[place]int // of rows
	rows     []profile.Row // that stand for threads
	loss     profile.Loss
}

func fold(w *profile.Window, pruned []bool, detail string) {
	f := &folder{w: w, pruned: pruned, standing: standingStacks(w), threads: make([]profile.ThreadID, len(w.Threads)),
		rest: map[process]profile.ThreadID{}, places: map[place]int{}, loss: profile.Loss{Reason: profile.LossPruned, Detail: detail}}
	f.foldThreads()
	f.foldRows()
	f.foldSamples()
	f.dropStacks()
	f.dropLocations()
	f.dropContexts()
	w.Losses = slices.Clone(w.Losses)
	w.AddLoss(f.loss)
}

// foldThreads keeps threads, and puts one in place of each process's others, with
// the time that they used.
func (f *folder) foldThreads() {
	kept := make([]profile.Thread, 0, len(f.w.Threads))
	for i, t := range f.w.Threads {
		if f.pruned[i] {
			continue
		}
		kept = append(kept, t)
		f.threads[i] = profile.ThreadID(len(kept))
		if t.Name == Name {
			f.rest[process{t.PID, t.Process}] = f.threads[i]
		}
	}
	for i, t := range f.w.Threads {
		if !f.pruned[i] {
			continue
		}
		key := process{t.PID, t.Process}
		id, ok := f.rest[key]
		if !ok {
			kept = append(kept, profile.Thread{PID: t.PID, Process: t.Process, Name: Name})
			id = profile.ThreadID(len(kept))
			f.rest[key] = id
		}
		f.threads[i] = id
		kept[id-1].Exact.Add(t.Exact)
	}
	f.w.Threads = kept
}

// thread is what a thread has become; none stays none.
func (f *folder) thread(id profile.ThreadID) profile.ThreadID {
	if id == 0 {
		return 0
	}
	return f.threads[id-1]
}

// goes tells whether what was sampled on a stack by a thread is pruned, or was before.
func (f *folder) goes(thread profile.ThreadID, stack profile.StackID) bool {
	return thread != 0 && f.pruned[thread-1] || f.standing.has(stack)
}

// standingStack is the number of the stack that stands for threads, until there are
// as many others as there will be.
const standingStack = ^profile.StackID(0)

// foldRows keeps rows, and puts those that stand for others behind them.
func (f *folder) foldRows() {
	kept := f.w.Rows[:0]
	for i := range f.w.Rows {
		r := &f.w.Rows[i]
		if f.goes(r.Thread, r.Stack) {
			f.takeOut(r)
			continue
		}
		r.Thread = f.thread(r.Thread)
		kept = append(kept, *r)
	}
	clear(f.w.Rows[len(kept):])
	f.w.Rows = append(kept, f.rows...)
}

// takeOut adds a row to the one that stands for its thread.
func (f *folder) takeOut(r *profile.Row) {
	if r.Thread != 0 && f.pruned[r.Thread-1] {
		f.loss.N += r.N
		if len(r.Values) > 0 {
			f.loss.Value += r.Values[0]
		}
	}
	key := place{f.thread(r.Thread), r.Slot}
	i, ok := f.places[key]
	if !ok {
		f.places[key] = len(f.rows)
		f.rows = append(f.rows, profile.Row{Stack: standingStack, Thread: key.thread, Slot: r.Slot, N: r.N, Values: slices.Clone(r.Values), Squares: r.Squares})
		return
	}
	into := &f.rows[i]
	into.N += r.N
	into.Squares += r.Squares
	for j, v := range r.Values {
		into.Values[j] += v
	}
}

// foldSamples has samples whose times were kept stand where their rows do.
func (f *folder) foldSamples() {
	for i := range f.w.Samples {
		s := &f.w.Samples[i]
		if f.goes(s.Thread, s.Stack) {
			s.Stack = standingStack
		}
		s.Thread = f.thread(s.Thread)
	}
}

// dropStacks leaves those that something stands on.
func (f *folder) dropStacks() {
	w, used := f.w, make([]bool, len(f.w.Stacks))
	for i := range w.Rows {
		if id := w.Rows[i].Stack; id != standingStack {
			used[id] = true
		}
	}
	for i := range w.Samples {
		if id := w.Samples[i].Stack; id != standingStack {
			used[id] = true
		}
	}
	numbers := make([]profile.StackID, len(used))
	kept := w.Stacks[:0]
	for id, stack := range w.Stacks {
		if used[id] {
			numbers[id] = profile.StackID(len(kept))
			kept = append(kept, stack)
		}
	}
	clear(w.Stacks[len(kept):])
	w.Stacks = kept
	number := func(id profile.StackID) profile.StackID {
		if id == standingStack {
			return profile.StackID(len(kept))
		}
		return numbers[id]
	}
	for i := range w.Rows {
		w.Rows[i].Stack = number(w.Rows[i].Stack)
	}
	for i := range w.Samples {
		w.Samples[i].Stack = number(w.Samples[i].Stack)
	}
}

// dropLocations leaves those that a stack has, and adds the stack that stands for
// threads. Its walk has not ended early: it is not to be counted as truncated too.
func (f *folder) dropLocations() {
	w, used := f.w, make([]bool, len(f.w.Locations))
	for _, s := range w.Stacks {
		for _, l := range s.Locations {
			used[l] = true
		}
	}
	numbers := make([]profile.LocationID, len(used))
	n := 0
	for id, is := range used {
		if is {
			numbers[id] = profile.LocationID(n)
			w.Locations[n], w.Names[n] = w.Locations[id], w.Names[id]
			n++
		}
	}
	if n < len(used) {
		for _, s := range w.Stacks {
			for i, l := range s.Locations {
				s.Locations[i] = numbers[l]
			}
		}
	}
	clear(w.Names[n:])
	w.Locations, w.Names = append(w.Locations[:n], profile.Location{Name: Name}), append(w.Names[:n], []profile.Frame{{Function: Name}})
	w.Stacks = append(w.Stacks, profile.Stack{Locations: []profile.LocationID{profile.LocationID(n)}, End: profile.EndComplete})
}

// dropContexts leaves those that a row has.
func (f *folder) dropContexts() {
	w, numbers := f.w, make([]profile.ContextID, len(f.w.Contexts))
	var kept []profile.Context
	for i := range w.Rows {
		id := w.Rows[i].Context
		if id == 0 {
			continue
		}
		if numbers[id-1] == 0 {
			kept = append(kept, w.Contexts[id-1])
			numbers[id-1] = profile.ContextID(len(kept))
		}
		w.Rows[i].Context = numbers[id-1]
	}
	w.Contexts = kept
}
