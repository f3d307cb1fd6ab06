package cputime

import (
	"maps"
	"os"
	"strconv"
	"time"
)

// monitor is the thread of Go's runtime that watches all others (sysmon): it is woken
// when others have work, and asks each 20 us to 10 ms how far they are.
type monitor struct {
	thread int           // 0: it is not known
	spent  time.Duration // by it, that was apportioned
	told   map[Cause]time.Duration
}

func newMonitor() monitor {
	m := monitor{thread: monitorThread()}
	m.spent, _ = clockOf(m.thread) // where it fails, so it does the next time
	return m
}

// monitorThread finds it: runtime.main starts it before anything else, so that of
// all threads but the first it has the smallest number. Where numbers have begun
// anew meanwhile it may be another one; one that works for a cause is not it.
func monitorThread() (tid int) {
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	for _, t := range all {
		n, err := strconv.Atoi(t.Name())
		if err == nil && n > os.Getpid() && (tid == 0 || n < tid) {
			tid = n
		}
	}
	return tid
}

// apportion adds what the monitor has taken since it was called last to causes, in
// proportion to what they have taken since.
func (m *monitor) apportion(spent map[Cause]time.Duration) {
	if m.thread == 0 {
		return
	}
	now, err := clockOf(m.thread)
	if err != nil {
		m.thread = 0
		return
	}
	fresh, all := map[Cause]time.Duration{}, time.Duration(0)
	for c, d := range spent {
		fresh[c] = d - m.told[c]
		all += fresh[c]
	}
	if all > 0 {
		took := now - m.spent
		for c, d := range fresh {
			spent[c] += time.Duration(float64(took) * float64(d) / float64(all))
		}
		m.spent = now
	}
	m.told = maps.Clone(spent)
}
