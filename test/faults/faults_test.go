package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/testwait"
)

var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// together is how many tests run at once: most of them wait for windows, or
// for somebody who is away, and take next to nothing of a core meanwhile.
const together = 4

func run(m *testing.M) int {
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := given.Value.Set(strconv.Itoa(together)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "atys-faults")
	if err == nil {
		defer os.RemoveAll(dir)
		program, err = process.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// long is how long a fault goes on: ATYS_FAULTS says, such as 10m.
func long(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("ATYS_FAULTS")
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ATYS_FAULTS: %v", err)
	}
	return d
}

func serve(t *testing.T, dir string, within ...string) *Server {
	t.Helper()
	s, err := NewServer(program, dir, within...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Kill() })
	return s
}

// check compares what a server has with what was acknowledged.
func check(t *testing.T, s *Server, senders ...*Sender) {
	t.Helper()
	kept, err := s.Kept(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, s.Log())
	}
	for _, one := range senders {
		if got := kept[one.Instance]; got.Windows != one.Acknowledged || got.N != one.N {
			t.Errorf("of %s there are %d windows with %d samples, and %d with %d were acknowledged", one.Instance, got.Windows, got.N, one.Acknowledged, one.N)
		}
	}
}

// TestServerKilled kills a server again and again while it is sent to: each
// window that it acknowledged is there, once.
func TestServerKilled(t *testing.T) {
	s := serve(t, t.TempDir())
	over := time.Now().Add(long(t, 15*time.Second))
	const leastKills, leastSent = 5, 500 // fewer tell nothing: a busy machine takes longer
	senders := make([]*Sender, 8)
	failed := make(chan error, len(senders))
	var sent atomic.Int64
	var enough atomic.Bool
	for i := range senders {
		senders[i] = NewSender(s, fmt.Sprintf("web-%d", i))
		go func() {
			var err error
			for err == nil && !enough.Load() {
				if err = senders[i].Send(t.Context()); err == nil {
					sent.Add(1)
				}
			}
			failed <- err
		}()
	}
	r, kills := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)), 0
	atMost := time.Now().Add(testwait.Longest(t))
	for ; time.Now().Before(over) || (kills < leastKills || sent.Load() < leastSent) && time.Now().Before(atMost); kills++ {
		time.Sleep(time.Duration(r.Int64N(int64(1500 * time.Millisecond))))
		s.Kill()
		if err := s.Again(); err != nil {
			t.Fatal(err)
		}
	}
	enough.Store(true)
	acknowledged, refused := 0, 0
	for range senders {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	for _, one := range senders {
		acknowledged += one.Acknowledged
		refused += one.Refused
	}
	t.Logf("%d kills, %d windows acknowledged, %d answers missing", kills, acknowledged, refused)
	if kills < leastKills || acknowledged < leastSent || refused == 0 {
		t.Errorf("%d kills, %d windows, %d answers missing: too few to tell anything", kills, acknowledged, refused)
	}
	check(t, s, senders...)
	if err := s.End(testwait.Longest(t)); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command(program, "store", "check", "--data", s.Dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
}

// TestDeliveredTwice sends windows several times over, in any order and several
// at once: each counts once.
func TestDeliveredTwice(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	const windows, times = 60, 3
	var all sync.WaitGroup
	r := rand.New(rand.NewPCG(1, 3))
	for range times {
		order := r.Perm(windows)
		all.Go(func() {
			again := NewSender(s, "web")
			for _, i := range order {
				again.sent = i
				if err := again.Send(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	once := NewSender(s, "web")
	for i := range windows {
		once.Acknowledged++
		once.N += once.window(i).N()
	}
	check(t, s, once)
	s.Kill()
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	check(t, s, once)
}

// TestHalfWritten has the end of a store's log be half of a write, as a loss of
// power leaves it: everything before it is there.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	one := NewSender(s, "web")
	for round, half := range []func(data []byte) []byte{
		func(data []byte) []byte { return append(data, data[:min(len(data), 700)]...) },
		func(data []byte) []byte { return append(data, make([]byte, 5000)...) },
		func(data []byte) []byte { return append(data, "no record begins like this"...) },
	} {
		if sendUntil(t, one, 40) {
			t.Fatalf("round %d: refused: %s", round, s.Log())
		}
		s.Kill()
		logs, err := filepath.Glob(filepath.Join(s.Dir, "store", "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("%v: %d logs", err, len(logs))
		}
		damage(t, logs[len(logs)-1], half)
		if err := s.Again(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		check(t, s, one)
	}
}

// small mounts a file system of its own, of so many megabytes.
func small(t *testing.T, megabytes int) (dir string, remount func(options string, flags uintptr)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir = t.TempDir()
	if err := unix.Mount("atys", dir, "tmpfs", 0, "size="+strconv.Itoa(megabytes)+"m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(options string, flags uintptr) {
		t.Helper()
		if err := unix.Mount("atys", dir, "tmpfs", unix.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
}

// sendUntil sends windows until one is refused, or so many are acknowledged.
func sendUntil(t *testing.T, one *Sender, most int) (refused bool) {
	t.Helper()
	for range most {
		if !acknowledged(t, one) {
			return true
		}
	}
	return false
}

// acknowledged sends the next window until it is acknowledged, or the server has refused
// it for two seconds. An answer that is slow to come is waited for.
func acknowledged(t *testing.T, one *Sender) bool {
	t.Helper()
	w := one.window(one.sent)
	for refused := (time.Time{}); ; time.Sleep(20 * time.Millisecond) {
		err := one.push(t.Context(), w)
		if err == nil {
			one.sent++
			one.Acknowledged++
			one.N += w.N()
			return true
		}
		if refused.IsZero() {
			refused = time.Now()
		}
		if time.Since(refused) > 2*time.Second {
			return false
		}
	}
}

// TestDiskFull fills a server's disk: it refuses, answers all the same, and
// takes windows again when there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir, remount := small(t, 150)
	s := serve(t, dir)
	one := NewSender(s, "web")
	filler := filepath.Join(dir, "filler")
	if sendUntil(t, one, 50) {
		t.Fatalf("refused with room left: %s", s.Log())
	}
	fill(t, filler)
	if !sendUntil(t, one, 200) {
		t.Fatal("the disk is full, and windows are acknowledged")
	}
	check(t, s, one)
	remount("size=500m", 0)
	if sendUntil(t, one, 50) {
		t.Fatalf("refused though there is room again: %s", s.Log())
	}
	check(t, s, one)
	s.Kill()
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	check(t, s, one)
}

// fill leaves no room.
func fill(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := file.Write(block); err != nil {
			if errors.Is(err, unix.ENOSPC) {
				return
			}
			t.Fatal(err)
		}
	}
}

// TestDiskReadOnly has a server's disk become read-only, as broken ones do, and be
// started there: it answers, refuses, and takes windows again once the disk does.
func TestDiskReadOnly(t *testing.T) {
	t.Parallel()
	dir, remount := small(t, 200)
	s := serve(t, dir)
	one := NewSender(s, "web")
	if sendUntil(t, one, 50) {
		t.Fatal(s.Log())
	}
	// A file that is open for writing keeps it from being remounted: bind it.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); errors.Is(err, unix.EBUSY) {
		s.Kill()
		remount("", unix.MS_RDONLY)
		if err := s.Again(); err != nil {
			t.Fatalf("on a disk that is read-only it does not start: %v", err)
		}
		check(t, s, one)
		if !sendUntil(t, one, 1) {
			t.Error("the disk is read-only, and windows are acknowledged")
		}
	} else if err != nil {
		t.Fatal(err)
	}
	remount("", 0)
	testwait.Until(t, "windows are taken on a disk that can be written to again", func() bool { return !sendUntil(t, one, 20) }, s.Log)
	s.Kill()
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	check(t, s, one)
}

// TestDamagedStore turns bytes around in a store's files: what is damaged is
// found, and the rest answered.
func TestDamagedStore(t *testing.T) {
	s := serve(t, t.TempDir())
	one := NewSender(s, "web")
	for range 900 { // several blocks of a table
		if err := one.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what is replayed at a start gets into tables
		if err := s.End(testwait.Longest(t)); err != nil {
			t.Fatal(err)
		}
		if err := s.Again(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(testwait.Longest(t)); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(s.Dir, "store", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%v: %d tables", err, len(tables))
	}
	if !slices.ContainsFunc([]int{6, 5, 4, 3, 2, 7, 1}, func(eighth int) bool { return damagedAt(t, s, tables[0], eighth, one.Acknowledged) }) {
		t.Errorf("wherever %s is damaged, all of %d windows are there, or none: %s", tables[0], one.Acknowledged, s.Log())
	}
	other := NewSender(s, "other")
	if err := other.Send(t.Context()); err != nil {
		t.Errorf("nothing is taken: %v", err)
	}
}

// damagedAt turns bytes around in a table, and starts the server; false, and
// all is as it was: no windows lie there, of so many, but what explains them or was
// added up of them, if there was the time.
func damagedAt(t *testing.T, s *Server, table string, eighth, windows int) bool {
	t.Helper()
	data, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(table, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged := slices.Clone(data)
	for i := len(data) * eighth / 8; i < len(data)*eighth/8+64; i++ {
		damaged[i] ^= 0x55
	}
	put(damaged)
	if out, err := exec.Command(program, "store", "check", "--data", s.Dir).CombinedOutput(); err == nil {
		t.Errorf("check finds nothing:\n%s", out)
	}
	if err := s.Again(); err != nil {
		t.Fatalf("a server does not start on a damaged store: %v", err)
	}
	left, lost, err := s.Listed(t.Context())
	if err != nil {
		t.Fatalf("a damaged store does not answer: %v", err)
	}
	t.Logf("damaged at %d eighths of %d bytes: %d windows are there, %d parts cannot be read", eighth, len(data), left, lost)
	if 0 < left && left < windows && lost > 0 {
		return true
	}
	if err := s.End(testwait.Longest(t)); err != nil {
		t.Fatal(err)
	}
	put(data)
	return false
}

// TestNewerAgent has an agent say what this server does not know yet.
func TestNewerAgent(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	one := NewSender(s, "web")
	b := wire.NewBatch(func(profile.Hash) bool { return false })
	w := storetest.Window(7, "shop", "web", Begin)
	w.Duration = time.Second
	if err := b.Add(wire.Seal(w, one.run)); err != nil {
		t.Fatal(err)
	}
	request := b.Request()
	const newer = 9999 // a field of a later version, in the request and in a window
	extra := protowire.AppendString(protowire.AppendTag(nil, newer, protowire.BytesType), "of a later version")
	request.ProtoReflect().SetUnknown(extra)
	request.Windows[0].ProtoReflect().SetUnknown(extra)
	response, err := one.intake.Push(t.Context(), request)
	if err != nil || len(response.GetUnknown()) > 0 {
		t.Fatalf("%d bytes unknown, %v", len(response.GetUnknown()), err)
	}
	one.Acknowledged, one.N = 1, w.N()
	check(t, s, one)
}

// TestReconnect kills a server that a thousand agents attend to: they come back,
// and it goes on.
func TestReconnect(t *testing.T) {
	agents := 1000
	if testing.Short() {
		agents = 100
	}
	s := serve(t, t.TempDir())
	fleet := atysv1connect.NewFleetClient(&http.Client{Transport: s.Client().Transport}, s.URL())
	ctx, cancel := context.WithCancel(t.Context())
	var attending, lost atomic.Int64
	var all sync.WaitGroup
	for i := range agents {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				stream, err := fleet.Attend(ctx, &atysv1.AttendRequest{Node: fmt.Sprintf("node-%d", i)})
				if err == nil && stream.Receive() {
					attending.Add(1)
					for stream.Receive() {
					}
					attending.Add(-1)
					lost.Add(1)
				}
				if err == nil {
					_ = stream.Close() // it has ended already
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(r.Int64N(int64(time.Second)))):
				}
			}
		})
	}
	defer all.Wait()
	defer cancel()
	come := func() time.Duration {
		began := time.Now()
		testwait.Until(t, fmt.Sprintf("all of %d agents are there", agents), func() bool { return attending.Load() >= int64(agents) }, s.Log)
		return time.Since(began)
	}
	t.Logf("%d agents are there after %v", agents, come())
	one := NewSender(s, "web")
	s.Kill()
	for attending.Load() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	t.Logf("and %v after the server is there again, %d connections lost", come(), lost.Load())
	if err := one.Send(t.Context()); err != nil {
		t.Error(err)
	}
	check(t, s, one)
	agentsKnown, err := atysv1connect.NewControlClient(s.Client(), s.URL()).Get(t.Context(), &atysv1.GetRequest{Kind: "agents"})
	if err != nil || len(agentsKnown.GetObjects()) != agents {
		t.Errorf("%d agents are known, %v", len(agentsKnown.GetObjects()), err)
	}
}
