package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// Apply adds or changes profiles; see the service Control.
func (s *Service) Apply(ctx context.Context, r *atysv1.ApplyRequest) (*atysv1.ApplyResponse, error) {
	var orders []*ordered
	for _, text := range r.GetObjects() {
		p, err := spec.ParseJSON([]byte(text))
		if err == nil {
			err = p.CheckNew()
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
		if slices.ContainsFunc(orders, func(o *ordered) bool { return o.Profile.Name == p.Name }) {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("profile %q is there twice", p.Name))
		}
		orders = append(orders, newOrdered(p, s.Now()))
	}
	f, err := s.Of(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.apply(orders); err != nil {
		return nil, err
	}
	response := &atysv1.ApplyResponse{}
	for _, o := range orders {
		all, err := f.list(kindProfiles, o.Profile.Name)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			response.Objects = append(response.Objects, o.Object)
		}
	}
	return response, nil
}

// Get lists objects of a kind; see the service Control.
func (s *Service) Get(ctx context.Context, r *atysv1.GetRequest) (*atysv1.GetResponse, error) {
	f, err := s.Of(ctx)
	if err != nil {
		return nil, err
	}
	all, err := f.list(r.GetKind(), r.GetName())
	if err != nil {
		return nil, err
	}
	if r.GetName() != "" && len(all) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no %s %q", strings.TrimSuffix(r.GetKind(), "s"), r.GetName()))
	}
	response := &atysv1.GetResponse{}
	for _, o := range all {
		response.Objects = append(response.Objects, o.Object)
	}
	return response, nil
}

// Delete deletes a profile; see the service Control.
func (s *Service) Delete(ctx context.Context, r *atysv1.DeleteRequest) (*atysv1.DeleteResponse, error) {
	if r.GetKind() != kindProfiles {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%.40q cannot be deleted: agents, targets and relays come and go by themselves", r.GetKind()))
	}
	f, err := s.Of(ctx)
	if err != nil {
		return nil, err
	}
	return &atysv1.DeleteResponse{}, f.delete(r.GetName())
}

// Watch sends objects, then their changes; see the service Control.
func (s *Service) Watch(ctx context.Context, r *atysv1.GetRequest, stream *connect.ServerStream[atysv1.Change]) error {
	f, err := s.Of(ctx)
	if err != nil {
		return err
	}
	if err := s.watches.begin(ctx); err != nil {
		return err
	}
	defer s.watches.end(ctx)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	known := map[string]*listed{}
	send := func(what string, o *atysv1.Object) error { return stream.Send(&atysv1.Change{What: what, Object: o}) }
	for synced := false; ; synced = true {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		moved, ended := f.watch()
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: watch again"))
		}
		objects, err := f.list(r.GetKind(), r.GetName())
		if err != nil {
			return err
		}
		if err := sendChanges(known, objects, send); err != nil {
			return err
		}
		if !synced {
			if err := send("synced", nil); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		case <-beat.C:
		}
		select { // changes that come in a burst are sent once
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// watches counts the streams of Watch by who opened them: each lists the whole fleet
// when anything changes. The zero value is ready.
type watches struct {
	mu sync.Mutex // guards of
	of map[auth.Identity]int
}

// mostWatches is how many one client may open.
const mostWatches = 32

func (w *watches) begin(ctx context.Context) error {
	who, _ := auth.From(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[who] >= mostWatches {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d streams of Watch are open already: close one first", mostWatches))
	}
	if w.of == nil {
		w.of = map[auth.Identity]int{}
	}
	w.of[who]++
	return nil
}

func (w *watches) end(ctx context.Context) {
	who, _ := auth.From(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[who]--; w.of[who] == 0 {
		delete(w.of, who)
	}
}

// watchPause is the least time between two lists of a stream.
const watchPause = 100 * time.Millisecond

// sendChanges sends the objects that have changed, and remembers them.
func sendChanges(known map[string]*listed, objects []*listed, send func(string, *atysv1.Object) error) error {
	there := map[string]bool{}
	for _, o := range objects {
		there[o.key] = true
		old := known[o.key]
		if old != nil && old.GetJson() == o.GetJson() {
			continue
		}
		what := "changed"
		if old == nil {
			what = "added"
		}
		known[o.key] = o
		if err := send(what, o.Object); err != nil {
			return err
		}
	}
	for key, o := range known {
		if !there[key] {
			delete(known, key)
			if err := send("removed", o.Object); err != nil {
				return err
			}
		}
	}
	return nil
}

// watch returns a channel that is closed when anything changes.
func (f *Fleet) watch() (moved <-chan struct{}, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved, f.ended
}
