// Package remote is a server elsewhere, as agents and relays see it.
package remote

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Server is one elsewhere, or a relay that stands for one.
type Server struct {
	atysv1connect.IntakeClient
	fleet atysv1connect.FleetClient
}

// New gives the server at an address such as http://10.0.0.5:4300. The client
// must not limit how long an answer takes: that to Attend has no end. How much of
// one is taken is limited here: agents have rights that servers do not.
func New(client connect.HTTPClient, address string) *Server {
	bounds := connect.WithClientOptions(connect.WithReadMaxBytes(wire.MaxRequest), connect.WithCodec(wire.NewBinary()))
	return &Server{atysv1connect.NewIntakeClient(client, address, bounds, wire.Packing()), atysv1connect.NewFleetClient(client, address, bounds)}
}

// AttendTo gives orders as they come; see the service Fleet.
func (s *Server) AttendTo(ctx context.Context, request *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	stream, err := s.fleet.Attend(ctx, request)
	if err != nil {
		return err
	}
	return each(stream, order)
}

// Report tells the server; see the service Fleet.
func (s *Server) Report(ctx context.Context, request *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	return s.fleet.Report(ctx, request)
}

// OfferTo tells how a relay stands, as it changes; see the service Fleet.
func (s *Server) OfferTo(ctx context.Context, request *atysv1.OfferRequest, stand func(*atysv1.Standing) error) error {
	stream, err := s.fleet.Offer(ctx, request)
	if err != nil {
		return err
	}
	return each(stream, stand)
}

// Stand answers how a relay stands; see the service Fleet.
func (s *Server) Stand(ctx context.Context, request *atysv1.StandRequest) (*atysv1.StandResponse, error) {
	return s.fleet.Stand(ctx, request)
}

// each gives what a stream brings, until it ends or give fails.
func each[M any](stream *connect.ServerStreamForClient[M], give func(*M) error) error {
	for stream.Receive() {
		if err := give(stream.Msg()); err != nil {
			return errors.Join(err, stream.Close())
		}
	}
	return errors.Join(stream.Err(), stream.Close())
}
