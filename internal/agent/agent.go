// Package agent watches one machine, always: it does what tasks say, cuts windows by the clock, keeps them on disk, and ships them.
//
//	orders of a server (orders.go) -> tasks (task.go) -> a recording for each event (recording.go),
//	   aimed at the targets that match (targets)
//	   -> cut at an edge of the clock (conduct.go) -> pruned, named, split by target, sealed, spooled (pipeline)
//	   -> a batch -> Push, to the server or a relay (route.go) -> acknowledged, only then forgotten (ship.go)
//	how often targets are sampled, as policies decide: of the server (rates.go), or alone (alone.go)
//	what it costs, by cause (spending.go) -> budget.Governor -> the knob of the cause that costs most (budget.go)
//	   -> records of what was decided (journal)
//	what runs here, and how tasks fare -> Report (report.go), Prometheus (metrics.go)
//
// An edge of the clock waits for nothing: windows are cut, named, spooled and shipped by
// other goroutines. A server that is gone for hours costs what the spool's limit costs,
// and nothing else.
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

// Options say what to record and where it goes. All except Node, Record, Spool and Intake
// are optional.
type Options struct {
	Node    string         // the name of this machine
	Labels  profile.Labels // of all targets on this machine
	Version string         // of this program
	Record  Record
	Builtin *spec.Profile // carried out while no standing task is ordered
	OffCPU  bool          // profiles that sample CPU time sample time off the CPU as well
	Spool   *spool.Spool
	Records *spool.Spool // of records of decisions; nil: none are made
	Intake  Intake
	Fleet   Fleet         // orders tasks; nil: nobody does
	Relay   Relay         // reaches the relays that it names; nil: they are not used
	State   string        // file that keeps orders through restarts; "": none
	First   time.Duration // length of the first window, if somebody waits for it; 0: as usual
	Jitter  time.Duration // windows are shipped at a random time within half the shortest one, and this while none is cut; 0: at once
	Look    time.Duration // how often processes are listed; 0: every 5 s

	// Ready receives when processes that recordings were aimed at can be sampled from now
	// on: then they are aimed again. nil: processes can always be sampled at once.
	Ready <-chan struct{}

	Budget  budget.Budget    // of CPU time and memory; zero: unlimited
	Usage   func() Usage     // measures usage; nil: of this process
	Account *cputime.Account // charged with CPU time by cause; may be nil
	// Limit limits recording and naming. If tables wait, those of files that were mapped for
	// less than a second are not built. It may be nil.
	Limit func(l budget.Limits, tablesWait bool)
	// Unwinding returns statistics of unwinding tables; may be nil.
	Unwinding func() unwind.Stats
	Cache     func() diskcache.Stats // returns statistics of the disk cache; nil: there is none
	Shed      func()                 // drops caches of recording and naming; may be nil
	Life      string                 // file by which the next start learns how this one ended; "": none

	Functions *promexport.Functions // counters for Prometheus; nil: none
	Metrics   string                // address at which metrics are served; "": none

	Now func() time.Time
	Log *slog.Logger
}

// Wanted describes the recording that Record is asked for.
type Wanted struct {
	spec.Measurement
	Kernel    string  // as in a profile
	Frequency float64 // Hz: the rate, or about how many events are sampled
	Window    time.Duration
	All       bool
	Adapts    bool          // Frequency is the highest of a range, with which it begins
	Slot      time.Duration // length of the slots in windows; 0: none
	MayAttach bool
}

// Record opens a sampler that keeps threads apart. Unless it samples all targets it must
// be a sampler.Aimer; other abilities are optional.
type Record func(Wanted) (sampler.Sampler, error)

// Intake is where windows go: a server, a relay, or the server of this process.
type Intake interface {
	Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error)
}

// Relay gives the relay at an address.
type Relay func(address string) (Intake, error)

// Fleet orders tasks and receives reports.
type Fleet interface {
	// AttendTo gives orders until the context ends, the connection does, or order
	// returns an error.
	AttendTo(ctx context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error
	Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error)
}

// Agent records until its context ends.
type Agent struct {
	conductor
	options Options
	log     *slog.Logger
	began   time.Time
	before  int // windows that earlier runs have lost
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
	if o.OffCPU {
		o.Builtin = o.Builtin.WithOffCPU()
	}
	var own *process
	if o.Usage == nil {
		own = &process{budget: o.Budget.Memory, now: time.Now}
		o.Usage = own.usage
	}
	a := &Agent{options: o, log: o.Log, began: o.Now()}
	var run profile.Run
	if _, err := rand.Read(run[:]); err != nil {
		return nil, fmt.Errorf("name this run: %w", err)
	}
	a.conductor = newConductor(&a.options, run, own)
	if o.Spool != nil {
		a.life.settle(o.Spool.Lose)
		a.before = o.Spool.Stats().All()
	}
	return a, nil
}

// Run carries out tasks until the context ends. Then it cuts the last windows and ships
// what it can within a moment; the rest waits in the spool.
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
	attendants.Go(func() {
		defer a.options.Account.Begin(cputime.Shipping)()
		a.judgeUntil(attending)
	})
	err := a.conduct(ctx, a.remembered())
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
		a.sayGoodbye(context.WithoutCancel(ctx))
	}
	a.life.end()
	return err
}

// errRefused means that the receiver will never accept what it was sent.
var errRefused = errors.New("refused for good")
