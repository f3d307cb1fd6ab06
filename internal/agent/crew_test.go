package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// slowCrew takes its time to cut, and gives two windows for each process.
type slowCrew struct {
	*take
	patience time.Duration

	mu     sync.Mutex // guards all below
	at     map[int]bool
	cuts   int
	now    int // cuts at the same time
	gone   bool
	failed string
}

func (c *slowCrew) Aim(add, drop []int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range add {
		c.at[pid] = true
	}
	for _, pid := range drop {
		delete(c.at, pid)
	}
	return c.take.Aim(add, drop)
}

func (c *slowCrew) Cut(e sampler.Edge) (windows []*profile.Window, _ error) {
	c.mu.Lock()
	c.cuts++
	c.now++
	if c.now > 1 || c.gone {
		panic("cut while it cuts, or after its last cut")
	}
	c.gone = e.Last
	c.mu.Unlock()
	time.Sleep(c.patience)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	for pid := range c.at {
		for range 2 {
			b := profile.NewBuilder(profile.Head{Start: time.Now(), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)},
				Losses: []profile.Loss{{Reason: profile.LossDropped, N: 1, Value: 1}}})
			thread := b.Thread(profile.Thread{PID: pid, TID: pid, Exact: profile.Exact{CPU: time.Second}})
			b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: 1, Values: []int64{1}, Squares: []float64{1}})
			windows = append(windows, b.Window())
		}
	}
	return windows, nil
}

func (c *slowCrew) Lead() time.Duration { return 10 * time.Millisecond }

func (c *slowCrew) Trouble() sampler.Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sampler.Trouble{Message: c.failed, Failed: c.failed != ""}
}

// TestCrew has a task be carried out by a crew that takes longer to cut than its
// window lasts: the agent waits for none of its cuts but the last.
func TestCrew(t *testing.T) {
	b := newBench(t, 9)
	name := fmt.Sprintf("atys-crewed-%d", os.Getpid()) // of which there is no other, also while this test runs twice
	program := filepath.Join(t.TempDir(), name)
	if err := exec.CommandContext(t.Context(), "cp", "/bin/sleep", program).Run(); err != nil {
		t.Fatal(err)
	}
	sleeper := exec.CommandContext(t.Context(), program, "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait() // it was killed
	}()
	s := &studio{open: map[*take]bool{}}
	crew := &slowCrew{patience: 300 * time.Millisecond, at: map[int]bool{}}
	e := &employed{&orderer{orders: make(chan *atysv1.Orders)}, s, b, "", nil}
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Fleet: e.orderer, Look: 20 * time.Millisecond, Record: func(w Wanted) (sampler.Sampler, error) {
		r, err := s.record(w)
		if err == nil && w.Kernel == spec.KernelPySpy {
			crew.take = r.(*take)
			return crew, nil
		}
		return r, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	time.Sleep(time.Second) // what is younger is no target
	e.orders <- ordered(1, &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","kernel":"py-spy","window":"1s","duration":"3s","select":"{executable=\"` + name + `\"}"}`,
		UntilUnixNano: time.Now().Add(3 * time.Second).UnixNano()})
	e.await(t, e.phases, "map[1:running builtin:running]")
	crew.mu.Lock()
	crew.failed = "no rights"
	crew.mu.Unlock()
	e.await(t, e.phases, "map[1:failed builtin:running]")
	crew.mu.Lock()
	crew.failed = ""
	crew.mu.Unlock()
	e.await(t, e.phases, "map[1:done builtin:running]")
	if crew.gone == false || crew.cuts < 2 || s.open[crew.take] {
		t.Errorf("%d cuts, last %v, open %v", crew.cuts, crew.gone, s.open[crew.take])
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// Two windows of a process are one of its target, for each cut.
	if got, want := b.server.samples(), int64(2*crew.cuts); got != want || len(b.server.taken) != crew.cuts {
		t.Errorf("%d samples arrived in %d windows, want %d in %d", got, len(b.server.taken), want, crew.cuts)
	}
}

// TestCrewEdges has windows of crews that need a while be cut once for each edge.
func TestCrewEdges(t *testing.T) {
	r := newTask("x", spec.Builtin(), time.Time{}).recordings[0]
	edge, now := time.Unix(1_000_000_000, 0), time.Time{}
	a := still(t, Options{Now: func() time.Time { return now }})
	a.put(r, &slowCrew{})
	for after, want := range map[time.Duration]time.Duration{
		-10 * time.Millisecond: 10 * time.Second, // it is cut now, for the next edge
		-11 * time.Millisecond: 10*time.Second + time.Millisecond,
		3 * time.Second:        7*time.Second - 10*time.Millisecond,
	} {
		now = edge.Add(after)
		if got := a.spending.untilEdge(r); got != want {
			t.Errorf("%v after the edge: %v until the next, want %v", after, got, want)
		}
	}
	now = edge.Add(9 * time.Second)
	a.put(r, &take{})
	if got := a.spending.untilEdge(r); got != time.Second {
		t.Errorf("%v", got)
	}
}
