package agent

import (
	"context"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/spec"
)

// namer remembers what it was asked to name.
type namer struct {
	*machine
	stacks int
}

func (n *namer) Name(_ context.Context, w *profile.Window) (*profile.Window, error) {
	n.stacks += len(w.Stacks)
	return w, nil
}

// twoServices is a window of one busy service and one that does little. Each has a
// thread that is sampled once in a hundred times; they are of no process of this
// machine.
func twoServices() *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(10)}})
	for i, service := range []string{"busy", "small"} {
		for tid, n := range map[int]int64{1: 99, 2: 1} {
			n *= []int64{100, 1}[i]
			id := b.Thread(profile.Thread{PID: 1<<30 + i, TID: tid, Process: service, Name: []string{"", "main", "rare-7"}[tid], Exact: profile.Exact{CPU: time.Duration(10 * n)}})
			leaf, caller := b.Named(profile.Frame{Function: service + ".work"}), b.Named(profile.Frame{Function: service + []string{"", ".run", ".rest"}[tid]})
			b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{leaf, caller}, profile.EndTooDeep), Thread: id, N: n, Values: []int64{10 * n}})
		}
	}
	return b.Window()
}

// TestPrunedByTarget prunes each target by itself, before anything is named, however
// threads are told apart in what is shipped.
func TestPrunedByTarget(t *testing.T) {
	for threads, want := range map[spec.Threads][]string{spec.ThreadsEach: {"main", prune.Name}, spec.ThreadsPattern: {"main", prune.Name}, spec.ThreadsNone: nil} {
		t.Run(string(threads), func(t *testing.T) {
			b := newBench(t, 3)
			a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server})
			if err != nil {
				t.Fatal(err)
			}
			p := spec.Builtin()
			p.Pruning, p.Threads = 99, threads
			one := newTask("x", p, time.Time{})
			from := &namer{machine: b.machine}
			w := twoServices()
			parts := a.parts(one.recordings[0], from, w)
			if from.stacks != 4 { // of both that stay, and what the others did, of which no caller is
				t.Errorf("%d stacks were named", from.stacks)
			}
			if len(parts) != 2 {
				t.Fatalf("%d parts", len(parts))
			}
			for _, part := range parts {
				n := map[string]int64{"busy": 100, "small": 1}[part.Target["service"]]
				if part.N() != 100*n || part.Total(0) != 1000*n || part.Exact.CPU != time.Duration(1000*n) || prune.Share(part, 0) != 0.01 {
					t.Errorf("%v: %d samples, %v used, %g pruned", part.Target, part.N(), part.Exact.CPU, prune.Share(part, 0))
				}
				if l := part.LossOf(profile.LossPruned); l.N != n || l.Value != 10*n || part.LossOf(profile.LossTruncated).N != 99*n {
					t.Errorf("%v: losses %+v", part.Target, part.Losses)
				}
				if len(part.Threads) != len(want) {
					t.Errorf("%v: threads %+v", part.Target, part.Threads)
				}
				for i, name := range want {
					if part.Threads[i].Name != name {
						t.Errorf("%v: thread %+v, want %s", part.Target, part.Threads[i], name)
					}
				}
			}
		})
	}
}

// TestPiecesArePruned cuts a window early: each of its pieces is pruned, and named,
// when it is cut.
func TestPiecesArePruned(t *testing.T) {
	b := newBench(t, 4)
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server})
	if err != nil {
		t.Fatal(err)
	}
	p := spec.Builtin()
	p.Pruning = 80
	one := newTask("x", p, time.Time{})
	r, from := one.recordings[0], &namer{machine: b.machine}
	a.tasks, r.sampler = []*task{one}, from
	a.cutEarly(r)
	first := from.stacks
	a.cut(r)
	if first == 0 || from.stacks == first {
		t.Errorf("%d stacks were named of the first piece, %d of both", first, from.stacks)
	}
	a.shipper.drainLast(t.Context())
	if got, want := b.server.samples(), b.cut(); got != want || want == 0 {
		t.Errorf("%d samples arrived of %d", got, want)
	}
}
