package unwind

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"atys.dev/atys/test/testwait"
	"atys.dev/atys/test/victims"
)

// TestWalkAtSwitch walks where threads leave the CPU: threads that are
// preempted in their own code, and one that waits in the kernel.
func TestWalkAtSwitch(t *testing.T) {
	for _, victim := range []string{"threads50", "lockstep"} {
		t.Run(victim, func(t *testing.T) {
			path, err := victims.Build(t.TempDir(), victim, victims.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			v, err := victims.Start(ctx, path, "120") // seconds: loading the program may take ten on a busy machine
			if err != nil {
				t.Fatal(err)
			}
			u := tracked(t, Options{Wanted: func(pid int) bool { return pid == v.PID }})
			if err := u.Track(v.PID); err != nil {
				t.Fatal(err)
			}
			ends := walksAtSwitch(t, u, 40)
			walks := sum(ends)
			if complete := ends[kernelWalkEndEND_COMPLETE]; walks < 40 || float64(complete) < 0.99*float64(walks) {
				t.Errorf("%d walks, %d complete: %d", walks, complete, ends)
			}
		})
	}
}

// walksAtSwitch attaches the program until it has walked so often, and counts
// the walks by end.
func walksAtSwitch(t *testing.T, u *Unwinder, enough uint64) [16]uint64 {
	t.Helper()
	return switchWalks(t, u)(enough)
}

// switchWalks loads the program, which takes seconds on a busy machine, and gives
// what attaches it until it has walked so often more, and counts these walks by end.
func switchWalks(t *testing.T, u *Unwinder) func(enough uint64) [16]uint64 {
	t.Helper()
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	var objects struct {
		WalkAtSwitch *ebpf.Program `ebpf:"walk_at_switch"`
		Ends         *ebpf.Map     `ebpf:"ends"`
	}
	lent, err := u.Lend(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.LoadAndAssign(&objects, lent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		objects.WalkAtSwitch.Close()
		objects.Ends.Close()
	})
	return func(enough uint64) (ends [16]uint64) {
		t.Helper()
		before := endsSoFar(t, objects.Ends)
		ends = before
		attached, err := link.AttachTracing(link.TracingOptions{Program: objects.WalkAtSwitch})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(testwait.Longest(t)); sum(ends)-sum(before) < enough && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
			ends = endsSoFar(t, objects.Ends)
		}
		if err := attached.Close(); err != nil {
			t.Fatal(err)
		}
		ends = endsSoFar(t, objects.Ends)
		for i := range ends {
			ends[i] -= before[i]
		}
		return ends
	}
}

func endsSoFar(t *testing.T, counts *ebpf.Map) (ends [16]uint64) {
	t.Helper()
	for i := range ends {
		var perCPU []uint64
		if err := counts.Lookup(uint32(i), &perCPU); err != nil {
			t.Fatal(err)
		}
		for _, n := range perCPU {
			ends[i] += n
		}
	}
	return ends
}

func sum(ends [16]uint64) (all uint64) {
	for _, n := range ends {
		all += n
	}
	return all
}
