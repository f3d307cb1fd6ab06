package faults

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// Begin is when the first window of each sender begins: yesterday, which servers
// keep, and long enough ago for a day of windows.
var Begin = time.Now().UTC().Add(-24 * time.Hour).Truncate(time.Hour)

// answerWithin is how long an answer may take: a busy machine is slow, and a server
// that hangs is found all the same.
const answerWithin = time.Minute

// Client asks a server as its operator.
func (s *Server) Client() *http.Client {
	return &http.Client{Timeout: answerWithin, Transport: &auth.Bearer{Token: s.Token, Scheme: "http", Host: s.Address, Next: &http.Transport{MaxIdleConnsPerHost: 4}}}
}

// Sender sends windows of one instance, one a second of its own time.
type Sender struct {
	Instance string
	intake   atysv1connect.IntakeClient
	run      profile.Run
	sent     int

	Acknowledged int   // windows
	N            int64 // their samples
	Refused      int   // answers that were errors
}

// Receiver takes windows: a server, or a relay.
type Receiver interface {
	URL() string
	Client() *http.Client
}

// NewSender makes one for a receiver.
func NewSender(to Receiver, instance string) *Sender {
	return &Sender{Instance: instance, intake: atysv1connect.NewIntakeClient(to.Client(), to.URL(), connect.WithSendGzip()), run: profile.Run{byte(len(instance)), 1}}
}

// Send sends the next window until it is acknowledged; what the server does not
// know it explains.
func (s *Sender) Send(ctx context.Context) error {
	w := s.window(s.sent)
	s.sent++
	for {
		err := s.push(ctx, w)
		if err == nil {
			s.Acknowledged++
			s.N += w.N()
			return nil
		}
		switch connect.CodeOf(err) {
		case connect.CodeUnavailable, connect.CodeInternal, connect.CodeUnknown, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeAborted:
			s.Refused++ // it is away, or cannot write
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// window is the i-th window: the same each time.
func (s *Sender) window(i int) *profile.Window {
	w := storetest.Window(uint64(i), "shop", s.Instance, Begin.Add(time.Duration(i)*time.Second))
	w.Duration = time.Second
	return w
}

// push sends a window without what explains it first, as one does who believes
// that the server knows it.
func (s *Sender) push(ctx context.Context, w *profile.Window) error {
	for _, known := range []bool{true, false} {
		b := wire.NewBatch(func(profile.Hash) bool { return known })
		if err := b.Add(wire.Seal(w, s.run)); err != nil {
			return err
		}
		response, err := s.intake.Push(ctx, b.Request())
		if err != nil || len(response.GetUnknown()) == 0 {
			return err
		}
	}
	return connect.NewError(connect.CodeUnknown, fmt.Errorf("the server does not know what it was told"))
}

// Kept is what a server has of each instance.
type Kept struct {
	Windows int
	N       int64
}

// sent is what senders send.
func sent() *atysv1.Selection {
	return &atysv1.Selection{Select: `{service="shop"}`, Task: "task", Kind: "cpu", FromUnixNano: Begin.UnixNano(), ToUnixNano: Begin.Add(1000 * time.Hour).UnixNano()}
}

// Listed counts windows as they were sent, and how many cannot be read.
func (s *Server) Listed(ctx context.Context) (listed, damaged int, err error) {
	response, err := atysv1connect.NewQueryClient(s.Client(), s.URL()).Windows(ctx, &atysv1.WindowsRequest{Selection: sent()})
	return len(response.GetWindows()), int(response.GetDamaged()), err
}

// Kept asks the server what it has.
func (s *Server) Kept(ctx context.Context) (map[string]Kept, error) {
	asks := atysv1connect.NewQueryClient(s.Client(), s.URL())
	response, err := asks.Split(ctx, &atysv1.SplitRequest{By: "instance", Selection: sent()})
	if err != nil {
		return nil, err
	}
	kept := map[string]Kept{}
	for _, p := range response.GetParts() {
		kept[p.GetBy()] = Kept{int(p.GetWindows()), p.GetN()}
	}
	return kept, nil
}
