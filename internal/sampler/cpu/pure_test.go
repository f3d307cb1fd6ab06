package cpu

import (
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/sampler/table"
	"atys.dev/atys/internal/spec"
)

func TestPlanRates(t *testing.T) {
	for _, c := range []struct {
		name   string
		base   float64
		most   float64
		wanted map[int]float64
		want   float64
		keep   map[int]float64
	}{
		{"nobody asks", 99, 0, nil, 99, nil},
		{"one target", 99, 0, map[int]float64{1: 999}, 999, map[int]float64{1: 1}},
		{"slower ones keep a part", 99, 0, map[int]float64{1: 1000, 2: 250, 3: 10}, 1000, map[int]float64{1: 1, 2: 0.25, 3: 0.01}},
		{"a part of what is had", 99, 500, map[int]float64{1: 1000, 2: 250, 3: 10}, 1000, map[int]float64{1: 1, 2: 0.5, 3: 0.02}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planRates(c.base, c.most, c.wanted)
			if p.base != c.want {
				t.Errorf("base rate %v, want %v", p.base, c.want)
			}
			keep := p.probabilities(c.wanted)
			for pid, want := range c.keep {
				if got := float64(keep[pid]) / float64(table.KeepAll); math.Abs(got-want) > 1e-6 {
					t.Errorf("target %d keeps %v, want %v", pid, got, want)
				}
			}
		})
	}
}

func TestCheckFrequency(t *testing.T) {
	for _, hz := range []float64{0, -1, 0.5, 20001, math.NaN(), math.Inf(1)} {
		if CheckFrequency(hz) == nil {
			t.Errorf("%v Hz was accepted", hz)
		}
	}
	for _, hz := range []float64{1, 19, 20000} {
		if err := CheckFrequency(hz); err != nil {
			t.Error(err)
		}
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		name   string
		demand demand
		want   Placement
	}{
		{"slow: nobody notices", demand{hz: 99, others: 2, switches: 10, threads: 1}, PlaceCPUs},
		{"hot, alone on the machine", demand{hz: 4999, others: 0, switches: 2000, threads: 2}, PlaceCPUs},
		{"hot, others busy, few switches", demand{hz: 4999, others: 1, switches: 200, threads: 2}, PlaceThreads},
		{"hot, switching all the time", demand{hz: 999, others: 0.1, switches: 20000, threads: 8}, PlaceCPUs},
		{"hot, with a cgroup of its own", demand{hz: 999, others: 1, switches: 20000, threads: 8, cgroup: "/x"}, PlaceCgroup},
		{"hot, thousands of threads", demand{hz: 999, others: 1, switches: 10, threads: 5000}, PlaceCPUs},
		{"hot, threads that run rarely", demand{hz: 4999, others: 1, switches: 200, threads: 64, rare: 0.5}, PlaceCPUs},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.demand.interrupt = 14 * time.Microsecond
			got := place(c.demand)
			if got.placement != c.want {
				t.Errorf("placed %v (%s), want %v", got.placement, got.why, c.want)
			}
			if got.placement != PlaceCPUs && got.bystanders != 0 {
				t.Errorf("bystanders pay %v where only targets are interrupted", got.bystanders)
			}
		})
	}
}

// This machine may have no PMU, so what a kernel would be asked is checked itself.
func TestEventAttributes(t *testing.T) {
	for _, c := range []struct {
		text         string
		kind, config uint64
		bits         uint64
	}{
		{"cpu-clock", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK, 0},
		{"task-clock", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK, 0},
		{"faults", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS, 0},
		{"major-faults", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ, 0},
		{"cs", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES, 0},
		{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES, unix.PerfBitPreciseIPBit2},
		{"instructions:u", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS, unix.PerfBitPreciseIPBit2 | unix.PerfBitExcludeKernel},
		{"branch-misses:k", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_BRANCH_MISSES, unix.PerfBitPreciseIPBit2 | unix.PerfBitExcludeUser},
		{"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES, unix.PerfBitPreciseIPBit2},
	} {
		e, err := ParseEvent(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		a := e.attr(1234)
		if uint64(a.Type) != c.kind || a.Config != c.config || a.Bits != c.bits|unix.PerfBitDisabled || a.Sample != 1234 {
			t.Errorf("%s asks for type %d config %d bits %#x period %d", c.text, a.Type, a.Config, a.Bits, a.Sample)
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "unknown event",
		"cpu-clocks":        "use one of",
		"sched:no_such":     "no tracepoint",
		"../../etc:passwd":  "no slashes",
		"cpu-clock+nothing": "unknown event",

		"sched:sched_switch:u": "leave out \":u\"",
		"sched:sched_switch:k": "leave out \":k\"",
	} {
		if _, _, err := ParseEvents(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", text, err, want)
		}
	}
}

// A drawn period is down to half the mean: twice the rate must be allowed.
func TestThrottled(t *testing.T) {
	for _, c := range []struct {
		allowed int
		hz      float64
		want    bool
	}{{100000, 20000, false}, {32000, 20000, true}, {1998, 999, false}, {1997, 999, true}, {0, 99, false}} {
		if got := throttled(c.allowed, c.hz); (got != "") != c.want {
			t.Errorf("%v Hz where %d are allowed: %q", c.hz, c.allowed, got)
		}
	}
}

// TestSpecTakesEvents has profiles name whatever can be recorded by its name, and
// nothing else.
func TestSpecTakesEvents(t *testing.T) {
	names := EventNames()
	for alias := range eventAliases {
		names = append(names, alias)
	}
	for _, name := range append(names, "sched:none", "page-fault", "../../x:y", "a:b:c", "sched/x:y") {
		for _, part := range []string{"", ":u", ":k", ":x"} {
			_, err := ParseEvent(name + part)
			records := err == nil || strings.Contains(err.Error(), "this kernel has no") || strings.Contains(err.Error(), "tracefs")
			if err := spec.CheckEvent(name + part); (err == nil) != records {
				t.Errorf("%q can be recorded: %v, and a profile may name it: %v", name+part, records, err)
			}
		}
	}
}
