package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	base, part := name, ""
	if i := len(name) - 2; i > 0 {
		base, part = name[:i], name[i:]
	}
	if part != ":u" && part != ":k" {
		base = name
	}
	if slices.Contains(events, base) || base == name && tracepoint.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%.80q: want one of %s, with :u or :k at its end or without, or a tracepoint such as sched:sched_switch", name, strings.Join(events, ", "))
}
