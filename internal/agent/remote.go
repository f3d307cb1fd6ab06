package agent

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Remote is a server elsewhere.
type Remote struct {
	atysv1connect.IntakeClient
	fleet atysv1connect.FleetClient
}

// NewRemote gives the server at an address such as http://10.0.0.5:4300. The
// client must not limit how long an answer takes: that to Attend has no end.
func NewRemote(client connect.HTTPClient, address string) *Remote {
	return &Remote{atysv1connect.NewIntakeClient(client, address, connect.WithSendGzip()), atysv1connect.NewFleetClient(client, address)}
}

// AttendTo gives orders as they come; see Fleet.
func (r *Remote) AttendTo(ctx context.Context, request *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	stream, err := r.fleet.Attend(ctx, request)
	if err != nil {
		return err
	}
	for stream.Receive() {
		if err := order(stream.Msg()); err != nil {
			return errors.Join(err, stream.Close())
		}
	}
	return errors.Join(stream.Err(), stream.Close())
}

// Report tells the server; see Fleet.
func (r *Remote) Report(ctx context.Context, request *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	return r.fleet.Report(ctx, request)
}
