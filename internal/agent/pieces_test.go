package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// noProcess is a number that no process has.
const noProcess = 1 << 22

// sampled is a take that samples one process, ever more.
type sampled struct {
	*take
	n int64
}

func (s *sampled) Cut(sampler.Edge) ([]*profile.Window, error) {
	s.n++
	b := profile.NewBuilder(profile.Head{Start: time.Unix(s.n, 0), Duration: time.Second, Types: []profile.ValueType{profile.CPUTime(1)}})
	thread := b.Thread(profile.Thread{PID: noProcess, TID: noProcess, Process: "x"})
	b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), Thread: thread, N: s.n, Values: []int64{s.n}, Squares: []float64{float64(s.n)}})
	return []*profile.Window{b.Window()}, nil
}

// sample has the site's recording sample a process, which is a target.
func (s *site) sample(t *testing.T, labels profile.Labels) *recording {
	t.Helper()
	s.have(t, 11)
	r := s.task.recordings[0]
	s.put(r, &sampled{take: r.instrument.Sampler().(*take)})
	s.become(t, r, labels)
	return r
}

// become has the number that is sampled be another process, which has ended, once the windows
// that were cut have their targets.
func (s *site) become(t *testing.T, r *recording, labels profile.Labels) {
	t.Helper()
	cut := r.instrument.Sampler().(*sampled).n
	testwait.Until(t, "what was cut has its targets", func() bool { return s.residents.asked() == cut })
	s.residents.know(noProcess, labels)
}

// kept writes the windows that were spooled since the last call, such as "a 3 from 1 for 2s".
func (s *site) kept(t *testing.T) (all []string) {
	t.Helper()
	waiting := s.options.Spool
	for _, id := range waiting.Oldest(99) {
		records, err := waiting.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			m := &atysv1.Spooled{}
			if err := proto.Unmarshal(record, m); err != nil {
				t.Fatal(err)
			}
			n, w := int64(0), m.GetWindow()
			for _, count := range w.GetRows().GetN() {
				n += count
			}
			all = append(all, fmt.Sprintf("%s %d from %d for %v", m.GetSeries().GetLabels()["instance"], n, w.GetStartUnixNano()/1e9, time.Duration(w.GetDurationNs())))
		}
		if err := waiting.Done(id); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

func instance(name string) profile.Labels { return profile.Labels{"service": "shop", "instance": name} }

// TestNumberUsedAgain has a window of an hour be cut early, and the number of one of
// its processes become another's: each has its own samples, of the whole hour.
func TestNumberUsedAgain(t *testing.T) {
	s := newSite(t, time.Hour)
	r := s.sample(t, instance("first"))
	s.kept(t)
	s.cutNow(t, r, early)
	s.become(t, r, instance("second"))
	s.cutNow(t, r, early)
	s.cutNow(t, r, atEdge)
	if got, want := s.kept(t), []string{"first 1 from 1 for 3s", "second 5 from 1 for 3s"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// TestChosenEnds has a chosen instance end, and the server choose another one, within
// a window: what it was seen to do is kept.
func TestChosenEnds(t *testing.T) {
	for name, cutEarly := range map[string]bool{"in one piece": false, "in pieces": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, time.Hour)
			choose := func(names ...string) {
				m := &atysv1.Task{Id: "1", Profile: `{"kind":"Profile","name":"x","select":"{service=\"shop\"}","window":"1h"}`, Limited: true, Eligible: 9}
				for _, name := range names {
					m.Chosen = append(m.Chosen, &atysv1.Series{Labels: instance(name)})
				}
				s.follow(append(s.understand(ordered(1, m)), s.tasks[1]))
				s.settle(t)
			}
			r := s.sample(t, instance("first"))
			choose("first", "second")
			s.kept(t)
			choose("second")
			choose("third")
			if cutEarly {
				s.cutNow(t, r, early)
			}
			want := []string{"first 1 from 1 for 1s"}
			if s.cutNow(t, r, atEdge); cutEarly {
				want = []string{"first 3 from 1 for 2s"}
			}
			if got := s.kept(t); !slices.Equal(got, want) {
				t.Errorf("kept %q, want %q", got, want)
			}
			s.cutNow(t, r, atEdge)
			if got := s.kept(t); len(got) > 0 || len(r.let) > 0 {
				t.Errorf("kept %q of a window that began later, and %v", got, r.let)
			}
		})
	}
}

// TestCrewLetGo has other instances be chosen while a crew cuts: what they were is
// known for the window that has begun then.
func TestCrewLetGo(t *testing.T) {
	s := newSite(t, 10*time.Second)
	r := s.sample(t, instance("first"))
	s.task.limited, s.task.chosen = true, map[string]bool{instance("first").String(): true, instance("second").String(): true}
	s.task.letGo(&task{limited: true, chosen: map[string]bool{instance("second").String(): true}})
	r.turned = time.Now()
	time.Sleep(time.Millisecond)
	s.task.chosen = map[string]bool{instance("second").String(): true}
	s.task.letGo(&task{limited: true})
	s.task.chosen = nil
	r.forget()
	if kept := r.kept()[0]; kept.Means(instance("first")) || !kept.Means(instance("second")) {
		t.Errorf("remembered are %v", r.let)
	}
	s.task.limited = false
	s.task.letGo(&task{limited: true})
	if s.task.limited = true; !r.kept()[0].Means(instance("third")) || r.kept()[0].Means(profile.Labels{"service": "cart"}) {
		t.Error("all instances of the service were meant, and nobody else")
	}
}

// TestKeptWhileTheSameHolds has cuts share what says which targets are kept, until a task selects
// others.
func TestKeptWhileTheSameHolds(t *testing.T) {
	s := newSite(t, 10*time.Second)
	r := s.sample(t, instance("first"))
	before := r.kept()[0]
	if again := r.kept()[0]; again != before {
		t.Error("each cut has its own")
	}
	s.task.letGo(&task{limited: true})
	s.task.limited, s.task.chosen = true, map[string]bool{}
	since := r.kept()[0]
	if r.letAll.IsZero() || since == before || !since.Means(instance("first")) {
		t.Error("what was selected in this window is kept")
	}
	r.turned = time.Now().Add(time.Second)
	if r.forget(); r.kept()[0].Means(instance("first")) {
		t.Error("what was selected in an earlier window is kept")
	}
}

// namer remembers what it was asked to name.
type namer struct {
	*machine
	stacks int
}

func (n *namer) Name(_ context.Context, w *profile.Window) (*profile.Window, error) {
	n.stacks += len(w.Stacks)
	return w, nil
}

// TestPiecesAreNamed cuts a window early: each of its pieces is named without waiting for
// its edge.
func TestPiecesAreNamed(t *testing.T) {
	b := newBench(t, 4)
	a := still(t, Options{Node: "n", Spool: b.spool, Intake: b.server})
	p := spec.Builtin()
	p.Pruning = 80
	one := newTask("x", p, time.Time{})
	r, from := one.recordings[0], &namer{machine: b.machine}
	a.tasks = []*task{one}
	a.put(r, from)
	a.cutNow(t, r, early)
	a.cutNow(t, r, atEdge)
	if from.stacks == 0 {
		t.Error("nothing was named")
	}
	a.shipper.drainLast(t.Context())
	if got, want := b.server.samples(), b.cut(); got != want || want == 0 {
		t.Errorf("%d samples arrived of %d", got, want)
	}
}

// speechless is a machine whose names do not come before they are released.
type speechless struct {
	*machine
	released chan struct{}
}

func (s *speechless) Name(_ context.Context, w *profile.Window) (*profile.Window, error) {
	<-s.released
	return w, nil
}

// TestNamesAreNotWaitedFor has names take very long: windows are cut at their edges all
// the same, and all arrive once the names are there. Where these never come, they arrive
// without when the agent ends.
func TestNamesAreNotWaitedFor(t *testing.T) {
	for name, release := range map[string]bool{"they come": true, "they never come": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 18)
			names := &speechless{b.machine, make(chan struct{})}
			builtin := spec.Builtin()
			builtin.Window = 3 * time.Millisecond
			a, err := New(Options{Node: "n", Builtin: builtin, Spool: b.spool, Intake: b.server,
				Record: func(Wanted) (sampler.Sampler, error) { return names, nil }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() { ended <- a.Run(ctx) }()
			testwait.Until(t, "windows are cut while nothing is named", func() bool { return b.machine.windows() >= 50 }, func() string { return fmt.Sprint(b.machine.windows()) })
			if s := b.spool.Stats(); s.Records > 0 || a.Counts().Shipped > 0 {
				t.Errorf("without names %d windows are spooled", s.Records)
			}
			if release {
				close(names.released)
				testwait.Until(t, "windows arrive", func() bool { return b.server.samples() > 0 }, func() string { return fmt.Sprint(b.server.samples()) })
			} else {
				defer close(names.released)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if got, want := b.server.samples(), b.cut(); got != want || want == 0 || a.pipeline.Merged() == 0 {
				t.Errorf("%d samples arrived of %d, %d windows were merged", got, want, a.pipeline.Merged())
			}
		})
	}
}
