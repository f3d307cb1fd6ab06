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
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Push keeps windows; see the service Intake.
func (s *Server) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := s.push(ctx, r)
	s.metrics.pushed(len(r.GetWindows()), len(response.GetUnknown())+len(response.GetOverlaps()) > 0, err)
	return response, err
}

func (s *Server) push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response := &atysv1.PushResponse{ReceivedUnixNano: s.now().UnixNano()}
	b, err := batch(r)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if err := s.checkTimes(ctx, b); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	err = s.put(ctx, r, b)
	var unknown *store.UnknownError
	var quota *store.QuotaError
	var overlap *store.OverlapError
	switch {
	case errors.Is(err, wire.ErrMalformed):
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &unknown):
		response.Unknown = wire.Table(unknown.Stacks)
	case errors.As(err, &overlap):
		response.Overlaps = overlaps(overlap)
	case errors.As(err, &quota) && quota.Later:
		s.metrics.crowded.WithLabelValues(s.tenant(ctx)).Inc()
		s.unkept.tell(s.log, s.now(), "keep windows", fmt.Errorf("tenant %q: %w", s.tenant(ctx), quota))
		select {
		case s.crowded <- struct{}{}:
		default:
		}
		return nil, connect.NewError(connect.CodeUnavailable, quota)
	case errors.As(err, &quota):
		return nil, connect.NewError(connect.CodeResourceExhausted, quota)
	case errors.Is(err, store.ErrClosed): // it was told to end: nothing is wrong
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the server closes: send again later"))
	case errors.Is(err, store.ErrFull):
		s.unkept.tell(s.log, s.now(), "keep windows", err)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the store cannot write: send again later"))
	case err != nil:
		s.unkept.tell(s.log, s.now(), "keep windows", err)
		return nil, connect.NewError(connect.CodeInternal, errors.New("the windows were not kept: send again later"))
	}
	response.AnsweredUnixNano = s.now().UnixNano()
	return response, nil
}

// put keeps a batch. What explains its stacks is read if that is needed: while a
// fleet comes up, many agents explain the same at once, and to read it takes
// longer than all else.
func (s *Server) put(ctx context.Context, r *atysv1.PushRequest, b *store.Batch) (err error) {
	if r.GetIfUnknown() {
		var unknown *store.UnknownError
		if err = s.options.Store.Put(ctx, s.tenant(ctx), store.Raw, b); !errors.As(err, &unknown) {
			return err
		}
	}
	if b.Forest, err = wire.Learn(r.GetDictionary()); err != nil {
		return err
	}
	return s.options.Store.Put(ctx, s.tenant(ctx), store.Raw, b)
}

// overlaps tells what windows contain that is there already.
func overlaps(e *store.OverlapError) (all []*atysv1.Overlap) {
	for _, window := range slices.Sorted(maps.Keys(e.Parts)) {
		o := &atysv1.Overlap{Window: uint32(window)}
		for _, part := range e.Parts[window] {
			o.Parts = append(o.Parts, uint32(part))
		}
		all = append(all, o)
	}
	return all
}

// mostAhead is by how much an agent's clock may be ahead of ours: windows of a
// time that has not come would be kept until after it is over.
const mostAhead = 3 * time.Hour

// checkTimes refuses windows of times that are not kept.
func (s *Server) checkTimes(ctx context.Context, b *store.Batch) error {
	now, oldest := s.now(), time.Time{}
	if dropped, err := s.options.Store.Dropped(ctx, s.tenant(ctx)); err == nil { // else Put fails as well
		oldest = dropped[store.Raw]
	}
	if keep := s.options.Retention[store.Raw]; keep > 0 && now.Add(-keep).After(oldest) {
		oldest = now.Add(-keep)
	}
	for i, w := range b.Windows {
		last := w.Head.Start // when the last of those begins that it contains
		for _, p := range w.Contains {
			if at := w.Head.Start.Add(p.After); at.After(last) {
				last = at
			}
		}
		switch start := w.Head.Start; {
		case last.After(now.Add(mostAhead)):
			return fmt.Errorf("window %d begins at %v, more than %v ahead of this server's clock: one of the clocks is wrong", i, last.UTC(), mostAhead)
		case start.Before(oldest):
			return fmt.Errorf("window %d begins at %v, and windows are kept from %v on (--retention, --quota)", i, start.UTC(), oldest.UTC())
		}
	}
	return nil
}

// complaint is an error that comes with each request while something is wrong:
// it is told once in a while, with how often it came.
type complaint struct {
	mu    sync.Mutex // guards all below
	told  time.Time
	times int // since then
}

const complainEvery = 10 * time.Second

func (c *complaint) tell(log *slog.Logger, now time.Time, what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times++
	if since := now.Sub(c.told); since < 0 || since >= complainEvery {
		log.Error(what, "times", c.times, "error", err)
		c.told, c.times = now, 0
	}
}

// batch reads a request but for its dictionary. Whatever is wrong with it will be wrong again.
func batch(r *atysv1.PushRequest) (b *store.Batch, err error) {
	b = &store.Batch{}
	if b.Stacks, err = wire.CheckPush(r); err != nil {
		return nil, err
	}
	for i, m := range r.GetWindows() {
		w, err := window(m)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
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

// window takes a window's columns over as they are.
func window(m *atysv1.Window) (w store.Window, err error) {
	if w.Head, w.Run, err = wire.Head(m); err != nil {
		return w, err
	}
	wire.SetRight(&w.Head)
	for _, t := range m.GetTypes() {
		w.Scales = append(w.Scales, t.GetScale())
	}
	w.Threads, w.Contexts = wire.Threads(m), wire.Contexts(m)
	r := m.GetRows()
	w.Rows = store.Rows{Stack: r.GetStack(), Thread: r.GetThread(), Context: r.GetContext(), Slot: r.GetSlot(),
		N: r.GetN(), Value: r.GetValue(), Spread: r.GetSpread(), Groups: r.GetGroups()}
	return w, nil
}
