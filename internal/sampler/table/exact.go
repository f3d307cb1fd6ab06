package table

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
)

// Where the exact times of windows come from.
const (
	sourceOnCPU  = "sum_exec_runtime, split by utime:stime"
	sourceOffCPU = "wall time less sum_exec_runtime, run_delay"
)

// ThreadID identifies a thread while it lives.
type ThreadID struct{ PID, TID int }

// times are a thread's since it was created.
type times struct {
	runtime, user, system uint64
	runDelay              uint64
	started, at           uint64 // CLOCK_BOOTTIME ns; at is when these were read, or when its exit began
	process, name         string
	exiting               bool   // its exit has begun
	missing               uint64 // the first edge at which it was not listed; 0: it was
}

// exactTimes are the exact times of a table's threads: those that the kernel lists at
// the edges of windows, and those that it reports of threads that exit in between: when
// exit begins, and when the kernel forgets them, which settles what they used. In
// between they still run, to give their memory back, and are counted where they are
// listed. The tracker's lock guards all of it.
type exactTimes struct {
	irqTime bool // the kernel counts interrupts into sum_exec_runtime
	offCPU  bool // times off the CPU; else those on it
	chosen  bool // the table hears only of exits of its targets

	edge     uint64              // CLOCK_BOOTTIME of the last edge
	entering map[int]bool        // processes that are sampled from the next one on: what they used before has no samples
	before   map[ThreadID]times  // at the last edge
	settled  map[ThreadID]uint64 // when they started, those settled since the ring was read before
	leaving  map[int]time.Time   // processes whose exit has begun, and when we heard of it; until they are settled
	ended    []int               // processes that were settled, or are given up

	used    map[ThreadID]profile.Thread // since the last edge, by threads that have exited
	crowded int64                       // of those, how many found no room there
}

// maxUsed bounds the threads of a window that have exited, of which one of an hour
// may have hundreds of thousands: some 10 MB.
const maxUsed = 1 << 16

// settleWithin is how long the last report of a thread is waited for: an idle kernel
// may take long to forget one, or find no room for the report. Until then nothing is
// known of a thread that never gave up its CPU.
const settleWithin = uint64(time.Minute)

// giveUpAfter is how long the kernel may take to settle a process that is gone. On a busy
// machine some were not settled within three minutes; they must not stay targets.
const giveUpAfter = 5 * time.Second

func newExactTimes(offCPU, chosen bool) exactTimes {
	return exactTimes{irqTime: !separateIRQTime(), offCPU: offCPU, chosen: chosen,
		before: map[ThreadID]times{}, settled: map[ThreadID]uint64{}, leaving: map[int]time.Time{}, used: map[ThreadID]profile.Thread{}}
}

// cut returns what each thread used since the last edge, from the list of all threads.
// mine is the table's bit; now is the new edge.
func (x *exactTimes) cut(tr *Tracker, mine uint32, now uint64, wanted func(pid int) bool) (map[ThreadID]profile.Thread, error) {
	used := x.used
	after := make(map[ThreadID]times, len(x.before))
	err := tr.snapshot(func(k *kernelThreadTimes) {
		id := ThreadID{int(k.Tgid), int(k.Tid)}
		if k.Tables&mine == 0 && !wanted(id.PID) || x.settled[id] == k.Started {
			return
		}
		t := times{runtime: k.Runtime, user: k.Utime, system: k.Stime, runDelay: k.RunDelay, started: k.Started, at: now,
			process: cstring(k.Process[:]), name: cstring(k.Comm[:])}
		old, known := x.before[id]
		known = known && old.started == t.started
		if known && (old.exiting || k.Dead != 0) {
			t.exiting, t.at = old.exiting, old.at
		} else if k.Dead != 0 {
			t.at = t.started // the ring tells when it died
		}
		x.charge(used, id, t)
		after[id] = t
	})
	if err != nil {
		return nil, err
	}
	x.keepMissing(after, now)
	x.before, x.edge, x.entering, x.used = after, now, nil, map[ThreadID]profile.Thread{}
	return used, nil
}

// giveUp ends the wait for processes that are gone and that the kernel does not settle.
func (x *exactTimes) giveUp(now time.Time) {
	for pid, since := range x.leaving {
		if now.Sub(since) > giveUpAfter && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			x.end(pid)
		}
	}
}

// end records that a process has ended.
func (x *exactTimes) end(pid int) {
	delete(x.leaving, pid)
	x.ended = append(x.ended, pid)
}

// keepMissing carries over threads that are no longer listed, but not settled:
// the ring will tell of them.
func (x *exactTimes) keepMissing(after map[ThreadID]times, now uint64) {
	for id, t := range x.before {
		if _, listed := after[id]; listed {
			continue
		}
		if t.missing == 0 {
			t.missing = now
		}
		if now-t.missing < settleWithin {
			after[id] = t
		}
	}
}

// charge adds what a thread used since it was last heard of. One that is new to
// us counts from zero if it was created since the last edge, else not at all:
// what it used before we looked is not ours.
func (x *exactTimes) charge(used map[ThreadID]profile.Thread, id ThreadID, t times) {
	base, known := x.before[id]
	if known && base.started != t.started {
		base, known = times{}, false // the number was used again
	}
	if x.entering[id.PID] || !known && (x.edge == 0 || t.started < x.edge) {
		return
	}
	if !known {
		base.at = t.started
	}
	exact := x.since(base, t)
	if exact.Empty() {
		return
	}
	thread, again := used[id]
	if !again {
		thread = profile.Thread{PID: id.PID, TID: id.TID, Process: t.process, Name: t.name}
	}
	thread.Exact.Add(exact)
	used[id] = thread
}

// since returns what a thread used between two readings. Off the CPU it is the rest of
// the time: a thread that runs was last accounted up to a tick ago, so that the rest of
// two readings may be negative, and the sum of all is right.
func (x *exactTimes) since(base, t times) profile.Exact {
	cpu := time.Duration(t.runtime) - time.Duration(base.runtime)
	if x.offCPU {
		return profile.Exact{Wall: time.Duration(t.at) - time.Duration(base.at) - cpu,
			RunQueue: max(0, time.Duration(t.runDelay)-time.Duration(base.runDelay)), Source: sourceOffCPU}
	}
	if cpu <= 0 {
		return profile.Exact{}
	}
	user, system := split(cpu, t.user-base.user, t.system-base.system)
	return profile.Exact{CPU: cpu, User: user, System: system, Source: sourceOnCPU, IncludesInterrupt: x.irqTime}
}

// split divides exact time in the proportion of the kernel's tick counts; both
// are zero where no tick fell on the thread.
func split(cpu time.Duration, user, system uint64) (time.Duration, time.Duration) {
	if user+system == 0 {
		return 0, 0
	}
	u := time.Duration(float64(cpu) * float64(user) / float64(user+system))
	return u, cpu - u
}

// hear charges a thread that exits, if its exact times belong to the window.
func (x *exactTimes) hear(e *kernelExited, wanted func(pid int) bool) {
	id := ThreadID{int(e.Tgid), int(e.Tid)}
	switch {
	case id.PID != id.TID:
	case e.Settled != 0:
		x.end(id.PID)
	case x.chosen:
		x.leaving[id.PID] = time.Now()
	}
	if _, known := x.before[id]; known || x.chosen || wanted(id.PID) {
		x.exit(id, e.Settled != 0, times{runtime: e.Runtime, user: e.Utime, system: e.Stime, runDelay: e.RunDelay,
			started: e.Started, at: e.At, exiting: true, process: cstring(e.Process[:]), name: cstring(e.Comm[:])})
	}
}

// exit charges what a thread had used when its exit began, or in all.
func (x *exactTimes) exit(id ThreadID, settled bool, t times) {
	old, known := x.before[id]
	if known && old.started == t.started {
		t.missing = old.missing
		if old.exiting {
			t.at = old.at // its memory is given back on the CPU; then it waits for its parent
		}
		if settled { // its process's name is not told again
			t.process = old.process
		}
	}
	if _, again := x.used[id]; again || len(x.used) < maxUsed {
		x.charge(x.used, id, t)
	} else {
		x.crowded++
	}
	if settled {
		delete(x.before, id)
		x.settled[id] = t.started
		return
	}
	x.before[id] = t
}

func cstring(s []int8) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s))
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// separateIRQTime tells whether the kernel keeps interrupt time apart from the
// interrupted thread's (CONFIG_IRQ_TIME_ACCOUNTING).
func separateIRQTime() bool {
	f, err := os.Open("/proc/config.gz")
	if err != nil {
		return false
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return false
	}
	config, err := io.ReadAll(io.LimitReader(z, 1<<24))
	return err == nil && bytes.Contains(config, []byte("\nCONFIG_IRQ_TIME_ACCOUNTING=y"))
}
