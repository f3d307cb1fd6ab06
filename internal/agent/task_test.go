package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// orderer orders what it is told to, and keeps what is reported.
type orderer struct {
	orders chan *atysv1.Orders

	mu     sync.Mutex
	report *atysv1.ReportRequest
}

func (o *orderer) AttendTo(ctx context.Context, _ *atysv1.AttendRequest, order func(*atysv1.Orders) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case orders := <-o.orders:
			if err := order(orders); err != nil {
				return err
			}
		}
	}
}

func (o *orderer) Report(_ context.Context, r *atysv1.ReportRequest) (*atysv1.ReportResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report = r
	return &atysv1.ReportResponse{}, nil
}

// phases are those of tasks, as they were reported last.
func (o *orderer) phases() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[string]string{}
	for _, t := range o.report.GetTasks() {
		all[t.GetId()] = t.GetPhase()
	}
	return fmt.Sprint(all)
}

// studio begins recordings, and remembers what they are aimed at.
type studio struct {
	mu     sync.Mutex
	open   map[*take]bool
	refuse bool
	cost   time.Duration // of interrupts, for each recording
}

type take struct {
	Wanted
	studio *studio
	aimed  map[int]bool
	rates  map[int]float64
	cuts   int
}

func (s *studio) record(w Wanted) (sampler.Sampler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse {
		return nil, errors.New("no such event")
	}
	t := &take{w, s, map[int]bool{}, map[int]float64{}, 0}
	s.open[t] = true
	return t, nil
}

func (t *take) Cut(sampler.Edge) ([]*profile.Window, error) {
	t.cuts++ // never twice at once
	return []*profile.Window{profile.NewBuilder(profile.Head{Start: time.Now(), Types: []profile.ValueType{profile.CPUTime(1)}}).Window()}, nil
}

func (t *take) Aim(add, drop []int) (fresh bool) {
	t.studio.mu.Lock()
	defer t.studio.mu.Unlock()
	for _, pid := range add {
		fresh = fresh || !t.aimed[pid]
		t.aimed[pid] = true
	}
	for _, pid := range drop {
		delete(t.aimed, pid)
	}
	return fresh
}

func (t *take) Full() float64 { return 0 }

func (t *take) SetFrequency(hz float64) error {
	t.studio.mu.Lock()
	defer t.studio.mu.Unlock()
	t.Frequency = hz
	return nil
}

func (t *take) SetRates(hz map[int]float64) error {
	t.studio.mu.Lock()
	defer t.studio.mu.Unlock()
	maps.Copy(t.rates, hz)
	return nil
}

func (t *take) Spent() (bpf, interrupts time.Duration, err error) {
	t.studio.mu.Lock()
	defer t.studio.mu.Unlock()
	return 0, t.studio.cost, nil
}

func (t *take) Close() error {
	t.studio.mu.Lock()
	defer t.studio.mu.Unlock()
	delete(t.studio.open, t)
	return nil
}

// takes writes what is open, such as "cpu-clock 99 all; page-faults 19 at [12]".
func (s *studio) takes() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for t := range s.open {
		what := "all"
		if !t.All {
			what = fmt.Sprint("at ", slices.Sorted(maps.Keys(t.aimed)))
		}
		all = append(all, fmt.Sprintf("%s %g %s", t.Event, t.Frequency, what))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// employed is an agent at work for an orderer.
type employed struct {
	*orderer
	*studio
	bench *bench
	state string
	end   func()
}

func employ(t *testing.T, b *bench, state string, s *studio) *employed {
	t.Helper()
	e := &employed{&orderer{orders: make(chan *atysv1.Orders)}, s, b, state, nil}
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: e.orderer, Record: s.record, State: state, Look: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	e.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left := s.takes(); left != "" {
			t.Errorf("left open: %s", left)
		}
		if !e.report.GetLeaving() {
			t.Error("it ends in order, and has not said goodbye")
		}
	})
	t.Cleanup(e.end)
	return e
}

func (e *employed) await(t *testing.T, what func() string, want string) {
	t.Helper()
	testwait.Until(t, "want "+want, func() bool { return what() == want }, what)
}

func ordered(revision uint64, tasks ...*atysv1.Task) *atysv1.Orders {
	return &atysv1.Orders{Revision: revision, Tasks: tasks}
}

const builtinTake = "cpu-clock 19 all"

// TestTasks has tasks come, change and go.
func TestTasks(t *testing.T) {
	e := employ(t, newBench(t, 5), filepath.Join(t.TempDir(), "orders"), &studio{open: map[*take]bool{}})
	e.await(t, e.takes, builtinTake)
	lasting := &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"lasting","kinds":["cpu"],"events":["page-faults"],"frequency":99}`}
	e.orders <- ordered(1, lasting)
	e.await(t, e.takes, "cpu-clock 99 all; page-faults 99 all")
	e.await(t, e.phases, "map[1:running]")

	short := &atysv1.Task{Id: "2", Profile: `{"kind":"Profile","name":"short","select":"{service=\"nobody\"}","duration":"300ms"}`, UntilUnixNano: time.Now().Add(300 * time.Millisecond).UnixNano()}
	e.orders <- ordered(2, lasting, short)
	e.await(t, e.phases, "map[1:running 2:done]")
	if got := e.takes(); got != "cpu-clock 99 all; page-faults 99 all" {
		t.Errorf("recording %s, where one task has no target", got)
	}

	e.orders <- ordered(3, short)
	e.await(t, e.takes, builtinTake)
	e.orders <- ordered(4, &atysv1.Task{Id: "3", Profile: `{"kind":"Magic","name":"newer"}`})
	e.await(t, e.phases, "map[3:failed builtin:running]")
	e.orders <- ordered(5, lasting)
	e.await(t, e.phases, "map[1:running]")

	// Another life goes on with the same, before it has heard anything.
	e.end()
	e = employ(t, e.bench, e.state, e.studio)
	e.await(t, e.takes, "cpu-clock 99 all; page-faults 99 all")
}

// TestLateTask has a recording take longer to begin than it is to last.
func TestLateTask(t *testing.T) {
	r := newTask("x", spec.Builtin(), time.Now().Add(time.Millisecond)).recordings[0]
	due := r.task.end
	r.instrument.Begin()
	if got := r.task.ends(); !got.Equal(due.Add(lateStart)) {
		t.Errorf("one that is about to begin ends %v after its time", got.Sub(due))
	}
	if r.task.phase = phaseRunning; !r.task.ends().Equal(due) {
		t.Error("one that runs is not ended in time")
	}
	b := newBench(t, 10)
	r.task.phase, r.task.profile.Duration = phaseStarting, time.Second
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server})
	if err != nil {
		t.Fatal(err)
	}
	a.tasks, a.busy[r] = []*task{r.task}, true
	time.Sleep(10 * time.Millisecond)
	if a.keepTime(); r.task.over || time.Until(nextEdge(a.tasks, time.Time{})) <= 0 {
		t.Error("it is ended before it has begun")
	}
	if err := a.begun(start{r, b.machine, nil}); err != nil || time.Until(r.task.ends()) < 900*time.Millisecond {
		t.Errorf("%v: it lasts %v from when it has begun", err, time.Until(r.task.ends()))
	}
}

// TestRefusedTask has a recording not begin: others go on.
func TestRefusedTask(t *testing.T) {
	e := employ(t, newBench(t, 6), "", &studio{open: map[*take]bool{}})
	e.await(t, e.takes, builtinTake)
	e.mu().Lock()
	e.refuse = true
	e.mu().Unlock()
	e.orders <- ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","duration":"1m"}`, UntilUnixNano: time.Now().Add(time.Minute).UnixNano()})
	e.await(t, e.phases, "map[1:failed builtin:running]")
	if got := e.takes(); got != builtinTake {
		t.Errorf("recording %s", got)
	}
}

// TestBuiltinTriedAgain has the built-in recording not begin: that ends an agent
// where it is the first thing that it does, and not where a profile was deleted.
func TestBuiltinTriedAgain(t *testing.T) {
	studio := &studio{open: map[*take]bool{}}
	e := employ(t, newBench(t, 16), "", studio)
	e.await(t, e.takes, builtinTake)
	e.orders <- ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"lasting","frequency":99}`})
	e.await(t, e.takes, "cpu-clock 99 all")
	e.mu().Lock()
	e.refuse = true
	e.mu().Unlock()
	e.orders <- ordered(2)
	e.await(t, e.phases, "map[builtin:failed]")
	e.mu().Lock()
	e.refuse = false
	e.mu().Unlock()
	e.orders <- ordered(3, &atysv1.Task{Id: "2", Profile: `{"kind":"Profile","name":"lasting","frequency":99}`})
	e.await(t, e.takes, "cpu-clock 99 all") // it still hears orders
	e.end()

	studio.refuse = true
	b := newBench(t, 17)
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Record: studio.record})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil {
		t.Error("an agent that can record nothing from its start goes on")
	}
}

func (e *employed) mu() *sync.Mutex { return &e.studio.mu }

// TestAim has a task follow the processes that it means.
func TestAim(t *testing.T) {
	e := employ(t, newBench(t, 7), "", &studio{open: map[*take]bool{}})
	const name = "atys-sleeper" // of which there is no other
	program := filepath.Join(t.TempDir(), name)
	if err := exec.CommandContext(t.Context(), "cp", "/bin/sleep", program).Run(); err != nil {
		t.Fatal(err)
	}
	task := &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"sleepers","select":"{executable=\"` + name + `\"}"}`}
	e.orders <- ordered(1, task)
	e.await(t, e.phases, "map[1:waiting]")
	e.await(t, e.takes, "") // there is nothing to record
	sleeper := exec.CommandContext(t.Context(), program, "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	e.await(t, e.takes, fmt.Sprintf("cpu-clock 19 at [%d]", sleeper.Process.Pid))
	e.await(t, e.phases, "map[1:running]")
	limited := &atysv1.Task{Id: "1", Profile: task.GetProfile(), Limited: true, Eligible: 1}
	e.orders <- ordered(2, limited)
	e.await(t, e.takes, "cpu-clock 19 at []") // none of the node's are chosen
	if err := sleeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait() // it was killed
}

// TestRelieve has the tables of the kernel fill within a window: it is cut
// before its edge, and still is one.
func TestRelieve(t *testing.T) {
	b := newBench(t, 8)
	a := still(t, Options{Node: "n", Spool: b.spool, Intake: b.server})
	often := spec.Builtin()
	often.Frequency = 9999
	r := newTask("often", often, time.Time{}).recordings[0]
	a.put(r, b.machine)
	now := time.Now()
	r.look = r.nextLook(now)
	if r.look.IsZero() || r.look.Sub(now) > time.Second {
		t.Fatalf("the tables are looked at after %v", r.look.Sub(now))
	}
	for _, full := range []float64{0.1, 0.5, 0.1, 0.9} {
		now = now.Add(time.Second)
		b.machine.full = full
		for range 2 { // not again at once
			if r.check(now, nil, func(f fullness) { a.filled <- f }); r.checked != nil {
				a.hasFilled(<-a.filled)
			}
			a.settle(t)
		}
	}
	if b.machine.next != 2 || b.spool.Stats().Records != 0 {
		t.Fatalf("cut %d times before the edge, want 2; %d records", b.machine.next, b.spool.Stats().Records)
	}
	var parts []*profile.Window
	a.cut(r, atEdge)
	for a.inFlight > 0 || len(a.busy) > 0 {
		select {
		case d := <-a.cuts:
			a.hasCut(d)
		case d := <-a.arrived:
			parts = append(parts, d.Parts...)
			a.delivered(d)
		}
	}
	targets, n := map[string]bool{}, int64(0)
	for _, w := range parts {
		if n += w.N(); targets[w.Target.String()] || w.Duration != parts[0].Duration || !w.Start.Equal(time.Unix(0, 1)) {
			t.Errorf("of %v there is a window from %v on of %v, besides %v", w.Target, w.Start, w.Duration, targets)
		}
		targets[w.Target.String()] = true
	}
	if n != b.cut() || n == 0 {
		t.Errorf("the window has %d samples, want %d", n, b.cut())
	}
	seldom := newTask("seldom", spec.Builtin(), time.Time{}).recordings[0]
	if look := seldom.nextLook(now); !look.IsZero() {
		t.Errorf("at 19 Hz the tables are looked at, at %v", look)
	}
}

// TestLookAtEvents has the tables of recordings be looked at that have no rate:
// each system call is recorded, however often a profile says.
func TestLookAtEvents(t *testing.T) {
	now := time.Now()
	for event, want := range map[string]bool{"syscalls:sys_enter_openat": true, "page-faults": true, "cycles:u": true,
		"cpu-clock": false, "cpu": false, "task-clock:u": false} {
		r := newTask("x", spec.Builtin(), time.Time{}).recordings[0]
		r.Measurement = spec.Measure(event, r.rate)
		if look := r.nextLook(now); look.IsZero() == want || look.Sub(now) > time.Second {
			t.Errorf("%s: the tables are looked at after %v", event, look.Sub(now))
		}
		r.rate = 9999
		if look := r.nextLook(now); look.IsZero() || look.Sub(now) > time.Second {
			t.Errorf("%s at 9,999 Hz: the tables are looked at after %v", event, look.Sub(now))
		}
	}
}

// brittle is a machine that breaks.
type brittle struct {
	*machine
	broken bool
}

func (b *brittle) Cut(e sampler.Edge) ([]*profile.Window, error) {
	if b.broken {
		return nil, errors.New("the kernel takes no more")
	}
	return b.machine.Cut(e)
}

// TestBrokenCut has a cut fail after others of the same window: these are kept.
func TestBrokenCut(t *testing.T) {
	for name, why := range map[string]why{"at the edge": atEdge, "before it": early, "at the end": atEnd} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 13)
			a := still(t, Options{Node: "n", Spool: b.spool, Intake: b.server})
			one := newTask("x", spec.Builtin(), time.Time{})
			r, sampler := one.recordings[0], &brittle{machine: b.machine}
			a.tasks = []*task{one}
			a.put(r, sampler)
			for range 34 {
				a.cutNow(t, r, early)
			}
			sampler.broken = true
			if why == atEnd {
				a.conclude(r)
				a.settle(t)
			} else {
				a.cutNow(t, r, why)
			}
			if one.phase != phaseFailed || r.instrument.Sampler() != nil || r.edge.IsZero() != (why == atEnd) {
				t.Errorf("%s, tried again at %v", one.phase, r.edge)
			}
			a.shipper.drainLast(t.Context())
			if got, want := b.server.samples(), b.cut(); got != want || want == 0 {
				t.Errorf("%d samples arrived of %d", got, want)
			}
		})
	}
}
