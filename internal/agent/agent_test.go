package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// machine cuts random windows, one task's each, and remembers them.
type machine struct {
	mu   sync.Mutex
	r    *rand.Rand
	cuts map[int64]int64 // samples, by start
	next int64
	full float64
}

func (m *machine) Cut(sampler.Edge) ([]*profile.Window, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := profiletest.Random(m.r)
	m.next++
	w.Start = time.Unix(0, m.next)
	m.cuts[m.next] = w.N()
	return []*profile.Window{w}, nil
}

// windows is how many it has cut.
func (m *machine) windows() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

func (m *machine) Full() float64 { return m.full }

func (m *machine) SetFrequency(float64) error { return nil }

func (m *machine) SetRates(map[int]float64) error { return nil }

func (m *machine) Spent() (bpf, interrupts time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.next) * time.Millisecond, time.Duration(m.next) * time.Microsecond, nil
}

func (m *machine) Close() error { return nil }

// server takes what it is sent, as long as it likes.
type server struct {
	mu     sync.Mutex
	r      *rand.Rand
	stacks map[profile.Hash]bool
	taken  map[string]int64 // samples, by start and target
	losses map[string][]*atysv1.Loss
	moody  bool // fails, forgets, and takes without saying so
	away   bool
	// windows of which nobody knows when they were, each time they come
	unknown int
	refuse  int64   // this window is wrong for good
	ends    []int64 // starts of those that said farewell
}

func (s *server) Push(_ context.Context, request *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || s.moody && s.r.IntN(4) == 0 {
		clear(s.stacks)
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
	}
	forest, err := wire.Learn(request.GetDictionary())
	if err != nil {
		return nil, err
	}
	for _, c := range forest.Calls {
		s.stacks[c.Hash] = true
	}
	hashes, err := wire.Hashes(request.GetStacks())
	if err != nil {
		return nil, err
	}
	response := &atysv1.PushResponse{ReceivedUnixNano: time.Now().UnixNano(), AnsweredUnixNano: time.Now().UnixNano()}
	var unknown []profile.Hash
	for _, h := range hashes {
		if !s.stacks[h] {
			unknown = append(unknown, h)
		}
	}
	if response.Unknown = wire.Table(unknown); len(unknown) > 0 {
		return response, nil
	}
	for _, w := range request.GetWindows() {
		if w.GetStartUnixNano() == s.refuse {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("I will never take this"))
		}
	}
	for _, w := range request.GetWindows() {
		if w.GetClockErrorNs() == int64(profile.ClockUnknown) {
			s.unknown++
		}
		n := int64(0)
		for _, count := range w.GetRows().GetN() {
			n += count
		}
		if h, _, err := wire.Head(w); err == nil && h.Farewell {
			s.ends = append(s.ends, w.GetStartUnixNano())
		}
		key := fmt.Sprint(w.GetStartUnixNano(), request.GetSeries()[w.GetSeries()].GetLabels())
		s.taken[key], s.losses[key] = n, w.GetLosses()
	}
	if s.moody && s.r.IntN(4) == 0 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the answer is lost"))
	}
	return response, nil
}

func (s *server) samples() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.taken {
		sum += n
	}
	return sum
}

type bench struct {
	machine *machine
	server  *server
	spool   *spool.Spool
	dir     string
}

func newBench(t *testing.T, seed uint64) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir(),
		machine: &machine{r: rand.New(rand.NewPCG(seed, 1)), cuts: map[int64]int64{}},
		server:  &server{r: rand.New(rand.NewPCG(seed, 2)), stacks: map[profile.Hash]bool{}, taken: map[string]int64{}, losses: map[string][]*atysv1.Loss{}},
	}
	b.open(t)
	return b
}

func (b *bench) open(t *testing.T) {
	t.Helper()
	var err error
	if b.spool, err = spool.Open(b.dir, 1<<20); err != nil {
		t.Fatal(err)
	}
}

// live runs an agent for a while, and until it has cut some windows: on a busy machine
// that takes longer.
func (b *bench) live(t *testing.T, d time.Duration) *Agent {
	t.Helper()
	builtin := spec.Builtin()
	builtin.Window = 3 * time.Millisecond
	a, err := New(Options{Node: "n", Builtin: builtin, Spool: b.spool, Intake: b.server,
		Record: func(Wanted) (sampler.Sampler, error) { return b.machine, nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over, before := time.Now().Add(d), b.machine.windows()
	var ended sync.WaitGroup
	ended.Go(func() {
		defer cancel()
		for patience := testwait.Longest(t); time.Now().Before(over) || b.machine.windows() < before+3 && time.Since(over) < patience; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	err = a.Run(ctx)
	cancel()
	ended.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (b *bench) cut() (sum int64) {
	for _, n := range b.machine.cuts {
		sum += n
	}
	return sum
}

func TestEverythingArrives(t *testing.T) {
	b := newBench(t, 1)
	a := b.live(t, time.Second)
	if got, want := b.server.samples(), b.cut(); got != want || want == 0 {
		t.Errorf("%d samples arrived of %d", got, want)
	}
	if got := b.spool.Stats(); got != (spool.Stats{}) {
		t.Errorf("the spool still holds %+v", got)
	}
	if c := a.Counts(); c.Shipped != len(b.server.taken) || c.All()+c.Failures != 0 {
		t.Errorf("%+v, and %d windows arrived", c, len(b.server.taken))
	}
}

// TestFarewell has an agent told to end: its last window says so, and no other.
func TestFarewell(t *testing.T) {
	b := newBench(t, 4)
	b.live(t, time.Second)
	if last := b.machine.next; len(b.server.ends) != 1 || b.server.ends[0] != last || last < 2 {
		t.Errorf("windows %v said farewell, want %d", b.server.ends, last)
	}
}

// TestEverythingArrivesInTheEnd has lives of an agent end while the server
// fails, forgets, and takes windows without saying so.
func TestEverythingArrivesInTheEnd(t *testing.T) {
	b := newBench(t, 2)
	b.server.moody = true
	for life := range 4 {
		b.live(t, 50*time.Millisecond)
		if err := b.spool.Close(); err != nil {
			t.Fatal(err)
		}
		b.open(t)
		b.server.mu.Lock()
		b.server.moody = life < 2
		b.server.mu.Unlock()
	}
	if got, want := b.server.samples(), b.cut(); got != want || want == 0 {
		t.Errorf("%d samples arrived of %d; %+v", got, want, b.spool.Stats())
	}
}

// TestOneBadWindowHoldsUpNobody refuses one of many.
func TestOneBadWindowHoldsUpNobody(t *testing.T) {
	b := newBench(t, 3)
	b.server.refuse = 2
	a := b.live(t, time.Second)
	if got, want := b.server.samples(), b.cut()-b.machine.cuts[2]; got != want {
		t.Errorf("%d samples arrived of the %d that are not refused", got, want)
	}
	if got := a.Counts().Refused; got == 0 {
		t.Error("nothing counts as refused")
	}
}

// still is an agent at whose hand nothing goes on by itself, but its pipeline.
func still(t *testing.T, o Options) *Agent {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	a.pipeline.Start(t.Context())
	t.Cleanup(func() { <-a.pipeline.Finish(0) })
	return a
}

// settle waits for what is under way.
func (c *conductor) settle(t *testing.T) {
	t.Helper()
	for patience := time.After(testwait.Longest(t)); len(c.busy) > 0 || c.inFlight > 0; {
		select {
		case s := <-c.started:
			if err := c.begun(s); err != nil {
				t.Fatal(err)
			}
		case d := <-c.cuts:
			c.hasCut(d)
		case d := <-c.arrived:
			c.delivered(d)
		case <-patience:
			t.Fatalf("%d are busy, and %d windows under way", len(c.busy), c.inFlight)
		}
	}
	c.closing.Wait()
}

// put has a recording use a sampler, as if it had been started with it.
func (c *conductor) put(r *recording, s sampler.Sampler) {
	r.instrument.Release()
	r.instrument.Begin()
	r.instrument.Opened(s, !r.aims())
	r.instrument.Began()
}

// cutNow cuts a recording, and waits until what it cut is in the spool, unless the
// window goes on.
func (c *conductor) cutNow(t *testing.T, r *recording, w why) {
	t.Helper()
	if w == atEdge {
		c.turn(r)
	} else {
		c.cut(r, w)
	}
	c.settle(t)
}
