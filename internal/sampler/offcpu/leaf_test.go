package offcpu

import (
	"math"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/symbol"
)

// leaf returns the innermost function of a stack, if it is of the kernel.
func leaf(k *symbol.Kernel, w *profile.Window, id profile.StackID) string {
	stack := w.Stacks[id].Locations
	if len(stack) == 0 || w.Locations[stack[0]].Kind != profile.KindKernel {
		return ""
	}
	frames, _ := k.Frames(w.Locations[stack[0]])
	return frames[0].Function
}

// TestLeaves has stacks begin where a thread waits, not with the scheduler, also while another
// sampler's program runs at the same tracepoint.
func TestLeaves(t *testing.T) {
	need(t)
	k := symbol.NewKernel("/proc", "/sys", nil)
	if err := k.Err(); err != nil {
		t.Skip(err)
	}
	name := func(address uint64) string {
		frames, _ := k.Frames(k.Location(address))
		return frames[0].Function
	}
	for how, want := range map[string]string{"sleep": "nanosleep", "pingpong": "pipe"} {
		pid := victim(t, how)
		o := Options{PIDs: []int{pid}, Naming: table.Naming{Kernel: k.Location}, KernelName: name, Walks: 5000}
		samplers := []*Sampler{start(t, o), start(t, o)}
		for _, s := range samplers {
			cut(t, s, 0)
		}
		time.Sleep(500 * time.Millisecond)
		for _, s := range samplers {
			w := cut(t, s, 0)
			found, functions := int64(0), map[string]int64{}
			for _, r := range w.Rows.All() {
				function := leaf(k, w, r.Stack)
				functions[function] += r.N
				if scheduler.MatchString(function) || strings.HasPrefix(function, "bpf_") || function == "__schedule" || strings.HasPrefix(function, "[kernel]") {
					t.Errorf("%s: a stack begins with %s", how, function)
				}
				if w.Contexts[r.Context-1].Reason == "blocked" && strings.Contains(function, want) {
					found += r.N
				}
			}
			if found == 0 {
				t.Errorf("%s: no wait is in a function of %s, but in %v", how, want, functions)
			}
		}
	}
}

// TestSwitching leaves out how a thread came to be switched, however many programs run there
// and whether or not these have names, and nothing else.
func TestSwitching(t *testing.T) {
	for stack, want := range map[string]int{
		"? bpf_trace_run1 __schedule schedule do_nanosleep x":              4,
		"? bpf_trace_run1 __traceiter_sched_exit_tp __schedule schedule x": 5,
		"? ? __schedule.constprop.0 preempt_schedule_irq irqentry_exit x":  4,
		"? ? __schedule preempt_schedule_common __cond_resched mutex_lock": 5,
		"? ? __schedule schedule_preempt_disabled __mutex_lock schedule":   4,
		"? ? __schedule schedule schedule_timeout io_schedule":             4,
		"hrtimer_nanosleep schedule":                                       0, "? ? schedule": 0, "schedule __schedule": 2, "": 0,
	} {
		names := strings.Fields(stack)
		o := Options{KernelName: func(address uint64) string { return strings.Trim(names[address], "?") }}
		addresses := make([]uint64, len(names))
		for i := range addresses {
			addresses[i] = uint64(i)
		}
		if got := o.switching(addresses); got != want {
			t.Errorf("%s: %d frames are left out, want %d", stack, got, want)
		}
	}
	if got := (&Options{}).switching([]uint64{1, 2}); got != 0 {
		t.Errorf("without names %d frames are left out", got)
	}
}

// TestManyEdges cuts a window every few milliseconds of programs that wait often, or for longer
// than a window: each wait is in the windows in which it was, and in no others.
func TestManyEdges(t *testing.T) {
	for how, length := range map[string]time.Duration{"pingpong": 5 * time.Millisecond, "alternate": 20 * time.Millisecond} {
		t.Run(how, func(t *testing.T) {
			need(t)
			pid := victim(t, how)
			s := start(t, Options{PIDs: []int{pid}, Walks: 20000})
			cut(t, s, 500*time.Millisecond) // adapts
			const windows = 100
			all := make([]*profile.Window, windows)
			own, others, before := 0.0, 0.0, 0.0 // how far samples are from the exact waits, in ns
			for i := range all {
				all[i] = cut(t, s, length)
				got, wall := sumUp(all[i], pid).off[""], float64(exact(all[i], pid).Wall)
				own += math.Abs(got - wall)
				others += math.Abs(got - before)
				before = wall
			}
			w := merge(t, all...)
			got, known := sumUp(w, pid), exact(w, pid)
			agree(t, "off the CPU", got.off[""], float64(known.Wall), got.variance[""])
			// Few of the short waits are kept, in some windows none. What a thread that runs has
			// used is up to a tick old.
			if how == "alternate" && own > others*3/4 {
				t.Errorf("samples miss the waits of their own windows by %.0f ms, those of the windows before by %.0f ms", own/1e6, others/1e6)
			}
		})
	}
}
