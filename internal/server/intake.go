package server

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Limits of what one request may hold. Agents stay far below them.
const (
	maxRequest     = 32 << 20 // bytes, before and after compression
	maxWindows     = 10_000
	maxLabels      = 32
	maxLabelLength = 256
)

// Push keeps windows; see the service Intake.
func (s *Server) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := s.push(ctx, r)
	s.metrics.pushed(len(r.GetWindows()), len(response.GetUnknown()) > 0, err)
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
	switch {
	case errors.As(err, &unknown):
		response.Unknown = wire.Table(unknown.Stacks)
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

// batch reads a request. Whatever is wrong with it will be wrong again.
func batch(r *atysv1.PushRequest) (b *store.Batch, err error) {
	if n := len(r.GetWindows()); n > maxWindows {
		return nil, fmt.Errorf("%d windows in one request: at most %d are taken", n, maxWindows)
	}
	b = &store.Batch{}
	if b.Stacks, err = wire.Hashes(r.GetStacks()); err != nil {
		return nil, err
	}
	if b.Forest, err = wire.Learn(r.GetDictionary()); err != nil {
		return nil, err
	}
	for i, m := range r.GetSeries() {
		if err := checkLabels(m.GetLabels()); err != nil {
			return nil, fmt.Errorf("series %d: %w", i, err)
		}
	}
	for i, m := range r.GetWindows() {
		if int64(m.GetSeries()) >= int64(len(r.GetSeries())) {
			return nil, fmt.Errorf("window %d: series %d of %d", i, m.GetSeries(), len(r.GetSeries()))
		}
		w, err := window(m, len(b.Stacks))
		if err != nil {
			return nil, fmt.Errorf("window %d: %w", i, err)
		}
		w.Series = r.GetSeries()[m.GetSeries()].GetLabels()
		b.Windows = append(b.Windows, w)
	}
	return b, nil
}

func checkLabels(labels profile.Labels) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%d labels: at most %d are taken", len(labels), maxLabels)
	}
	for name, value := range labels {
		if name == "" || len(name) > maxLabelLength || len(value) > maxLabelLength {
			return fmt.Errorf("label %.40q of %d bytes with a value of %d: names are needed, and at most %d bytes are taken of each", name, len(name), len(value), maxLabelLength)
		}
	}
	return nil
}

// window takes a window's columns over as they are.
func window(m *atysv1.Window, stacks int) (w store.Window, err error) {
	if err := wire.CheckRows(m, stacks); err != nil {
		return w, err
	}
	if w.Head, w.Run, err = wire.Head(m); err != nil {
		return w, err
	}
	for _, t := range m.GetTypes() {
		w.Scales = append(w.Scales, t.GetScale())
	}
	w.Threads, w.Contexts = wire.Threads(m), wire.Contexts(m)
	r := m.GetRows()
	w.Rows = store.Rows{Stack: r.GetStack(), Thread: r.GetThread(), Context: r.GetContext(), Slot: r.GetSlot(),
		N: r.GetN(), Value: r.GetValue(), Spread: r.GetSpread()}
	return w, nil
}
