package cpu

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/bpf"
	"atys.dev/atys/internal/profile"
)

// exactSource names the kernel's figures in windows.
const exactSource = "sum_exec_runtime, split by utime:stime"

type threadID struct{ pid, tid int }

// times are a thread's since it was created.
type times struct {
	runtime, user, system uint64
	switches              uint64
	started               uint64 // CLOCK_BOOTTIME ns
	target                bool   // its process is sampled, as the kernel knows
	process, name         string
	missing               uint64 // the first edge at which it was not listed; 0: it was
}

// exactTimes reads the exact CPU time of every thread at window edges. Threads
// that exit in between report themselves through a ring: when exit begins, and
// when the kernel forgets them, which settles what they used. In between they
// still run, to give their memory back, and are counted where they are listed.
type exactTimes struct {
	list    *link.Iter
	exits   *ringbuf.Reader
	irqTime bool // the kernel counts interrupts into sum_exec_runtime
	buffer  []byte
	record  ringbuf.Record

	chosen   bool                // the ring tells only of targets
	edge     uint64              // CLOCK_BOOTTIME of the last edge
	entering map[int]bool        // processes that are sampled from the next one on: what they used before has no samples
	before   map[threadID]times  // at the last edge
	settled  map[threadID]uint64 // when they started, those settled since the ring was read before
	leaving  map[int]time.Time   // processes whose exit has begun, and when we heard of it; until they are settled
	ended    []int               // processes that were settled, or are given up; whoever reads the ring takes them

	used    map[threadID]profile.Thread // since the last edge, by threads that have exited
	crowded int64                       // of those, how many found no room there
}

// maxUsed bounds the threads of a window that have exited, of which one of an hour
// may have hundreds of thousands: some 10 MB.
const maxUsed = 1 << 16

// settleWithin is how long the last word on a thread is waited for: an idle kernel
// may take long to forget one, or find no room for the word. Until then nothing is
// known of a thread that never gave up its CPU.
const settleWithin = uint64(time.Minute)

// giveUpAfter is how long the kernel may take to settle a process that is gone. On a busy
// machine some were not settled within three minutes; they must not stay targets.
const giveUpAfter = 5 * time.Second

func newExactTimes(list *ebpf.Program, exits *ebpf.Map, chosen bool) (*exactTimes, error) {
	iter, err := link.AttachIter(link.IterOptions{Program: list})
	if err != nil {
		return nil, fmt.Errorf("attach thread iterator: %w", err)
	}
	ring, err := ringbuf.NewReader(exits)
	if err != nil {
		iter.Close()
		return nil, fmt.Errorf("read exited threads: %w", err)
	}
	return &exactTimes{list: iter, exits: ring, irqTime: !separateIRQTime(), chosen: chosen,
		buffer: make([]byte, 1<<17), before: map[threadID]times{}, settled: map[threadID]uint64{}, leaving: map[int]time.Time{}, used: map[threadID]profile.Thread{}}, nil
}

func (x *exactTimes) close() error { return errors.Join(x.list.Close(), x.exits.Close()) }

// start takes the first edge.
func (x *exactTimes) start(wanted func(pid int) bool) error {
	_, err := x.cut(wanted)
	return err
}

// cut gives what each thread used since the last edge, and takes a new one.
func (x *exactTimes) cut(wanted func(pid int) bool) (map[threadID]profile.Thread, error) {
	now := bpf.Clock(unix.CLOCK_BOOTTIME)
	if err := x.drainExits(wanted); err != nil {
		return nil, err
	}
	used := x.used
	after := make(map[threadID]times, len(x.before))
	err := x.snapshot(func(id threadID, t times) {
		if !t.target && !wanted(id.pid) || x.settled[id] == t.started {
			return
		}
		x.charge(used, id, t)
		after[id] = t
	})
	if err != nil {
		return nil, err
	}
	x.keepMissing(after, now)
	x.before, x.edge, x.entering, x.used = after, now, nil, map[threadID]profile.Thread{}
	return used, nil
}

// listen charges the threads that have exited by now to the window that is being
// filled: the ring has room for 2,978 of them, and a window may last an hour.
func (x *exactTimes) listen(wanted func(pid int) bool) error {
	clear(x.settled)
	err := x.drainExits(wanted)
	x.giveUp(time.Now())
	return err
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

// waiting is what of the ring, from 0 to 1, has not been read.
func (x *exactTimes) waiting() float64 {
	return float64(x.exits.AvailableBytes()) / float64(x.exits.BufferSize())
}

// keepMissing carries over threads that are no longer listed, but not settled:
// the ring will tell of them.
func (x *exactTimes) keepMissing(after map[threadID]times, now uint64) {
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
func (x *exactTimes) charge(used map[threadID]profile.Thread, id threadID, t times) {
	base, known := x.before[id]
	if known && base.started != t.started {
		base, known = times{}, false // the number was used again
	}
	if x.entering[id.pid] || !known && (x.edge == 0 || t.started < x.edge) {
		return
	}
	if t.runtime <= base.runtime {
		return
	}
	cpu := time.Duration(t.runtime - base.runtime)
	user, system := split(cpu, t.user-base.user, t.system-base.system)
	thread, again := used[id]
	if !again {
		thread = profile.Thread{PID: id.pid, TID: id.tid, Process: t.process, Name: t.name}
	}
	thread.Exact.Add(profile.Exact{CPU: cpu, User: user, System: system, Source: exactSource, IncludesInterrupt: x.irqTime})
	used[id] = thread
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

// threadTimesSize is what the iterator writes for each thread.
const threadTimesSize = int(unsafe.Sizeof(kernelThreadTimes{}))

func (x *exactTimes) snapshot(each func(threadID, times)) error {
	r, err := x.list.Open()
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer r.Close()
	held := 0
	for {
		n, err := r.Read(x.buffer[held:])
		held += n
		at := 0
		for ; at+threadTimesSize <= held; at += threadTimesSize {
			t := (*kernelThreadTimes)(unsafe.Pointer(&x.buffer[at]))
			if t.Tgid != 0 {
				each(threadID{int(t.Tgid), int(t.Tid)}, times{runtime: t.Runtime, user: t.Utime, system: t.Stime,
					switches: t.Switches, started: t.Started, target: t.Target != 0, process: cstring(t.Process[:]), name: cstring(t.Comm[:])})
			}
		}
		held = copy(x.buffer, x.buffer[at:held])
		if errors.Is(err, io.EOF) || (err == nil && n == 0) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
	}
}

// drainExits charges the threads that exited since it was last asked to.
func (x *exactTimes) drainExits(wanted func(pid int) bool) error {
	x.exits.SetDeadline(time.Now())
	for {
		err := x.exits.ReadInto(&x.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read exited threads: %w", err)
		}
		if len(x.record.RawSample) < int(unsafe.Sizeof(kernelExited{})) {
			continue
		}
		e := (*kernelExited)(unsafe.Pointer(&x.record.RawSample[0]))
		id := threadID{int(e.Tgid), int(e.Tid)}
		switch {
		case id.pid != id.tid:
		case e.Settled != 0:
			x.end(id.pid)
		case x.chosen:
			x.leaving[id.pid] = time.Now()
		}
		if _, known := x.before[id]; known || x.chosen || wanted(id.pid) {
			x.exit(id, e.Settled != 0, times{runtime: e.Runtime, user: e.Utime, system: e.Stime, started: e.Started,
				process: cstring(e.Process[:]), name: cstring(e.Comm[:])})
		}
	}
}

// exit charges what a thread had used when its exit began, or in all.
func (x *exactTimes) exit(id threadID, settled bool, t times) {
	old, known := x.before[id]
	if known && old.started == t.started {
		t.missing = old.missing
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
