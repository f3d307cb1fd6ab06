package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// server keeps records by their keys, if it is not of an earlier version.
type server struct {
	mu      sync.Mutex // guards all below
	older   bool
	failing error
	lose    bool // its answers are lost
	kept    map[string]int
	pushes  int
}

func (s *server) set(change func(s *server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]int{}
	}
	change(s)
}

func (s *server) push(_ context.Context, r *atysv1.PushRequest) (response *atysv1.PushResponse, err error) {
	s.set(func(s *server) {
		if s.pushes++; s.failing != nil {
			err = s.failing
			return
		}
		response = &atysv1.PushResponse{}
		if s.older {
			return
		}
		var all []profile.Record
		if all, _, err = wire.Records(r); err != nil {
			return
		}
		for i, one := range all {
			switch one.Kind {
			case "refused":
				response.RefusedRecords = append(response.RefusedRecords, &atysv1.RefusedRecord{Record: uint32(i), Why: "of this kind"})
				continue
			case "malformed": // as what an earlier version finds wrong with all of a request
				err = connect.NewError(connect.CodeInvalidArgument, errors.New("malformed"))
				return
			}
			response.KeptRecords++
			s.kept[key(&one)]++
		}
		if s.lose {
			err = errors.New("the connection is reset")
		}
	})
	return response, err
}

func key(r *profile.Record) string {
	return fmt.Sprint(r.Series, r.Kind, r.Start.UnixNano(), r.Run, r.Sequence, string(r.Payload))
}

func (s *server) count() (n int) {
	s.set(func(s *server) { n = len(s.kept) })
	return n
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func decision(n int) profile.Record {
	return profile.Record{Series: profile.Labels{"node": "n1"}, Kind: "decision", Start: noon.Add(time.Duration(n) * time.Second), Run: profile.Run{1}, Sequence: uint64(n), Payload: fmt.Append(nil, n)}
}

func openSpool(t *testing.T, dir string, limit int64) *spool.Spool {
	t.Helper()
	s, err := spool.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ship runs a shipper until a condition holds.
func ship(t *testing.T, s *Shipper, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	testwait.Until(t, what, done)
	cancel()
	running.Wait()
}

func empty(s *spool.Spool) func() bool { return func() bool { return s.Stats().Records == 0 } }

// TestShips ships what is added, before and while it runs, and leaves nothing in the spool.
func TestShips(t *testing.T) {
	to, waiting := &server{}, openSpool(t, t.TempDir(), 1<<20)
	s := New(Options{Spool: waiting, Push: to.push})
	s.Add(decision(1), decision(2))
	s.Add()
	s.Add(decision(3))
	ship(t, s, "all to be kept", func() bool {
		if to.count() == 3 {
			s.Add(decision(4))
		}
		return to.count() == 4 && empty(waiting)()
	})
	if lost := waiting.Stats().Losses; lost != (spool.Losses{}) {
		t.Errorf("lost %+v", lost)
	}
}

// TestOlderServer keeps records while the server drops them without a word, over a restart of
// the agent, and ships each once when the server is upgraded.
func TestOlderServer(t *testing.T) {
	to, dir := &server{older: true}, t.TempDir()
	for life := range 2 {
		waiting := openSpool(t, dir, 1<<20)
		s := New(Options{Spool: waiting, Push: to.push, Retry: time.Millisecond})
		s.Add(decision(life))
		pushes := 0
		to.set(func(s *server) { pushes = s.pushes })
		ship(t, s, "the server to be asked again", func() bool {
			enough := false
			to.set(func(s *server) { enough = s.pushes >= pushes+3 })
			return enough
		})
		if got := waiting.Stats(); got.Records != life+1 || got.Losses != (spool.Losses{}) {
			t.Fatalf("life %d: %+v", life, got)
		}
		waiting.Close()
	}
	to.set(func(s *server) { s.older = false })
	waiting := openSpool(t, dir, 1<<20)
	ship(t, New(Options{Spool: waiting, Push: to.push}), "all to be kept", empty(waiting))
	if n := to.count(); n != 2 {
		t.Errorf("%d records are kept", n)
	}
}

// TestOlderServerForLong drops the oldest records once the spool is full, and no others.
func TestOlderServerForLong(t *testing.T) {
	to, waiting := &server{older: true}, openSpool(t, t.TempDir(), 1000)
	s := New(Options{Spool: waiting, Push: to.push})
	const count = 100
	for n := range count {
		s.Add(decision(n))
	}
	left := waiting.Stats()
	if left.Records == 0 || left.Dropped == 0 || left.Records+left.Dropped != count || left.Bytes > 1000 {
		t.Fatalf("%+v", left)
	}
	to.set(func(s *server) { s.older = false })
	ship(t, s, "the rest to be kept", empty(waiting))
	for n := range count {
		r := decision(n)
		if times := to.kept[key(&r)]; (times > 0) != (n >= left.Dropped) {
			t.Errorf("record %d came %d times, %d of %d were dropped", n, times, left.Dropped, count)
		}
	}
}

// TestLostAnswers sends records again whose answers are lost, with the same keys.
func TestLostAnswers(t *testing.T) {
	to, waiting := &server{lose: true}, openSpool(t, t.TempDir(), 1<<20)
	s := New(Options{Spool: waiting, Push: to.push})
	s.Add(decision(1), decision(2))
	ship(t, s, "a push", func() bool { return to.count() == 2 })
	if got := waiting.Stats(); got.Records != 2 {
		t.Fatalf("%+v", got)
	}
	to.set(func(s *server) { s.lose = false })
	ship(t, s, "all to be acknowledged", empty(waiting))
	if n := to.count(); n != 2 {
		t.Errorf("%d records are kept", n)
	}
}

// TestRefused finds the records that are refused, by name or with all of their request, and
// ships the others.
func TestRefused(t *testing.T) {
	to, waiting := &server{}, openSpool(t, t.TempDir(), 1<<20)
	s := New(Options{Spool: waiting, Push: to.push})
	all := []profile.Record{decision(0), decision(1), decision(2), decision(3), decision(4)}
	all[1].Kind, all[3].Kind = "refused", "malformed"
	all = append(all, profile.Record{Kind: "too large", Start: noon, Payload: make([]byte, profile.MaxPayload+1)})
	s.Add(all...)
	ship(t, s, "all to be settled", empty(waiting))
	if lost := waiting.Stats().Losses; to.count() != 3 || lost != (spool.Losses{Refused: 3}) {
		t.Errorf("%d are kept, lost %+v", to.count(), lost)
	}
}

// TestLarge ships more than one request may hold.
func TestLarge(t *testing.T) {
	to, waiting := &server{}, openSpool(t, t.TempDir(), 64<<20)
	s := New(Options{Spool: waiting, Push: to.push})
	var all []profile.Record
	for n := range 10 {
		r := decision(n)
		r.Payload = make([]byte, profile.MaxPayload)
		all = append(all, r)
	}
	s.Add(all...)
	ship(t, s, "all to be kept", empty(waiting))
	if to.count() != 10 || to.pushes < 3 {
		t.Errorf("%d are kept after %d pushes", to.count(), to.pushes)
	}
}

// TestDamaged counts what is no record any more, and ships the others.
func TestDamaged(t *testing.T) {
	to, dir := &server{}, t.TempDir()
	waiting := openSpool(t, dir, 1<<20)
	s := New(Options{Spool: waiting, Push: to.push})
	s.Add(decision(1), decision(2))
	if _, err := waiting.Add([][]byte{[]byte("no record")}); err != nil {
		t.Fatal(err)
	}
	bundles, err := filepath.Glob(filepath.Join(dir, "*.bundle"))
	if err != nil || len(bundles) != 2 {
		t.Fatal(bundles, err)
	}
	data, err := os.ReadFile(bundles[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(bundles[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	ship(t, s, "all to be settled", empty(waiting))
	if lost := waiting.Stats().Losses; to.count() != 1 || lost != (spool.Losses{Damaged: 2}) {
		t.Errorf("%d are kept, lost %+v", to.count(), lost)
	}
}

// TestFullDisk keeps records in memory while the disk takes none, and ships them from there.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a disk of its own takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	waiting := openSpool(t, filepath.Join(dir, "spool"), 1<<20)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("there was room left: %v", err)
	}
	to := &server{failing: errors.New("no route")}
	s := New(Options{Spool: waiting, Push: to.push})
	s.Add(decision(1))
	s.Add(decision(2))
	if got := waiting.Stats(); got.Records != 0 {
		t.Fatalf("the disk took %+v", got)
	}
	to.set(func(s *server) { s.failing = nil })
	ship(t, s, "what is in memory to be kept", func() bool { return to.count() == 2 })
	big := decision(3)
	big.Payload = make([]byte, mostUnspooled*2/3)
	s.Add(big)
	big.Sequence++
	s.Add(big)
	if lost := waiting.Stats().Losses; lost != (spool.Losses{Unkept: 1}) {
		t.Errorf("lost %+v", lost)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.Add(decision(5))
	if got := waiting.Stats(); got.Records != 2 {
		t.Errorf("with room again: %+v", got)
	}
	ship(t, s, "the rest to be kept", empty(waiting))
	if n := to.count(); n != 4 {
		t.Errorf("%d are kept", n)
	}
}

// TestClock moves records of a clock that is far off, as a server moves windows.
func TestClock(t *testing.T) {
	to, waiting := &server{}, openSpool(t, t.TempDir(), 1<<20)
	s := New(Options{Spool: waiting, Push: to.push, Clock: func() (time.Duration, time.Duration) { return time.Hour, time.Millisecond }})
	ahead := decision(1)
	ahead.Start = ahead.Start.Add(time.Hour)
	s.Add(ahead)
	ship(t, s, "it to be kept", empty(waiting))
	if r := decision(1); to.kept[key(&r)] != 1 {
		t.Errorf("kept are %v", to.kept)
	}
}
