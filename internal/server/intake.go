package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	err = s.options.Store.Put(ctx, s.tenant(ctx), store.Raw, b)
	var unknown *store.UnknownError
	var quota *store.QuotaError
	var overlap *store.OverlapError
	switch {
	case errors.As(err, &unknown):
		response.Unknown = wire.Table(unknown.Stacks)
	case errors.As(err, &overlap):
		response.Overlaps = overlaps(overlap)
	case errors.As(err, &quota):
		return nil, connect.NewError(connect.CodeResourceExhausted, quota)
	case errors.Is(err, store.ErrFull):
		s.log.Error("keep windows", "windows", len(b.Windows), "error", err)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the store cannot write: send again later"))
	case err != nil:
		s.log.Error("keep windows", "windows", len(b.Windows), "error", err)
		return nil, connect.NewError(connect.CodeInternal, errors.New("the windows were not kept: send again later"))
	}
	response.AnsweredUnixNano = s.now().UnixNano()
	return response, nil
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

// batch reads a request. Whatever is wrong with it will be wrong again.
func batch(r *atysv1.PushRequest) (b *store.Batch, err error) {
	b = &store.Batch{}
	if b.Stacks, b.Forest, err = wire.CheckPush(r); err != nil {
		return nil, err
	}
	for i, m := range r.GetWindows() {
		w, err := window(m)
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		w.Series = r.GetSeries()[m.GetSeries()].GetLabels()
		for _, p := range m.GetContains() {
			w.Contains = append(w.Contains, store.Part{Series: r.GetSeries()[p.GetSeries()].GetLabels(), Run: profile.Run(p.GetRun())})
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
	for _, t := range m.GetTypes() {
		w.Scales = append(w.Scales, t.GetScale())
	}
	w.Threads, w.Contexts = wire.Threads(m), wire.Contexts(m)
	r := m.GetRows()
	w.Rows = store.Rows{Stack: r.GetStack(), Thread: r.GetThread(), Context: r.GetContext(), Slot: r.GetSlot(),
		N: r.GetN(), Value: r.GetValue(), Spread: r.GetSpread(), Groups: r.GetGroups()}
	return w, nil
}
