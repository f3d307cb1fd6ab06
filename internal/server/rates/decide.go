// Package rates decides how often services are sampled, where profiles leave that to a
// policy.
//
//	Push -> Note: which series have sent windows of which interval (course.go)
//	an interval is complete, or late -> Decider (decide.go) -> the policy decides
//	the rate has moved -> Orders -> the agents with targets of the service
package rates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

const (
	decidePause  = 50 * time.Millisecond // windows that arrive in a burst are decided by together
	decideWithin = 5 * time.Second       // else the interval is skipped
	sendTogether = 32                    // decisions, before agents are sent them

	replayed     = 100 // windows that policies are replayed from when a server starts
	replayAtOnce = 10  // windows: each may have all stacks of its service
	replayWithin = 30 * time.Second
)

// Orders send rates to the agents of a tenant.
type Orders interface {
	RatesMoved(services map[string][]string) // by profile
	RatesResumed()                           // all agents have to be sent all rates
}

// Tenant is a tenant's rates, with the orders that send them to its agents.
type Tenant struct {
	*Rates
	Orders Orders
}

// Decider has the policies of all tenants decide on rates, one after another in one
// goroutine. Intervals that wait for too long are skipped and counted.
type Decider struct {
	options   Options
	history   history // of Run's goroutine alone
	now       func() time.Time
	decisions *prometheus.CounterVec
	delay     prometheus.Histogram
}

// Options configure a Decider. All are required.
type Options struct {
	Store   store.Store
	Tenants func() map[string]Tenant
	Wake    <-chan struct{}              // a decision may be due; see New
	Failed  func(what string, err error) // logs an error that may recur often
	Now     func() time.Time
	Log     *slog.Logger
}

// NewDecider returns a Decider, which is to be run.
func NewDecider(o Options) *Decider {
	records, _ := o.Store.(store.Records)
	return &Decider{options: o, now: o.Now, history: history{store: records},
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_server_decisions_total", Help: "Decisions on rates, by the policy's reason; skipped: the interval was skipped, for lack of time; failed: its windows could not be read."},
			[]string{"reason"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "atys_server_decision_delay_seconds", Help: "How long after the end of an interval rates were decided by it.",
			Buckets: []float64{.5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 30, 60}})}
}

// Collectors are its metrics.
func (d *Decider) Collectors() []prometheus.Collector {
	return []prometheus.Collector{d.decisions, d.delay}
}

// Run decides on rates until the context ends.
func (d *Decider) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := d.Round(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		case <-d.options.Wake:
			select {
			case <-ctx.Done():
			case <-time.After(decidePause):
			}
		}
	}
}

// Round makes all decisions that are due, and returns how long none will be if nothing
// arrives.
func (d *Decider) Round(ctx context.Context) (wait time.Duration) {
	tenants := d.options.Tenants()
	d.restore(ctx, tenants)
	due := map[string][]*course{}
	wait = time.Minute
	for name, t := range tenants {
		of, skipped, next := t.due(d.now())
		d.decisions.WithLabelValues(notInTime).Add(float64(skipped))
		if due[name] = of; len(of) > 0 { // windows that arrive meanwhile wake nothing
			next = d.now()
		}
		wait = min(wait, next.Sub(d.now()))
	}
	for together := range slices.Chunk(inTurns(due), sendTogether) {
		moved := map[string]map[string][]string{} // services by task, by tenant
		for _, c := range together {
			if d.decide(ctx, c.tenant, tenants[c.tenant].Rates, c.course) {
				if moved[c.tenant] == nil {
					moved[c.tenant] = map[string][]string{}
				}
				moved[c.tenant][c.name] = append(moved[c.tenant][c.name], c.service)
			}
		}
		for tenant, services := range moved {
			tenants[tenant].Orders.RatesMoved(services)
		}
		if err := d.history.flush(ctx); err != nil {
			d.options.Failed("store decisions on rates", err)
		}
	}
	return max(wait, decidePause)
}

// owned is a course of a tenant.
type owned struct {
	tenant string
	*course
}

// inTurns orders courses so that tenants take turns: none waits for all services of
// another.
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

// Reasons of decisions that no policy made.
const (
	notInTime = "skipped" // the next window was over before there was time for it
	notRead   = "failed"
)

// decide has a policy decide by the interval that is due, and reports whether agents have
// to be sent the rate.
func (d *Decider) decide(ctx context.Context, tenant string, r *Rates, c *course) (moved bool) {
	waits, skipped := r.still(c, d.now())
	d.decisions.WithLabelValues(notInTime).Add(float64(skipped))
	if !waits {
		return false
	}
	if c.policy == nil {
		d.replay(ctx, tenant, r, c)
	}
	within, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	at := c.next
	err := d.ask(within, tenant, c, at, at.Add(c.window), func(decision freq.Decision) {
		r.take(c, decision)
		d.decisions.WithLabelValues(string(decision.Reason)).Inc()
		d.delay.Observe(d.now().Sub(at.Add(c.window)).Seconds())
	})
	if err != nil {
		d.decisions.WithLabelValues(notRead).Inc()
		d.fail(ctx, tenant, c, "decide on a rate", err)
	}
	moved = r.advance(c)
	if rate, ok := r.Of(c.name, c.service); ok && (moved || freq.NewDay(c.recorded, at.Add(c.window))) {
		if err := d.history.add(tenant, c, rate, at); err != nil {
			d.fail(ctx, tenant, c, "record a decision on a rate", err)
		}
		c.recorded = at.Add(c.window)
	}
	return moved
}

// ask passes the windows of the intervals between two times to a policy, and its decisions
// to take.
func (d *Decider) ask(ctx context.Context, tenant string, c *course, from, to time.Time, take func(freq.Decision)) error {
	asker := query.Asker{Store: d.options.Store, Tenant: tenant, Now: d.now}
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

// begin returns a policy, for the first window that is passed to it. If there were earlier
// windows that are not replayed, it resumes at the rate of that time, and decides as before,
// except that policy atys may be one decrease ahead or behind. There were if this window is
// about as old as the oldest that is replayed; else the service is new.
func (c *course) begin(w freq.Window) freq.Policy {
	const about = 10 // windows, in which a service may have been idle
	oldest := c.next.Add(-replayed * c.window)
	if w.Hertz > 0 && oldest.After(c.since) && w.Start.Before(oldest.Add(about*c.window)) {
		return freq.Resume(c.options, w.Hertz)
	}
	return freq.New(c.options)
}

// replay passes the stored windows of before the interval that is due to a new policy, as
// they were or would have been: decisions depend on windows alone.
func (d *Decider) replay(ctx context.Context, tenant string, r *Rates, c *course) {
	within, cancel := context.WithTimeout(ctx, replayWithin)
	defer cancel()
	from := c.next.Add(-replayed * c.window)
	if since := c.since.Truncate(c.window).UTC(); from.Before(since) {
		from = since
	}
	past := &course{adaptive: c.adaptive}
	if err := d.ask(within, tenant, c, from, c.next, func(decision freq.Decision) { past.take(decision) }); err != nil {
		d.fail(ctx, tenant, c, "read the windows that rates were decided by", err)
	}
	r.goOn(c, past.rate)
}

// fail logs an error of a course, unless the server ends.
func (d *Decider) fail(ctx context.Context, tenant string, c *course, what string, err error) {
	if ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
		d.options.Failed(what, fmt.Errorf("tenant %q, profile %q of service %q: %w", tenant, c.name, c.service, err))
	}
}

// restore replays policies from before the server started. Until then agents keep the
// rates that they have, for holdOrders at most: services that are not replayed by then have
// the rate of their last windows, and their policies are replayed when a decision is due.
func (d *Decider) restore(ctx context.Context, tenants map[string]Tenant) {
	waiting := map[string][]*course{}
	for tenant, t := range tenants {
		if waiting[tenant] = d.resume(ctx, tenant, t); len(waiting[tenant]) == 0 && ctx.Err() == nil {
			t.resumed()
		}
	}
	left := map[string]int{}
	for tenant, courses := range waiting {
		left[tenant] = len(courses)
	}
	for _, c := range inTurns(waiting) {
		t := tenants[c.tenant]
		if c.policy == nil && d.now().Sub(t.began) < holdOrders {
			d.replay(ctx, c.tenant, t.Rates, c.course)
		}
		if left[c.tenant]--; left[c.tenant] == 0 && ctx.Err() == nil { // else the server ends: agents keep what they have
			t.resumed()
		}
	}
}

// resume finds the courses of a tenant from before the server started, if they are not
// restored yet.
func (d *Decider) resume(ctx context.Context, tenant string, t Tenant) (courses []*course) {
	for _, a := range t.unrestored() {
		services, last, err := d.recorded(ctx, tenant, a)
		if err != nil {
			d.options.Log.Error("find the services that rates were decided for", "tenant", tenant, "profile", a.name, "error", err)
		}
		for _, service := range services {
			if c := t.Rates.resume(a, service, last[service], d.now()); c != nil {
				courses = append(courses, c)
			}
		}
	}
	return courses
}

// recorded lists the services with recent windows of a profile, and the rates that the
// server had decided of the last of them.
func (d *Decider) recorded(ctx context.Context, tenant string, a *adaptive) (services []string, last map[string]profile.Rate, err error) {
	now := d.now()
	all, err := d.options.Store.Series(ctx, tenant, store.Query{Level: store.Raw, Task: a.name, From: now.Add(-max(forgetService, 10*a.window)), To: now})
	for _, labels := range all {
		if service := labels[store.ServiceLabel]; service != "" {
			services = append(services, service)
		}
	}
	slices.Sort(services)
	asker := query.Asker{Store: d.options.Store, Tenant: tenant, Now: d.now}
	rows, _, wrong := asker.Rates(ctx, query.Selection{Task: a.name, Kinds: []string{spec.KindCPU}, From: now.Add(-3*a.window - mostJitter), To: now}, true)
	last = map[string]profile.Rate{}
	for _, row := range rows { // in order of time
		if row.Rate.By == profile.ByServer && row.Task == a.name {
			last[row.Service] = row.Rate
		}
	}
	return slices.Compact(services), last, errors.Join(err, wrong)
}

// resumed sends orders to all agents, if they were held until rates are restored.
func (t Tenant) resumed() {
	if t.Rates.resumed() {
		t.Orders.RatesResumed()
	}
}
