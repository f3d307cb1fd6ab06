package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1"
)

// Service answers requests to the services Fleet and Control, but for Status.
type Service struct {
	Of  func(context.Context) (*Fleet, error) // the fleet of who asks
	Now func() time.Time

	watches watches
}

// Attend sends an agent its orders until it disconnects; see the service Fleet.
func (s *Service) Attend(ctx context.Context, r *atysv1.AttendRequest, stream *connect.ServerStream[atysv1.Orders]) error {
	return s.AttendTo(ctx, r, stream.Send)
}

// AttendTo is Attend for an agent in this process.
func (s *Service) AttendTo(ctx context.Context, r *atysv1.AttendRequest, send func(*atysv1.Orders) error) error {
	f, err := s.Of(ctx)
	if err != nil {
		return err
	}
	if err := f.connect(r); err != nil {
		return err
	}
	defer f.disconnect(r)
	known := uint64(0)
	beat := time.NewTicker(agentHeartbeat)
	defer beat.Stop()
	for {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		orders, changed, ended := f.orders(r.GetNode(), known)
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: come again"))
		}
		if err := send(orders); err != nil {
			return err
		}
		known = orders.GetRevision()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-beat.C:
		}
	}
}

// Report takes the report of an agent; see the service Fleet.
func (s *Service) Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	f, err := s.Of(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.report(r); err != nil {
		return nil, err
	}
	return &atysv1.ReportResponse{ReceivedUnixNano: s.Now().UnixNano()}, nil
}

// Offer keeps a relay connected; see the service Fleet.
func (s *Service) Offer(ctx context.Context, r *atysv1.OfferRequest, stream *connect.ServerStream[atysv1.Standing]) error {
	return s.OfferTo(ctx, r, stream.Send)
}

// OfferTo is Offer for a relay in this process.
func (s *Service) OfferTo(ctx context.Context, r *atysv1.OfferRequest, send func(*atysv1.Standing) error) error {
	f, err := s.Of(ctx)
	if err != nil {
		return err
	}
	missed := make(chan struct{})
	o, err := f.addRelay(r, sync.OnceFunc(func() { close(missed) }))
	if err != nil {
		return err
	}
	defer f.removeRelay(o)
	beat := time.NewTicker(f.heartbeat)
	defer beat.Stop()
	for {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		standing, changed, ended := f.standing(o)
		if ended {
			return connect.NewError(connect.CodeUnavailable, errors.New("the server closes: come again"))
		}
		if err := send(standing); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-missed:
			return connect.NewError(connect.CodeUnavailable, errors.New("this relay did not answer: offer it again"))
		case <-changed:
		case <-beat.C:
		}
	}
}

// Stand is the answer of a relay to its standing; see the service Fleet.
func (s *Service) Stand(ctx context.Context, r *atysv1.StandRequest) (*atysv1.StandResponse, error) {
	f, err := s.Of(ctx)
	if err != nil {
		return nil, err
	}
	if !f.relayAnswered(r.GetOffer()) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("this relay is not known any more: offer it again"))
	}
	return &atysv1.StandResponse{}, nil
}
