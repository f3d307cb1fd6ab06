// Package journal ships what an agent records beside windows, such as its decisions.
//
//	Add -> a spool of their own -> Run -> Push, to the server or a relay -> acknowledged, only then deleted
//
// Records have a spool of their own: a server of an earlier version keeps windows and drops
// records, which then have to wait without holding up windows or taking their room.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// Options configure a Shipper. Clock, Retry and Log are optional.
type Options struct {
	Spool *spool.Spool // for records only
	Push  func(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error)
	Clock func() (offset, uncertain time.Duration) // how far this machine's clock is ahead of the server's
	Retry time.Duration                            // how long to wait if the server keeps no records; 0: 5 minutes
	Log   *slog.Logger
}

// Shipper spools records and ships them. It is safe for concurrent use.
type Shipper struct {
	options Options
	log     *slog.Logger
	news    chan struct{} // something was added
	waiting bool          // the server keeps no records, and the log says so; of Run's goroutine alone

	mu        sync.Mutex // guards all below
	unspooled [][]byte   // what the disk did not take, oldest first
	dropped   int        // records that the log has reported as lost
}

const (
	usualRetry    = 5 * time.Minute
	mostUnspooled = 1 << 20          // bytes in memory while the disk is full
	mostSent      = 4 << 20          // bytes of one request, or one record
	patience      = 30 * time.Second // for an answer
)

// New returns a shipper of what the spool holds and of what is added.
func New(o Options) *Shipper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Retry == 0 {
		o.Retry = usualRetry
	}
	if o.Clock == nil {
		o.Clock = func() (time.Duration, time.Duration) { return 0, profile.ClockUnknown }
	}
	return &Shipper{options: o, log: o.Log, news: make(chan struct{}, 1), dropped: o.Spool.Stats().All()}
}

// Add spools records whose times are by this machine's clock. It never waits for the server.
// If the disk is full, they stay in memory, and the oldest make room for others. A nil Shipper
// does nothing.
func (s *Shipper) Add(all ...profile.Record) {
	if s == nil || len(all) == 0 {
		return
	}
	head := profile.Head{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		r := all[i]
		head.Start, head.Duration = r.Start, r.Duration
		head.ClockOffset, head.ClockError = s.options.Clock()
		wire.SetRight(&head)
		r.Start = head.Start
		err := r.Check()
		var data []byte
		if err == nil {
			data, err = proto.Marshal(wire.SealRecord(&r))
		}
		if err != nil {
			s.log.Error("a record is lost", "error", err)
			s.options.Spool.Lose(spool.Losses{Refused: 1})
			continue
		}
		s.unspooled = append(s.unspooled, data)
	}
	s.spool()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// spool writes what is in memory to disk, if the disk takes it. The lock is held.
func (s *Shipper) spool() {
	if len(s.unspooled) == 0 {
		return
	}
	if _, err := s.options.Spool.Add(s.unspooled); err == nil {
		s.unspooled = nil
	}
	bytes := 0
	for _, data := range s.unspooled {
		bytes += len(data)
	}
	unkept := 0
	for ; bytes > mostUnspooled; unkept++ {
		bytes -= len(s.unspooled[0])
		s.unspooled = s.unspooled[1:]
	}
	s.options.Spool.Lose(spool.Losses{Unkept: unkept})
	if lost := s.options.Spool.Stats().All(); lost > s.dropped {
		s.log.Warn("records are lost: the server did not take them, and there is no more room", "records", lost-s.dropped)
		s.dropped = lost
	}
}

// Run ships records until the context ends. What is left waits in the spool. A nil Shipper
// does nothing.
func (s *Shipper) Run(ctx context.Context) {
	if s == nil {
		return
	}
	failures := 0
	for {
		more, err := s.shipOne(ctx)
		pause := time.Hour
		switch {
		case ctx.Err() != nil:
			s.mu.Lock()
			s.spool()
			s.options.Spool.Lose(spool.Losses{Unkept: len(s.unspooled)})
			s.unspooled = nil
			s.mu.Unlock()
			return
		case errors.Is(err, errUnkept):
			if !s.waiting {
				s.log.Warn("the server, or the relay before it, is of a version that keeps no records: they wait in the spool, and the oldest are dropped once it is full")
			}
			s.waiting, failures, pause = true, 0, s.options.Retry
		case err != nil:
			failures++
			s.log.Warn("ship records", "failures", failures, "error", err)
			pause = remote.Backoff(failures)
		default:
			if failures = 0; more && s.waiting {
				s.log.Info("the server keeps records again")
				s.waiting = false
			}
			if more {
				continue
			}
		}
		s.pause(ctx, pause, err == nil)
	}
}

// pause waits, or until something is added if nothing else is to be waited for.
func (s *Shipper) pause(ctx context.Context, d time.Duration, news bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	added := s.news
	if !news {
		added = nil
	}
	select {
	case <-timer.C:
	case <-added:
	case <-ctx.Done():
	}
}

// errUnkept means that the receiver keeps no records.
var errUnkept = errors.New("the server keeps no records")

// shipOne ships the oldest records, and reports whether there may be more.
func (s *Shipper) shipOne(ctx context.Context) (more bool, err error) {
	oldest := s.options.Spool.Oldest(1)
	if len(oldest) == 0 {
		return s.shipUnspooled(ctx)
	}
	entries, err := s.options.Spool.Read(oldest[0])
	if damaged := (*spool.DamagedError)(nil); errors.As(err, &damaged) {
		s.log.Error("records are lost", "error", err)
	} else if err != nil {
		return false, err
	}
	lost, refused, err := s.ship(ctx, entries)
	if err != nil { // those that were kept are sent again, and stored once
		s.options.Spool.Release(nil, spool.Losses{})
		return false, err
	}
	if err := s.options.Spool.DoneBut(oldest[0], lost, refused); err != nil {
		s.log.Error("delete records that were shipped", "error", err)
	}
	return true, nil
}

// shipUnspooled ships what the disk did not take.
func (s *Shipper) shipUnspooled(ctx context.Context) (more bool, err error) {
	s.mu.Lock()
	s.spool()
	entries := s.unspooled
	s.mu.Unlock()
	if len(entries) == 0 {
		return len(s.options.Spool.Oldest(1)) > 0, nil
	}
	lost, _, err := s.ship(ctx, entries)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(entries); len(s.unspooled) >= n && &s.unspooled[0][0] == &entries[0][0] { // else some were spooled or dropped meanwhile
		s.unspooled = s.unspooled[n:]
	}
	s.options.Spool.Lose(lost)
	return len(s.unspooled) > 0, nil
}

// ship sends records until each of them was kept or refused for good.
func (s *Shipper) ship(ctx context.Context, entries [][]byte) (lost spool.Losses, refused [][]byte, err error) {
	var all []*atysv1.Spooled
	var of [][]byte
	for _, data := range entries {
		one := &atysv1.Spooled{}
		if err := proto.Unmarshal(data, one); err != nil || one.GetRecord() == nil {
			s.log.Error("a record is lost", "error", fmt.Errorf("the spool has something else: %w", err))
			lost.Damaged, refused = lost.Damaged+1, append(refused, data)
			continue
		}
		all, of = append(all, one), append(of, data)
	}
	for len(all) > 0 {
		n, bytes := 1, len(of[0])
		for ; n < len(all) && bytes+len(of[n]) <= mostSent; n++ {
			bytes += len(of[n])
		}
		why, err := s.send(ctx, all[:n])
		if err != nil {
			return lost, refused, err
		}
		for i := range n {
			if reason, is := why[i]; is {
				s.log.Error("a record is lost: it was refused", "kind", all[i].GetRecord().GetKind(), "start", time.Unix(0, all[i].GetRecord().GetStartUnixNano()).UTC(), "why", reason)
				lost.Refused, refused = lost.Refused+1, append(refused, of[i])
			}
		}
		all, of = all[n:], of[n:]
	}
	return lost, refused, nil
}

// send sends records in one request and returns which of them are refused for good. If they
// are refused together, it sends each half of them.
func (s *Shipper) send(ctx context.Context, all []*atysv1.Spooled) (refused map[int]string, err error) {
	b := wire.NewBatch(nil)
	for _, one := range all {
		b.AddRecord(one.GetRecord(), one.GetSeries())
	}
	request := b.Request()
	request.Partly = true
	within, cancel := context.WithTimeout(ctx, patience)
	response, err := s.options.Push(within, request)
	cancel()
	switch {
	case err == nil:
		refused, kept := wire.RefusedRecords(response, len(all))
		if !kept {
			return nil, errUnkept
		}
		return refused, nil
	case !remote.Refuses(err):
		return nil, err
	case len(all) == 1:
		return map[int]string{0: err.Error()}, nil
	}
	half := len(all) / 2
	if refused, err = s.send(ctx, all[:half]); err != nil {
		return nil, err
	}
	rest, err := s.send(ctx, all[half:])
	for i, why := range rest {
		refused[half+i] = why
	}
	return refused, err
}
