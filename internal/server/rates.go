package server

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store"
)

// rates are those of a tenant's services, where profiles leave them to policies.
//
//	Push -> note: whose window of which interval has come
//	all that sent one of the interval before, or it is late enough -> due -> decide.go: the policy is told
//	moved -> fleet.tellRates: those agents that have targets of the service
//
// Nothing of it outlives the server: what policies are told is kept, and they are told
// it again.
type rates struct {
	seed maphash.Seed
	wake chan<- struct{} // is sent to when something may be due sooner; nil: nobody waits

	mu       sync.Mutex           // guards all below; it may be taken under the fleet's
	profiles map[string]*adaptive // by task; others take the place of these: they stay as they are
	courses  map[courseKey]*course
	series   int  // that intervals hold
	restored bool // what was decided before the server started is known again, or nothing was
}

// Bounds of what is remembered of a tenant.
const (
	mostCourses = 10_000
	mostAwaited = 200_000 // series: others are not waited for
)

func newRates() *rates {
	return &rates{seed: maphash.MakeSeed(), profiles: map[string]*adaptive{}, courses: map[courseKey]*course{}}
}

// follow has those profiles be the ones that there are. What was decided for one that
// is gone, or was changed, goes with it.
func (r *rates) follow(tasks map[string]*task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.profiles = map[string]*adaptive{}
	for name, t := range tasks {
		if a := adaptiveOf(t.ordered); a != nil {
			r.profiles[name] = a
		}
	}
	for key, c := range r.courses {
		if a := r.profiles[key.task]; a == nil || a.id != c.id {
			r.drop(c)
		}
	}
}

// drop forgets a course. The lock is held.
func (r *rates) drop(c *course) {
	for at := range c.came {
		r.forget(c, at)
	}
	delete(r.courses, courseKey{c.name, c.service})
}

// forget forgets who has sent windows of an interval. The lock is held.
func (r *rates) forget(c *course, at time.Time) {
	if a := c.came[at]; a != nil {
		r.series -= len(a.series)
		delete(c.came, at)
	}
}

// note notes windows that have come, and have been kept: it is on the way of each, and
// reads nothing.
func (r *rates) note(windows []store.Window, now time.Time) {
	profiles := r.followed()
	if len(profiles) == 0 {
		return
	}
	series := r.seriesOf(windows, profiles)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, sooner := len(r.courses), false
	for i := range windows {
		w := &windows[i]
		a, service := r.profiles[w.Head.Task], w.Series[store.ServiceLabel]
		if a == nil || service == "" || series[i] == nil { // nil: the profile has come meanwhile
			continue
		}
		at := query.IntervalOf(&w.Head, a.window)
		if at.Before(a.since.Truncate(a.window)) { // of the profile that had the name before
			continue
		}
		if at.After(now.Add(a.window)) { // by a clock that is wrong: who goes by it would wait for that time
			continue
		}
		c := r.course(a, service, at, now)
		if c == nil || at.Before(c.next.Add(-a.window)) {
			continue
		}
		c.heard = now
		r.arrive(c, at, w, series[i])
		sooner = sooner || c.complete()
	}
	if sooner || len(r.courses) > before {
		r.rouse()
	}
}

// followed are the profiles whose rates policies choose.
func (r *rates) followed() map[string]*adaptive {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.profiles
}

// seriesOf tells whose each window of some profiles is, or all that a relay has added up
// to it. A push may be of a hundred thousand: the lock, which orders wait for, is not held.
func (r *rates) seriesOf(windows []store.Window, profiles map[string]*adaptive) [][]uint64 {
	all := make([][]uint64, len(windows))
	for i := range windows {
		w := &windows[i]
		if profiles[w.Head.Task] == nil {
			continue
		}
		var series []uint64
		if len(w.Contains) == 0 {
			series = append(series, maphash.String(r.seed, w.Series.String()))
		}
		for _, part := range w.Contains {
			series = append(series, maphash.String(r.seed, part.Series.String()))
		}
		all[i] = series
	}
	return all
}

func (r *rates) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// course finds or begins that of a service, of which there is a window. One that waited
// for long begins none: it tells how things were. The lock is held.
func (r *rates) course(a *adaptive, service string, at, now time.Time) *course {
	key := courseKey{a.name, service}
	c := r.courses[key]
	if c == nil && len(r.courses) < mostCourses && now.Before(a.deadline(at)) {
		c = &course{adaptive: a, service: service, next: at, heard: now, came: map[time.Time]*arrivals{}}
		r.courses[key] = c
	}
	return c
}

// arrive notes whose windows have come. One that a relay has added up stands for those
// that it contains; one that ends before its interval does is followed by another, or
// its target has ended: neither is waited for. The lock is held.
func (r *rates) arrive(c *course, at time.Time, w *store.Window, of []uint64) {
	c.arrivals(at)
	if w.Head.Start.Add(w.Head.Duration).Before(at.Add(c.window - c.window/4)) {
		return
	}
	for _, series := range of {
		if r.series < mostAwaited && c.add(at, series) {
			r.series++
		}
	}
}

// width is half of the interval that a profile wants; 0: it does not say.
func (r *rates) width(task string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.profiles[task]; a != nil {
		return a.options.Width
	}
	return 0
}

// due lists the courses that have an interval to decide by, and counts those intervals
// that there was no time for. next is when there will be another one, if nothing comes.
func (r *rates) due(now time.Time) (due []*course, skipped int, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = now.Add(time.Minute)
	for _, c := range r.courses {
		if now.Sub(c.heard) > max(forgetService, 10*c.window) {
			r.drop(c)
			continue
		}
		skipped += r.catchUp(c, now)
		switch deadline := c.deadline(c.next); {
		case c.complete() || !now.Before(deadline):
			due = append(due, c)
		case deadline.Before(next):
			next = deadline
		}
	}
	slices.SortFunc(due, func(a, b *course) int {
		return cmp.Or(a.next.Compare(b.next), strings.Compare(a.name, b.name), strings.Compare(a.service, b.service))
	})
	return due, skipped, next
}

// catchUp passes intervals of which nothing has come, and those that it is too late to
// decide by: the window that would have heeded it is over. The lock is held.
func (r *rates) catchUp(c *course, now time.Time) (skipped int) {
	for late := now.Sub(c.deadline(c.next)); late >= 0; late -= c.window {
		came := c.came[c.next] != nil
		if came && late < c.window {
			break
		}
		if came {
			skipped++
		}
		r.turn(c)
	}
	return skipped
}

// still tells whether a course that was due is so now, after those before it: its
// profile may have gone meanwhile, or the time for its interval.
func (r *rates) still(c *course, now time.Time) (waits bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.courses[courseKey{c.name, c.service}] != c {
		return false, 0
	}
	skipped = r.catchUp(c, now)
	return skipped == 0, skipped
}

// turn goes on to the next interval. The lock is held.
func (r *rates) turn(c *course) {
	r.forget(c, c.next.Add(-c.window))
	c.next = c.next.Add(c.window)
}

// decided goes on to the next interval, and tells whether agents are to hear of the
// rate.
func (r *rates) decided(c *course) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(c)
	moved, c.moved = c.moved, false
	return moved
}

// take has a decision be the rate of a service.
func (r *rates) take(c *course, d freq.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.take(d)
}

// goOn has a service go on with the rate that was decided before the server started.
func (r *rates) goOn(c *course, rate profile.Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rate != (profile.Rate{}) && rate != c.rate {
		c.rate, c.moved = rate, true
	}
}

// resume finds or begins the course of a service of which windows were kept before the
// server started, the last ones at a rate that was ordered. The intervals that may still be decided by are: what came of them
// then is nowhere but in the store.
func (r *rates) resume(a *adaptive, service string, last profile.Rate, now time.Time) *course {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := now.Truncate(a.window).UTC()
	for before := next.Add(-a.window); now.Before(a.deadline(before)); before = before.Add(-a.window) {
		next = before
	}
	c := r.course(a, service, next, now)
	if c == nil { // there are too many
		return nil
	}
	c.rate = last
	if !c.next.Equal(next) { // windows came meanwhile
		return c
	}
	for at := next; !at.After(now); at = at.Add(a.window) {
		c.arrivals(at)
	}
	return c
}

// unrestored lists the profiles that were there before the server started, until resumed.
func (r *rates) unrestored() []*adaptive {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored {
		return nil
	}
	return slices.SortedFunc(maps.Values(r.profiles), func(a, b *adaptive) int { return strings.Compare(a.name, b.name) })
}

// resumed has orders be given as they are from now on, if they were not, and tells so:
// all agents hear of all rates then.
func (r *rates) resumed() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored {
		return false
	}
	for _, c := range r.courses {
		c.moved = false
	}
	r.restored = true
	return true
}

// resuming tells whether it is not known yet what was decided before the server started.
func (r *rates) resuming() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.restored && len(r.profiles) > 0
}

// of is the rate of a service; false: none has been decided.
func (r *rates) of(task, service string) (profile.Rate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.courses[courseKey{task, service}]
	if c == nil || c.rate == (profile.Rate{}) {
		return profile.Rate{}, false
	}
	return c.rate, true
}

// list gives what has been decided for a task, or for a service; "": for all.
func (r *rates) list(task, service string) map[courseKey]profile.Rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[courseKey]profile.Rate{}
	for key, c := range r.courses {
		if (task == "" || key.task == task) && (service == "" || key.service == service) && c.rate != (profile.Rate{}) {
			all[key] = c.rate
		}
	}
	return all
}

// sortedKeys lists services by task and name.
func sortedKeys(of map[courseKey]profile.Rate) []courseKey {
	return slices.SortedFunc(maps.Keys(of), func(a, b courseKey) int {
		return cmp.Or(strings.Compare(a.task, b.task), strings.Compare(a.service, b.service))
	})
}
