package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

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
	dated   chan struct{}        // the clocks have been compared for the first time

	// Of run's goroutine alone: what the receiver is thought to know, what of that
	// it knows from us, and how far the bundle has come that is shipped.
	known, explained *wire.Known
	guess            wire.Guess
	progress         progress

	mu        sync.Mutex // guards all below
	compared  comparison
	unspooled []load // what the disk did not take, oldest first
	shedding  bool   // forget what can be explained again
	within    time.Duration
	counts    Counts
}

// Counts are of windows since the agent began, but for losses: those are of all
// its lives.
type Counts struct {
	Shipped  int
	Failures int // attempts in a row that failed; 0 while all is well
	spool.Losses
}

// load is what was cut at one time, to be shipped. Spooled or not, its ID is that
// of its place among the others.
type load struct {
	id      spool.ID
	records [][]byte // nil: they are on disk
}

// progress is how far a load has come, over all attempts.
type progress struct {
	id      spool.ID
	records int
	settled map[int]bool // records of which it is known whether they were taken, or never will be; nil: nothing was tried
	lost    spool.Losses // of the latter
	refused [][]byte     // and these are they
}

// Bounds of what is kept in memory: windows while the disk takes none, and
// stacks that the receiver is thought to know. An agent's whole budget may be 150 MB,
// and a window 100 kB.
const (
	mostUnspooled      = 1000
	mostUnspooledBytes = 16 << 20
	mostKnown          = 100_000
)

func (l load) bytes() (sum int) {
	for _, r := range l.records {
		sum += len(r)
	}
	return sum
}

func newShipper(o Options) *shipper {
	return &shipper{options: o, log: o.Log, known: wire.NewKnown(mostKnown), explained: wire.NewKnown(mostKnown), route: newRoute(o), news: make(chan struct{}, 1), ending: make(chan struct{}), elapsed: wire.SinceBoot, dated: make(chan struct{}, 1), within: o.Jitter}
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

// direct ships records that are on no disk, in their turn. The oldest make room
// for it, but for what was cut last and what may be under way.
func (s *shipper) direct(id spool.ID, records [][]byte) {
	s.mu.Lock()
	s.unspooled = append(s.unspooled, load{id, records})
	all, bytes, unkept := 0, 0, 0
	for _, l := range s.unspooled {
		all, bytes = all+len(l.records), bytes+l.bytes()
	}
	for (all-unkept > mostUnspooled || bytes > mostUnspooledBytes) && len(s.unspooled) > 2 {
		unkept += len(s.unspooled[1].records)
		bytes -= s.unspooled[1].bytes()
		s.unspooled = slices.Delete(s.unspooled, 1, 2)
	}
	s.mu.Unlock()
	s.options.Spool.Lose(spool.Losses{Unkept: unkept})
	s.wake()
}

// inMemory counts the windows that the disk did not take and that are not shipped yet.
func (s *shipper) inMemory() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.unspooled {
		n += len(l.records)
	}
	return n
}

// leave has the disk take what is left in memory once run has ended: it may have room
// again. What it does not take is counted.
func (s *shipper) leave() {
	s.mu.Lock()
	left := s.unspooled
	s.unspooled = nil
	s.mu.Unlock()
	var lost spool.Losses
	for _, l := range left {
		waiting := l.records
		if s.progress.of(l) {
			waiting = s.progress.rest(l)
			lost.Add(s.progress.lost)
		}
		if len(waiting) == 0 {
			continue
		}
		if _, err := s.options.Spool.Add(waiting); err != nil {
			s.log.Error("windows are lost: neither the disk nor the server takes them", "windows", len(waiting), "error", err)
			lost.Unkept += len(waiting)
		}
	}
	s.options.Spool.Lose(lost)
}

// of tells whether it is a load's.
func (p *progress) of(l load) bool {
	return p.settled != nil && p.id == l.id && p.records == len(l.records)
}

// rest are the records of a load that may still be taken.
func (p *progress) rest(l load) (records [][]byte) {
	for i, r := range l.records {
		if _, settled := p.settled[i]; !settled {
			records = append(records, r)
		}
	}
	return records
}

// taken are the records of a load that were.
func (p *progress) taken(l load) (records [][]byte) {
	for i, r := range l.records {
		if p.settled[i] {
			records = append(records, r)
		}
	}
	return records
}

// shed has what is kept in memory of the receiver forgotten. It is explained
// again, no more.
func (s *shipper) shed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shedding = true
}

// took tells whether all that was cut up to one time has been taken.
func (s *shipper) took(last spool.ID) bool {
	oldest, waits := s.oldest()
	return !waits || oldest.id > last
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
	return s.waitTurn(ctx)
}

// mostJitter is what windows that last for long are shipped within: a window that
// has not come half a minute after its end counts as missing (query/watched.go).
const mostJitter = 20 * time.Second

// spread says how long the shortest window is that is cut now, 0 if none is. It is
// shipped within half of that, so that a thousand agents, who all cut at once, do
// not all ship at once, and have shipped when they cut again.
func (s *shipper) spread(shortest time.Duration) {
	if s.options.Jitter == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.within = s.options.Jitter
	if shortest > 0 {
		s.within = min(shortest/2, mostJitter)
	}
}

func (s *shipper) spreads() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within
}

// waitTurn waits for a random time within that, and tells whether run goes on. What
// comes meanwhile may be of shorter windows: it does not wait longer than those may.
func (s *shipper) waitTurn(ctx context.Context) bool {
	within := s.spreads()
	if within == 0 {
		return true
	}
	turn := time.Now().Add(rand.N(within))
	timer := time.NewTimer(time.Until(turn))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-s.news:
			turn = earlier(turn, time.Now().Add(s.spreads()))
			timer.Reset(time.Until(turn))
		case <-s.ending:
			s.drainLast(ctx)
			return false
		case <-ctx.Done():
			return false
		}
	}
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

// shipOne ships the oldest of what waits, and tells whether there may be more.
func (s *shipper) shipOne(ctx context.Context) (more bool, err error) {
	s.mu.Lock()
	shedding := s.shedding
	s.shedding = false
	s.mu.Unlock()
	if shedding {
		s.known, s.explained = wire.NewKnown(mostKnown), wire.NewKnown(mostKnown)
	}
	l, ok := s.oldest()
	if !ok {
		return false, nil
	}
	if l.records == nil {
		return true, s.shipBundle(ctx, l.id)
	}
	if err := s.ship(ctx, l); err != nil {
		return true, err
	}
	s.mu.Lock()
	s.unspooled = s.unspooled[1:] // direct leaves the first where it is
	s.mu.Unlock()
	s.options.Spool.Lose(s.progress.lost)
	return true, nil
}

// oldest is what is to be shipped next.
func (s *shipper) oldest() (l load, ok bool) {
	s.mu.Lock()
	unspooled := s.unspooled
	s.mu.Unlock() // the spool may wait for its disk
	spooled := s.options.Spool.Oldest(1)
	switch {
	case len(unspooled) > 0 && (len(spooled) == 0 || unspooled[0].id < spooled[0]):
		return unspooled[0], true
	case len(spooled) > 0:
		return load{id: spooled[0]}, true
	}
	return load{}, false
}

// shipBundle ships what lies on disk. What cannot be read, or not be removed, is
// told, and holds up nothing.
func (s *shipper) shipBundle(ctx context.Context, id spool.ID) error {
	waiting := s.options.Spool
	records, err := waiting.Read(id)
	if damaged := (*spool.DamagedError)(nil); errors.As(err, &damaged) {
		s.log.Error("windows are lost", "error", err)
	} else if err != nil {
		return err
	}
	l := load{id, records}
	if err := s.ship(ctx, l); err != nil {
		waiting.Release(s.progress.taken(l), s.progress.lost)
		return err
	}
	if err := waiting.DoneBut(id, s.progress.lost, s.progress.refused); err != nil {
		s.log.Error("forget what was shipped", "error", err)
	}
	return nil
}

// ship pushes records until they are taken. One that is wrong must not hold up the
// others for ever: it is found, and left out. What was taken, or refused, is left out
// of later attempts.
func (s *shipper) ship(ctx context.Context, l load) error {
	p := &s.progress
	if !p.of(l) {
		*p = progress{id: l.id, records: len(l.records), settled: map[int]bool{}}
	}
	var windows []*atysv1.Spooled
	var of []int // their records
	for i, r := range l.records {
		w := &atysv1.Spooled{}
		if _, settled := p.settled[i]; settled {
			continue
		} else if err := proto.Unmarshal(r, w); err != nil {
			s.lose(i, r, spool.Losses{Damaged: 1}, err)
			continue
		}
		windows, of = append(windows, w), append(of, i)
	}
	return s.shipHalves(ctx, l, windows, of)
}

// shipHalves pushes windows, and, where a receiver refuses them together and does not
// say which of them (older ones do not), each half of them. So one that is refused
// takes two pushes for each time that its bundle can be halved: a relay may have each
// of them wait for seconds, and the next bundle comes soon.
func (s *shipper) shipHalves(ctx context.Context, l load, windows []*atysv1.Spooled, of []int) error {
	refused, err := s.push(ctx, windows)
	switch {
	case err == nil:
		for i, record := range of {
			if why, is := refused[i]; is {
				s.lose(record, l.records[record], spool.Losses{Refused: 1}, fmt.Errorf("%w: %s", errRefused, why))
			} else {
				s.settle(record)
			}
		}
		return nil
	case !errors.Is(err, errRefused):
		return err
	case len(windows) == 1:
		s.lose(of[0], l.records[of[0]], spool.Losses{Refused: 1}, err)
		return nil
	}
	half := len(windows) / 2
	if err := s.shipHalves(ctx, l, windows[:half], of[:half]); err != nil {
		return err
	}
	return s.shipHalves(ctx, l, windows[half:], of[half:])
}

// settle notes that a record was taken.
func (s *shipper) settle(i int) {
	s.progress.settled[i] = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Shipped++
}

// lose notes that a record never will be. It is counted once it is settled what
// becomes of all of its load: not before, or each attempt would count it.
func (s *shipper) lose(i int, record []byte, l spool.Losses, err error) {
	s.log.Error("a window was refused", "error", err)
	p := &s.progress
	p.settled[i] = false
	p.lost.Add(l)
	p.refused = append(p.refused, record)
}

// push sends windows, a second time with what the receiver did not know, and tells
// which of them it refuses, and why.
func (s *shipper) push(ctx context.Context, windows []*atysv1.Spooled) (refused map[int]string, err error) {
	if len(windows) == 0 {
		return nil, nil
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
		return nil, err
	}
	a, err := s.send(ctx, b.Request())
	if err != nil {
		return nil, err
	}
	if manner != wire.ExplainNothing {
		s.explained.Add(doubtful)
	} else if len(doubtful) > 0 {
		s.guess.Learn(len(a.unknown), len(doubtful))
	}
	if len(a.unknown) > 0 {
		if b, a, err = s.explain(ctx, windows, a.unknown); err != nil {
			return nil, err
		}
	}
	s.known.Add(b.Hashes())
	return a.refused, nil
}

// explain sends windows with what the receiver has said that it does not know. It
// may be another one that hears it, who knows less: then all of it is explained.
// What is not understood then never will be.
func (s *shipper) explain(ctx context.Context, windows []*atysv1.Spooled, unknown []profile.Hash) (*wire.Batch, answer, error) {
	for _, all := range []bool{false, true} {
		s.known.Forget(unknown)
		missing := make(map[profile.Hash]bool, len(unknown))
		for _, h := range unknown {
			missing[h] = true
		}
		b, err := batch(windows, func(h profile.Hash) bool { return !all && !missing[h] })
		if err != nil {
			return nil, answer{}, err
		}
		s.explained.Add(unknown)
		request := b.Request()
		request.IfUnknown = !all // others of the service may have been as quick
		a, err := s.send(ctx, request)
		if err != nil || len(a.unknown) == 0 {
			return b, a, err
		}
		unknown = a.unknown
	}
	s.known.Forget(unknown)
	return nil, answer{}, fmt.Errorf("%w: the receiver does not know stacks that were just explained to it", errRefused)
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

// answer is what a receiver says of a request: it wants to know stacks, or has kept
// all windows but those that it refuses.
type answer struct {
	unknown []profile.Hash
	refused map[int]string // windows of the request, and why
}

// send pushes one request, and reads the receiver's clock on the way.
func (s *shipper) send(ctx context.Context, request *atysv1.PushRequest) (answer, error) {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := s.route.intake()
	sent := s.now()
	request.Partly = true
	response, err := to.Push(ctx, request)
	if err != nil {
		refused := remote.Refuses(err)
		s.route.note(to, refused)
		if refused {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return answer{}, err
	}
	s.route.note(to, true)
	s.compare(sent, response)
	a := answer{refused: map[int]string{}}
	for _, r := range response.GetRefused() {
		if int64(r.GetWindow()) < int64(len(request.GetWindows())) { // else it makes no sense
			a.refused[int(r.GetWindow())] = r.GetWhy()
		}
	}
	a.unknown, err = wire.Hashes(response.GetUnknown())
	return a, err
}

// pushRecords sends a request that has records only.
func (s *shipper) pushRecords(ctx context.Context, request *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	return s.route.intake().Push(ctx, request)
}

// Counts tells what became of windows.
func (a *Agent) Counts() Counts {
	a.shipper.mu.Lock()
	counts := a.shipper.counts
	a.shipper.mu.Unlock()
	counts.Losses = a.options.Spool.Stats().Losses
	return counts
}
