package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/store"
)

const (
	decidePause  = 50 * time.Millisecond // what comes in a burst is decided by together
	decideWithin = 5 * time.Second       // else the interval is passed
	tellTogether = 32                    // decisions, before agents hear of them

	replayed     = 100 // windows that policies are told again when a server starts
	replayAtOnce = 10  // of them: each has room for all stacks of its service
	replayWithin = 30 * time.Second
)

// Decide has policies decide on rates until the context ends. They are told one after
// another, by one goroutine: what waits for long is passed, and counted.
func (s *Server) Decide(ctx context.Context) {
	for ctx.Err() == nil {
		wait := s.decideDue(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-s.rouse:
			select {
			case <-ctx.Done():
			case <-time.After(decidePause):
			}
		}
	}
}

// decideDue decides all that is due, and tells how long nothing is if nothing comes.
func (s *Server) decideDue(ctx context.Context) (wait time.Duration) {
	fleets := s.fleets.byTenant()
	s.restore(ctx, fleets)
	due := map[string][]*course{}
	wait = time.Minute
	for tenant, f := range fleets {
		of, skipped, next := f.rates.due(s.now())
		s.metrics.decisions.WithLabelValues(notInTime).Add(float64(skipped))
		if due[tenant] = of; len(of) > 0 { // what comes meanwhile rouses nobody
			next = s.now()
		}
		wait = min(wait, next.Sub(s.now()))
	}
	for together := range slices.Chunk(inTurns(due), tellTogether) {
		moved := map[string][]courseKey{}
		for _, t := range together {
			if s.decide(ctx, t.tenant, fleets[t.tenant].rates, t.course) {
				moved[t.tenant] = append(moved[t.tenant], courseKey{t.name, t.service})
			}
		}
		for tenant, keys := range moved {
			fleets[tenant].tellRates(keys)
		}
	}
	return max(wait, decidePause)
}

// owned is a course, and whose it is.
type owned struct {
	tenant string
	*course
}

// inTurns puts courses in an order in which tenants take turns: none waits for all of
// another's services.
func inTurns(of map[string][]*course) (turns []owned) {
	tenants, most := slices.Sorted(maps.Keys(of)), 0
	for _, courses := range of {
		most = max(most, len(courses))
	}
	for i := range most {
		for _, tenant := range tenants {
			if i < len(of[tenant]) {
				turns = append(turns, owned{tenant, of[tenant][i]})
			}
		}
	}
	return turns
}

// What decisions count as that no policy made.
const (
	notInTime = "skipped" // the next window was over before there was time for one
	notRead   = "failed"
)

// decide tells a policy of the interval that is due, and whether agents are to hear of
// the rate.
func (s *Server) decide(ctx context.Context, tenant string, r *rates, c *course) (moved bool) {
	waits, skipped := r.still(c, s.now())
	s.metrics.decisions.WithLabelValues(notInTime).Add(float64(skipped))
	if !waits {
		return false
	}
	if c.policy == nil {
		s.replay(ctx, tenant, r, c)
	}
	within, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	at := c.next
	err := s.tell(within, tenant, c, at, at.Add(c.window), func(d freq.Decision) {
		r.take(c, d)
		s.metrics.decisions.WithLabelValues(string(d.Reason)).Inc()
		s.metrics.decidedAfter.Observe(s.now().Sub(at.Add(c.window)).Seconds())
	})
	if err != nil {
		s.metrics.decisions.WithLabelValues(notRead).Inc()
		s.complainOf(ctx, tenant, c, "decide on a rate", err)
	}
	return r.decided(c)
}

// tell tells a policy of the intervals between two times, and gives what it decides by
// each.
func (s *Server) tell(ctx context.Context, tenant string, c *course, from, to time.Time, take func(freq.Decision)) error {
	asker := query.Asker{Store: s.options.Store, Tenant: tenant, Now: s.now}
	for from.Before(to) {
		count := min(int(to.Sub(from)/c.window), replayAtOnce)
		windows, err := asker.Told(ctx, query.Intervals{Task: c.name, Service: c.service, First: from, Length: c.window, Count: count})
		if err != nil {
			return err
		}
		for _, w := range windows {
			if c.policy == nil {
				c.policy = c.begin(w)
			}
			take(c.policy.Next(w))
		}
		from = from.Add(time.Duration(count) * c.window)
	}
	return nil
}

// begin makes a policy, by the first window that it is to be told. Where others came
// before, that it is not told again, it goes on at the rate of then: it decides as it
// did, but that policy atys may be a fall ahead or behind. That is so where this one is
// about as old as any that is told; else the service is new, and nobody has decided yet.
func (c *course) begin(w freq.Window) freq.Policy {
	const about = 10 // windows, in which a service may have slept
	oldest := c.next.Add(-replayed * c.window)
	if w.Hertz > 0 && oldest.After(c.since) && w.Start.Before(oldest.Add(about*c.window)) {
		return freq.Resume(c.options, w.Hertz)
	}
	return freq.New(c.options)
}

// replay tells a new policy what is kept of before the interval that is due, as it was
// told or would have been: decisions follow from windows, and from nothing else.
func (s *Server) replay(ctx context.Context, tenant string, r *rates, c *course) {
	within, cancel := context.WithTimeout(ctx, replayWithin)
	defer cancel()
	from := c.next.Add(-replayed * c.window)
	if since := c.since.Truncate(c.window).UTC(); from.Before(since) {
		from = since
	}
	past := &course{adaptive: c.adaptive}
	if err := s.tell(within, tenant, c, from, c.next, func(d freq.Decision) { past.take(d) }); err != nil {
		s.complainOf(ctx, tenant, c, "read what rates were decided by", err)
	}
	r.goOn(c, past.rate)
}

// complainOf logs what went wrong with a course, unless all ends.
func (s *Server) complainOf(ctx context.Context, tenant string, c *course, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
		s.undecided.tell(s.log, s.now(), what, fmt.Errorf("tenant %q, profile %q of service %q: %w", tenant, c.name, c.service, err))
	}
}

// restore has policies be where they were when the server ended. Until then agents keep
// the rates that they have, but for no longer than they wait for any orders: services
// that are not come to by then have the rate of their last windows, and their policies
// are told when there is something to decide.
func (s *Server) restore(ctx context.Context, fleets map[string]*fleet) {
	waiting := map[string][]*course{}
	for tenant, f := range fleets {
		if waiting[tenant] = s.resume(ctx, tenant, f); len(waiting[tenant]) == 0 && ctx.Err() == nil {
			f.resumed()
		}
	}
	left := map[string]int{}
	for tenant, courses := range waiting {
		left[tenant] = len(courses)
	}
	for _, t := range inTurns(waiting) {
		f := fleets[t.tenant]
		if t.policy == nil && s.now().Sub(f.began) < holdOrders {
			s.replay(ctx, t.tenant, f.rates, t.course)
		}
		if left[t.tenant]--; left[t.tenant] == 0 && ctx.Err() == nil { // else all ends: agents keep what they have
			f.resumed()
		}
	}
}

// resume finds a tenant's courses of before the server started, if that was not done.
func (s *Server) resume(ctx context.Context, tenant string, f *fleet) (courses []*course) {
	for _, a := range f.rates.unrestored() {
		services, last, err := s.recorded(ctx, tenant, a)
		if err != nil {
			s.log.Error("find what rates were decided for", "tenant", tenant, "profile", a.name, "error", err)
		}
		for _, service := range services {
			if c := f.rates.resume(a, service, last[service], s.now()); c != nil {
				courses = append(courses, c)
			}
		}
	}
	return courses
}

// recorded lists the services of which a profile has had windows lately, and the rates
// that were ordered of the last of those.
func (s *Server) recorded(ctx context.Context, tenant string, a *adaptive) (services []string, last map[string]profile.Rate, err error) {
	now := s.now()
	all, err := s.options.Store.Series(ctx, tenant, store.Query{Level: store.Raw, Task: a.name, From: now.Add(-max(forgetService, 10*a.window)), To: now})
	for _, labels := range all {
		if service := labels[store.ServiceLabel]; service != "" {
			services = append(services, service)
		}
	}
	slices.Sort(services)
	asker := query.Asker{Store: s.options.Store, Tenant: tenant, Now: s.now}
	rows, _, wrong := asker.Rates(ctx, query.Selection{Task: a.name, Kind: kind, From: now.Add(-3*a.window - mostJitter), To: now}, true)
	last = map[string]profile.Rate{}
	for _, d := range rows { // the latest comes last
		if d.Rate.By == profile.ByServer && d.Task == a.name {
			last[d.Service] = d.Rate
		}
	}
	return slices.Compact(services), last, errors.Join(err, wrong)
}
