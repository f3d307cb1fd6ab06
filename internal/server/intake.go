package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/server/upkeep"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// intake answers requests to the service Intake: it stores windows and records.
type intake struct {
	store     store.Store
	tenants   *tenants
	retention upkeep.Retention
	crowded   func() // makes upkeep make room
	metrics   *metrics
	unkept    complaint
	now       func() time.Time
	log       *slog.Logger
}

// Push stores windows and records; see the service Intake.
func (s *intake) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, left, err := s.push(ctx, r)
	kept, ended, again := 0, err, len(response.GetUnknown())+len(response.GetOverlaps()) > 0
	if err == nil && !again {
		kept, ended = len(r.GetWindows())-len(response.GetRefused()), left.last
	}
	s.metrics.pushed(kept, again, ended)
	return response, err
}

// push stores windows, and returns what was refused of them.
func (s *intake) push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, leftOut, error) {
	response := &atysv1.PushResponse{ReceivedUnixNano: s.now().UnixNano(), TakesDivided: true}
	b, err := batchOf(r)
	if err != nil {
		return nil, leftOut{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	records, wrong, err := wire.Records(r)
	if err != nil {
		return nil, leftOut{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	left := leftOut{places: indices(len(b.Windows))}
	if len(b.Windows) > 0 || len(records) == 0 {
		err = s.keep(ctx, r, b, &left)
	}
	if err == nil {
		err = s.keepRecords(ctx, records, wrong, response)
	}
	var unknown *store.UnknownError
	var overlap *store.OverlapError
	switch {
	case errors.As(err, &unknown):
		response.Unknown = wire.Table(unknown.Stacks)
	case errors.As(err, &overlap):
		response.Overlaps = left.overlaps(overlap)
	case err != nil:
		return nil, leftOut{}, s.unkeptFor(ctx, err)
	default:
		response.Refused = left.refused
		if t, err := s.tenants.asking(ctx); err == nil { // else no rates are decided by them
			t.Note(b.Windows)
		}
	}
	response.AnsweredUnixNano = s.now().UnixNano()
	return response, left, nil
}

// keep stores a batch. If the sender understands it, only some windows may be refused.
func (s *intake) keep(ctx context.Context, r *atysv1.PushRequest, b *store.Batch, left *leftOut) error {
	wrong := s.wrongTimes(ctx, b)
	for _, i := range slices.Sorted(maps.Keys(wrong)) {
		err := connect.NewError(connect.CodeInvalidArgument, wrong[i])
		if !r.GetPartly() {
			return err
		}
		left.refuse(err, i, nil)
	}
	for left.takeOut(b); len(b.Windows) > 0 || len(left.refused) == 0; left.takeOut(b) {
		err := s.put(ctx, r, b)
		var quota *store.QuotaError
		if !errors.As(err, &quota) || len(quota.Refused) == 0 || !r.GetPartly() {
			return err
		}
		for _, i := range slices.Sorted(maps.Keys(quota.Refused)) {
			left.refuse(connect.NewError(connect.CodeResourceExhausted, quota), i, quota.Refused[i])
		}
	}
	return nil
}

// unkeptFor returns the error that the sender is sent when its windows were not stored.
func (s *intake) unkeptFor(ctx context.Context, err error) error {
	var answer *connect.Error
	var quota *store.QuotaError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, wire.ErrMalformed):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &quota) && quota.Later:
		s.metrics.crowded.WithLabelValues(s.tenants.name(ctx)).Inc()
		s.unkept.log(s.log, s.now(), "keep windows", fmt.Errorf("tenant %q: %w", s.tenants.name(ctx), quota))
		s.crowded()
		return connect.NewError(connect.CodeUnavailable, quota)
	case errors.As(err, &quota):
		return connect.NewError(connect.CodeResourceExhausted, quota)
	case errors.Is(err, store.ErrClosed): // the server is shutting down
		return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: send again later"))
	case errors.Is(err, store.ErrFull):
		s.unkept.log(s.log, s.now(), "keep windows", err)
		return connect.NewError(connect.CodeUnavailable, errors.New("the store cannot write: send again later"))
	}
	s.unkept.log(s.log, s.now(), "keep windows", err)
	return connect.NewError(connect.CodeInternal, errors.New("the windows were not kept: send again later"))
}

// leftOut is what is refused of a request whose other windows are stored.
type leftOut struct {
	places  []int        // of the batch's windows in the request
	out     map[int]bool // windows that are to be removed from the batch
	refused []*atysv1.Refused
	last    error // why the last window is refused
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// refuse refuses a window of the batch, or parts of it.
func (l *leftOut) refuse(err *connect.Error, window int, parts []int) {
	if l.out == nil {
		l.out = map[int]bool{}
	}
	l.out[window], l.last = true, err
	l.refused = append(l.refused, &atysv1.Refused{Window: uint32(l.places[window]), Parts: numbers(parts), Why: err.Message()})
}

// takeOut removes what is refused from the batch.
func (l *leftOut) takeOut(b *store.Batch) {
	if len(l.out) == 0 {
		return
	}
	var windows []store.Window
	var places []int
	for i, w := range b.Windows {
		if !l.out[i] {
			windows, places = append(windows, w), append(places, l.places[i])
		}
	}
	b.Windows, l.places, l.out = windows, places, nil
}

// overlaps lists the parts of windows that are stored already.
func (l *leftOut) overlaps(e *store.OverlapError) (all []*atysv1.Overlap) {
	for _, window := range slices.Sorted(maps.Keys(e.Parts)) {
		all = append(all, &atysv1.Overlap{Window: uint32(l.places[window]), Parts: numbers(e.Parts[window])})
	}
	return all
}

func numbers(ints []int) (all []uint32) {
	for _, i := range ints {
		all = append(all, uint32(i))
	}
	return all
}

// put stores a batch. Its dictionary of stacks is read only if the store lacks some:
// while a fleet starts, many agents send the same dictionary at once, and reading it
// takes longer than all else.
func (s *intake) put(ctx context.Context, r *atysv1.PushRequest, b *store.Batch) (err error) {
	if r.GetIfUnknown() {
		var unknown *store.UnknownError
		if err = s.store.Put(ctx, s.tenants.name(ctx), store.Raw, b); !errors.As(err, &unknown) {
			return err
		}
	}
	if b.Forest, err = wire.Learn(r.GetDictionary()); err != nil {
		return err
	}
	return s.store.Put(ctx, s.tenants.name(ctx), store.Raw, b)
}

// mostAhead is by how much an agent's clock may be ahead of ours: windows of the future
// would outlive their retention.
const mostAhead = 3 * time.Hour

// wrongTimes returns errors for windows whose times are in the future, or dropped already.
func (s *intake) wrongTimes(ctx context.Context, b *store.Batch) map[int]error {
	now, oldest := s.now(), time.Time{}
	if dropped, err := s.store.Dropped(ctx, s.tenants.name(ctx)); err == nil { // else Put fails as well
		oldest = dropped[store.Raw]
	}
	if keep := s.retention[store.Raw]; keep > 0 && now.Add(-keep).After(oldest) {
		oldest = now.Add(-keep)
	}
	wrong := map[int]error{}
	for i, w := range b.Windows {
		last := w.Head.Start // the latest start of the windows that it contains
		for _, p := range w.Contains {
			if at := w.Head.Start.Add(p.After); at.After(last) {
				last = at
			}
		}
		switch start := w.Head.Start; {
		case last.After(now.Add(mostAhead)):
			wrong[i] = fmt.Errorf("window %d begins at %v, more than %v ahead of this server's clock: one of the clocks is wrong", i, last.UTC(), mostAhead)
		case start.Before(oldest):
			wrong[i] = fmt.Errorf("window %d begins at %v, and windows are kept from %v on (--retention, --quota)", i, start.UTC(), oldest.UTC())
		}
	}
	return wrong
}

// complaint logs an error that may recur with each request: it is logged once in a while,
// with a count.
type complaint struct {
	mu    sync.Mutex // guards all below
	last  time.Time  // when it was last logged
	times int        // since then
}

const complainEvery = 10 * time.Second

func (c *complaint) log(log *slog.Logger, now time.Time, what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times++
	if since := now.Sub(c.last); since < 0 || since >= complainEvery {
		log.Error(what, "times", c.times, "error", err)
		c.last, c.times = now, 0
	}
}

// batchOf converts a request, but for its dictionary. Its errors are permanent.
func batchOf(r *atysv1.PushRequest) (b *store.Batch, err error) {
	b = &store.Batch{}
	if b.Stacks, err = wire.CheckPush(r); err != nil {
		return nil, err
	}
	for i, m := range r.GetWindows() {
		w, err := windowOf(m)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		if w.Head.Origin == profile.OriginPushed {
			w.Run = wire.PushedRun(m, b.Stacks)
		}
		w.Series = r.GetSeries()[m.GetSeries()].GetLabels()
		for _, p := range m.GetContains() {
			w.Contains = append(w.Contains, store.Part{Series: r.GetSeries()[p.GetSeries()].GetLabels(), Run: profile.Run(p.GetRun()), After: time.Duration(p.GetAfterNs())})
		}
		w.Of = len(w.Contains)
		b.Windows = append(b.Windows, w)
	}
	return b, nil
}

// windowOf converts a message to a window of the store.
func windowOf(m *atysv1.Window) (w store.Window, err error) {
	if w.Head, w.Run, err = wire.Head(m); err != nil {
		return w, err
	}
	if w.Head.Origin == profile.OriginAgent { // a pushed window has the times of its payload, whoever pushes it
		wire.SetRight(&w.Head)
	}
	for _, t := range m.GetTypes() {
		w.Scales = append(w.Scales, t.GetScale())
	}
	w.Threads, w.Contexts, w.Exemplars = wire.Threads(m), wire.Contexts(m), wire.Exemplars(m)
	w.Rows = wire.Rows(m)
	w.Groups = wire.Groups(m)
	return w, nil
}
