// Package relay stands between the agents of a place and the server, and passes on what they ship under one table of stacks.
//
//	an agent's Push (relay.go) -> checked -> waits for others (gather.go)
//	   -> a batch -> the server's Push (forward.go) -> durable there, only then acknowledged to each
//	what else agents ask a server -> the server (fleet.go)
//	Offer (offer.go) -> the server has agents of its group ship here, or no longer
//
// A relay keeps nothing that is not also in an agent's spool: one that is killed
// loses no window. Relays may stand behind each other.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Options say what a relay stands between. Gather, Keep, Held, Now and
// Log may be left out.
type Options struct {
	Offer    *atysv1.OfferRequest // what it is called, and where agents find it
	Upstream Upstream
	Gather   time.Duration // how long windows wait for others; 0: 200 ms, or 6 s where they are added up
	Keep     []string      // labels that are left of windows, which are added up; none: they are not
	Held     int           // bytes of windows that may be held at once; 0: 256 MB
	Now      func() time.Time
	Log      *slog.Logger
}

// Upstream is the server, or another relay.
type Upstream interface {
	Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error)
	AttendTo(ctx context.Context, r *atysv1.AttendRequest, order func(*atysv1.Orders) error) error
	Report(ctx context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error)
	OfferTo(ctx context.Context, r *atysv1.OfferRequest, stand func(*atysv1.Standing) error) error
	Stand(ctx context.Context, r *atysv1.StandRequest) (*atysv1.StandResponse, error)
}

// Relay passes windows on while Run runs.
type Relay struct {
	options Options
	log     *slog.Logger
	pushes  chan *push
	running chan struct{} // closed when Run ends
	metrics *metrics
	elapsed func() time.Duration // since boot

	mu       sync.Mutex // guards all below
	known    *wire.Known
	held     int
	standing *atysv1.Standing // nil: the server has not told
	compared comparison
	divided  bool      // the server takes sums of several types, as far as it has told
	warned   time.Time // when malformed records were last logged
}

// mostKnown is how many stacks the server is remembered to know: those of a few
// hundred services.
const mostKnown = 1_000_000

// New prepares a relay.
func New(o Options) *Relay {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Gather == 0 {
		o.Gather = shortGather
		if len(o.Keep) > 0 {
			o.Gather = longGather
		}
	}
	if o.Held == 0 {
		o.Held = 256 << 20
	}
	return &Relay{options: o, log: o.Log, pushes: make(chan *push), running: make(chan struct{}), metrics: newMetrics(), elapsed: wire.SinceBoot,
		known: wire.NewKnown(mostKnown), compared: comparison{uncertain: profile.ClockUnknown}}
}

// Run offers the relay and passes windows on until the context ends. What is
// held then is not acknowledged: agents ship it again, elsewhere.
func (r *Relay) Run(ctx context.Context) {
	defer close(r.running)
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { r.offer(ctx) })
	r.gather(ctx)
}

// push is a request that waits to be passed on.
type push struct {
	request *atysv1.PushRequest
	hashes  []profile.Hash
	forest  *profile.Forest // what it explains itself, if anybody needs to know
	bytes   int
	wrong   map[int]error // its records that are malformed: they are not passed on
	done    chan outcome
}

// outcome is how it ended: nothing of all this is well.
type outcome struct {
	unknown  []profile.Hash
	overlaps []*atysv1.Overlap
	refused  []*atysv1.Refused // the others were kept
	records  records           // what became of its records
	err      error
}

// Push passes windows on, and answers once the server has; see the service Intake.
func (r *Relay) Push(ctx context.Context, m *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	received := r.now()
	var o outcome
	p, err := r.accept(ctx, m)
	turnOver(ctx)
	if err == nil {
		o = r.wait(ctx, p)
		err = o.err
		r.release(p)
	}
	if len(o.refused) > 0 && !m.GetPartly() { // an older agent or relay: what was kept comes again, and overwrites itself
		err = connect.NewError(connect.CodeInvalidArgument, errors.New(o.refused[0].GetWhy()))
	}
	r.metrics.pushed(len(m.GetWindows())-len(o.refused), len(o.unknown)+len(o.overlaps) > 0, err)
	if err != nil {
		return nil, err
	}
	r.noteMalformed(p, &o.records)
	r.mu.Lock()
	c, divided := r.compared, r.divided
	r.mu.Unlock()
	return &atysv1.PushResponse{TakesDivided: divided, Unknown: wire.Table(o.unknown), Overlaps: o.overlaps, Refused: o.refused, KeptRecords: o.records.kept, RefusedRecords: o.records.refused, ClockErrorNs: int64(c.uncertain),
		ReceivedUnixNano: c.byServer(received), AnsweredUnixNano: c.byServer(r.now())}, nil
}

// accept checks a request and who makes it: what is wrong is refused here, so
// that the server never refuses others for it. Malformed records do not hold up the others.
func (r *Relay) accept(ctx context.Context, m *atysv1.PushRequest) (*push, error) {
	if err := r.mayPass(ctx); err != nil {
		return nil, err
	}
	p := &push{request: m, bytes: proto.Size(m), done: make(chan outcome, 1)}
	var err error
	if p.hashes, err = wire.CheckPush(m); err == nil {
		_, p.wrong, err = wire.Records(m)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if p.forest = new(profile.Forest); !m.GetIfUnknown() || !r.knows(p.hashes) {
		if p.forest, err = wire.Learn(m.GetDictionary()); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held > 0 && r.held+p.bytes > r.options.Held {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("this relay holds as many windows as it may: send again later"))
	}
	r.held += p.bytes
	return p, nil
}

// knows tells whether the server is thought to know stacks.
func (r *Relay) knows(stacks []profile.Hash) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(stacks, func(h profile.Hash) bool { return !r.known.Has(h) })
}

func (r *Relay) release(p *push) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= p.bytes
}

// mayPass tells whether who asks is of the tenant that the relay itself is of.
func (r *Relay) mayPass(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing == nil {
		return connect.NewError(connect.CodeUnavailable, errors.New("this relay has not reached its server yet: send again later"))
	}
	if who, ok := auth.From(ctx); ok && who.Tenant != r.standing.GetTenant() && who.Tenant != ItsOwn {
		return connect.NewError(connect.CodePermissionDenied, errors.New("this relay passes on windows of its own tenant alone"))
	}
	return nil
}

// wait hands a request over and waits until it is passed on. Who stops waiting
// does not know whether it will be.
func (r *Relay) wait(ctx context.Context, p *push) outcome {
	select {
	case r.pushes <- p:
	case <-r.running:
		return outcome{err: errEnding}
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
	select {
	case o := <-p.done:
		return o
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
}

var errEnding = connect.NewError(connect.CodeUnavailable, errors.New("this relay ends: send to the server"))
