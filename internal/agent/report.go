package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// A report is sent when something has changed, but not more often than this, and
// every so often all the same.
const (
	reportPause = 250 * time.Millisecond
	reportEvery = 20 * time.Second
)

// wakeReport says that there is something to report.
func (a *Agent) wakeReport() {
	select {
	case a.reports <- struct{}{}:
	default:
	}
}

// publish has reports show how tasks fare now.
func (a *Agent) publish() {
	var status []*atysv1.TaskState
	var rates []rate
	for _, t := range a.tasks {
		for _, r := range t.recordings {
			if r.sampler != nil {
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
		if r := t.recordings; len(r) > 0 && r[0].sampler != nil {
			state.Frequency = r[0].rate
			state.Message = cmp.Or(state.Message, a.restraint(r[0]), t.caveat)
		}
		status = append(status, state)
	}
	a.shipper.spread(a.shortest())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rates = rates
	before := a.ledger.state
	a.ledger = a.spending.ledger(a.state())
	if a.ledger.state != before {
		a.wakeReport()
	}
	if !sameStates(a.status, status) {
		a.status = status
		a.wakeReport()
	}
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

// reportUntil reports until the context ends.
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
			refusal = a.logRefusal(refusal, cannotBeSent(report, err), failures)
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

// errUnsendable says that a report never leaves this machine.
var errUnsendable = errors.New("it cannot be encoded")

// cannotBeSent says of a report that failed whether it is at fault itself.
func cannotBeSent(r *atysv1.ReportRequest, failed error) error {
	if _, err := proto.Marshal(r); err != nil {
		return fmt.Errorf("%w: %w", errUnsendable, err)
	}
	return failed
}

// logRefusal says that a report failed. One that was refused for good, or cannot
// be sent, is for somebody to see, but once, until it is for another reason; others
// are sent again, and the server knows who is silent.
func (a *Agent) logRefusal(before string, err error, failures int) (refusal string) {
	if !remote.Refuses(err) && !errors.Is(err, errUnsendable) {
		a.log.Debug("report", "failures", failures, "error", err)
		return before
	}
	if refusal = err.Error(); refusal != before {
		a.log.Warn("reports do not get through: the server does not know how this agent fares", "error", err)
	}
	return refusal
}

// tell reports, for as long as a report is of use: over a connection whose other
// end has lost its power none is answered until TCP gives up, a quarter of an hour
// later.
func (a *Agent) tell(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.options.Fleet.Report(ctx, r)
}

// sayGoodbye tells that the agent ends in order, and how: nobody has to look why
// it is silent. One that fails says nothing.
func (a *Agent) sayGoodbye() {
	if a.options.Fleet == nil {
		return
	}
	const patience = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := a.report()
	r.Leaving = true
	if _, err := a.options.Fleet.Report(ctx, r); err != nil {
		a.log.Debug("say goodbye", "error", err)
	}
}

// ledger is what others are told of spending.
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

// ledger copies what others are told.
func (s *spending) ledger(state string) ledger {
	return ledger{usage: s.usage, total: s.total, causes: maps.Clone(s.causes), lately: s.lately, cores: s.cores(), cap: s.governor.Cap, state: state,
		over: s.governor.Exceeded(), decisions: slices.Clone(s.decisions), taken: maps.Clone(s.taken), stops: s.stops}
}

// byCause is what each cause took, as it is reported.
func (l *ledger) byCause() (all []*atysv1.CauseTime) {
	for _, c := range cputime.Causes() {
		all = append(all, &atysv1.CauseTime{Cause: string(c), Ns: int64(l.causes[c]), Cores: l.lately[c]})
	}
	return all
}

// steps are the latest decisions, as they are reported.
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
