package prune

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// process identifies a process, whose pruned threads become one.
type process struct {
	pid  int
	name string
}

// folder moves the samples of pruned threads to one thread for each process. It changes the
// window in place: what is kept must cost next to nothing, or pruning takes longer than it
// saves where threads are much alike.
type folder struct {
	w *profile.Window
	*choice
	threads []profile.ThreadID // by old thread: the new one
	first   int                // index of the first row of a pruned thread
	stacks  []profile.StackID  // by old stack: the new one, or gone if no kept row uses it
	kept    profile.StackID    // how many stacks are kept
	losses  *losses
	cut     []profile.Stack // appended to those
	marker  profile.LocationID
	whole   profile.StackID                        // the stack of the marker alone, or gone
	leaves  map[profile.LocationID]profile.StackID // by leaf: the stack of the leaf and the marker
	loss    profile.Loss
}

// gone marks a stack that no kept row uses, or that does not exist.
const gone = ^profile.StackID(0)

func fold(w *profile.Window, c *choice, detail string) {
	f := &folder{w: w, choice: c, threads: make([]profile.ThreadID, len(w.Threads)), whole: gone,
		leaves: map[profile.LocationID]profile.StackID{}, loss: profile.Loss{Reason: profile.LossPruned, Detail: detail}}
	f.foldThreads()
	f.partitionRows()
	f.mark()
	f.losses = newLosses(w, f.stacks)
	f.weigh()
	f.foldSamples()
	f.foldRows()
	f.keepStacks()
	dropLocations(w)
	w.Losses = slices.Clone(w.Losses)
	w.AddLoss(f.loss)
}

// foldThreads keeps threads, and puts one in place of each process's others, with
// the time that they used.
func (f *folder) foldThreads() {
	kept, rest := make([]profile.Thread, 0, len(f.w.Threads)), map[process]profile.ThreadID{}
	for i, t := range f.w.Threads {
		if !f.pruned[i] {
			kept = append(kept, t)
			f.threads[i] = profile.ThreadID(len(kept))
		}
	}
	for i, t := range f.w.Threads {
		if !f.pruned[i] {
			continue
		}
		of := process{t.PID, t.Process}
		id, ok := rest[of]
		if !ok {
			kept = append(kept, profile.Thread{PID: t.PID, Process: t.Process, Name: Name, Pruned: true})
			id = profile.ThreadID(len(kept))
			rest[of] = id
		}
		f.threads[i] = id
		kept[id-1].Exact.Add(t.Exact)
	}
	f.w.Threads = kept
}

// partitionRows moves the rows of pruned threads behind the others, and numbers the stacks
// that are kept: those of the others, and all peers.
func (f *folder) partitionRows() {
	used := make([]bool, len(f.w.Stacks))
	rows := &f.w.Rows
	f.first = rows.Len()
	for i := 0; i < f.first; {
		if r := rows.At(i); !f.isPruned(r.Thread) {
			used[r.Stack] = true
			i++
			continue
		}
		f.first--
		rows.Swap(i, f.first)
	}
	for i := range f.w.Samples {
		if s := &f.w.Samples[i]; !f.isPruned(s.Thread) {
			used[s.Stack] = true
		}
	}
	for _, e := range f.w.Exemplars {
		if !f.isPruned(e.Thread) {
			used[e.Stack] = true
		}
	}
	for _, peer := range rows.Peer {
		if peer != 0 {
			used[peer-1] = true
		}
	}
	n := profile.StackID(0)
	f.stacks = make([]profile.StackID, len(used))
	for id, is := range used {
		if f.stacks[id] = gone; is {
			f.stacks[id] = n
			n++
		}
	}
	f.kept = n
}

// isPruned reports whether a thread is pruned.
func (f *folder) isPruned(thread profile.ThreadID) bool { return thread != 0 && f.pruned[thread-1] }

// thread is the new number of a thread; none stays none.
func (f *folder) thread(id profile.ThreadID) profile.ThreadID {
	if id == 0 {
		return 0
	}
	return f.threads[id-1]
}

// weigh adds up what each group would lose of which function, and what it has of them, and
// renumbers threads and stacks of the rows that are kept.
func (f *folder) weigh() {
	rows := &f.w.Rows
	for i := f.first; i < rows.Len(); i++ {
		if r := rows.At(i); f.stacks[r.Stack] == gone {
			f.losses.addLost(f.groups[r.Thread-1], r.Stack, f.scale.row(r))
		}
	}
	for i := f.first; i < rows.Len(); i++ {
		f.addTotal(rows.At(i))
	}
	for i := range f.first {
		r := rows.At(i)
		if r.Thread != 0 {
			f.addTotal(r)
			rows.Thread[i] = f.threads[r.Thread-1]
		}
		rows.Stack[i] = f.stacks[r.Stack]
	}
	for i, peer := range rows.Peer {
		if peer != 0 {
			rows.Peer[i] = profile.PeerID(f.stacks[peer-1]) + 1
		}
	}
}

// addTotal adds a row to what its group has of a function.
func (f *folder) addTotal(r profile.Row) {
	if g := f.groups[r.Thread-1]; g != nil {
		f.losses.addTotal(g, r.Stack, f.scale.row(r))
	}
}

// mark adds the marker, the location that stands for frames that are cut off, or finds it
// in a window that was pruned before.
func (f *folder) mark() {
	w := f.w
	marker := slices.IndexFunc(w.Locations, IsMarker)
	if f.marker = profile.LocationID(marker); marker < 0 {
		f.marker = profile.LocationID(len(w.Locations))
		w.Locations, w.Names = append(w.Locations, profile.Location{Name: Name}), append(w.Names, []profile.Frame{{Function: Name}})
		return
	}
	for id, s := range w.Stacks {
		switch n := len(s.Locations); {
		case n == 0 || s.Locations[n-1] != f.marker || s.End != profile.EndComplete || f.stacks[id] == gone:
		case n == 1:
			f.whole = f.stacks[id]
		case n == 2:
			f.leaves[s.Locations[0]] = f.stacks[id]
		}
	}
}

// truncate gives the new stack of a row of a pruned thread. A stack that a kept row uses is
// unchanged. Of others the callers of the leaf are cut off, and the leaf as well unless
// keepsLeaf.
func (f *folder) truncate(id profile.StackID, g *prunedGroup) (to profile.StackID, cut bool) {
	if to = f.stacks[id]; to != gone {
		return to, false
	}
	if !f.losses.keepsLeaf(g, id) {
		if f.whole == gone {
			f.whole = f.add(f.marker)
		}
		return f.whole, true
	}
	leaf := f.w.Stacks[id].Locations[0]
	to, ok := f.leaves[leaf]
	if !ok {
		to = f.add(leaf, f.marker)
		f.leaves[leaf] = to
	}
	return to, true
}

// add adds a stack that counts as complete, so that it is not counted as truncated too.
func (f *folder) add(locations ...profile.LocationID) profile.StackID {
	f.cut = append(f.cut, profile.Stack{Locations: locations, End: profile.EndComplete})
	return f.kept + profile.StackID(len(f.cut)) - 1
}

// foldSamples moves samples with a time, and exemplars, to the threads and stacks of their rows.
func (f *folder) foldSamples() {
	move := func(stack *profile.StackID, thread *profile.ThreadID) {
		if f.isPruned(*thread) {
			*stack, _ = f.truncate(*stack, f.groups[*thread-1])
		} else {
			*stack = f.stacks[*stack]
		}
		*thread = f.thread(*thread)
	}
	for i := range f.w.Samples {
		move(&f.w.Samples[i].Stack, &f.w.Samples[i].Thread)
	}
	f.w.Exemplars = slices.Clone(f.w.Exemplars)
	for i := range f.w.Exemplars {
		move(&f.w.Exemplars[i].Stack, &f.w.Exemplars[i].Thread)
	}
}

// foldRows adds up the rows of pruned threads.
func (f *folder) foldRows() {
	rows := &f.w.Rows
	n, places := f.first, make(map[profile.RowKey]int, rows.Len()-f.first)
	for i := f.first; i < rows.Len(); i++ {
		r := rows.At(i)
		stack, cut := f.truncate(r.Stack, f.groups[r.Thread-1])
		if cut {
			f.countLoss(r)
		}
		r.Stack, r.Thread = stack, f.thread(r.Thread)
		key := r.Key()
		at, ok := places[key]
		if !ok {
			places[key] = n
			rows.Set(n, r)
			n++
			continue
		}
		rows.AddTo(at, r, 1)
	}
	rows.Truncate(n)
}

// keepStacks drops stacks that no row uses.
func (f *folder) keepStacks() {
	w := f.w
	for id, to := range f.stacks {
		if to != gone {
			w.Stacks[to] = w.Stacks[id]
		}
	}
	clear(w.Stacks[f.kept:])
	w.Stacks = append(w.Stacks[:f.kept], f.cut...)
}

// countLoss counts a row whose stack was cut.
func (f *folder) countLoss(r profile.Row) {
	f.loss.N += r.N
	f.loss.Value += first(r)
}
