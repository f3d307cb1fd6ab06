package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/agent/journal"
	"atys.dev/atys/internal/agent/pipeline"
	state "atys.dev/atys/internal/agent/recording"
	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire/atysv1"
)

// conductor keeps time: it starts, aims, cuts and ends recordings. Only the goroutine of
// conduct uses its fields, except shipper, census, pipeline, board and fitness, which are
// safe for concurrent use. Other goroutines do what can wait: they list what runs, open samplers,
// ask how full they are, cut windows, identify, merge, name and spool them, drop caches, and send
// messages when they have finished. Two things are left that can wait, for a lock that is held
// while events are opened and moved: aiming a sampler (Aim), and asking what its samples cost
// (Spent), for each decision and each window.
type conductor struct {
	options  *Options
	run      profile.Run
	log      *slog.Logger
	own      *process // nil: Options.Usage is another process's
	life     *life
	shipper  *shipper
	records  *journal.Shipper // of decisions; nil: none are made
	census   population
	pipeline *pipeline.Pipeline
	fitness  *fitness
	*board

	orders  chan []*task   // the newest ones
	started chan start     // samplers that were opened, or could not be
	cuts    chan cut       // finished cuts
	looked  chan error     // when what runs has been listed
	filled  chan fullness  // of tables that were asked for
	arrived chan delivery  // windows that have passed the pipeline
	taken   chan verdict   // about tasks that have ended
	gone    chan struct{}  // closed when conduct no longer receives from these
	closing sync.WaitGroup // samplers that are being closed, and what disks or names may hold up

	tasks    []*task
	trial    *task               // the built-in task, if the agent started with it
	busy     map[*recording]bool // recordings whose start or cut is under way
	looking  bool                // what runs is being listed
	inFlight int                 // windows in the pipeline
	turns    int                 // of the loop so far, by which a test sees that it does not spin
	spooled  spool.ID            // the last bundle

	spending spending
}

// population lists what runs on this machine. It is a targets.Census, except in tests.
type population interface {
	Look() error
	Keep(window time.Duration)
	Machine() profile.Labels
	Choose(means func(profile.Labels) bool) (meant []*targets.Present, others []int)
	Of(threads []profile.Thread, commands targets.Commands) (all []profile.Labels, brief int)
	List() (all []*atysv1.Target, changed bool)
}

// delivery is a window that has passed the pipeline.
type delivery struct {
	of *recording
	pipeline.Delivery
}

// verdict says whether the receiver has acknowledged all windows of a task.
type verdict struct {
	of    *task
	taken bool
}

func newConductor(o *Options, run profile.Run, own *process) conductor {
	s, census := newShipper(*o), targets.NewCensus(o.Node, o.Labels)
	var records *journal.Shipper
	if o.Records != nil {
		records = journal.New(journal.Options{Spool: o.Records, Push: s.pushRecords, Clock: s.clock, Log: o.Log})
	}
	return conductor{options: o, run: run, log: o.Log, own: own, records: records, life: newLife(o.Life, o.Log), shipper: s, census: census, fitness: newFitness(), board: newBoard(),
		pipeline: pipeline.New(pipeline.Options{Run: run, Machine: census.Machine(), Spool: o.Spool, Unspooled: s.direct,
			Functions: o.Functions, Account: o.Account, Now: o.Now, Log: o.Log}),
		orders: make(chan []*task, 1), started: make(chan start), cuts: make(chan cut), looked: make(chan error), filled: make(chan fullness), arrived: make(chan delivery), taken: make(chan verdict), gone: make(chan struct{}), busy: map[*recording]bool{},
		spending: spending{options: o, governor: budget.Governor{Budget: o.Budget}}}
}

// tryAgain is the pause before a recording that failed is started again.
const tryAgain = time.Minute

// conduct runs until the context ends. It begins with the orders that an earlier run kept.
func (c *conductor) conduct(ctx context.Context, remembered []*task) error {
	defer c.options.Account.Begin(cputime.Shipping)()
	defer c.closing.Wait()
	defer close(c.gone)
	c.pipeline.Start(ctx)
	c.follow(remembered)
	c.trial = builtinOf(c.tasks)
	look := time.NewTicker(c.options.Look)
	defer look.Stop()
	c.startLooking()
	c.spending.look = time.Now()
	for {
		edge := time.NewTimer(time.Until(nextEdge(c.tasks, c.spending.look)))
		select {
		case <-ctx.Done():
			edge.Stop()
			c.endAll()
			return nil
		case tasks := <-c.orders:
			c.follow(tasks)
		case s := <-c.started:
			if err := c.begun(s); err != nil {
				c.endAll()
				return err
			}
		case d := <-c.cuts:
			c.hasCut(d)
		case err := <-c.looked:
			c.hasLooked(err)
		case f := <-c.filled:
			c.hasFilled(f)
		case d := <-c.arrived:
			c.delivered(d)
		case v := <-c.taken:
			if v.of.asking = false; v.taken {
				v.of.phase = phaseDone
			}
		case <-c.options.Ready:
			c.readied()
		case <-c.shipper.dated:
			dateAgain(c.tasks, c.shipper.reading(), c.options.Now())
		case <-look.C:
			c.startLooking()
			c.keepTime() // each look restarts the timer of drainCheck, which must not be put off for ever
		case <-edge.C:
			c.keepTime()
		}
		edge.Stop()
		c.turns++
		c.publish()
	}
}

// nextEdge returns when keepTime has something to do next. budget is when the budget is
// checked next.
func nextEdge(tasks []*task, budget time.Time) time.Time {
	next := time.Now().Add(time.Hour)
	consider := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	consider(budget)
	for _, t := range tasks {
		if !t.over {
			consider(t.ends())
		}
		if t.phase == phaseEnding {
			consider(time.Now().Add(drainCheck))
		}
		for _, r := range t.recordings {
			consider(r.edge)
			if r.instrument.State() == state.Running {
				consider(r.look)
			}
		}
	}
	return next
}

// keepTime cuts windows that have come to their edge, ends tasks whose time is over, and
// starts again what failed.
func (c *conductor) keepTime() {
	now := time.Now()
	if !now.Add(sameTime).Before(c.spending.look) {
		c.govern(now)
	}
	for _, t := range c.tasks {
		if end := t.ends(); !t.over && !end.IsZero() && !now.Before(end) {
			c.finish(t)
		}
		if t.phase == phaseEnding && !t.unfinished() && !t.asking {
			t.askTaken(c.shipper.took, func(v verdict) { send(c.taken, v, c.gone) })
		}
		for _, r := range t.recordings {
			resting := r.instrument.State() == state.Resting
			switch {
			case r.edge.IsZero() || now.Before(r.edge):
				r.check(now, c.options.Account, func(f fullness) { send(c.filled, f, c.gone) })
			case resting && !t.needed():
				r.edge = time.Time{} // it starts when there is a target
			case resting:
				c.start(r)
			default:
				c.turn(r)
			}
		}
	}
}

// finish ends a task whose time is over. It is done when the receiver has acknowledged
// all its windows.
func (c *conductor) finish(t *task) {
	c.end(t)
	if t.phase != phaseFailed {
		t.phase, t.last = phaseEnding, c.spooled
	}
}

// askTaken finds out in another goroutine whether all windows of a task have been
// acknowledged: the spool may have to wait for a disk.
func (t *task) askTaken(took func(spool.ID) bool, tell func(verdict)) {
	t.asking = true
	last := t.last
	go func() { tell(verdict{t, took(last)}) }()
}

// sameTime is how far apart edges may be that count as one.
const sameTime = 20 * time.Millisecond

// drainCheck is how often a task that ends is checked.
const drainCheck = 200 * time.Millisecond

// follow replaces the tasks. Those that were carried out already go on.
func (c *conductor) follow(tasks []*task) {
	tasks = withBuiltin(tasks, c.options.Builtin)
	was := map[string]*task{}
	for _, t := range c.tasks {
		was[t.id] = t
	}
	var next []*task
	for _, t := range tasks {
		old := was[t.id]
		if old == nil {
			t.came = time.Now()
			next = append(next, t)
			continue
		}
		delete(was, t.id)
		old.letGo(t)
		old.limited, old.chosen, old.instances, old.rates = t.limited, t.chosen, t.instances, t.rates
		if old.until != t.until {
			old.until, old.end, old.unsure = t.until, old.lasting(t.end), t.unsure
		}
		next = append(next, old)
	}
	for _, t := range was {
		c.end(t)
	}
	c.tasks = next
	dateAgain(c.tasks, c.shipper.reading(), c.options.Now())
	longest := time.Duration(0)
	for _, t := range c.tasks {
		longest = max(longest, t.profile.Window)
		if t.everything() && t.phase == phaseStarting {
			c.begin(t)
		}
	}
	c.census.Keep(longest)
	c.aim()
	c.wakeReport()
}

// builtinOf returns the built-in task; nil if it is not among them.
func builtinOf(tasks []*task) *task {
	for _, t := range tasks {
		if t.id == builtinID {
			return t
		}
	}
	return nil
}

// send sends to the goroutine of conduct, unless that has ended.
func send[T any](to chan<- T, v T, gone <-chan struct{}) {
	select {
	case to <- v:
	case <-gone:
	}
}

// startLooking lists what runs on the machine in another goroutine, unless that is under way:
// a process can keep whoever reads of it waiting.
func (c *conductor) startLooking() {
	if c.looking {
		return
	}
	c.looking = true
	go func() {
		defer c.options.Account.Begin(cputime.Following)()
		send(c.looked, c.census.Look(), c.gone)
	}()
}

// hasLooked aims recordings at what runs.
func (c *conductor) hasLooked(err error) {
	defer c.options.Account.Begin(cputime.Following)()
	c.looking = false
	if err != nil {
		c.log.Error("list what runs", "error", err)
		return
	}
	c.aim()
	if all, changed := c.census.List(); changed {
		c.showTargets(all)
	}
}

// aim aims recordings at the targets that their tasks select, and starts and stops those
// of tasks that have targets, or none any more.
func (c *conductor) aim() {
	defer c.options.Account.Begin(cputime.Following)()
	now := time.Now()
	for _, t := range c.tasks {
		var follow []*recording
		for _, r := range t.recordings {
			if r.instrument.Follows() {
				follow = append(follow, r)
			}
		}
		if t.everything() && len(follow) == 0 {
			continue
		}
		meant, others := c.census.Choose(t.means)
		wanted := targets.Processes(meant)
		t.targets = len(meant)
		for _, r := range follow {
			if r.instrument.Aim(wanted, others) && r.aims() {
				r.behind = true
			}
			if r.adapts() {
				if err := r.welcome(&c.spending, meant); err != nil {
					c.log.Error("give new targets their rates", "task", r.Task, "error", err)
				}
			}
			if r.lags(now, c.options.Look) {
				r.caught = now
				c.cut(r, early)
			}
		}
		c.rouse(t, now)
	}
}

// dateAgain computes the ends of tasks that came before the clocks were compared.
func dateAgain(tasks []*task, clock reading, now time.Time) {
	for _, t := range tasks {
		if clock.known && t.unsure && !t.over {
			t.date(clock, now)
		}
	}
}

// When the agent ends, samplers are closed that have not cut their last window within
// cutFarewell. Windows that have not been named within nameFarewell are kept without names.
const (
	cutFarewell  = 15 * time.Second
	nameFarewell = 5 * time.Second
)

// endAll cuts and closes all recordings, and waits until their windows are spooled.
func (c *conductor) endAll() {
	for _, t := range c.tasks {
		c.end(t)
	}
	enough := time.NewTimer(cutFarewell)
	defer enough.Stop()
	for len(c.busy) > 0 {
		select {
		case s := <-c.started:
			_ = c.begun(s) // an error no longer matters
		case d := <-c.cuts:
			c.hasCut(d)
		case d := <-c.arrived:
			c.delivered(d)
		case <-enough.C:
			for r := range c.busy {
				c.close(r)
			}
		}
	}
	for done := c.pipeline.Finish(nameFarewell); ; {
		select {
		case d := <-c.arrived:
			c.delivered(d)
		case <-done:
			return
		}
	}
}

// delivered accounts for a window that has passed the pipeline.
func (c *conductor) delivered(d delivery) {
	r, t := d.of, d.of.task
	c.inFlight -= d.Windows
	r.inFlight -= d.Windows
	wereOpen := open(c.tasks) > 0
	if r.open = d.Open; wereOpen && open(c.tasks) == 0 { // a kill from now on loses none of them
		c.life.noteSoon(c.spending.usage, 0)
	}
	c.spooled = max(c.spooled, d.Bundle)
	if t.phase == phaseEnding {
		t.last = max(t.last, d.Bundle)
	}
	c.spending.shipped.Add(budget.Shipped{Windows: len(d.Parts), Brief: d.Brief, Tiny: d.Tiny})
	if len(d.Parts) == 0 { // the next window carries the cost
		c.spending.refund(r, d.Unspent)
		return
	}
	c.fitness.observe(d.Summary)
	if r.rates.of != nil && c.alone(t.profile.Window) {
		for _, part := range d.Parts {
			r.decideAlone(part)
		}
	}
	c.shipper.wake()
}
