// Package cputime attributes the CPU time of this process to causes.
//
//	a goroutine begins work for a cause -> it owns its OS thread until it ends
//	   -> the thread's own clock, read at both ends, is charged to the cause
//	all of the process's time - what was charged = Other: the garbage collector, timers, what nobody claimed
//
// Go's monitor thread polls for as long as others work, on a busy machine a fifth of
// all that a process takes: its time is added to causes in proportion to theirs.
//
// Work may nest: the inner cause is charged, and the outer one goes on after it.
package cputime

import (
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Cause is what CPU time is spent on.
type Cause string

// The causes. Sampling is charged by whoever takes samples: interrupts and BPF
// programs run in the time of the programs they interrupt.
const (
	Sampling  Cause = "sampling"
	Tables    Cause = "tables"    // reading executables, building unwinding rows
	Naming    Cause = "naming"    // symbolizing
	Following Cause = "following" // processes: fork, exec, exit and mmap events, /proc
	Shipping  Cause = "shipping"  // cutting, sealing, spooling and sending windows
	Store     Cause = "store"     // the server and its store, where they are in this process
	Other     Cause = "other"
)

// Causes lists all of them in the order in which they are shown.
func Causes() []Cause { return []Cause{Sampling, Tables, Naming, Following, Shipping, Store, Other} }

// Account holds what was charged to each cause. A nil Account charges nothing.
type Account struct {
	mu      sync.Mutex // guards all below
	spent   map[Cause]time.Duration
	threads map[int]*thread // that are at work, by their numbers
	monitor monitor
}

// thread is one that a goroutine owns while it works.
type thread struct {
	cause Cause
	since time.Duration // of the thread's clock, up to which it was charged
}

// New makes an empty account.
func New() *Account {
	return &Account{spent: map[Cause]time.Duration{}, threads: map[int]*thread{}, monitor: newMonitor()}
}

// Begin charges the calling goroutine's CPU time to a cause until end is called,
// by the same goroutine. It owns its OS thread meanwhile.
func (a *Account) Begin(c Cause) (end func()) {
	if a == nil {
		return func() {}
	}
	runtime.LockOSThread()
	tid := unix.Gettid()
	outer, nested := a.turn(tid, c)
	return func() {
		if nested {
			a.turn(tid, outer)
		} else {
			a.leave(tid)
		}
		runtime.UnlockOSThread()
	}
}

// Do charges what f takes to a cause.
func (a *Account) Do(c Cause, f func()) {
	defer a.Begin(c)()
	f()
}

// Charge charges time that is known otherwise, such as that of a child process.
func (a *Account) Charge(c Cause, used time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent[c] += used
}

// turn charges what a thread has used to the cause that it worked for, and has it
// work for another.
func (a *Account) turn(tid int, c Cause) (outer Cause, nested bool) {
	now := Clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.threads[tid]
	if tid == a.monitor.thread {
		a.monitor.thread = 0 // it is another one
	}
	if t == nil {
		a.threads[tid] = &thread{c, now}
		return "", false
	}
	outer = t.cause
	a.charge(t, now)
	t.cause = c
	return outer, true
}

// leave charges what a thread has used, and lets it go.
func (a *Account) leave(tid int) {
	now := Clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.charge(a.threads[tid], now)
	delete(a.threads, tid)
}

// charge charges a thread's time up to now. The lock is held.
func (a *Account) charge(t *thread, now time.Duration) {
	a.spent[t.cause] += max(now-t.since, 0)
	t.since = max(now, t.since)
}

// Spent tells what was charged to each cause so far, by those at work included.
func (a *Account) Spent() map[Cause]time.Duration {
	if a == nil {
		return map[Cause]time.Duration{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for tid, t := range a.threads {
		if now, err := clockOf(tid); err == nil {
			a.charge(t, now)
		}
	}
	a.monitor.apportion(a.spent)
	return maps.Clone(a.spent)
}

// Clock is the CPU time of the calling thread: of use to a goroutine that owns it.
func Clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0 // the kernel always has this clock
	}
	return time.Duration(t.Nano())
}

// clockOf is the CPU time of another thread of this process.
func clockOf(tid int) (time.Duration, error) {
	// linux/posix-timers.h: the complement of the number, and CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED
	const perThread, scheduler = 4, 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^tid<<3|perThread|scheduler), &t); err != nil {
		return 0, fmt.Errorf("read the clock of thread %d: %w", tid, err)
	}
	return time.Duration(t.Nano()), nil
}
