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
func (u *Unwinder) evictProcesses(but int, enough func() bool) bool {
	type candidate struct {
		pid  int
		used uint32
	}
	var all []candidate
	now := tick()
	for pid := range u.processes {
		var k kernelProcess
		if pid == but || u.maps.Processes.Lookup(uint32(pid), &k) != nil {
			continue
		}
		if now-min(k.Used, now) >= processesProtected {
			all = append(all, candidate{pid, k.Used})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.used, b.used) })
	most := max(len(u.processes)/processesEvicted, 1)
	evicted := 0
	for _, c := range all {
		if enough != nil && enough() || enough == nil && evicted >= most {
			break
		}
		u.forget(c.pid)
		u.stats.ProcessesEvicted++
		evicted++
	}
	return evicted > 0
}

// awaitMappings makes room for a process's mappings. It is published once walks
// cannot be looking at those that made room.
func (u *Unwinder) awaitMappings(pid int, p *process) {
	wanted := max(len(p.layout.areas), areaCells)
	freed := u.mappings.Used
	u.evictProcesses(pid, func() bool {
		waiting := 0
		for _, r := range u.retired {
			if r.from == u.mappings {
				waiting += int(r.run.Count)
			}
		}
		return waiting >= max(wanted, int(freed)/processesEvicted)
	})
	if _, again := u.unpublished[pid]; !again {
		u.stats.NoRoom++
		u.options.Log.Info("no room for a process's mappings yet", "pid", pid, "mappings", len(p.layout.areas))
	}
	u.unpublished[pid] = p
}

// publishWaiting publishes the processes that waited for room.
func (u *Unwinder) publishWaiting() {
	for pid, p := range u.unpublished {
		if u.processes[pid] == p {
			u.publishProcess(pid, p)
		}
		if !p.layout.stale || u.processes[pid] != p {
			delete(u.unpublished, pid)
		}
	}
}
