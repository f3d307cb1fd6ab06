package relay

import (
	"context"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/wire/atysv1"
)

// Attend passes an agent's orders on. Who attends here ships here, whatever
// relay the server would have it ship to.
func (r *Relay) Attend(ctx context.Context, m *atysv1.AttendRequest, stream *connect.ServerStream[atysv1.Orders]) error {
	if err := r.mayPass(ctx); err != nil {
		return err
	}
	ctx, cancel := r.whileRunning(ctx)
	defer cancel()
	return r.options.Upstream.AttendTo(ctx, m, func(o *atysv1.Orders) error {
		if err := auth.Still(ctx); err != nil { // the server knows this relay alone
			return err
		}
		o.ShipTo = ""
		return stream.Send(o)
	})
}

// Report passes on what an agent tells.
func (r *Relay) Report(ctx context.Context, m *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	if err := r.mayPass(ctx); err != nil {
		return nil, err
	}
	return r.options.Upstream.Report(ctx, m)
}

// Offer passes on that another relay is there.
func (r *Relay) Offer(ctx context.Context, m *atysv1.OfferRequest, stream *connect.ServerStream[atysv1.Standing]) error {
	if err := r.mayPass(ctx); err != nil {
		return err
	}
	ctx, cancel := r.whileRunning(ctx)
	defer cancel()
	return r.options.Upstream.OfferTo(ctx, m, func(s *atysv1.Standing) error {
		if err := auth.Still(ctx); err != nil {
			return err
		}
		return stream.Send(s)
	})
}

// Stand passes on that another relay answers.
func (r *Relay) Stand(ctx context.Context, m *atysv1.StandRequest) (*atysv1.StandResponse, error) {
	if err := r.mayPass(ctx); err != nil {
		return nil, err
	}
	return r.options.Upstream.Stand(ctx, m)
}

// whileRunning is a context that also ends when the relay does.
func (r *Relay) whileRunning(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-r.running:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
