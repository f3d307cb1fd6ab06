package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// shipper empties the spool, oldest first, one bundle at a time.
type shipper struct {
	options Options
	log     *slog.Logger
	route   *route
	news    chan struct{}        // something was spooled
	ending  chan struct{}        // nothing will be any more
	elapsed func() time.Duration // since boot

	// Of run's goroutine alone: what the receiver is thought to know, and what of
	// that it knows from us.
	known, explained *wire.Known
	guess            wire.Guess

	mu        sync.Mutex // guards all below
	compared  comparison
	unspooled [][]byte // what the disk did not take
	shedding  bool     // forget what can be explained again
	counts    Counts
}

// Counts are of windows since the agent began.
type Counts struct {
	Shipped  int
	Refused  int // for good, by the receiver
	Unkept   int // neither the disk nor the receiver took them
	Failures int // attempts in a row that failed; 0 while all is well
}

// Bounds of what is kept in memory: windows while the disk takes none, and
// stacks that the receiver is thought to know.
const (
	mostUnspooled = 1000
	mostKnown     = 100_000
)

func newShipper(o Options) *shipper {
	return &shipper{options: o, log: o.Log, known: wire.NewKnown(mostKnown), explained: wire.NewKnown(mostKnown), route: newRoute(o), news: make(chan struct{}, 1), ending: make(chan struct{}), elapsed: sinceBoot}
}

// wake says that something was spooled.
func (s *shipper) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// finish ends run once the spool is empty or a push has failed.
func (s *shipper) finish() { close(s.ending) }

// direct ships records that are on no disk. They are tried with the next push.
func (s *shipper) direct(records [][]byte) {
	s.mu.Lock()
	s.unspooled = append(s.unspooled, records...)
	if over := len(s.unspooled) - mostUnspooled; over > 0 {
		s.counts.Unkept += over
		s.unspooled = s.unspooled[over:]
	}
	s.mu.Unlock()
	s.wake()
}

// shed has what is kept in memory of the receiver forgotten. It is explained
// again, no more.
func (s *shipper) shed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shedding = true
}

// took tells whether all bundles up to one have been taken.
func (s *shipper) took(last spool.ID) bool {
	s.mu.Lock()
	unspooled := len(s.unspooled)
	s.mu.Unlock()
	oldest := s.options.Spool.Oldest(1)
	return unspooled == 0 && (len(oldest) == 0 || oldest[0] > last)
}

// run ships until the context ends, or until all is shipped after finish.
func (s *shipper) run(ctx context.Context) {
	failures := 0
	for {
		more, err := s.shipOne(ctx)
		switch {
		case err != nil:
			failures++
			s.log.Warn("ship windows", "failures", failures, "error", err)
		default:
			failures = 0
		}
		s.mu.Lock()
		s.counts.Failures = failures
		s.mu.Unlock()
		if more && err == nil && ctx.Err() == nil {
			continue
		}
		if !s.pause(ctx, failures) {
			return
		}
	}
}

// pause waits for what is to be shipped next, and tells whether there may be any.
func (s *shipper) pause(ctx context.Context, failures int) bool {
	if failures > 0 {
		return s.sleep(ctx, remote.Backoff(failures))
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.ending:
		s.drainLast(ctx)
		return false
	case <-s.news:
	}
	if s.options.Jitter > 0 {
		s.sleep(ctx, time.Duration(rand.Int64N(int64(s.options.Jitter))))
	}
	return ctx.Err() == nil
}

// sleep waits, and tells whether run goes on.
func (s *shipper) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ending:
		s.drainLast(ctx)
		return false
	case <-ctx.Done():
		return false
	}
}

// drainLast ships what is left, until it is all or a push fails.
func (s *shipper) drainLast(ctx context.Context) {
	for ctx.Err() == nil {
		if more, err := s.shipOne(ctx); !more || err != nil {
			return
		}
	}
}

// shipOne ships what is on no disk, else the oldest bundle, and tells whether
// there may be more.
func (s *shipper) shipOne(ctx context.Context) (more bool, err error) {
	s.mu.Lock()
	records, shedding := s.unspooled, s.shedding
	s.unspooled, s.shedding = nil, false
	s.mu.Unlock()
	if shedding {
		s.known, s.explained = wire.NewKnown(mostKnown), wire.NewKnown(mostKnown)
	}
	if len(records) > 0 {
		if err := s.ship(ctx, records); err != nil {
			s.direct(records)
			return true, err
		}
		return true, nil
	}
	oldest := s.options.Spool.Oldest(1)
	if len(oldest) == 0 {
		return false, nil
	}
	return true, s.shipBundle(ctx, oldest[0])
}

func (s *shipper) shipBundle(ctx context.Context, id spool.ID) error {
	records, err := s.options.Spool.Read(id)
	if err != nil {
		return err
	}
	if err := s.ship(ctx, records); err != nil {
		return err
	}
	return s.options.Spool.Done(id)
}

// ship pushes records until they are taken. If they are refused together, each
// is tried alone: one that is wrong must not hold up the others for ever.
func (s *shipper) ship(ctx context.Context, records [][]byte) error {
	windows := make([]*atysv1.Spooled, 0, len(records))
	for _, r := range records {
		w := &atysv1.Spooled{}
		if err := proto.Unmarshal(r, w); err != nil {
			s.refuse(err)
			continue
		}
		windows = append(windows, w)
	}
	err := s.push(ctx, windows)
	if !errors.Is(err, errRefused) {
		return err
	}
	for _, w := range windows {
		if err := s.push(ctx, []*atysv1.Spooled{w}); errors.Is(err, errRefused) {
			s.refuse(err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *shipper) refuse(err error) {
	s.log.Error("a window was refused", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Refused++
}

// push sends windows, a second time with what the receiver did not know.
func (s *shipper) push(ctx context.Context, windows []*atysv1.Spooled) error {
	if len(windows) == 0 {
		return nil
	}
	var doubtful []profile.Hash
	manner, known := s.guess.Next(), s.known
	if manner == wire.ExplainAll {
		known = s.explained
	}
	b, err := batch(windows, func(h profile.Hash) bool {
		if known.Has(h) {
			return true
		}
		doubtful = append(doubtful, h)
		return manner == wire.ExplainNothing
	})
	if err != nil {
		return err
	}
	unknown, err := s.send(ctx, b.Request())
	if err != nil {
		return err
	}
	if manner != wire.ExplainNothing {
		s.explained.Add(doubtful)
	} else if len(doubtful) > 0 {
		s.guess.Learn(len(unknown), len(doubtful))
	}
	if len(unknown) > 0 {
		if b, err = s.explain(ctx, windows, unknown); err != nil {
			return err
		}
	}
	s.known.Add(b.Hashes())
	s.mu.Lock()
	s.counts.Shipped += len(windows)
	s.mu.Unlock()
	return nil
}

// explain sends windows with what the receiver has said that it does not know.
func (s *shipper) explain(ctx context.Context, windows []*atysv1.Spooled, unknown []profile.Hash) (*wire.Batch, error) {
	s.known.Forget(unknown)
	missing := make(map[profile.Hash]bool, len(unknown))
	for _, h := range unknown {
		missing[h] = true
	}
	b, err := batch(windows, func(h profile.Hash) bool { return !missing[h] })
	if err != nil {
		return nil, err
	}
	s.explained.Add(unknown)
	request := b.Request()
	request.IfUnknown = true // others of the service may have been as quick
	unknown, err = s.send(ctx, request)
	if err == nil && len(unknown) > 0 {
		s.known.Forget(unknown)
		err = errors.New("the receiver does not know stacks that were just explained to it")
	}
	return b, err
}

// batch puts windows into one request, which explains what is not known.
func batch(windows []*atysv1.Spooled, known func(profile.Hash) bool) (*wire.Batch, error) {
	b := wire.NewBatch(known)
	for _, w := range windows {
		if err := b.Add(w); err != nil {
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
	}
	return b, nil
}

// send pushes one request, and reads the receiver's clock on the way.
func (s *shipper) send(ctx context.Context, request *atysv1.PushRequest) ([]profile.Hash, error) {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := s.route.intake()
	sent := s.options.Now()
	response, err := to.Push(ctx, request)
	if err != nil {
		code := connect.CodeOf(err)
		refused := code == connect.CodeInvalidArgument || code == connect.CodeResourceExhausted
		s.route.note(to, refused)
		if refused {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil, err
	}
	s.route.note(to, true)
	s.compare(sent, response)
	return wire.Hashes(response.GetUnknown())
}

// Counts tells what became of windows.
func (a *Agent) Counts() Counts {
	a.shipper.mu.Lock()
	defer a.shipper.mu.Unlock()
	return a.shipper.counts
}
