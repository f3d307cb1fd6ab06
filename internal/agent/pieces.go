package agent

import (
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
)

// A window may be cut in pieces before its edge. Each is split when it is cut, by
// what its processes are then, and by what was meant until then: in the hour that a
// window may last a number becomes another process, and other instances are chosen.

// mostParts bounds how many parts of a window wait to be merged: of one that lasts
// an hour there may be hundreds.
const mostParts = 32

// hold takes a part of a window, which was sampled at these rates.
func (a *Agent) hold(r *recording, w *profile.Window, at rates) {
	part := profile.Head{Start: w.Start, Duration: w.Duration}
	if len(r.parts) == 0 {
		r.extent = part
	} else {
		r.extent.Absorb(&part)
	}
	parts := a.parts(r, r.sampler, w)
	r.tell(parts, at)
	if r.parts = append(r.parts, parts); len(r.parts) >= mostParts {
		r.parts = [][]*profile.Window{r.whole()}
	}
}

// whole gives what was cut of a window, as one of each target, and leaves none of
// it. All are of the same time: a target that has begun or ended within it used
// nothing in the rest.
func (r *recording) whole() []*profile.Window {
	parts := r.parts
	r.parts = nil
	if len(parts) == 1 {
		return parts[0]
	}
	return mergeTargets(parts, &r.extent)
}

// mergeTargets makes one window of all that are of one target, unless they measure
// different things. They are of the time of extent, if there is one.
func mergeTargets(each [][]*profile.Window, extent *profile.Head) (all []*profile.Window) {
	var keys []string
	of := map[string][]*profile.Window{}
	for _, parts := range each {
		for _, p := range parts {
			key := p.Target.String()
			if of[key] == nil {
				keys = append(keys, key)
			}
			of[key] = append(of[key], p)
		}
	}
	for _, key := range keys {
		w, err := profile.Merge(of[key]...)
		if err != nil {
			all = append(all, of[key]...)
			continue
		}
		if extent != nil {
			w.Start, w.Duration = extent.Start, extent.Duration
		}
		all = append(all, w)
	}
	return all
}

// keepWindow spools what was cut of a window.
func (a *Agent) keepWindow(r *recording, next reading) {
	r.turned = time.Now()
	a.keep(r, r.whole(), next)
}

// parts are a window's targets, of those that its task means, or has meant since it
// began: what had ended before others were chosen is not sampled in vain. What is
// pruned is pruned first, so that nothing else is done for it.
func (a *Agent) parts(r *recording, from Recording, w *profile.Window) []*profile.Window {
	p, machine := r.task.profile, a.census.machine()
	targets := targetsOf(w.Threads, a.census.of(w.Threads))
	if p.Pruning > 0 {
		prune.Window(w, p.Pruning, targets.groups(w.Threads))
	}
	w = a.named(from, w)
	parts := split(w, targets.each(w.Threads), machine, p.Threads)
	r.balances.add(parts, machine)
	if r.task.everything() || p.All() && !r.letAll.IsZero() {
		return parts
	}
	kept := parts[:0]
	for _, part := range parts {
		if r.meant(part.Target) || part.Target.String() == machine.String() && len(part.Losses) > 0 {
			kept = append(kept, part)
		}
	}
	return kept
}

// meant tells whether a target is one of the task's, or was in this window.
func (r *recording) meant(target profile.Labels) bool {
	if r.task.means(target) {
		return true
	}
	_, let := r.let[target.String()]
	return (let || !r.letAll.IsZero()) && r.task.profile.Matches(target)
}

// letGo remembers what was meant, before a task means what the next one does.
func (t *task) letGo(next *task) {
	now := time.Now()
	for _, r := range t.recordings {
		switch {
		case r.sampler == nil || !next.limited:
		case !t.limited:
			r.letAll = now
		default:
			for key := range t.chosen {
				if next.chosen[key] {
					continue
				}
				if r.let == nil {
					r.let = map[string]time.Time{}
				}
				r.let[key] = now
			}
		}
	}
}

// forget forgets what was let go before the window began. A crew's has begun
// before what it cut is there.
func (r *recording) forget() {
	for key, until := range r.let {
		if !until.After(r.turned) {
			delete(r.let, key)
		}
	}
	if !r.letAll.After(r.turned) {
		r.letAll = time.Time{}
	}
}
