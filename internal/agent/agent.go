// Package agent watches one machine, always: it does what tasks say, cuts windows by the clock, keeps them on disk, and ships them.
//
//	orders of a server (orders.go) -> tasks -> a recording for each event (task.go), aimed at
//	   the targets that match (census.go, identify.go)
//	   -> cut -> pruned (targets.go) -> named -> split by target (split.go, pieces.go) -> wire.Seal -> spool
//	   -> a batch -> Push, to the server or a relay (route.go) -> acknowledged, only then forgotten (ship.go)
//	how often targets are sampled, as policies decide: of the server (rates.go), or alone (alone.go)
//	what it costs, by cause (spending.go) -> budget.Governor -> the knob of the cause that costs most (budget.go)
//	   -> records of what was decided (journal)
//	what runs here, and how tasks fare -> Report (report.go), Prometheus (metrics.go)
//
// Cutting never waits for shipping, nor for orders: a server that is gone for
// hours costs what the spool's limit costs, and nothing else.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/agent/journal"
	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/promexport"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/wire/atysv1"
)

// Options say what to watch and where it goes. All but Node, Record, Spool and
// Intake may be left out.
type Options struct {
	Node    string         // what this machine is called
	Labels  profile.Labels // of this machine, and all that runs on it
	Version string         // of this program
	Record  Record
	Builtin *spec.Profile // what runs where no standing task is ordered
	Spool   *spool.Spool
	Records *spool.Spool // of records of decisions; nil: none are made
	Intake  Intake
	Fleet   Fleet         // who orders tasks; nil: nobody
	Relay   Relay         // how relays are reached that it names; nil: not at all
	State   string        // file in which orders are kept through restarts; "": nowhere
	First   time.Duration // the first window ends so soon, if it is not 0: somebody waits for it
	Jitter  time.Duration // windows are shipped at a random time within half the shortest one, and this while none is cut; 0: at once
	Look    time.Duration // how often it is seen what runs; 0: 5 s

	// Ready tells that processes which recordings were aimed at before can be sampled
	// now: aim again. nil: they always can at once.
	Ready <-chan struct{}

	Budget  budget.Budget    // of CPU time and memory; zero: as much as it takes
	Usage   func() Usage     // what it takes; nil: what this process does
	Account *cputime.Account // what its CPU time goes to is charged here; nil: it is not told
	// Limit has whoever records and names keep within limits; where tables wait, those of
	// files that were mapped for less than a second are not built. It may be nil.
	Limit func(l budget.Limits, tablesWait bool)
	// Unwinding tells how unwinding tables fare; may be nil.
	Unwinding func() unwind.Stats
	Cache     func() diskcache.Stats // what the cache on disk did; nil: there is none
	Shed      func()                 // gives up what whoever records keeps in memory; may be nil
	Life      string                 // file that tells the next life how this one ended; "": none

	Functions *promexport.Functions // what Prometheus is told of; nil: nothing
	Metrics   string                // address at which it asks; "": nowhere

	Now func() time.Time
	Log *slog.Logger
}

// Wanted is a recording as it is asked for: of everything, or of what it is
// aimed at.
type Wanted struct {
	Event     string
	Kernel    string // as in a profile
	Frequency float64
	Window    time.Duration
	All       bool
	Adapts    bool          // Frequency is the highest of a range, that it begins with
	Slot      time.Duration // length of the slots that windows tell apart; 0: of none
	MayAttach bool
}

// Record begins a recording with threads apart. It may be a Crew.
type Record func(Wanted) (Recording, error)

// Recording is a sampler that can be aimed. Whoever began it closes it.
type Recording interface {
	sampler.Sampler
	// Name fills in the names of a window that was cut, which may be another one then.
	Name(ctx context.Context, w *profile.Window) (*profile.Window, error)
	// Aim makes processes targets, and others no longer, from the next window on. It
	// tells whether any of them was not sampled before, as a target's child is. Where a
	// process takes a moment to be ready, Options.Ready and then the next Aim tell it.
	Aim(add, drop []int) (fresh bool)
	// Full tells how full the kernel's tables are of the window, from 0 to 1.
	Full() float64
	// SetFrequency has it sample as often as this, from the next window on.
	SetFrequency(hz float64) error
	// SetRates gives processes that it is aimed at rates of their own, from the next
	// window on. Others keep theirs.
	SetRates(hz map[int]float64) error
	// Spent tells what samples have cost so far, beside this process's own time.
	Spent() (bpf, interrupts time.Duration, err error)
}

// Intake is where windows go: a server, a relay, or the server of this process.
type Intake interface {
	Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error)
}

// Relay gives the relay at an address.
type Relay func(address string) (Intake, error)

// Fleet is who orders tasks and is told how they fare.
type Fleet interface {
	// AttendTo gives orders until the context ends, the connection does, or order
	// returns an error.
	AttendTo(ctx context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error
	Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error)
}

// Agent watches until its context ends.
type Agent struct {
	options Options
	log     *slog.Logger
	run     profile.Run
	began   time.Time
	before  int // windows that earlier lives have lost
	life    *life
	own     *process // nil: somebody else tells what is used
	census  *census
	shipper *shipper
	records *journal.Shipper
	orders  chan []*task   // the newest ones
	started chan start     // whose start has ended
	reports chan struct{}  // there is something to report
	cuts    chan crewCut   // whose cut has ended
	closing sync.WaitGroup // recordings that are being closed

	// Of conduct alone:
	tasks    []*task             // what is done now
	trial    *task               // the built-in one, if this life began with it
	spooled  spool.ID            // the last bundle
	starting int                 // recordings whose start has not ended
	crews    map[*recording]Crew // that are at a cut
	spending spending

	fitness fitness // says itself what of it is whose

	mu      sync.Mutex // guards all below
	heard   time.Time  // when something was last heard of who orders tasks, or the agent began
	status  []*atysv1.TaskState
	rates   []rate
	ledger  ledger
	targets []*atysv1.Target
}

// New prepares an agent.
func New(o Options) (*Agent, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Look == 0 {
		o.Look = 5 * time.Second
	}
	if o.Builtin == nil {
		o.Builtin = spec.Builtin()
	}
	var own *process
	if o.Usage == nil {
		own = &process{budget: o.Budget.Memory, now: time.Now}
		o.Usage = own.usage
	}
	a := &Agent{options: o, log: o.Log, began: o.Now(), heard: time.Now(), census: newCensus(o.Node, o.Labels), shipper: newShipper(o),
		own: own, life: newLife(o.Life, o.Log), spending: spending{governor: budget.Governor{Budget: o.Budget}}, fitness: newFitness(),
		orders: make(chan []*task, 1), started: make(chan start), cuts: make(chan crewCut), crews: map[*recording]Crew{}, reports: make(chan struct{}, 1)}
	if o.Records != nil {
		a.records = journal.New(journal.Options{Spool: o.Records, Push: a.shipper.pushRecords, Clock: a.shipper.clock, Log: o.Log})
	}
	if o.Spool != nil {
		a.before = o.Spool.Stats().All()
	}
	if _, err := rand.Read(a.run[:]); err != nil {
		return nil, fmt.Errorf("name this run: %w", err)
	}
	return a, nil
}

// Run does what tasks say until the context ends. Then the last windows are cut,
// and what can be shipped within a moment is; the rest waits in the spool.
func (a *Agent) Run(ctx context.Context) error {
	shipping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var others sync.WaitGroup
	others.Go(func() {
		defer a.options.Account.Begin(cputime.Shipping)()
		a.shipper.run(shipping)
	})
	attending, leave := context.WithCancel(ctx)
	var attendants sync.WaitGroup
	attendants.Go(func() {
		defer a.options.Account.Begin(cputime.Shipping)()
		a.records.Run(attending)
	})
	if a.options.Fleet != nil {
		attendants.Go(func() {
			defer a.options.Account.Begin(cputime.Shipping)()
			a.attend(attending)
		})
		attendants.Go(func() {
			defer a.options.Account.Begin(cputime.Shipping)()
			a.reportUntil(attending)
		})
	}
	err := a.conduct(ctx)
	leave()
	attendants.Wait()
	const farewell = 2 * time.Second
	last := time.AfterFunc(farewell, stop)
	a.shipper.finish()
	others.Wait()
	last.Stop()
	stop()
	a.shipper.leave()
	if err == nil {
		a.sayGoodbye()
	}
	a.life.end()
	return err
}

// tryAgain is how long a recording that failed is left alone.
const tryAgain = time.Minute

// conduct starts, aims, cuts and ends recordings as their times come.
func (a *Agent) conduct(ctx context.Context) error {
	defer a.options.Account.Begin(cputime.Shipping)()
	defer a.closing.Wait()
	a.follow(a.remembered())
	a.trial = a.builtin()
	look := time.NewTicker(a.options.Look)
	defer look.Stop()
	a.look()
	a.spending.look = time.Now()
	for {
		edge := time.NewTimer(time.Until(a.nextEdge()))
		select {
		case <-ctx.Done():
			edge.Stop()
			a.endAll()
			return nil
		case tasks := <-a.orders:
			a.follow(tasks)
		case s := <-a.started:
			if err := a.begun(s); err != nil {
				a.endAll()
				return err
			}
		case d := <-a.cuts:
			a.crewHasCut(d)
		case <-a.options.Ready:
			a.readied()
		case <-a.shipper.dated:
			a.dateAgain()
		case <-look.C:
			a.look()
			a.keepTime() // drainCheck begins anew each time: looks must not put it off for ever
		case <-edge.C:
			a.keepTime()
		}
		edge.Stop()
		a.publish()
		a.judge()
	}
}

// nextEdge is when keepTime has something to do next.
func (a *Agent) nextEdge() time.Time {
	next := time.Now().Add(time.Hour)
	consider := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	consider(a.spending.look)
	for _, t := range a.tasks {
		if !t.over {
			consider(t.ends())
		}
		if t.phase == phaseEnding {
			consider(time.Now().Add(drainCheck))
		}
		for _, r := range t.recordings {
			consider(r.edge)
			consider(r.look)
		}
	}
	return next
}

// keepTime cuts what has come to an edge, ends what has come to its end, and
// tries again what had failed.
func (a *Agent) keepTime() {
	now := time.Now()
	if !now.Add(sameTime).Before(a.spending.look) {
		a.govern(now)
	}
	for _, t := range a.tasks {
		if end := t.ends(); !t.over && !end.IsZero() && !now.Before(end) {
			a.finish(t)
		}
		if t.phase == phaseEnding && !a.cutting(t) && a.shipper.took(t.last) {
			t.phase = phaseDone
		}
		for _, r := range t.recordings {
			switch {
			case r.edge.IsZero() || now.Before(r.edge):
				a.relieve(r, now)
			case r.sampler == nil && !t.needed():
				r.edge = time.Time{} // it begins when there is a target
			case r.sampler == nil:
				a.start(r)
			default:
				a.cut(r)
			}
		}
	}
}

// finish ends a task whose time has come. It is done when all its windows have
// been taken.
func (a *Agent) finish(t *task) {
	a.end(t)
	if t.phase != phaseFailed {
		t.phase, t.last = phaseEnding, a.spooled
	}
}

// sameTime is how far apart two edges are that are one.
const sameTime = 20 * time.Millisecond

// drainCheck is how often it is looked whether they have been.
const drainCheck = 200 * time.Millisecond

// follow makes tasks what is done. Those that were done already go on.
func (a *Agent) follow(tasks []*task) {
	tasks = a.withBuiltin(tasks)
	was := map[string]*task{}
	for _, t := range a.tasks {
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
		a.end(t)
	}
	a.tasks = next
	a.dateAgain()
	a.census.keep = keepUnasked
	for _, t := range a.tasks {
		a.census.keep = max(a.census.keep, t.profile.Window+keepUnasked)
		if t.everything() && t.phase == phaseStarting {
			a.begin(t)
		}
	}
	a.aim()
	a.wakeReport()
}

// withBuiltin adds what runs where nothing is ordered for good. What is ordered
// for a while runs beside it, and so does what we do not understand: somebody
// newer may record by it, perhaps of another service, and we would record nothing.
func (a *Agent) withBuiltin(tasks []*task) []*task {
	for _, t := range tasks {
		if t.end.IsZero() && t.understood() {
			return tasks
		}
	}
	return append(tasks, newTask(builtinID, a.options.Builtin, time.Time{}))
}

// builtin is the built-in task; nil if it is not carried out.
func (a *Agent) builtin() *task {
	for _, t := range a.tasks {
		if t.id == builtinID {
			return t
		}
	}
	return nil
}

// look sees what runs on the machine, and aims.
func (a *Agent) look() {
	defer a.options.Account.Begin(cputime.Following)()
	if err := a.census.look(); err != nil {
		a.log.Error("list what runs", "error", err)
		return
	}
	a.aim()
	if targets, changed := a.census.targets(); changed {
		a.mu.Lock()
		a.targets = targets
		a.mu.Unlock()
		a.wakeReport()
	}
}

// aim has recordings follow the targets they mean, and tasks begin and rest with
// theirs.
func (a *Agent) aim() {
	defer a.options.Account.Begin(cputime.Following)()
	now := time.Now()
	for _, t := range a.tasks {
		var follow []*recording
		for _, r := range t.recordings {
			if _, crew := r.sampler.(Crew); r.sampler != nil && (crew || r.aims()) {
				follow = append(follow, r)
			}
		}
		if t.everything() && len(follow) == 0 {
			continue
		}
		meant, others := a.census.choose(t.means)
		wanted := processes(meant)
		t.targets = len(meant)
		for _, r := range follow {
			if r.aim(wanted, others) && r.aims() {
				r.behind = true
			}
			if r.adapts() {
				a.welcome(r, meant)
			}
			a.catchUp(r, now)
		}
		a.rouse(t, now)
	}
}

// endAll cuts and closes everything.
func (a *Agent) endAll() {
	for _, t := range a.tasks {
		a.end(t)
	}
	for ; a.starting > 0; a.starting-- {
		if s := <-a.started; s.err == nil {
			s.of.sampler = s.sampler
			a.close(s.of)
		}
	}
	a.dismissCrews()
}

// errRefused says that the receiver will never take what it was sent.
var errRefused = errors.New("refused for good")
