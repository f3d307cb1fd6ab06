package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// A report is sent when something has changed, but at most once per reportPause, and at
// least every reportEvery.
const (
	reportPause = 250 * time.Millisecond
	reportEvery = 20 * time.Second
)

// board holds what reports and metrics show.
type board struct {
	reports chan struct{} // receives when there is something to report

	mu      sync.Mutex // guards all below
	heard   time.Time  // when the server last said something, or the agent began
	status  []*atysv1.TaskState
	rates   []rate
	ledger  ledger
	targets []*atysv1.Target
}

func newBoard() *board { return &board{reports: make(chan struct{}, 1), heard: time.Now()} }

// wakeReport sends a report soon.
func (b *board) wakeReport() {
	select {
	case b.reports <- struct{}{}:
	default:
	}
}

// showTargets replaces the targets that reports list.
func (b *board) showTargets(all []*atysv1.Target) {
	b.mu.Lock()
	b.targets = all
	b.mu.Unlock()
	b.wakeReport()
}

// condition fills in what health decides by.
func (b *board) condition(s *health.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Targets, s.Excess, s.Cores, s.Bytes = len(b.targets), b.ledger.over, b.ledger.cores, b.ledger.usage.Memory
	for _, r := range b.rates {
		s.Rates = append(s.Rates, health.Rate{Task: r.task, Event: r.event, Hertz: r.frequency, Wanted: r.wanted})
	}
}

// publish updates the board.
func (c *conductor) publish() {
	var status []*atysv1.TaskState
	var rates []rate
	for _, t := range c.tasks {
		for _, r := range t.recordings {
			if r.instrument.Sampler() != nil {
				rates = append(rates, rate{r.Task, r.Event, r.rate, r.wanted})
			}
		}
		phase, message := t.troubles()
		switch {
		case phase == phaseRunning && !t.needed():
			phase = phaseWaiting
		case phase == phaseWaiting && t.beginning():
			phase = phaseStarting
		}
		state := &atysv1.TaskState{Id: t.id, Phase: phase, Message: wire.Text(message), Targets: uint32(t.targets)}
		if r := t.recordings; len(r) > 0 && r[0].instrument.Sampler() != nil {
			state.Frequency = r[0].rate
			state.Message = cmp.Or(state.Message, c.spending.restraint(r[0]), t.caveat)
		}
		status = append(status, state)
	}
	c.shipper.spread(c.spending.shortest(c.tasks))
	c.show(status, rates, c.spending.ledger())
}

// show replaces how the agent fares.
func (b *board) show(status []*atysv1.TaskState, rates []rate, l ledger) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !sameStates(b.status, status) || l.state != b.ledger.state {
		b.wakeReport()
	}
	b.status, b.rates, b.ledger = status, rates, l
}

func sameStates(a, b []*atysv1.TaskState) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// reportUntil sends reports until the context ends.
func (a *Agent) reportUntil(ctx context.Context) {
	every := time.NewTicker(reportEvery)
	defer every.Stop()
	refusal := ""
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.reports:
		case <-every.C:
		}
		sent := a.shipper.now()
		report := a.report()
		answer, err := a.tell(ctx, report)
		if err == nil && answer.GetReceivedUnixNano() != 0 { // it is answered when it is received
			a.shipper.compare(sent, &atysv1.PushResponse{ReceivedUnixNano: answer.GetReceivedUnixNano(), AnsweredUnixNano: answer.GetReceivedUnixNano()})
		}
		pause := reportPause
		if err != nil {
			failures++
			refusal = logRefusal(a.log, refusal, cannotBeSent(report, err), failures)
			pause = remote.Backoff(failures)
			a.wakeReport()
		} else {
			failures, refusal = 0, ""
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// errUnsendable means that a report cannot be encoded.
var errUnsendable = errors.New("it cannot be encoded")

// cannotBeSent returns why a report failed: because it cannot be encoded, or else as
// given.
func cannotBeSent(r *atysv1.ReportRequest, failed error) error {
	if _, err := proto.Marshal(r); err != nil {
		return fmt.Errorf("%w: %w", errUnsendable, err)
	}
	return failed
}

// logRefusal logs that a report failed. Reports that are refused for good, or cannot be
// encoded, are logged as a warning, once for each reason. Others are sent again, and the
// server notices silent agents.
func logRefusal(log *slog.Logger, before string, err error, failures int) (refusal string) {
	if !remote.Refuses(err) && !errors.Is(err, errUnsendable) {
		log.Debug("report", "failures", failures, "error", err)
		return before
	}
	if refusal = err.Error(); refusal != before {
		log.Warn("reports do not get through: the server does not know how this agent fares", "error", err)
	}
	return refusal
}

// tell sends a report. It gives up after half a minute: if the server has lost power, TCP
// would wait for a quarter of an hour.
func (a *Agent) tell(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.options.Fleet.Report(ctx, r)
}

// sayGoodbye reports that the agent ends as intended, so that nobody has to find out why
// it is silent.
func (a *Agent) sayGoodbye(ctx context.Context) {
	if a.options.Fleet == nil {
		return
	}
	const patience = time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := a.report()
	r.Leaving = true
	if _, err := a.options.Fleet.Report(ctx, r); err != nil {
		a.log.Debug("say goodbye", "error", err)
	}
}

// ledger is the part of spending that is reported.
type ledger struct {
	usage     Usage
	total     profile.Cost
	causes    map[cputime.Cause]time.Duration
	lately    map[cputime.Cause]float64
	cores     float64
	cap       float64
	state     string
	over      bool
	decisions []budget.Decision
	taken     map[budget.Knob]uint64
	stops     int
}

// ledger copies what is reported.
func (s *spending) ledger() ledger {
	return ledger{usage: s.usage, total: s.total, causes: maps.Clone(s.causes), lately: s.lately, cores: s.cores(), cap: s.governor.Cap, state: s.state(),
		over: s.governor.Exceeded(), decisions: slices.Clone(s.decisions), taken: maps.Clone(s.taken), stops: s.stops}
}

// byCause returns the CPU time of each cause for a report.
func (l *ledger) byCause() (all []*atysv1.CauseTime) {
	for _, c := range cputime.Causes() {
		all = append(all, &atysv1.CauseTime{Cause: string(c), Ns: int64(l.causes[c]), Cores: l.lately[c]})
	}
	return all
}

// steps returns the latest decisions for a report.
func (l *ledger) steps() (all []*atysv1.BudgetDecision) {
	for _, d := range l.decisions {
		all = append(all, &atysv1.BudgetDecision{UnixNano: d.At.UnixNano(), Cause: d.Cause, Knob: string(d.Knob), From: d.From, To: d.To, Why: d.Why, Relaxes: d.Relaxes()})
	}
	return all
}

func (a *Agent) report() *atysv1.ReportRequest {
	spooled, counts := a.options.Spool.Stats(), a.Counts()
	offset, uncertain := a.shipper.clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return &atysv1.ReportRequest{Node: a.options.Node, Run: a.run[:], Version: a.options.Version, Targets: a.targets, Tasks: a.status,
		State: &atysv1.NodeState{WaitingWindows: uint32(spooled.Records), ShippedWindows: uint64(counts.Shipped),
			LostWindows:   uint64(counts.All() - a.before),
			ClockOffsetNs: int64(offset), ClockErrorNs: int64(uncertain), StartedUnixNano: a.began.UnixNano(),
			CpuNs: int64(ownCPU()), MemoryBytes: ownMemory(), MetricsAddress: a.options.Metrics,
			Cost: wire.Cost(a.ledger.total), Cores: a.ledger.cores, CoresBudget: a.options.Budget.Cores, MemoryBudget: uint64(a.options.Budget.Memory),
			MapBytes: uint64(a.ledger.usage.Maps), BudgetMessage: a.ledger.state, CapHertz: a.ledger.cap, LastEnd: a.life.last,
			Causes: a.ledger.byCause(), Decisions: a.ledger.steps(), OverBudget: a.ledger.over, Conditions: a.fitness.reported()}}
}
