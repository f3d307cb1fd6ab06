// Package recording is the life of one instrument at work on one set of targets: which state it is in, what it may be asked for then, and what it is able to do.
//
//	           Begin           Began         Cut          Resume
//	Resting ---------> Starting ----> Running ----> Cutting ----> Running
//	   ^                   |             |             |
//	   |                   +---- Leave --+--- Leave ---+
//	   |  Release          v
//	   +--------------- Leaving: what is under way ends, then the last window is cut
//
// It is a plain value: whoever owns it does the work of a state in a goroutine, and says
// when that has ended.
package recording

import (
	"fmt"
	"slices"
	"time"

	"atys.dev/atys/internal/sampler"
)

// State of a Recording.
type State uint8

// The states.
const (
	Resting  State = iota // nothing is recorded
	Starting              // the sampler is being opened, or aimed by its first cut
	Running
	Cutting // a window is being cut, and the next one filled
	Leaving // the last window is being cut, or what it waits for is under way
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"resting", "starting", "running", "cutting", "leaving"}[s]
}

// next lists the states that may follow each.
var next = [...][]State{
	Resting:  {Starting},
	Starting: {Running, Leaving, Resting},
	Running:  {Cutting, Leaving, Resting},
	Cutting:  {Running, Leaving, Resting},
	Leaving:  {Resting},
}

// Recording is a sampler and the state that it is in. The zero value rests.
type Recording struct {
	state   State
	sampler sampler.Sampler // nil: none is open

	// Abilities of the sampler, asked for when it is opened; nil: it has not.
	aimer  sampler.Aimer
	paced  sampler.Paced
	full   sampler.Relievable
	costed sampler.Costed
	namer  sampler.Namer
	slow   sampler.Delayed

	aimed map[int]bool
}

// to changes the state. All changes come here.
func (r *Recording) to(s State) {
	if !slices.Contains(next[r.state], s) {
		panic(fmt.Sprintf("recording: from %v to %v", r.state, s))
	}
	r.state = s
}

// State returns the state.
func (r *Recording) State() State { return r.state }

// Sampler returns the sampler; nil: none is open.
func (r *Recording) Sampler() sampler.Sampler { return r.sampler }

// Begin begins to start a recording that rests.
func (r *Recording) Begin() { r.to(Starting) }

// Opened hands over the sampler, which samples everything or has yet to be aimed. Other
// profilers are always aimed: they sample processes.
func (r *Recording) Opened(s sampler.Sampler, everything bool) {
	r.sampler, r.aimed = s, map[int]bool{}
	r.aimer, _ = s.(sampler.Aimer)
	r.paced, _ = s.(sampler.Paced)
	r.full, _ = s.(sampler.Relievable)
	r.costed, _ = s.(sampler.Costed)
	r.namer, _ = s.(sampler.Namer)
	r.slow, _ = s.(sampler.Delayed)
	if everything && r.slow == nil {
		r.aimer = nil
	}
}

// Began says that targets are being sampled.
func (r *Recording) Began() { r.to(Running) }

// Cut says that a window is being cut.
func (r *Recording) Cut() { r.to(Cutting) }

// Resume says that it has been.
func (r *Recording) Resume() { r.to(Running) }

// Leave has a recording end, and reports whether its last window can be cut now: else
// what is under way ends first.
func (r *Recording) Leave() (now bool) {
	if r.state == Resting || r.state == Leaving {
		return false
	}
	now = r.state == Running
	r.to(Leaving)
	return now
}

// Release lets the sampler go, which the caller closes; nil: none was open.
func (r *Recording) Release() (s sampler.Sampler) {
	s = r.sampler
	*r = Recording{state: r.state}
	if r.state != Resting {
		r.to(Resting)
	}
	return s
}

// Follows reports whether the sampler has to be aimed.
func (r *Recording) Follows() bool { return r.aimer != nil }

// Aim has the sampler follow targets, and leave what is known not to be one. It reports
// whether any is sampled only from the next cut on.
func (r *Recording) Aim(wanted, others []int) (fresh bool) {
	var add []int
	for _, pid := range wanted {
		if !r.aimed[pid] {
			add = append(add, pid)
		}
	}
	if len(add) == 0 && len(r.aimed) == 0 {
		return false
	}
	fresh = r.aimer.Aim(add, others)
	clear(r.aimed)
	for _, pid := range wanted {
		r.aimed[pid] = true
	}
	return fresh
}

// Paced returns what changes the sampler's rates; nil: nothing does.
func (r *Recording) Paced() sampler.Paced { return r.paced }

// Namer returns what names the windows; nil: they have their names.
func (r *Recording) Namer() sampler.Namer { return r.namer }

// Relievable reports whether windows can be cut early, and merged.
func (r *Recording) Relievable() bool { return r.full != nil }

// Relieved returns what says how full the sampler's tables are.
func (r *Recording) Relieved() sampler.Relievable { return r.full }

// Spent returns what samples have cost outside of this process since it was opened.
func (r *Recording) Spent() (bpf, interrupts time.Duration, err error) {
	if r.costed == nil {
		return 0, 0, nil
	}
	return r.costed.Spent()
}

// Delayed reports whether each cut takes long, and is of profilers that each have their
// own time.
func (r *Recording) Delayed() bool { return r.slow != nil }

// Lead returns how long before the end of a window it has to be cut.
func (r *Recording) Lead() time.Duration {
	if r.slow == nil {
		return 0
	}
	return r.slow.Lead()
}

// Trouble returns what keeps the sampler from recording all that it is aimed at.
func (r *Recording) Trouble() sampler.Trouble {
	if r.slow == nil {
		return sampler.Trouble{}
	}
	return r.slow.Trouble()
}
