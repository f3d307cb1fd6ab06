package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

// Event is what is counted, and sampled each time enough of it has happened.
type Event struct {
	Name   string
	Unit   string // of its period: nanoseconds, count
	Type   uint32 // perf_event_attr.type
	Config uint64
	Clock  bool // a timer: its period is time, and ours to draw at random
	Trace  bool // a tracepoint: each hit runs the program
	PMU    bool // needs a hardware performance monitoring unit
	User   bool // :u
	Kernel bool // :k
}

var softwareEvents = map[string]uint64{
	"cpu-clock":        unix.PERF_COUNT_SW_CPU_CLOCK,
	"task-clock":       unix.PERF_COUNT_SW_TASK_CLOCK,
	"page-faults":      unix.PERF_COUNT_SW_PAGE_FAULTS,
	"minor-faults":     unix.PERF_COUNT_SW_PAGE_FAULTS_MIN,
	"major-faults":     unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ,
	"context-switches": unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
	"cpu-migrations":   unix.PERF_COUNT_SW_CPU_MIGRATIONS,
}

var hardwareEvents = map[string]uint64{
	"cycles":        unix.PERF_COUNT_HW_CPU_CYCLES,
	"instructions":  unix.PERF_COUNT_HW_INSTRUCTIONS,
	"cache-misses":  unix.PERF_COUNT_HW_CACHE_MISSES,
	"branch-misses": unix.PERF_COUNT_HW_BRANCH_MISSES,
}

var eventAliases = map[string]string{
	"faults": "page-faults", "cs": "context-switches", "migrations": "cpu-migrations",
	"cpu": "cpu-clock", "cpu-cycles": "cycles",
}

// EventNames lists the events known by name, without tracepoints.
func EventNames() []string {
	var names []string
	for n := range softwareEvents {
		names = append(names, n)
	}
	for n := range hardwareEvents {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// ParseEvent reads one event: a name, or subsystem:tracepoint; :u or :k at the
// end of a name leaves out kernel or user code.
func ParseEvent(text string) (Event, error) {
	name, user, kernel := strings.TrimSpace(text), false, false
	if base, ok := strings.CutSuffix(name, ":u"); ok {
		name, user = base, true
	} else if base, ok := strings.CutSuffix(name, ":k"); ok {
		name, kernel = base, true
	}
	if alias, ok := eventAliases[name]; ok {
		name = alias
	}
	e := Event{Name: name, Unit: "count", User: user, Kernel: kernel}
	if config, ok := softwareEvents[name]; ok {
		e.Type, e.Config = unix.PERF_TYPE_SOFTWARE, config
		if e.Clock = strings.HasSuffix(name, "-clock"); e.Clock {
			e.Unit = "nanoseconds"
		}
		return e, nil
	}
	if config, ok := hardwareEvents[name]; ok {
		e.Type, e.Config, e.PMU = unix.PERF_TYPE_HARDWARE, config, true
		return e, nil
	}
	if strings.Count(name, ":") == 1 {
		if name != strings.TrimSpace(text) {
			return Event{}, fmt.Errorf("tracepoint %q is always hit in the kernel, it has no part of user code to choose: leave out %q",
				name, strings.TrimPrefix(strings.TrimSpace(text), name))
		}
		return parseTracepoint(e, name)
	}
	return Event{}, fmt.Errorf("unknown event %q: use one of %s, or a tracepoint such as sched:sched_switch",
		text, strings.Join(EventNames(), ", "))
}

// ParseEvents reads "A" or "A+B": what is sampled, and what each sample also reads.
func ParseEvents(text string) (base Event, second *Event, err error) {
	first, other, two := strings.Cut(text, "+")
	if base, err = ParseEvent(first); err != nil || !two {
		return base, nil, err
	}
	b, err := ParseEvent(other)
	if err != nil {
		return base, nil, err
	}
	return base, &b, nil
}

var tracefsRoots = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

func parseTracepoint(e Event, name string) (Event, error) {
	subsystem, point, _ := strings.Cut(name, ":")
	if strings.ContainsAny(name, "/.") {
		return Event{}, fmt.Errorf("tracepoint %q: a name has no slashes or dots", name)
	}
	var err error
	for _, root := range tracefsRoots {
		text, readErr := os.ReadFile(filepath.Join(root, "events", subsystem, point, "id"))
		if readErr != nil {
			if err == nil || os.IsPermission(readErr) { // which says more than that the other root is not there
				err = readErr
			}
			continue
		}
		id, convErr := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if convErr != nil {
			return Event{}, fmt.Errorf("tracepoint %q: %w", name, convErr)
		}
		e.Type, e.Config, e.Trace = unix.PERF_TYPE_TRACEPOINT, id, true
		return e, nil
	}
	if os.IsPermission(err) {
		return Event{}, fmt.Errorf("tracepoint %q: %w: tracefs is root's: %s", name, err, proc.AsRoot(", or give atys CAP_DAC_READ_SEARCH (\"atys doctor\" shows how)", "CAP_DAC_READ_SEARCH"))
	}
	if os.IsNotExist(err) {
		if _, statErr := os.Stat(filepath.Join(tracefsRoots[0], "events")); statErr != nil {
			return Event{}, fmt.Errorf("tracepoint %q: tracefs is not mounted: run \"mount -t tracefs tracefs %s\"", name, tracefsRoots[0])
		}
		return Event{}, fmt.Errorf("this kernel has no tracepoint %q: see \"ls %s/events\"", name, tracefsRoots[0])
	}
	return Event{}, fmt.Errorf("tracepoint %q: %w", name, err)
}

// attr is the event as the kernel is asked for it. Period counts ns for clocks.
func (e Event) attr(period uint64) *unix.PerfEventAttr {
	a := &unix.PerfEventAttr{
		Type:   e.Type,
		Config: e.Config,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: period,
		Bits:   unix.PerfBitDisabled,
	}
	if e.PMU {
		// Two bits of "precise": ask for zero skid, so that the pc is the
		// instruction that caused the event, not one some cycles later.
		a.Bits |= unix.PerfBitPreciseIPBit2
	}
	if e.User {
		a.Bits |= unix.PerfBitExcludeKernel
	}
	if e.Kernel {
		a.Bits |= unix.PerfBitExcludeUser
	}
	return a
}

// counting is the event as a plain counter, to be read beside another's samples.
func (e Event) counting() *unix.PerfEventAttr {
	a := e.attr(0)
	a.Bits &^= unix.PerfBitPreciseIPBit1 | unix.PerfBitPreciseIPBit2 | unix.PerfBitDisabled
	return a
}
