// Package targets knows what runs on this machine: which processes there are, and which target each of them belongs to.
//
//	/proc -> processes that have lasted for a second (Look) -> identities (identify.go) -> targets, by their labels
package targets

import (
	"maps"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// Census lists the targets of this machine. It is safe for concurrent use. Only Look and Of
// read /proc, which may take long: nothing else waits for them.
type Census struct {
	reading sync.Mutex // held while /proc is read; guards the identities
	*identities

	mu       sync.Mutex          // guards all below; nothing is waited for while it is held
	present  map[string]*Present // by labels; never changed, but replaced
	reported string              // the targets that List returned last
}

// Present is a target that runs now.
type Present struct {
	Labels profile.Labels
	PIDs   []int
}

// Key identifies the target among others.
func (p *Present) Key() string { return p.Labels.String() }

// young is the age below which a process is not looked at: most processes that live
// shorter are never needed, and there may be hundreds of them a second.
const young = time.Second

// NewCensus returns a census of a node, all of whose targets have the given labels.
func NewCensus(node string, labels profile.Labels) *Census {
	return &Census{identities: newIdentities(node, labels), present: map[string]*Present{}}
}

// Machine returns the target that stands for all that belongs to no process.
func (c *Census) Machine() profile.Labels { return c.machine() } // never changes: needs no lock

// Keep sets the length of the longest window: a process that has ended is remembered
// until the window in which it ran has been cut.
func (c *Census) Keep(window time.Duration) {
	c.keep.Store(int64(window + keepUnasked))
}

// Look lists what runs, and forgets what ended long ago.
func (c *Census) Look() error {
	present, err := c.list()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present = present
	return nil
}

// list reads what runs.
func (c *Census) list() (map[string]*Present, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	pids, err := c.fs.PIDs()
	if err != nil {
		return nil, err
	}
	c.begin()
	slices.Sort(pids)
	present, began := map[string]*Present{}, time.Now()
	for _, pid := range pids {
		labels, ok := c.lasting(pid, young)
		if !ok {
			continue
		}
		key := labels.String()
		p := present[key]
		if p == nil {
			p = &Present{Labels: labels}
			present[key] = p
		}
		p.PIDs = append(p.PIDs, pid)
	}
	c.listed = began
	return present, nil
}

// Choose returns the targets that are meant, and the processes of all others.
func (c *Census) Choose(means func(profile.Labels) bool) (meant []*Present, others []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.present {
		if means(p.Labels) {
			meant = append(meant, p)
		} else {
			others = append(others, p.PIDs...)
		}
	}
	return meant, others
}

// Processes lists the processes of targets.
func Processes(of []*Present) (pids []int) {
	for _, p := range of {
		pids = append(pids, p.PIDs...)
	}
	slices.Sort(pids)
	return pids
}

// List returns the targets as reports carry them, and whether they differ from what it
// returned last.
func (c *Census) List() (all []*atysv1.Target, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := ""
	for _, key := range slices.Sorted(maps.Keys(c.present)) {
		p := c.present[key]
		all = append(all, &atysv1.Target{Labels: p.Labels, Processes: uint32(len(p.PIDs))})
		now += key + "\n"
	}
	changed, c.reported = now != c.reported, now
	return all, changed
}

// Of returns the targets of threads: target i is that of thread i. brief is how many of them
// are of short-lived commands only, which are one target if that is asked for.
func (c *Census) Of(threads []profile.Thread, commands Commands) (all []profile.Labels, brief int) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.begin()
	all, briefly := make([]profile.Labels, len(threads)), map[string]bool{}
	for i, t := range threads {
		all[i] = c.target(t.PID, t.Process)
		key := all[i].String()
		before, known := briefly[key]
		briefly[key] = (before || !known) && c.brief(t.PID, commands.Within)
	}
	for _, is := range briefly {
		if is {
			brief++
		}
	}
	if !commands.Together {
		return all, brief
	}
	for i, t := range threads {
		if briefly[all[i].String()] {
			all[i] = c.together(t.PID)
		}
	}
	return all, brief
}
