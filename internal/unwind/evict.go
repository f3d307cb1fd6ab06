package unwind

import (
	"cmp"
	"slices"
)

// tickShift is TICK_SHIFT of bpf/include/tables.h.
const tickShift = 27

// tick is the time as walks note it.
func tick() uint32 { return uint32(monotonic() >> tickShift) }

const (
	// processesEvicted is which part of the processes, or of the room for mappings,
	// is made free at once: to find out who was sampled last takes a system call each.
	processesEvicted = 16
	// processesProtected is for how many ticks a process is not evicted after it was
	// sampled, or has changed: one second.
	processesProtected = 8
)

// evictProcesses forgets the processes that were not sampled for longest, but not
// one of them, until enough says so or, without it, a sixteenth is gone. The next
// walk in one asks for it. It tells whether any was.
func (t *tracker) evictProcesses(but int, enough func() bool) bool {
	type candidate struct {
		pid  int
		used uint32
	}
	var all []candidate
	now := tick()
	for pid := range t.processes {
		var k kernelProcess
		if pid == but || t.kernel.Lookup(uint32(pid), &k) != nil {
			continue
		}
		if now-min(k.Used, now) >= processesProtected {
			all = append(all, candidate{pid, k.Used})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	most := max(len(t.processes)/processesEvicted, 1)
	evicted := 0
	for _, c := range all {
		if enough != nil && enough() || enough == nil && evicted >= most {
			break
		}
		t.forget(c.pid)
		t.stats.ProcessesEvicted++
		evicted++
	}
	return evicted > 0
}

// makeRoom is evictProcesses for callers without the lock.
func (t *tracker) makeRoom(but int, enough func() bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evictProcesses(but, enough)
}

// awaitMappings makes room for a process's mappings. It is published once walks
// cannot be looking at those that made room.
func (t *tracker) awaitMappings(pid int, p *process) {
	wanted := max(len(p.layout.areas), areaCells)
	freed := t.layouts.free.Used
	t.evictProcesses(pid, func() bool {
		return t.layouts.waiting() >= max(wanted, int(freed)/processesEvicted)
	})
	if _, again := t.unpublished[pid]; !again {
		t.stats.NoRoom++
		t.options.Log.Info("no room for a process's mappings yet", "pid", pid, "mappings", len(p.layout.areas))
	}
	t.unpublished[pid] = p
}

// publishWaiting publishes the processes that waited for room.
func (t *tracker) publishWaiting() {
	for pid, p := range t.unpublished {
		if t.processes[pid] == p {
			t.publish(pid, p)
		}
		if !p.layout.stale || t.processes[pid] != p {
			delete(t.unpublished, pid)
		}
	}
}
