package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spool"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
	"atys.dev/atys/test/testwait"
	"atys.dev/atys/test/vacant"
)

// TestServerSlow has a server answer late, though sooner than agents give up: what
// it takes counts as taken, what waits meanwhile waits on disk, and arrives.
func TestServerSlow(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	m := newMoody(t, s.Address)
	began := time.Now()
	a := recording(t, s, "http://"+m.Addr().String(), t.TempDir(), nil)
	before := resident(t, a)
	const late = 3 * time.Second
	m.slow(late)
	time.Sleep(2 * late) // what was asked before has been answered
	was := len(cuts(t, s, began))
	time.Sleep(long(t, 4*late))
	wait(t, a, "windows come while the server is slow", func() bool { return len(cuts(t, s, began)) > was })
	wait(t, a, "bundles wait while the server is slow", func() bool { return len(a.Bundles()) >= 4 })
	if failed := "msg=\"ship windows\""; strings.Contains(a.Log(), failed) {
		t.Errorf("a slow server is taken for one that is away: %s", a.Log())
	}
	const most = 100 << 20
	if now := resident(t, a); now > before+most {
		t.Errorf("the agent had %d MB before the server became slow, and has %d", before>>20, now>>20)
	}
	m.slow(0)
	wait(t, a, "what waited is shipped", func() bool { return len(a.Bundles()) < 2 })
	settled(t, a)
	whole(t, s, a, began)
}

// resident is how much memory an agent has.
func resident(t *testing.T, a *Agent) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.PID()))
	if err != nil {
		t.Fatalf("%v: %s", err, a.Log())
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// pending fills a spool with a sender's next windows, each a bundle, as one does
// whose server is away; until says when it is enough.
func pending(t *testing.T, dir string, limit int64, one *Sender, until func(spool.Stats) bool) {
	t.Helper()
	waiting, err := spool.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	for !until(waiting.Stats()) {
		w := one.window(one.sent)
		one.sent++
		data, err := proto.Marshal(wire.Seal(w, one.run))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := waiting.Add([][]byte{data}); err != nil {
			t.Fatal(err)
		}
	}
	if err := waiting.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolLimit has a server be away for longer than an agent's spool holds: the
// oldest are dropped and counted, by the agent whatever becomes of it, and by the
// server in what it answers.
func TestSpoolLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	metrics, err := vacant.Address()
	if err != nil {
		t.Fatal(err)
	}
	a := recording(t, s, s.URL(), t.TempDir(), nil, "--spool", "1", "--metrics", metrics)
	settled(t, a)
	s.Kill()
	one := NewSender(s, "old")
	const limit = 1 << 20
	pending(t, a.spool(), limit, one, func(s spool.Stats) bool { return s.Bytes > limit-limit/20 })
	dropped := func() int { return told(t, metrics, `atys_agent_windows_total{fate="dropped"}`) }
	if err := a.Again(); err != nil {
		t.Fatal(err)
	}
	wait(t, a, "windows are dropped", func() bool { return dropped() >= 3 })
	was := dropped()
	a.Kill()
	if err := a.Again(); err != nil {
		t.Fatal(err)
	}
	wait(t, a, "it knows what its life before has dropped", func() bool { return dropped() >= was })
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	wait(t, a, "what waited is shipped", func() bool { return len(a.Bundles()) < 2 })
	lost := dropped()
	kept, err := s.Kept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if there := kept[one.Instance].Windows; there+lost != one.sent {
		t.Errorf("of %d windows %d came, and %d were dropped", one.sent, there, lost)
	}
	oldest := slices.DeleteFunc(ofSender(t, s, one), func(window int) bool { return window >= lost })
	if len(oldest) > 2 { // each life may have tried one: that could be at the server, and is dropped last
		t.Errorf("%d were dropped, and the windows %v came", lost, oldest)
	}
	wait(t, a, "the server knows what was dropped", func() bool {
		asks := atysv1connect.NewQueryClient(s.Client(), s.URL())
		response, err := asks.Top(t.Context(), &atysv1.TopRequest{Limit: 1, Selection: everything(time.Now().Add(-time.Hour), time.Now().Add(time.Hour))})
		if err != nil {
			t.Fatal(err)
		}
		var h profile.Head
		for _, l := range response.GetCoverage().GetLosses() {
			h.AddLoss(profile.Loss{Reason: profile.LossReason(l.GetReason()), N: l.GetN()})
		}
		return h.LossOf(profile.LossSpoolLimit).N == int64(lost)
	})
	command := exec.Command(program, "query", "top", `{node="here"}`, "--server", s.URL(), "--token-file", filepath.Join(s.Dir, "operator.token"))
	out, err := command.CombinedOutput()
	if want := fmt.Sprintf("%d windows dropped by the spool's limit", lost); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: the answer does not say %q: %s", err, want, out)
	}
	settled(t, a)
}

// ofSender are the windows of a sender that a server has, by their numbers.
func ofSender(t *testing.T, s *Server, one *Sender) (all []int) {
	t.Helper()
	response, err := atysv1connect.NewQueryClient(s.Client(), s.URL()).Windows(t.Context(), &atysv1.WindowsRequest{Limit: 10_000,
		Selection: &atysv1.Selection{Select: fmt.Sprintf(`{instance=%q}`, one.Instance), Kind: "cpu", FromUnixNano: Begin.UnixNano(), ToUnixNano: time.Now().UnixNano()}})
	if err != nil || len(response.GetWindows()) == 0 {
		t.Fatalf("%v: %d windows", err, len(response.GetWindows()))
	}
	for _, w := range response.GetWindows() {
		all = append(all, int(time.Unix(0, w.GetStartUnixNano()).Sub(Begin)/time.Second))
	}
	return all
}

// told is what a process tells Prometheus; 0 while it does not.
func told(t *testing.T, address, metric string) int {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(metric) + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}

// breakable mounts a file system of its own that becomes read-only under those who
// write to it when broken is called, as after an error of its disk, and can be
// mounted again at the same place.
func breakable(t *testing.T) (dir string, broken, again func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, tool := range []string{"mkfs.ext4", "losetup", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
	if !exists("/dev/loop-control") {
		t.Skip("this kernel has no loop devices")
	}
	dir = t.TempDir()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	run("mkfs.ext4", "-q", "-O", "^has_journal", image)
	var device string
	mount := func() {
		t.Helper()
		device = run("losetup", "--find", "--show", image)
		mounted := device
		t.Cleanup(func() { run("losetup", "--detach", mounted) })
		run("mount", "-o", "errors=remount-ro", device, dir)
	}
	mount()
	t.Cleanup(func() { run("umount", "--lazy", dir) })
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
	if !exists(trigger) {
		t.Skip("this kernel does not let file systems break")
	}
	return dir, func() {
			t.Helper()
			if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}, func() {
			t.Helper()
			run("umount", "--lazy", dir) // who has files open still holds it
			// What it wrote before it broke is to be on the image now, and not over what
			// the next mount will have written by then.
			run("blockdev", "--flushbufs", device)
			mount()
		}
}

// TestDiskTurnsReadOnly has the disk of a running server become read-only: it
// refuses, and says why; when the disk is mounted again, it takes windows again,
// without being started anew.
func TestDiskTurnsReadOnly(t *testing.T) {
	t.Parallel()
	dir, broken, again := breakable(t)
	s := serve(t, filepath.Join(dir, "data"))
	one := NewSender(s, "web")
	if sendUntil(t, one, 50) {
		t.Fatalf("refused by a sound disk: %s", s.Log())
	}
	broken()
	if !sendUntil(t, one, 50) {
		t.Fatal("the disk is read-only, and windows are acknowledged")
	}
	if !strings.Contains(s.Log(), "read-only") {
		t.Errorf("it does not say why it refuses: %s", s.Log())
	}
	for range 3 {
		err := one.push(t.Context(), one.window(one.sent))
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "the store cannot write") {
			t.Fatalf("the disk is read-only, and who sends windows is told %v", err)
		}
	}
	again()
	testwait.Until(t, "windows are taken on a disk that can be written to again", func() bool { return !sendUntil(t, one, 20) }, s.Log)
	check(t, s, one)
	s.Kill()
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	check(t, s, one)
}

// idle records nothing.
type idle struct{}

func (idle) Cut(sampler.Edge) ([]*profile.Window, error) { return []*profile.Window{{}}, nil }
func (idle) Close() error                                { return nil }

// watched is a server as one agent reaches it, and notes when it first took windows.
type watched struct {
	*remote.Server
	mu    sync.Mutex // guards first
	first time.Time
}

func (w *watched) Push(ctx context.Context, r *atysv1.PushRequest) (*atysv1.PushResponse, error) {
	response, err := w.Server.Push(ctx, r)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.first.IsZero() {
			w.first = time.Now()
		}
	}
	return response, err
}

// TestReconnectWithWindows has many agents, all of them with windows on disk, wait
// for a server that is away: when it is back they come one after the other, it
// stays up, and has each window once.
func TestReconnectWithWindows(t *testing.T) {
	t.Parallel()
	agents, each := 100, 5
	if os.Getenv("ATYS_FAULTS") != "" {
		agents, each = 1000, 20
	}
	s := serve(t, t.TempDir())
	token := s.Client() // reads the token while there is one
	s.Kill()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	var senders []*Sender
	var servers []*watched
	var spools []*spool.Spool
	for i := range agents {
		one := NewSender(s, fmt.Sprintf("web-%d", i))
		dir := t.TempDir()
		pending(t, dir, 1<<30, one, func(s spool.Stats) bool { return s.Bundles == each })
		for n := range each {
			one.Acknowledged++
			one.N += one.window(n).N()
		}
		waiting, err := spool.Open(dir, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := waiting.Close(); err != nil {
				t.Error(err)
			}
		})
		to := &watched{Server: remote.New(token, s.URL())}
		a, err := agent.New(agent.Options{Node: fmt.Sprintf("node-%d", i), Spool: waiting, Intake: to, Look: time.Hour, Jitter: time.Second,
			Record: func(agent.Wanted) (sampler.Sampler, error) { return idle{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		senders, servers, spools = append(senders, one), append(servers, to), append(spools, waiting)
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(min(long(t, 3*time.Second), time.Minute)) // they try, and wait longer each time
	if err := s.Again(); err != nil {
		t.Fatal(err)
	}
	back, pid := time.Now(), s.PID()
	left := func() (bundles int) {
		for _, one := range spools {
			bundles += one.Stats().Bundles
		}
		return bundles
	}
	testwait.Until(t, "all bundles are shipped", func() bool { return left() == 0 }, func() string { return fmt.Sprint(left(), " wait") }, s.Log)
	var came []time.Duration
	for _, one := range servers {
		one.mu.Lock()
		came = append(came, one.first.Sub(back))
		one.mu.Unlock()
	}
	slices.Sort(came)
	t.Logf("%d agents with %d windows each came %v to %v after the server was back, and all was shipped after %v", agents, each, came[0], came[len(came)-1], time.Since(back))
	if spread := came[len(came)*9/10] - came[len(came)/10]; spread < 500*time.Millisecond {
		t.Errorf("most of them came within %v", spread)
	}
	if s.PID() != pid || len(s.Log()) > 0 && strings.Contains(s.Log(), "panic") {
		t.Errorf("the server did not stay up: %s", s.Log())
	}
	check(t, s, senders...)
}
