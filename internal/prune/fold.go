package prune

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// process is whose threads one thread stands for.
type process struct {
	pid  int
	name string
}

// folded is what rows of threads that were pruned are told apart by.
type folded struct {
	stack  profile.StackID
	thread profile.ThreadID
	slot   uint32
}

// folder gives what was sampled on some threads to one for each process, in a window
// where it is: what stays must cost next to nothing, or less is saved than is spent
// where threads are much alike.
type folder struct {
	w *profile.Window
	*choice
	threads []profile.ThreadID // what those there were have become
	first   int                // index of the first row of a pruned thread
	stacks  []profile.StackID  // what those there were become on which something stays; else gone
	stay    profile.StackID    // how many that is
	losses  *losses
	cut     []profile.Stack // behind these
	marker  profile.LocationID
	whole   profile.StackID                        // of the marker alone, or gone
	told    map[profile.LocationID]profile.StackID // of the marker, and of what is told on it
	loss    profile.Loss
}

// gone is a stack that nothing is on that stays, or one that is not there.
const gone = ^profile.StackID(0)

func fold(w *profile.Window, c *choice, detail string) {
	f := &folder{w: w, choice: c, threads: make([]profile.ThreadID, len(w.Threads)), whole: gone,
		told: map[profile.LocationID]profile.StackID{}, loss: profile.Loss{Reason: profile.LossPruned, Detail: detail}}
	f.foldThreads()
	f.takeRows()
	f.mark()
	f.losses = newLosses(w, f.stacks)
	f.weigh()
	f.foldSamples()
	f.foldRows()
	f.keepStacks()
	dropLocations(w)
	dropContexts(w)
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
			kept = append(kept, profile.Thread{PID: t.PID, Process: t.Process, Name: Name})
			id = profile.ThreadID(len(kept))
			rest[of] = id
		}
		f.threads[i] = id
		kept[id-1].Exact.Add(t.Exact)
	}
	f.w.Threads = kept
}

// takeRows has the rows of threads that are pruned come behind the others, most of which
// stay where they are, and numbers the stacks of those.
func (f *folder) takeRows() {
	stays := make([]bool, len(f.w.Stacks))
	rows := &f.w.Rows
	f.first = rows.Len()
	for i := 0; i < f.first; {
		if r := rows.At(i); !f.goes(r.Thread) {
			stays[r.Stack] = true
			i++
			continue
		}
		f.first--
		rows.Swap(i, f.first)
	}
	for i := range f.w.Samples {
		if s := &f.w.Samples[i]; !f.goes(s.Thread) {
			stays[s.Stack] = true
		}
	}
	n := profile.StackID(0)
	f.stacks = make([]profile.StackID, len(stays))
	for id, is := range stays {
		if f.stacks[id] = gone; is {
			f.stacks[id] = n
			n++
		}
	}
	f.stay = n
}

// goes tells whether a thread is pruned.
func (f *folder) goes(thread profile.ThreadID) bool { return thread != 0 && f.pruned[thread-1] }

// thread is what one has become; none stays none.
func (f *folder) thread(id profile.ThreadID) profile.ThreadID {
	if id == 0 {
		return 0
	}
	return f.threads[id-1]
}

// weigh sees what groups would lose of which function, and what they have of those, and
// gives rows that stay the threads and the stacks that theirs have become.
func (f *folder) weigh() {
	rows := &f.w.Rows
	for i := f.first; i < rows.Len(); i++ {
		if r := rows.At(i); f.stacks[r.Stack] == gone {
			f.losses.lose(f.stakes[r.Thread-1], r.Stack, f.scale.row(r))
		}
	}
	for i := f.first; i < rows.Len(); i++ {
		f.have(rows.At(i))
	}
	for i := range f.first {
		r := rows.At(i)
		if r.Thread != 0 {
			f.have(r)
			rows.Thread[i] = f.threads[r.Thread-1]
		}
		rows.Stack[i] = f.stacks[r.Stack]
	}
}

func (f *folder) have(r profile.Row) {
	if s := f.stakes[r.Thread-1]; s != nil {
		f.losses.have(s, r.Stack, f.scale.row(r))
	}
}

// mark adds what stands for what is cut off stacks, or finds it where some were cut
// before.
func (f *folder) mark() {
	w := f.w
	marker := slices.IndexFunc(w.Locations, Stands)
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
			f.told[s.Locations[0]] = f.stacks[id]
		}
	}
}

// become gives what becomes of a stack that a thread was on that is pruned: it stays
// where something that stays was on it too. Else what called its leaf is cut off it, and
// where nothing is to be told of that, this too.
func (f *folder) become(id profile.StackID, s *stake) (to profile.StackID, cut bool) {
	if to = f.stacks[id]; to != gone {
		return to, false
	}
	if !f.losses.tell(s, id) {
		if f.whole == gone {
			f.whole = f.add(f.marker)
		}
		return f.whole, true
	}
	leaf := f.w.Stacks[id].Locations[0]
	to, ok := f.told[leaf]
	if !ok {
		to = f.add(leaf, f.marker)
		f.told[leaf] = to
	}
	return to, true
}

// add adds a stack whose walk has not ended early: it is not to be counted as truncated
// too.
func (f *folder) add(locations ...profile.LocationID) profile.StackID {
	f.cut = append(f.cut, profile.Stack{Locations: locations, End: profile.EndComplete})
	return f.stay + profile.StackID(len(f.cut)) - 1
}

// foldSamples has samples whose times were kept stand where their rows do.
func (f *folder) foldSamples() {
	for i := range f.w.Samples {
		s := &f.w.Samples[i]
		if f.goes(s.Thread) {
			s.Stack, _ = f.become(s.Stack, f.stakes[s.Thread-1])
		} else {
			s.Stack = f.stacks[s.Stack]
		}
		s.Thread = f.thread(s.Thread)
	}
}

// foldRows adds up the rows of threads that are pruned, in their place.
func (f *folder) foldRows() {
	rows := &f.w.Rows
	n, places := f.first, make(map[folded]int, rows.Len()-f.first)
	for i := f.first; i < rows.Len(); i++ {
		r := rows.At(i)
		stack, cut := f.become(r.Stack, f.stakes[r.Thread-1])
		if cut {
			f.lose(r)
		}
		r.Stack, r.Thread, r.Context = stack, f.thread(r.Thread), 0
		key := folded{r.Stack, r.Thread, r.Slot}
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

// keepStacks leaves the stacks that something is on.
func (f *folder) keepStacks() {
	w := f.w
	for id, to := range f.stacks {
		if to != gone {
			w.Stacks[to] = w.Stacks[id]
		}
	}
	clear(w.Stacks[f.stay:])
	w.Stacks = append(w.Stacks[:f.stay], f.cut...)
}

// lose counts a row that has lost what called its leaf.
func (f *folder) lose(r profile.Row) {
	f.loss.N += r.N
	f.loss.Value += first(r)
}
