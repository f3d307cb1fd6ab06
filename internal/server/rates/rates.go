package rates

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
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

// Rates are the sampling rates of a tenant's services, where profiles leave them to a
// policy. They do not outlive the server: policies are replayed from stored windows.
type Rates struct {
	seed  maphash.Seed
	now   func() time.Time
	began time.Time
	wake  chan<- struct{} // is sent to when a decision may be due earlier; nil: nothing waits

	mu       sync.Mutex           // guards all below; it may be taken under that of a fleet
	profiles map[string]*adaptive // by task; it is replaced, never changed
	courses  map[serviceKey]*course
	series   int  // in all arrivals
	restored bool // the rates of before the server started are known again, or there were none
}

// Bounds of a tenant.
const (
	mostCourses = 10_000
	mostAwaited = 200_000 // series: more are not waited for
)

// holdOrders is how long agents keep their rates after the server has started, while
// those of before are not known yet.
const holdOrders = time.Minute

// New returns the rates of a tenant, without any profile. wake is sent to when a decision
// may be due.
func New(now func() time.Time, wake chan<- struct{}) *Rates {
	return &Rates{seed: maphash.MakeSeed(), now: now, began: now(), wake: wake, profiles: map[string]*adaptive{}, courses: map[serviceKey]*course{}}
}

// Start is called once all profiles that were kept are followed: only their rates have
// to be restored.
func (r *Rates) Start() {
	r.mu.Lock()
	r.restored = len(r.profiles) == 0
	r.mu.Unlock()
	r.rouse()
}

// Follow starts to decide on the rates of a profile, in place of the one of its name.
func (r *Rates) Follow(id string, created time.Time, p *spec.Profile) {
	r.replace(p.Name, adaptiveOf(id, created, p))
}

// Forget forgets a profile and its rates.
func (r *Rates) Forget(profile string) { r.replace(profile, nil) }

// replace replaces the profile of a name, or removes it if a is nil, and drops the rates
// of the old one.
func (r *Rates) replace(name string, a *adaptive) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.profiles[name]
	if a == nil && old == nil {
		return
	}
	r.profiles = maps.Clone(r.profiles)
	if a == nil {
		delete(r.profiles, name)
	} else {
		r.profiles[name] = a
	}
	for key, c := range r.courses {
		if key.task == name && (a == nil || a.id != c.id) {
			r.drop(c)
		}
	}
}

// drop forgets a course. r.mu is held.
func (r *Rates) drop(c *course) {
	for at := range c.came {
		r.forget(c, at)
	}
	delete(r.courses, serviceKey{c.name, c.service})
}

// forget forgets the arrivals of an interval. r.mu is held.
func (r *Rates) forget(c *course, at time.Time) {
	if a := c.came[at]; a != nil {
		r.series -= len(a.series)
		delete(c.came, at)
	}
}

// Note notes windows that have arrived and are stored. It is on the path of every push,
// and reads nothing.
func (r *Rates) Note(windows []store.Window) {
	now := r.now()
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
		if a == nil || service == "" || series[i] == nil || w.Head.Origin != profile.OriginAgent { // nil: the profile is new
			continue
		}
		at := query.IntervalOf(&w.Head, a.window)
		if at.Before(a.since.Truncate(a.window)) { // of the previous profile of this name
			continue
		}
		if at.After(now.Add(a.window)) { // its clock is wrong: waiting for the interval would stall
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

// followed returns the profiles whose rates policies decide on.
func (r *Rates) followed() map[string]*adaptive {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.profiles
}

// seriesOf hashes the series of each window of these profiles, or all series that a relay
// has merged into it. A push may have a hundred thousand, so r.mu, which orders wait for,
// is not held.
func (r *Rates) seriesOf(windows []store.Window, profiles map[string]*adaptive) [][]uint64 {
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

func (r *Rates) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// course returns the course of a service with a window of an interval, and begins it
// unless the window is too old to decide by. r.mu is held.
func (r *Rates) course(a *adaptive, service string, at, now time.Time) *course {
	key := serviceKey{a.name, service}
	c := r.courses[key]
	if c == nil && len(r.courses) < mostCourses && now.Before(a.deadline(at)) {
		c = &course{adaptive: a, service: service, next: at, heard: now, came: map[time.Time]*arrivals{}}
		r.courses[key] = c
	}
	return c
}

// arrive adds the series of a window to the arrivals. A window that ends before its
// interval is followed by another, or its target has ended: neither is waited for again.
// r.mu is held.
func (r *Rates) arrive(c *course, at time.Time, w *store.Window, of []uint64) {
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

// Width is half of the confidence interval that a profile wants; 0: it does not say.
func (r *Rates) Width(task string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.profiles[task]; a != nil {
		return a.options.Width
	}
	return 0
}

// due lists the courses that have an interval to decide by, and counts the intervals that
// were skipped. next is when another one will be due, if nothing arrives.
func (r *Rates) due(now time.Time) (due []*course, skipped int, next time.Time) {
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

// catchUp skips intervals without windows, and those that it is too late to decide by:
// the window that would have had the new rate is over. r.mu is held.
func (r *Rates) catchUp(c *course, now time.Time) (skipped int) {
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

// still reports whether a course that was due still is, after the decisions before it:
// its profile may be gone, or its interval skipped.
func (r *Rates) still(c *course, now time.Time) (waits bool, skipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.courses[serviceKey{c.name, c.service}] != c {
		return false, 0
	}
	skipped = r.catchUp(c, now)
	return skipped == 0, skipped
}

// turn goes on to the next interval. r.mu is held.
func (r *Rates) turn(c *course) {
	r.forget(c, c.next.Add(-c.window))
	c.next = c.next.Add(c.window)
}

// advance goes on to the next interval, and reports whether agents have to be sent the
// rate.
func (r *Rates) advance(c *course) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(c)
	moved, c.moved = c.moved, false
	return moved
}

// take applies a decision to the rate of a service.
func (r *Rates) take(c *course, d freq.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.take(d)
}

// goOn sets the rate of a service that was decided before the server started.
func (r *Rates) goOn(c *course, rate profile.Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rate != (profile.Rate{}) && rate != c.rate {
		c.rate, c.moved = rate, true
	}
}

// resume returns the course of a service with windows from before the server started, the
// last of them at a rate that the server had decided. Its next interval is the earliest
// that may still be decided by: which of its windows have arrived, only the store knows.
func (r *Rates) resume(a *adaptive, service string, last profile.Rate, now time.Time) *course {
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
	if !c.next.Equal(next) { // windows have arrived meanwhile
		return c
	}
	for at := next; !at.After(now); at = at.Add(a.window) {
		c.arrivals(at)
	}
	return c
}

// unrestored lists the profiles of before the server started, until resumed is called.
func (r *Rates) unrestored() []*adaptive {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored {
		return nil
	}
	return slices.SortedFunc(maps.Values(r.profiles), func(a, b *adaptive) int { return strings.Compare(a.name, b.name) })
}

// resumed ends Resuming, and reports whether it had not ended before: all agents have to be
// sent all rates then.
func (r *Rates) resumed() (first bool) {
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

// Resuming reports whether agents are to keep the rates that they have: those of before
// the server started are not known yet.
func (r *Rates) Resuming() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.restored && len(r.profiles) > 0 && r.now().Sub(r.began) < holdOrders
}

// Of returns the rate of a service, if one has been decided.
func (r *Rates) Of(task, service string) (profile.Rate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.courses[serviceKey{task, service}]
	if c == nil || c.rate == (profile.Rate{}) {
		return profile.Rate{}, false
	}
	return c.rate, true
}

// OfProfile returns the rates of a profile by service.
func (r *Rates) OfProfile(name string) map[string]profile.Rate {
	return r.decided(func(key serviceKey) (string, bool) { return key.service, key.task == name })
}

// OfService returns the rates of a service by profile.
func (r *Rates) OfService(name string) map[string]profile.Rate {
	return r.decided(func(key serviceKey) (string, bool) { return key.task, key.service == name })
}

func (r *Rates) decided(by func(serviceKey) (name string, ok bool)) map[string]profile.Rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]profile.Rate{}
	for key, c := range r.courses {
		if name, ok := by(key); ok && c.rate != (profile.Rate{}) {
			all[name] = c.rate
		}
	}
	return all
}
