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
	response, left, err := s.push(ctx, r)
	kept, ended, again := 0, err, len(response.GetUnknown())+len(response.GetOverlaps()) > 0
	if err == nil && !again {
		kept, ended = len(r.GetWindows())-len(response.GetRefused()), left.last
	}
	s.metrics.pushed(kept, again, ended)
	return response, err
}

// push keeps windows, and tells what was left out of them.
func (s *Server) push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, leftOut, error) {
	response := &atysv1.PushResponse{ReceivedUnixNano: s.now().UnixNano()}
	b, err := batch(r)
	if err != nil {
		return nil, leftOut{}, connect.NewError(connect.CodeInvalidArgument, err)
	}
	left := leftOut{places: indices(len(b.Windows))}
	err = s.keep(ctx, r, b, &left)
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
		if f, err := s.fleet(ctx); err == nil { // else no rates are decided for it
			f.rates.note(b.Windows, s.now())
		}
	}
	response.AnsweredUnixNano = s.now().UnixNano()
	return response, left, nil
}

// keep keeps a batch, without what is refused of it where the sender can be told so.
func (s *Server) keep(ctx context.Context, r *atysv1.PushRequest, b *store.Batch, left *leftOut) error {
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

// unkeptFor is what the sender is told why its windows were not kept.
func (s *Server) unkeptFor(ctx context.Context, err error) error {
	var answer *connect.Error
	var quota *store.QuotaError
	switch {
	case errors.As(err, &answer):
		return answer
	case errors.Is(err, wire.ErrMalformed):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &quota) && quota.Later:
		s.metrics.crowded.WithLabelValues(s.tenant(ctx)).Inc()
		s.unkept.tell(s.log, s.now(), "keep windows", fmt.Errorf("tenant %q: %w", s.tenant(ctx), quota))
		s.Upkeep.Crowded()
		return connect.NewError(connect.CodeUnavailable, quota)
	case errors.As(err, &quota):
		return connect.NewError(connect.CodeResourceExhausted, quota)
	case errors.Is(err, store.ErrClosed): // it was told to end: nothing is wrong
		return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: send again later"))
	case errors.Is(err, store.ErrFull):
		s.unkept.tell(s.log, s.now(), "keep windows", err)
		return connect.NewError(connect.CodeUnavailable, errors.New("the store cannot write: send again later"))
	}
	s.unkept.tell(s.log, s.now(), "keep windows", err)
	return connect.NewError(connect.CodeInternal, errors.New("the windows were not kept: send again later"))
}

// leftOut is what is refused of a request whose other windows are kept.
type leftOut struct {
	places  []int        // of the batch's windows in the request
	out     map[int]bool // windows of the batch that are to be taken out of it
	refused []*atysv1.Refused
	last    error // why the last one is
}

func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// refuse notes that a window of the batch is refused, or parts of it.
func (l *leftOut) refuse(err *connect.Error, window int, parts []int) {
	if l.out == nil {
		l.out = map[int]bool{}
	}
	l.out[window], l.last = true, err
	l.refused = append(l.refused, &atysv1.Refused{Window: uint32(l.places[window]), Parts: numbers(parts), Why: err.Message()})
}

// takeOut takes what is refused out of the batch.
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

// overlaps tells what windows contain that is there already.
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

// mostAhead is by how much an agent's clock may be ahead of ours: windows of a
// time that has not come would be kept until after it is over.
const mostAhead = 3 * time.Hour

// wrongTimes says what is wrong with windows of times that are not kept.
func (s *Server) wrongTimes(ctx context.Context, b *store.Batch) map[int]error {
	now, oldest := s.now(), time.Time{}
	if dropped, err := s.options.Store.Dropped(ctx, s.tenant(ctx)); err == nil { // else Put fails as well
		oldest = dropped[store.Raw]
	}
	if keep := s.options.Retention[store.Raw]; keep > 0 && now.Add(-keep).After(oldest) {
		oldest = now.Add(-keep)
	}
	wrong := map[int]error{}
	for i, w := range b.Windows {
		last := w.Head.Start // when the last of those begins that it contains
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

// window converts a message to a window of the store.
func window(m *atysv1.Window) (w store.Window, err error) {
	if w.Head, w.Run, err = wire.Head(m); err != nil {
		return w, err
	}
	wire.SetRight(&w.Head)
	for _, t := range m.GetTypes() {
		w.Scales = append(w.Scales, t.GetScale())
	}
	w.Threads, w.Contexts = wire.Threads(m), wire.Contexts(m)
	w.Rows = wire.Rows(m)
	for _, v := range m.GetRows().GetGroups() {
		w.Groups = append(w.Groups, v*w.Scales[0])
	}
	return w, nil
}
