package live

import (
	"fmt"
	"path"

	"atys.dev/atys/internal/profile"
)

// Digest is what one window says of each function and thread. It is made once
// a window, so that a new one costs no look at the older ones' stacks.
type Digest struct {
	head      profile.Head
	samples   int64
	value     int64
	squares   float64
	functions map[profile.FrameKey]*functionSums
	threads   map[threadKey]*threadSums
}

type functionSums struct {
	frame            profile.Frame
	self, own, total profile.Sum // own: see Function.Own
}

type threadKey struct{ pid, tid int }

type threadSums struct {
	thread profile.Thread
	n      int64
	leaves map[profile.FrameKey]int64 // samples by the function they hit
}

// NewDigest digests a window.
func NewDigest(w *profile.Window) *Digest {
	d := &Digest{head: w.Head, functions: map[profile.FrameKey]*functionSums{}, threads: map[threadKey]*threadSums{}}
	for _, t := range w.Threads {
		d.thread(t).thread.Exact.Add(t.Exact)
	}
	stacks := make([]profile.Sum, len(w.Stacks))
	leaves := make([]profile.FrameKey, len(w.Stacks))
	for id := range w.Stacks {
		leaves[id] = leafKey(w, profile.StackID(id))
	}
	for _, r := range w.Rows.All() {
		stacks[r.Stack].Add(r.Sum(0))
		if r.Thread != 0 {
			t := d.thread(w.Thread(r.Thread))
			t.n += r.N
			t.leaves[leaves[r.Stack]] += r.N
		}
	}
	seen := map[profile.FrameKey]bool{}
	for id, sum := range stacks {
		d.addStack(w, profile.StackID(id), sum, seen)
	}
	return d
}

// addStack adds a stack's samples to each function on it, once.
func (d *Digest) addStack(w *profile.Window, id profile.StackID, sum profile.Sum, seen map[profile.FrameKey]bool) {
	if sum.N == 0 {
		return
	}
	d.samples += sum.N
	d.value += sum.Value
	d.squares += sum.Squares
	clear(seen)
	leaf, charged := true, false
	for _, location := range w.Stacks[id].Locations {
		for _, f := range w.Frames(location) {
			key := f.Key()
			s := d.function(f)
			if leaf {
				add(&s.self, sum)
				leaf = false
			}
			if !charged && f.Class.Own() {
				add(&s.own, sum)
				charged = true
			}
			if !seen[key] {
				seen[key] = true
				add(&s.total, sum)
			}
		}
	}
	if !charged {
		add(&d.function(strangers(w, id)).own, sum)
	}
}

// strangers stands for a stack without a frame of the developers' own; where
// frames are missing, nobody knows whose it is.
func strangers(w *profile.Window, id profile.StackID) profile.Frame {
	if end := w.Stacks[id].End; end.Truncated() {
		return profile.Frame{Function: "[" + end.String() + "]"}
	}
	return profile.Strangers(w.AppendStack(nil, id))
}

func (d *Digest) function(f profile.Frame) *functionSums {
	key := f.Key()
	s := d.functions[key]
	if s == nil {
		s = &functionSums{frame: f}
		d.functions[key] = s
	}
	return s
}

// leafKey is the function a stack's samples hit; the zero key without any.
func leafKey(w *profile.Window, id profile.StackID) profile.FrameKey {
	locations := w.Stacks[id].Locations
	if len(locations) == 0 {
		return profile.FrameKey{}
	}
	return w.Frames(locations[0])[0].Key()
}

func (d *Digest) thread(t profile.Thread) *threadSums {
	key := threadKey{t.PID, t.TID}
	s := d.threads[key]
	if s == nil {
		s = &threadSums{thread: t, leaves: map[profile.FrameKey]int64{}}
		s.thread.Exact = profile.Exact{}
		d.threads[key] = s
	}
	if t.Name != "" { // it may have got its name after its first sample
		s.thread.Name, s.thread.Process = t.Name, t.Process
	}
	return s
}

func add(into *profile.Sum, s profile.Sum) {
	into.N += s.N
	into.Value += s.Value
	into.Squares += s.Squares
}

// place tells where a function is: its line, else its file, else its binary.
func place(f profile.Frame) string {
	switch {
	case f.File != "" && f.StartLine > 0:
		return fmt.Sprintf("%s:%d", path.Base(f.File), f.StartLine)
	case f.File != "":
		return path.Base(f.File)
	case f.Mapping != "":
		return path.Base(f.Mapping)
	case f.Kind == profile.KindUnknown:
		return "" // it stands for no function
	}
	return f.Kind.String()
}
