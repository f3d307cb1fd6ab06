// Package remote is a server elsewhere, as agents, relays and commands ask it.
package remote

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Server is one elsewhere, or a relay that stands for one.
type Server struct {
	gzip, zstd atysv1connect.IntakeClient
	fleet      atysv1connect.FleetClient
	taken      *taken
}

// New gives the server at an address such as http://10.0.0.5:4300. The client
// must not limit how long an answer takes: that to Attend has no end. How much of
// one is taken is limited here: agents have rights that servers do not.
func New(client connect.HTTPClient, address string) *Server {
	t := &taken{HTTPClient: client}
	intake := func(packing string) atysv1connect.IntakeClient {
		return atysv1connect.NewIntakeClient(t, address, bounds(), wire.Packing(packing))
	}
	return &Server{intake(wire.GzipName), intake(wire.ZstdName), atysv1connect.NewFleetClient(t, address, bounds()), t}
}

func bounds() connect.ClientOption {
	return connect.WithClientOptions(connect.WithReadMaxBytes(wire.MaxRequest), connect.WithCodec(wire.NewBinary()))
}

// taken is a client that notes what the server can unpack: it says so with each
// answer, and older ones know gzip alone.
type taken struct {
	connect.HTTPClient
	zstd atomic.Bool
}

func (t *taken) Do(r *http.Request) (*http.Response, error) {
	response, err := t.HTTPClient.Do(r)
	if err == nil {
		if takes := response.Header.Get("Accept-Encoding"); takes != "" {
			t.zstd.Store(slices.Contains(strings.Split(takes, ","), wire.ZstdName))
		}
	}
	return response, err
}

// Push sends windows, packed as the server takes them best; see the service Intake.
// One that has been replaced by an older one refuses them once.
func (s *Server) Push(ctx context.Context, request *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	to := s.gzip
	if s.taken.zstd.Load() {
		to = s.zstd
	}
	response, err := to.Push(ctx, request)
	return response, said(err)
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
	response, err := s.fleet.Report(ctx, request)
	return response, said(err)
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
	response, err := s.fleet.Stand(ctx, request)
	return response, said(err)
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

// said has nothing count as refused but what the server said itself. connect gives
// the same codes for what happens on the way: ResourceExhausted where a proxy that
// sheds load resets a request (ENHANCE_YOUR_CALM), or where an answer is too large,
// InvalidArgument where one cannot be unpacked. Later that may be otherwise.
func said(err error) error {
	if Refuses(err) && !connect.IsWireError(err) {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return err
}

// Refuses tells whether a receiver says that it will never take what it was sent:
// a Server, or one in this process.
func Refuses(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeInvalidArgument || code == connect.CodeResourceExhausted
}
