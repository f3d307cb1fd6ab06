// Package cost measures what an agent takes for a window once it is cut, and what of it pruning saves.
//
//	a window without names -> pruned -> named, from a cold start (naming.go)
//	   -> threads folded by their names' patterns, sealed, as it is spooled
//	   -> read from the spool, put in a batch, packed: as it is sent
//
// Rounds are measured in turns, each level of pruning in each of them, so that what
// disturbs a round disturbs all of them. Times are CPU time of the process: what else
// runs on the machine takes none of it. What it takes to collect garbage is counted by
// the bytes that a stage allocates (garbage.go).
package cost

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Stage is a part of what is done.
type Stage int

// The stages, in their order.
const (
	Pruning  Stage = iota // to choose threads, and to leave out the others
	Naming                // of code in files and in the kernel
	Encoding              // from a window to what is spooled
	Shipping              // from what is spooled to the bytes that are sent
	Stages
)

// Run is what one round took of one level.
type Run struct {
	Took  [Stages]time.Duration
	Bytes int // that are sent
}

// All is what all stages took.
func (r Run) All() (sum time.Duration) {
	for _, d := range r.Took {
		sum += d
	}
	return sum
}

// Measured is what rounds took: runs[level][round].
type Measured struct {
	Runs     [][]Run
	Nameable int // locations that are named here, for which nothing of the recording itself tells names
	Unnamed  int // that would have been, and whose files are not on this machine
}

// Measure does with a window what an agent does, in so many rounds at each of some
// levels of pruning; 100 is none. Names are forgotten before, where this machine has
// the files that hold them.
func Measure(ctx context.Context, w *profile.Window, levels []float64, rounds int) (*Measured, error) {
	n, err := newNamer(ctx, w)
	if err != nil {
		return nil, err
	}
	defer n.close()
	garbage, err := weighGarbage()
	if err != nil {
		return nil, err
	}
	m := &Measured{Runs: make([][]Run, len(levels)), Nameable: n.nameable, Unnamed: n.unnamed}
	if _, err := n.run(ctx, w, prune.MaxLevel, garbage); err != nil { // who comes first pays for what all use
		return nil, err
	}
	for range rounds {
		for _, level := range rand.Perm(len(levels)) { // nobody always has the memory of the same one before
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			r, err := n.run(ctx, w, levels[level], garbage)
			if err != nil {
				return nil, err
			}
			m.Runs[level] = append(m.Runs[level], r)
		}
	}
	return m, nil
}

// run does all once.
func (n *namer) run(ctx context.Context, w *profile.Window, level float64, garbage garbage) (r Run, err error) {
	w = n.unnamedCopy(w)
	names := n.cold()
	defer names.Close()
	defer letGarbageBe()() // and what was left by the round before is not this one's
	watch, err := newStopwatch(garbage)
	if err != nil {
		return r, err
	}
	var spooled []byte
	for stage, do := range [Stages]func() error{
		Pruning:  func() error { prune.Window(w, level, nil); return nil },
		Naming:   func() error { names.Name(ctx, w); return nil },
		Encoding: func() (err error) { spooled, err = encode(w); return err },
		Shipping: func() (err error) { r.Bytes, err = ship(spooled, n.packer); return err },
	} {
		if err := do(); err != nil {
			return r, err
		}
		if r.Took[stage], err = watch.lap(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// encode makes what is spooled of a window, threads of one pattern being one, as
// agents do where nobody has asked for each thread.
func encode(w *profile.Window) ([]byte, error) {
	folded := *w
	folded.Samples = nil // they are not sent
	folded.Threads = make([]profile.Thread, len(w.Threads))
	for i, t := range w.Threads {
		folded.Threads[i] = profile.Thread{Process: t.Process, Name: t.Pattern(), Exact: t.Exact, Pruned: t.Pruned}
	}
	merged, err := profile.Merge(&folded)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(wire.Seal(merged, profile.Run{}))
}

// ship makes what is sent of what was spooled, to a receiver that knows none of its
// stacks yet, and tells how many bytes that is.
func ship(spooled []byte, to *wire.Packer) (bytes int, err error) {
	var m atysv1.Spooled
	if err := proto.Unmarshal(spooled, &m); err != nil {
		return 0, err
	}
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	if err := b.Add(&m); err != nil {
		return 0, err
	}
	data, err := proto.Marshal(b.Request())
	if err != nil {
		return 0, err
	}
	packed, err := to.Pack(data)
	return len(packed), err
}
