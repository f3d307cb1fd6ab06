package pipeline

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// fewSamples is how many samples a target has in a window that may be longer. They say little
// by themselves, and their window takes as much to seal and to store as another's stacks do.
const fewSamples = 10

// minute is what windows are rolled up by: none may begin in one and end in another.
const minute = time.Minute

// Long says how long windows of tiny targets may be. The zero value leaves them as they are, and
// counts no tiny targets.
type Long struct {
	Every time.Duration // the length of usual windows
	Times int           // how many usual windows one may last for; 0: one
}

// Longer reports whether a window may be longer than usual.
func (l Long) Longer() bool { return l.length() > l.Every }

// length returns the longest length that divides a minute: then no window begins in one minute
// and ends in another.
func (l Long) length() time.Duration {
	for times := l.Times; times > 1 && l.Every > 0; times-- {
		if long := time.Duration(times) * l.Every; minute%long == 0 {
			return long
		}
	}
	return l.Every
}

// edge returns the edge at which the long window began that a time lies in. Windows are cut some
// moments after their edges.
func (l Long) edge(at time.Time) time.Time { return at.Add(l.Every / 2).Truncate(l.length()) }

// fits reports whether a window that begins and ends then is within a long one. It is not if it
// was cut long after its edge, or if the machine slept meanwhile.
func (l Long) fits(start, end time.Time) bool {
	return end.Sub(l.edge(start)) <= l.length()+l.Every/2
}

// longer holds the windows of tiny targets that go on, by target. Like windows that have not been
// cut, they are in memory only.
type longer map[string]*profile.Window

// lengthen returns which of the parts of a window end with it, and how many have few samples.
// If a target becomes busy, its long window ends where this window begins, and this one ends as
// usual. A target without a part has used nothing, so its long window goes on; where a task
// leaves out targets that is not known, and without ends those windows first.
func (t *longer) lengthen(parts []*profile.Window, extent *profile.Head, long Long, machine profile.Labels) (ended []*profile.Window, tiny int) {
	if *t == nil {
		*t = longer{}
	}
	end := extent.Start.Add(extent.Duration)
	for _, part := range parts {
		key := part.Target.String()
		few := long.Every > 0 && part.N() < fewSamples && key != machine.String() // the machine's own windows say when an agent watched
		if few {
			tiny++
		}
		if few && long.Longer() && t.goOn(key, part, long, end) {
			continue
		}
		ended = append(t.end(ended, key, extent.Start, long), part)
	}
	for _, key := range slices.Sorted(maps.Keys(*t)) {
		switch {
		case !long.Longer():
			ended = t.end(ended, key, extent.Start, long)
		case long.edge(end).After(long.edge((*t)[key].Start)):
			ended = t.end(ended, key, end, long)
		}
	}
	return ended, tiny
}

// goOn adds a part that ends at a time to the window of its target. It reports whether that can
// be: not if that would be too long, measures other things, or was sampled otherwise.
func (t *longer) goOn(key string, part *profile.Window, long Long, end time.Time) bool {
	was := (*t)[key]
	if was == nil && !long.fits(part.Start, end) || was != nil && !long.fits(was.Start, end) {
		return false
	}
	if was != nil {
		w, err := profile.Merge(was, part)
		if err != nil || was.Rate != part.Rate {
			return false
		}
		part = w
	}
	(*t)[key] = part
	return true
}

// end ends the window of a target, if it has one, at a time that is not before the end of its last
// part. If that would make it too long, it ends with that part.
func (t *longer) end(ended []*profile.Window, key string, at time.Time, long Long) []*profile.Window {
	w := (*t)[key]
	if w == nil {
		return ended
	}
	delete(*t, key)
	if long.fits(w.Start, at) {
		w.Duration = max(w.Duration, at.Sub(w.Start))
	}
	return append(ended, w)
}

// without ends the windows of targets that have none of the parts, as long as they are.
func (t *longer) without(parts []*profile.Window) (ended []*profile.Window) {
	has := map[string]bool{}
	for _, part := range parts {
		has[part.Target.String()] = true
	}
	for _, key := range slices.Sorted(maps.Keys(*t)) {
		if !has[key] {
			ended = append(ended, (*t)[key])
			delete(*t, key)
		}
	}
	return ended
}

// all ends all windows, as long as they are.
func (t *longer) all() []*profile.Window { return t.without(nil) }
