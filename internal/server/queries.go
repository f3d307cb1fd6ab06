package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/server/ui"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/stats"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// queries answers requests to the service Query.
type queries struct {
	store   store.Store
	tenants *tenants
	now     func() time.Time
	log     *slog.Logger
	classes ui.Classes
}

// asker asks the windows of a request's tenant.
func (s *queries) asker(ctx context.Context) query.Asker {
	a := query.Asker{Store: s.store, Tenant: s.tenants.name(ctx), Now: s.now}
	if f, err := s.tenants.fleet(ctx); err == nil { // else only windows tell which agents there are
		a.Agents = f.Known
	}
	return a
}

// width is half of the confidence interval that a task's policy wants; 0: not known.
func (s *queries) width(ctx context.Context, task string) float64 {
	t, err := s.tenants.asking(ctx)
	if err != nil {
		return 0
	}
	return t.Width(task)
}

// selection reads the selection of a request.
func selection(m *atysv1.Selection) (s query.Selection, err error) {
	if m.GetKind() == "" && len(m.GetKinds()) == 0 {
		return s, connect.NewError(connect.CodeInvalidArgument, errors.New("the selection has no kind of values: name one, such as cpu"))
	}
	return selectionOfAny(m)
}

// mostKinds is how many kinds of values one answer adds up.
const mostKinds = 8

// selectionOfAny reads a selection that need not name a kind.
func selectionOfAny(m *atysv1.Selection) (s query.Selection, err error) {
	if s.Select, err = spec.ParseSelector(m.GetSelect()); err != nil {
		return s, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if s.Context, err = contextSelector(m.GetContext()); err != nil {
		return s, connect.NewError(connect.CodeInvalidArgument, err)
	}
	s.Task = m.GetTask()
	for _, kind := range append([]string{m.GetKind()}, m.GetKinds()...) {
		if kind != "" && !slices.Contains(s.Kinds, kind) {
			s.Kinds = append(s.Kinds, kind)
		}
	}
	if len(s.Kinds) > mostKinds {
		return s, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d kinds: at most %d are added up", len(s.Kinds), mostKinds))
	}
	s.From, s.To = time.Unix(0, m.GetFromUnixNano()), time.Unix(0, m.GetToUnixNano())
	if !s.From.Before(s.To) {
		return s, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("from (%v) must be before to (%v)", s.From.UTC(), s.To.UTC()))
	}
	return s, nil
}

// contextSelector parses a selector of contexts.
func contextSelector(text string) (spec.Selector, error) {
	s, err := spec.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("context: %w", err)
	}
	for _, m := range s {
		if err := checkContext(m.Label); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ofAllContexts refuses a selection of contexts where whole windows or series are asked for.
func ofAllContexts(s query.Selection, err error) (query.Selection, error) {
	if err == nil && len(s.Context) > 0 {
		err = connect.NewError(connect.CodeInvalidArgument, errors.New("context: this request is about whole windows: leave it empty"))
	}
	return s, err
}

func checkContext(part string) error {
	if slices.Contains(store.ContextParts(), part) {
		return nil
	}
	return fmt.Errorf("context: %.80q is not a part of one: use %s", part, strings.Join(store.ContextParts(), ", "))
}

// unread logs an error of the store, and returns what clients are told.
func (s *queries) unread(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, query.ErrMixed) {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	if errors.Is(err, store.ErrClosed) { // the server is shutting down
		return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: ask again"))
	}
	s.log.Error("answer a query", "error", err)
	return connect.NewError(connect.CodeInternal, errors.New("the windows could not be read: the server's log says why"))
}

// Merge adds windows up; see the service Query.
func (s *queries) Merge(ctx context.Context, r *atysv1.MergeRequest) (*atysv1.MergeResponse, error) {
	about, err := selection(r.GetSelection())
	if err != nil {
		return nil, err
	}
	grove, coverage, err := s.asker(ctx).Merge(ctx, about)
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.MergeResponse{Coverage: coverageMessage(coverage)}
	if grove != nil {
		response.Window = wire.SealGrove(grove, profile.Run{})
	}
	return response, nil
}

// Top lists functions; see the service Query.
func (s *queries) Top(ctx context.Context, r *atysv1.TopRequest) (*atysv1.TopResponse, error) {
	about, err := selection(r.GetSelection())
	if err != nil {
		return nil, err
	}
	view, err := viewOf(r)
	if err != nil {
		return nil, err
	}
	top, err := s.asker(ctx).Top(ctx, about, view, int(r.GetLimit()))
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.TopResponse{N: top.N, Value: top.Value, Unit: top.Unit, Coverage: coverageMessage(top.Coverage),
		Exact: exactMessage(top.Exact)}
	for _, f := range top.Functions {
		response.Functions = append(response.Functions, &atysv1.FunctionAmount{Function: legible(f.Frame.Function), File: legible(f.Frame.File),
			Kind: f.Frame.Kind.String(), Class: f.Frame.Class.String(), Mapping: legible(f.Frame.Mapping), Self: amountMessage(f.Self), Total: amountMessage(f.Total)})
	}
	return response, nil
}

// maxRules is how long rules may be: each may be an expression that takes a thousand
// times as much memory as its text.
const maxRules = 16 << 10

// viewOf reads how functions are viewed.
func viewOf(r *atysv1.TopRequest) (v query.View, err error) {
	v = query.View{Fold: query.Fold(r.GetFold()), Callers: r.GetCallers()}
	switch v.Fold {
	case query.FoldNothing, query.FoldOwn, query.FoldHideRuntime:
	default:
		return v, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("fold %q: want %s or %s", v.Fold, query.FoldOwn, query.FoldHideRuntime))
	}
	if n := len(r.GetRules()); n > maxRules {
		return v, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("rules of %d bytes: at most %d are accepted", n, maxRules))
	}
	if r.GetRules() != "" {
		if v.Rules, err = whose.Parse(r.GetRules()); err != nil {
			return v, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("rules: %w", err))
		}
	}
	return v, nil
}

// leastStep is the least length of steps, in whole seconds or minutes, that splits a time
// into no more than most of them.
func leastStep(of time.Duration, most int) time.Duration {
	least := of / time.Duration(most)
	unit := time.Second
	if least >= time.Minute {
		unit = time.Minute
	}
	return least.Truncate(unit) + unit
}

// Split splits a selection by time, label or thread; see the service Query.
func (s *queries) Split(ctx context.Context, r *atysv1.SplitRequest) (*atysv1.SplitResponse, error) {
	about, err := selection(r.GetSelection())
	if err != nil {
		return nil, err
	}
	step := time.Duration(r.GetStepNs())
	const mostSteps = 2000
	if step < 0 || step > 0 && about.To.Sub(about.From)/step > mostSteps {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("steps of %v from %v to %v: at most %d are answered: use steps of %v (--step), or a shorter time", step, about.From.UTC(), about.To.UTC(), mostSteps,
			leastStep(about.To.Sub(about.From), mostSteps)))
	}
	if part := r.GetContext(); part != "" {
		if r.GetBy() != "" {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("by and context exclude each other: give one"))
		}
		if err := checkContext(part); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	parts, coverage, err := s.asker(ctx).Split(ctx, about, query.Split{Step: step, By: r.GetBy(), Context: r.GetContext(), Function: r.GetFunction(), Pooled: r.GetPooled(), Width: s.width(ctx, about.Task)})
	if errors.Is(err, query.ErrNotPooled) {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.SplitResponse{Coverage: coverageMessage(coverage)}
	for _, p := range parts {
		m := &atysv1.Part{By: legible(p.By), Windows: uint32(p.Windows), N: p.N, Value: p.Value, CpuNs: int64(p.CPU), Share: intervalMessage(p.Share)}
		if p.ServiceKnown {
			m.Service = intervalMessage(p.Service)
		}
		if p.Pooled != nil {
			m.Pooled = &atysv1.Pooled{Share: intervalMessage(p.Pooled.Share), Stretch: uint32(p.Pooled.Stretch), Final: p.Pooled.Final}
		}
		if !p.Start.IsZero() {
			m.StartUnixNano = p.Start.UnixNano()
		}
		response.Parts = append(response.Parts, m)
	}
	return response, nil
}

// Labels lists labels; see the service Query.
func (s *queries) Labels(ctx context.Context, r *atysv1.LabelsRequest) (*atysv1.LabelsResponse, error) {
	about, err := ofAllContexts(selection(r.GetSelection()))
	if err != nil {
		return nil, err
	}
	labels, coverage, err := s.asker(ctx).Labels(ctx, about)
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.LabelsResponse{Labels: map[string]*atysv1.Values{}, Coverage: coverageMessage(coverage)}
	for name, values := range labels {
		for i := range values {
			values[i] = legible(values[i])
		}
		response.Labels[legible(name)] = &atysv1.Values{Values: values}
	}
	return response, nil
}

// Kinds lists value types; see the service Query.
func (s *queries) Kinds(ctx context.Context, r *atysv1.KindsRequest) (*atysv1.KindsResponse, error) {
	about, err := ofAllContexts(selectionOfAny(r.GetSelection()))
	if err != nil {
		return nil, err
	}
	if about.Kinds == nil {
		about.Kinds = []string{spec.KindCPU} // windows of whole machines show what was watched
	}
	types, coverage, err := s.asker(ctx).Kinds(ctx, about)
	if err != nil {
		return nil, s.unread(err)
	}
	return &atysv1.KindsResponse{Types: wire.Types(types), Coverage: coverageMessage(coverage)}, nil
}

// mostWindows is how many windows are listed at a time.
const mostWindows = 10_000

// Windows lists windows as they were cut; see the service Query.
func (s *queries) Windows(ctx context.Context, r *atysv1.WindowsRequest) (*atysv1.WindowsResponse, error) {
	about, err := ofAllContexts(selection(r.GetSelection()))
	if err != nil {
		return nil, err
	}
	limit := int(r.GetLimit())
	if limit == 0 {
		limit = 1000
	}
	if limit > mostWindows {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d windows: at most %d are listed at once", limit, mostWindows))
	}
	list, err := s.asker(ctx).Windows(ctx, about, limit)
	if err != nil {
		return nil, s.unread(err)
	}
	response := &atysv1.WindowsResponse{More: list.More, Damaged: uint32(list.Damaged), Coverage: coverageMessage(list.Coverage)}
	for _, w := range list.Windows {
		h := &w.Head
		m := &atysv1.KeptWindow{Labels: map[string]string{}, Task: legible(h.Task), Run: w.Run[:], StartUnixNano: h.Start.UnixNano(), DurationNs: int64(h.Duration),
			N: w.N, Value: w.Value, Stacks: uint32(w.Stacks), Exact: exactMessage(h.Exact), Losses: lossMessages(h.Losses), Design: string(h.Design),
			ClockOffsetNs: int64(h.ClockOffset), ClockErrorNs: int64(h.ClockError), Instances: instancesMessage(h.Instances),
			Cost: wire.Cost(h.Cost), Rate: wire.Rate(h.Rate), PeriodNs: int64(w.Period)}
		for name, value := range h.Target {
			m.Labels[legible(name)] = legible(value)
		}
		response.Windows = append(response.Windows, m)
	}
	return response, nil
}

// Rates tells how often services were sampled, and why; see the service Query.
func (s *queries) Rates(ctx context.Context, r *atysv1.RatesRequest) (*atysv1.RatesResponse, error) {
	about, err := ofAllContexts(selection(r.GetSelection()))
	if err != nil {
		return nil, err
	}
	decided, coverage, err := s.asker(ctx).Rates(ctx, about, r.GetAll())
	switch {
	case errors.Is(err, query.ErrTooManyWindows):
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	case err != nil:
		return nil, s.unread(err)
	case len(decided) > mostWindows:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%d rows: at most %d are answered: choose fewer services, or a shorter time, or only where rates moved", len(decided), mostWindows))
	}
	response := &atysv1.RatesResponse{Coverage: coverageMessage(coverage)}
	for _, d := range decided {
		response.Decided = append(response.Decided, &atysv1.Decided{Task: legible(d.Task), Service: legible(d.Service),
			StartUnixNano: d.Start.UnixNano(), DurationNs: int64(d.Duration), Windows: uint32(d.Windows), Instances: uint32(d.Instances),
			Rate: wire.Rate(d.Rate), LowestHertz: d.Lowest, HighestHertz: d.Highest, N: d.N})
	}
	return response, nil
}

// legible makes a name valid UTF-8, as messages require: names of functions need not be.
func legible(name string) string { return strings.ToValidUTF8(name, "\ufffd") }

func coverageMessage(c query.Coverage) *atysv1.Coverage {
	m := &atysv1.Coverage{Windows: uint32(c.Windows), Damaged: uint32(c.Damaged), N: c.N, Losses: lossMessages(c.Losses), DoubtfulWindows: uint32(c.Doubtful),
		Dropped: spanMessages(c.Dropped), Cost: wire.Cost(c.Cost), CpuNs: int64(c.CPU), PrunedShare: c.MostOff(), PushedInstances: uint32(c.Pushed), PushedMore: c.PushedMore}
	for _, k := range c.Kinds {
		m.Kinds = append(m.Kinds, &atysv1.KindSum{Kind: legible(k.Kind), N: k.N, Value: k.Value})
	}
	for _, task := range c.Overlapping {
		m.OverlappingTasks = append(m.OverlappingTasks, legible(task))
	}
	for _, t := range c.Tasks {
		m.Tasks = append(m.Tasks, &atysv1.TaskCoverage{Task: legible(t.Task), Instances: instancesMessage(t.Instances)})
	}
	for _, n := range c.Nodes {
		m.Nodes = append(m.Nodes, &atysv1.NodeCoverage{Node: legible(n.Node), Task: legible(n.Task), FirstUnixNano: unixNano(n.First), LastUnixNano: unixNano(n.Last),
			WatchedNs: int64(n.Watched), Missing: spanMessages(n.Missing), Stopped: spanMessages(n.Stopped), Silent: n.Silent})
	}
	return m
}

// unixNano is a time in a message; 0: none.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instancesMessage(i profile.Instances) *atysv1.Instances {
	if i == (profile.Instances{}) {
		return nil
	}
	return &atysv1.Instances{Recorded: uint32(i.Recorded), Eligible: uint32(i.Eligible)}
}

func spanMessages(spans []query.Span) (all []*atysv1.Span) {
	for _, s := range spans {
		all = append(all, &atysv1.Span{FromUnixNano: s.From.UnixNano(), ToUnixNano: s.To.UnixNano()})
	}
	return all
}

// exactMessage is never nil: pages read its fields.
func exactMessage(e profile.Exact) *atysv1.Exact { return cmp.Or(wire.Exact(e), &atysv1.Exact{}) }

func lossMessages(losses []profile.Loss) (all []*atysv1.Loss) {
	for _, l := range losses {
		all = append(all, &atysv1.Loss{Reason: string(l.Reason), Detail: legible(l.Detail), N: l.N, Value: l.Value})
	}
	return all
}

func amountMessage(a query.Amount) *atysv1.Amount {
	m := &atysv1.Amount{N: a.N, Value: a.Value, Seconds: a.Seconds, Share: intervalMessage(a.Share)}
	if a.ServiceKnown {
		m.Service = intervalMessage(a.Service)
	}
	return m
}

func intervalMessage(i stats.Interval) *atysv1.Interval {
	return &atysv1.Interval{Value: i.Value, Low: i.Low, High: i.High}
}
