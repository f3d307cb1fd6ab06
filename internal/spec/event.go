package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// events are those that agents know by a name alone; package sampler/cpu has what
// the kernel calls them, and a test that it has the same.
var events = []string{
	"branch-misses", "cache-misses", "context-switches", "cpu-clock", "cpu-migrations", "cycles", "instructions",
	"major-faults", "minor-faults", "page-faults", "task-clock",
	"cpu", "cpu-cycles", "cs", "faults", "migrations", // which are the same by other names
}

// tracepoint is subsystem:name, each of them a directory of the kernel's: whatever
// is a path leads elsewhere.
var tracepoint = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{1,64}$`)

// CheckEvent refuses what no agent can record, whatever its kernel has: :u or :k at
// the end of a name leaves out kernel or user code, which tracepoints do not have.
func CheckEvent(name string) error {
	base := withoutPart(name)
	if slices.Contains(events, base) || base == name && tracepoint.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%.80q: want one of %s, with :u or :k at its end or without, or a tracepoint such as sched:sched_switch", name, strings.Join(events, ", "))
}

// withoutPart leaves out which part of the code an event is of, :u or :k.
func withoutPart(event string) string {
	if base, ok := strings.CutSuffix(event, ":u"); ok {
		return base
	}
	return strings.TrimSuffix(event, ":k")
}

// Measurement is what a recording measures, and how much of it is sampled.
type Measurement struct {
	Kind      string        // of its windows: cpu, page-faults, sched:sched_switch
	Event     string        // that takes its samples, as perf names it
	Rate      float64       // samples a second and CPU, if time is sampled; 0: events are
	Threshold time.Duration // what takes less is kept with a probability; 0: all is kept
	Every     uint64        // events per sample; 0: as many as come near the profile's frequency
}

// kindsOfEvents are those that differ from the event's name.
var kindsOfEvents = map[string]string{
	"cpu": KindCPU, "cpu-clock": KindCPU, "task-clock": KindCPU,
	"cpu-cycles": "cycles", "cs": "context-switches", "faults": "page-faults", "migrations": "cpu-migrations",
}

// Measure returns what an event measures that CheckEvent accepts, where time is sampled
// so many times a second.
func Measure(event string, hertz float64) Measurement {
	base := withoutPart(event)
	m := Measurement{Kind: cmp.Or(kindsOfEvents[base], base), Event: event}
	switch {
	case m.Kind == KindCPU:
		m.Rate = hertz
	case tracepoint.MatchString(base):
		m.Every = 1
	}
	return m
}
