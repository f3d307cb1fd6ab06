package unwind

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

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
			v, err := victims.Start(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			u := tracked(t, Options{Wanted: func(pid int) bool { return pid == v.PID }})
			if err := u.Track(v.PID); err != nil {
				t.Fatal(err)
			}
			ends := walksAtSwitch(t, u, 500*time.Millisecond)
			var walks uint64
			for _, n := range ends {
				walks += n
			}
			if complete := ends[kernelWalkEndEND_COMPLETE]; walks < 40 || float64(complete) < 0.99*float64(walks) {
				t.Errorf("%d walks, %d complete: %d", walks, complete, ends)
			}
		})
	}
}

// walksAtSwitch attaches the program for a while and counts the walks by end.
func walksAtSwitch(t *testing.T, u *Unwinder, d time.Duration) (ends [16]uint64) {
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
	defer objects.WalkAtSwitch.Close()
	defer objects.Ends.Close()
	attached, err := link.AttachTracing(link.TracingOptions{Program: objects.WalkAtSwitch})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	if err := attached.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range ends {
		var perCPU []uint64
		if err := objects.Ends.Lookup(uint32(i), &perCPU); err != nil {
			t.Fatal(err)
		}
		for _, n := range perCPU {
			ends[i] += n
		}
	}
	return ends
}
