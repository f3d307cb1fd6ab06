package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/test/testwait"
)

// stuck is a census for which /proc does not answer before it is released.
type stuck struct {
	*targets.Census
	released    chan struct{}
	looked, did atomic.Int64 // how often it was asked what runs, and who did what was sampled
}

func (s *stuck) Look() error {
	s.looked.Add(1)
	<-s.released
	return s.Census.Look()
}

func (s *stuck) Of(threads []profile.Thread, commands targets.Commands) ([]profile.Labels, int) {
	s.did.Add(1)
	<-s.released
	return s.Census.Of(threads, commands)
}

// choked is a machine that does not say how full it is before it is released.
type choked struct {
	*machine
	released chan struct{}
	asked    atomic.Int64
}

func (c *choked) Full() float64 {
	c.asked.Add(1)
	<-c.released
	return 0
}

// TestEdgesWaitForNothing has /proc and the sampler's tables answer late: windows are cut at
// their edges all the same, nothing of them is lost, and the goroutine that keeps time does not
// spin. If /proc never answers, the agent ends without.
func TestEdgesWaitForNothing(t *testing.T) {
	for name, answers := range map[string]bool{"late": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 19)
			full := &choked{machine: b.machine, released: make(chan struct{})}
			builtin := spec.Builtin()
			builtin.Kinds, builtin.Events, builtin.Window = nil, []string{"page-faults"}, 3*time.Millisecond
			builtin.Frequency = lookSamples / lookLeast.Seconds() // tables are to be checked as often as can be
			a, err := New(Options{Node: "n", Builtin: builtin, Spool: b.spool, Intake: b.server, Look: 3 * time.Millisecond,
				Record: func(Wanted) (sampler.Sampler, error) { return full, nil }})
			if err != nil {
				t.Fatal(err)
			}
			census := &stuck{Census: targets.NewCensus("n", nil), released: make(chan struct{})}
			a.census = census
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended, began := make(chan error), time.Now()
			go func() { ended <- a.Run(ctx) }()
			testwait.Until(t, "all are asked", func() bool { return census.looked.Load() > 0 && census.did.Load() > 0 && full.asked.Load() > 0 })
			before, due := b.machine.windows(), time.Now().Add(5*lookLeast)
			testwait.Until(t, "windows are cut meanwhile", func() bool { return b.machine.windows() >= before+100 && time.Now().After(due) }, func() string { return fmt.Sprint(b.machine.windows()) })
			if looked, did, asked := census.looked.Load(), census.did.Load(), full.asked.Load(); looked != 1 || did != 1 || asked != 1 {
				t.Errorf("asked again while an answer is waited for: what runs %d times, who it was %d times, how full it is %d times", looked, did, asked)
			}
			if answers {
				close(census.released)
				testwait.Until(t, "windows arrive", func() bool { return b.server.samples() > 0 })
			} else {
				defer close(census.released)
			}
			close(full.released)
			lasted := time.Since(began)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if most := 5 * (int(b.machine.windows()) + int(lasted/a.options.Look)); a.turns > most {
				t.Errorf("%d turns of the loop, at most %d are due", a.turns, most)
			}
			if got, want := b.server.samples(), b.cut(); got != want || a.pipeline.Merged() == 0 {
				t.Errorf("%d samples arrived of %d, %d windows were merged", got, want, a.pipeline.Merged())
			}
		})
	}
}
