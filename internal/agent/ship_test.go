package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// intake notes what it is sent: windows are told apart by when they begin.
type intake struct {
	taken  []int64
	answer func(starts []int64) error // nil: all is taken
}

func (i *intake) Push(_ context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	var starts []int64
	for _, w := range r.GetWindows() {
		starts = append(starts, w.GetStartUnixNano())
	}
	if i.answer != nil {
		if err := i.answer(starts); err != nil {
			return nil, err
		}
	}
	i.taken = append(i.taken, starts...)
	return &atysv1.PushResponse{ReceivedUnixNano: 1, AnsweredUnixNano: 1}, nil
}

func away([]int64) error { return connect.NewError(connect.CodeUnavailable, errors.New("away")) }

// shipping is a shipper with a spool of its own that is run by hand.
func shipping(t *testing.T) (*shipper, *intake, string) {
	t.Helper()
	dir := t.TempDir()
	waiting, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := waiting.Close(); err != nil {
			t.Error(err)
		}
	})
	to := &intake{}
	a, err := New(Options{Node: "n", Spool: waiting, Intake: to})
	if err != nil {
		t.Fatal(err)
	}
	return a.shipper, to, dir
}

// records are windows that begin at these times.
func records(t *testing.T, starts ...int64) (all [][]byte) {
	t.Helper()
	for _, start := range starts {
		w := profiletest.Random(rand.New(rand.NewPCG(uint64(start), 1)))
		w.Start = time.Unix(0, start)
		data, err := proto.Marshal(wire.Seal(w, profile.Run{1}))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return all
}

func spooled(t *testing.T, s *shipper, starts ...int64) {
	t.Helper()
	if _, err := s.options.Spool.Add(records(t, starts...)); err != nil {
		t.Fatal(err)
	}
}

// unspooled ships windows that the disk did not take.
func unspooled(t *testing.T, s *shipper, starts ...int64) {
	t.Helper()
	id, err := s.options.Spool.Add([][]byte{make([]byte, 2<<20)})
	if err == nil {
		t.Fatal("more than the whole spool was taken")
	}
	s.direct(id, records(t, starts...))
}

// shipAll ships until nothing is left.
func shipAll(t *testing.T, s *shipper) {
	t.Helper()
	for range 100 {
		if more, _ := s.shipOne(t.Context()); !more {
			return
		}
	}
	t.Fatal("something is left after 100 attempts")
}

// TestOrder has windows that the disk took, and others that it did not, be shipped
// as they were cut, whatever fails meanwhile.
func TestOrder(t *testing.T) {
	s, to, _ := shipping(t)
	spooled(t, s, 1)
	unspooled(t, s, 2)
	spooled(t, s, 3, 4)
	unspooled(t, s, 5)
	attempts := 0
	to.answer = func(starts []int64) error {
		if attempts++; attempts%3 == 0 {
			return nil
		}
		if attempts == 1 { // something is cut while it is under way
			unspooled(t, s, 6)
			spooled(t, s, 7)
		}
		return away(nil)
	}
	shipAll(t, s)
	if want := []int64{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(to.taken, want) {
		t.Errorf("shipped in the order %v", to.taken)
	}
}

// TestUnkept has neither the disk nor the server take anything: the oldest are
// given up, but not what may be under way, and counted once.
func TestUnkept(t *testing.T) {
	s, to, _ := shipping(t)
	to.answer = away
	const each = mostUnspooled / 4
	for i := range int64(10) {
		starts := make([]int64, each)
		for j := range starts {
			starts[j] = i*each + int64(j)
		}
		unspooled(t, s, starts...)
		if _, err := s.shipOne(t.Context()); err == nil {
			t.Fatal("what nobody took was shipped")
		}
	}
	if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Unkept: 6 * each}) {
		t.Errorf("lost are %+v, want %d", got, 6*each)
	}
	to.answer = nil
	shipAll(t, s)
	if n := len(to.taken); n != mostUnspooled || to.taken[0] != 0 || to.taken[n-1] != 10*each-1 {
		t.Errorf("%d are left", n)
	}
}

// TestUnkeptBytes has large windows be on no disk: few of them are kept in memory.
func TestUnkeptBytes(t *testing.T) {
	s, _, _ := shipping(t)
	const each = mostUnspooledBytes / 4
	for i := range 10 {
		s.direct(spool.ID(i+1), [][]byte{make([]byte, each), nil})
	}
	kept := 0
	for _, l := range s.unspooled {
		kept += l.bytes()
	}
	if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Unkept: 12}) || kept != mostUnspooledBytes || s.unspooled[0].id != 1 || s.unspooled[3].id != 10 {
		t.Errorf("lost are %+v, and %d bytes are kept", got, kept)
	}
}

// TestLeave has an agent end with windows in memory: the disk has room for them
// again, or they count as lost. Of one load some were taken, and one refused.
func TestLeave(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		want  spool.Stats
	}{
		"room again": {1 << 20, spool.Stats{Bundles: 2, Records: 3, Losses: spool.Losses{Refused: 1}}},
		"none":       {10, spool.Stats{Losses: spool.Losses{Refused: 1, Unkept: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, to, _ := shipping(t)
			unspooled(t, s, 1, 2, 3)
			unspooled(t, s, 4, 5)
			to.answer = func(starts []int64) error {
				switch {
				case slices.Contains(starts, 2):
					return connect.NewError(connect.CodeInvalidArgument, errors.New("never"))
				case slices.Contains(starts, 3):
					return away(nil)
				}
				return nil
			}
			if _, err := s.shipOne(t.Context()); err == nil {
				t.Fatal("all was taken")
			}
			waiting, err := spool.Open(t.TempDir(), c.limit)
			if err != nil {
				t.Fatal(err)
			}
			defer waiting.Close()
			s.options.Spool = waiting
			s.leave()
			got := waiting.Stats()
			if got.Bytes = 0; got != c.want || len(s.unspooled) > 0 {
				t.Errorf("%+v, want %+v; %d loads are in memory", got, c.want, len(s.unspooled))
			}
			to.answer = nil
			if shipAll(t, s); c.limit > 10 && !slices.Equal(to.taken, []int64{1, 3, 4, 5}) {
				t.Errorf("%v were taken", to.taken)
			}
		})
	}
}

// TestNothingVanishes has neither the disk nor the server take anything until an agent
// ends: it counts what it has cut.
func TestNothingVanishes(t *testing.T) {
	b := newBench(t, 18)
	b.server.away = true
	if err := b.spool.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.spool, err = spool.Open(t.TempDir(), 10); err != nil {
		t.Fatal(err)
	}
	defer b.spool.Close()
	a := b.live(t, 200*time.Millisecond)
	if lost := b.spool.Stats().Losses; lost.Unkept+int(a.pipeline.Merged()) < len(b.machine.cuts) || len(b.machine.cuts) == 0 || lost.All() != lost.Unkept {
		t.Errorf("%+v are lost of %d cuts, %d of which were merged", lost, len(b.machine.cuts), a.pipeline.Merged())
	}
}

// TestRefusedOnce has a server refuse one window of three, and fail again and
// again: each is counted once, and those that were taken alone come once.
func TestRefusedOnce(t *testing.T) {
	for _, kept := range []bool{true, false} {
		s, to, _ := shipping(t)
		if kept {
			spooled(t, s, 1, 2, 3)
		} else {
			unspooled(t, s, 1, 2, 3)
		}
		attempts := 0
		to.answer = func(starts []int64) error {
			if slices.Contains(starts, 2) {
				return connect.NewError(connect.CodeInvalidArgument, errors.New("never"))
			}
			if attempts++; slices.Contains(starts, 3) && attempts < 10 {
				return away(nil)
			}
			return nil
		}
		shipAll(t, s)
		if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Refused: 1}) || s.counts.Shipped != 2 || !slices.Equal(to.taken, []int64{1, 3}) {
			t.Errorf("lost %+v, %d shipped, %v were taken", got, s.counts.Shipped, to.taken)
		}
	}
}

// TestTakenIsNotLost has a server take a part of a bundle and be silent then, until the
// spool is full: what waits longest and was not tried makes room, and what was taken is
// not counted as lost.
func TestTakenIsNotLost(t *testing.T) {
	s, to, _ := shipping(t)
	spooled(t, s, 1, 2, 3)
	spooled(t, s, 4)
	to.answer = func(starts []int64) error {
		switch {
		case slices.Contains(starts, 2):
			return connect.NewError(connect.CodeInvalidArgument, errors.New("never"))
		case slices.Contains(starts, 3):
			return connect.NewError(connect.CodeDeadlineExceeded, errors.New("too late"))
		}
		return nil
	}
	if _, err := s.shipOne(t.Context()); err == nil {
		t.Fatal("all was taken")
	}
	waiting := s.options.Spool
	before := waiting.Oldest(2)
	room := int(waiting.Stats().Bytes)
	if _, err := waiting.Add([][]byte{make([]byte, 1<<20-room)}); err != nil {
		t.Fatal(err)
	}
	if got := waiting.Stats().Losses; got != (spool.Losses{Dropped: 1}) || waiting.Oldest(1)[0] != before[0] {
		t.Errorf("lost %+v, and left are %v", got, waiting.Oldest(9))
	}
	if _, err := waiting.Add([][]byte{make([]byte, 1<<20-100)}); err != nil {
		t.Fatal(err)
	}
	if got := waiting.Stats().Losses; got != (spool.Losses{Dropped: 1 + 1 + 1, Refused: 1}) {
		t.Errorf("lost %+v, where one of three was taken, and one refused", got)
	}
}

// TestRefusedAmongMany has one window of many be refused, wherever it is, and found
// by few pushes: those that share a bundle with it must not wait for a push each.
func TestRefusedAmongMany(t *testing.T) {
	const all, most = 64, 1 + 2*6 // which halve that to one
	for _, bad := range []int64{1, 23, all} {
		s, to, _ := shipping(t)
		var starts, want []int64
		for i := int64(1); i <= all; i++ {
			if starts = append(starts, i); i != bad {
				want = append(want, i)
			}
		}
		spooled(t, s, starts...)
		pushes := 0
		to.answer = func(starts []int64) error {
			pushes++
			if slices.Contains(starts, bad) {
				return connect.NewError(connect.CodeResourceExhausted, errors.New("no more series"))
			}
			return nil
		}
		shipAll(t, s)
		if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Refused: 1}) || !slices.Equal(to.taken, want) {
			t.Errorf("lost %+v, %v were taken", got, to.taken)
		}
		if pushes > most {
			t.Errorf("%d pushes of %d windows of which the one at %d is refused, want at most %d", pushes, all, bad, most)
		}
	}
}

// choosy names the windows that it refuses, once all is explained.
type choosy struct {
	intake
	refuses map[int64]bool
	pushes  int
}

func (c *choosy) Push(_ context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	if c.pushes++; c.pushes == 1 {
		return &atysv1.PushResponse{Unknown: r.GetStacks()[:16]}, nil
	}
	response := &atysv1.PushResponse{Refused: []*atysv1.Refused{{Window: 1 << 20, Why: "nonsense"}}}
	for i, w := range r.GetWindows() {
		if r.GetPartly() && c.refuses[w.GetStartUnixNano()] {
			response.Refused = append(response.Refused, &atysv1.Refused{Window: uint32(i), Why: "no more series"})
			continue
		}
		c.taken = append(c.taken, w.GetStartUnixNano())
	}
	return response, nil
}

// TestRefusedByName has a server name the windows of a bundle that it refuses: they
// are lost, and none of the others is sent again.
func TestRefusedByName(t *testing.T) {
	s, _, _ := shipping(t)
	to := &choosy{refuses: map[int64]bool{2: true, 5: true}}
	s.route.server = to
	spooled(t, s, 1, 2, 3, 4, 5)
	shipAll(t, s)
	if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Refused: 2}) || s.counts.Shipped != 3 || !slices.Equal(to.taken, []int64{1, 3, 4}) {
		t.Errorf("lost %+v, %d shipped, %v were taken", got, s.counts.Shipped, to.taken)
	}
	if to.pushes != 2 {
		t.Errorf("%d pushes, want one, and one that explains", to.pushes)
	}
}

// TestUnreadableBundle has a bundle that cannot be read be the oldest, and one that
// holds no window the next: what follows them is shipped.
func TestUnreadableBundle(t *testing.T) {
	s, to, dir := shipping(t)
	spooled(t, s, 1)
	names, err := filepath.Glob(filepath.Join(dir, "*.bundle"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v: %q", err, names)
	}
	if err := errors.Join(os.Remove(names[0]), os.Mkdir(names[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.options.Spool.Add([][]byte{[]byte("no window")}); err != nil {
		t.Fatal(err)
	}
	spooled(t, s, 2)
	shipAll(t, s)
	if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Damaged: 2}) || !slices.Equal(to.taken, []int64{2}) {
		t.Errorf("lost %+v, %v were taken", got, to.taken)
	}
}

// forgetful never knows a stack of the window that begins at 1, however it is told.
type forgetful struct{ intake }

func (f *forgetful) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	for _, w := range r.GetWindows() {
		if w.GetStartUnixNano() == 1 {
			return &atysv1.PushResponse{Unknown: r.GetStacks()[:16]}, nil
		}
	}
	return f.intake.Push(ctx, r)
}

// TestNeverUnderstood has the oldest window hold what no server can make sense of.
func TestNeverUnderstood(t *testing.T) {
	s, _, _ := shipping(t)
	to := &forgetful{}
	s.route.server = to
	spooled(t, s, 1, 2)
	spooled(t, s, 3)
	shipAll(t, s)
	if got := s.options.Spool.Stats().Losses; got != (spool.Losses{Refused: 1}) || !slices.Equal(to.taken, []int64{2, 3}) {
		t.Errorf("lost %+v, %v were taken", got, to.taken)
	}
}

// TestLossesAreTold has lives of an agent whose server is moody tell what was lost
// before, and what they lose themselves: all of it, once.
func TestLossesAreTold(t *testing.T) {
	b := newBench(t, 4)
	b.spool.Lose(spool.Losses{Dropped: 7, Damaged: 5})
	for life := 0; life < 4 || life < 99 && (b.machine.next < 4 || b.spool.Untold() != (spool.Losses{})); life++ { // a busy machine cuts seldom
		b.server.mu.Lock()
		b.server.moody, b.server.refuse = life < 2, 3
		b.server.mu.Unlock()
		b.live(t, 100*time.Millisecond)
		if err := b.spool.Close(); err != nil {
			t.Fatal(err)
		}
		b.open(t)
	}
	lost := b.spool.Stats().Losses
	if lost.Dropped != 7 || lost.Damaged != 5 || lost.Refused == 0 {
		t.Fatalf("lost are %+v", lost)
	}
	told := profile.Head{}
	for _, losses := range b.server.losses {
		for _, l := range losses {
			told.AddLoss(profile.Loss{Reason: profile.LossReason(l.GetReason()), N: l.GetN()})
		}
	}
	for reason, want := range map[profile.LossReason]int{profile.LossSpoolLimit: 7, profile.LossSpoolDamage: 5, profile.LossRefused: lost.Refused} {
		if got := told.LossOf(reason).N; got != int64(want) {
			t.Errorf("%d windows are told to be %s, want %d", got, reason, want)
		}
	}
	if untold := b.spool.Untold(); untold != (spool.Losses{}) {
		t.Errorf("%+v are untold", untold)
	}
}

// TestSpread has windows wait within half of the shortest that is cut, whatever the
// one lasted that was waited with before.
func TestSpread(t *testing.T) {
	for name, c := range map[string]struct{ jitter, shortest, want time.Duration }{
		"nothing is cut": {5 * time.Second, 0, 5 * time.Second},
		"ten seconds":    {5 * time.Second, 10 * time.Second, 5 * time.Second},
		"a second":       {5 * time.Second, time.Second, time.Second / 2},
		"half a minute":  {5 * time.Second, 30 * time.Second, 15 * time.Second},
		"an hour":        {5 * time.Second, time.Hour, mostJitter},
		"at once":        {0, 10 * time.Second, 0},
	} {
		s := newShipper(Options{Jitter: c.jitter})
		if s.spread(c.shortest); s.spreads() != c.want {
			t.Errorf("%s: within %v, want %v", name, s.spreads(), c.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newShipper(Options{Jitter: 5 * time.Second})
		for seed := range 100 {
			s.spread(time.Hour)
			began := time.Now()
			short := time.AfterFunc(time.Duration(seed)*time.Millisecond, func() {
				s.spread(time.Second)
				s.wake()
			})
			if !s.waitTurn(t.Context()) || time.Since(began) > time.Second/2+time.Duration(seed)*time.Millisecond {
				t.Fatalf("a window of a second waited for %v", time.Since(began))
			}
			short.Stop()
		}
	})
}

// TestShortest has the shortest windows be those of what records now.
func TestShortest(t *testing.T) {
	long, short := newTask("long", spec.Builtin(), time.Time{}), newTask("short", spec.Builtin(), time.Time{})
	long.profile.Window, short.profile.Window = time.Minute, 2*time.Second
	a, none := still(t, Options{}), &spending{}
	tasks := []*task{long, short}
	if got := none.shortest(tasks); got != 0 {
		t.Errorf("%v where nothing records", got)
	}
	a.put(long.recordings[0], &take{})
	if got := none.shortest(tasks); got != time.Minute {
		t.Errorf("%v where windows of a minute are cut", got)
	}
	a.put(short.recordings[0], &take{})
	if got := none.shortest(tasks); got != 2*time.Second {
		t.Errorf("%v where windows of two seconds are", got)
	}
	short.recordings[0].instrument.Release()
	short.phase = phaseEnding
	if got := none.shortest(tasks); got != 2*time.Second {
		t.Errorf("%v where the last of two seconds is waited for", got)
	}
}
