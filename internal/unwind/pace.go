package unwind

import (
	"runtime"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// pace bounds the resources that the unwinder uses on its machine.
type pace struct {
	tables cputime.Bucket
	young  atomic.Bool  // tables of young files wait
	events atomic.Int64 // least ns between two reads of process events; 0: no more than usual
	usual  time.Duration
}

// calm is the usual least time between two reads of process events, unless the unwinder
// is eager. Each read wakes two threads: without this pause, 200 times a second on a
// machine that compiles. Meanwhile, walks find new mappings in the kernel.
const calm = 25 * time.Millisecond

// young is how long a file must have been known before its table is built, if tables of
// young files wait. A file that short-lived processes use again and again gets older than
// that. A file that only one such process used is not worth a table.
const young = time.Second

// Limits bound the resources that the unwinder uses on its machine; zero is no bound.
type Limits struct {
	Tables    float64       // part of a core, for building tables
	SkipYoung bool          // tables wait until their file has been known for a second
	Events    time.Duration // least time between two reads of process events; 0: no more than usual
}

// Limit sets the limits. Samples whose table waits are counted as profile.EndNotLoaded.
func (u *Unwinder) Limit(l Limits) {
	u.pace.tables.SetRate(l.Tables)
	u.pace.young.Store(l.SkipYoung)
	u.pace.events.Store(int64(l.Events))
	u.work.Broadcast() // builders waiting for a bound that was lifted go on
}

// between returns the least time between two reads of process events.
func (p *pace) between() time.Duration { return max(time.Duration(p.events.Load()), p.usual) }

// start runs a worker of the unwinder in a goroutine; u.done waits for it.
func (u *Unwinder) start(name string, work func()) {
	u.done.Go(func() {
		defer u.worker(name)()
		work()
	})
}

// worker reports to Options.OnWorker that a worker starts. The caller calls done when it
// ends.
func (u *Unwinder) worker(name string) (done func()) {
	if u.options.OnWorker == nil {
		return func() {}
	}
	return u.options.OnWorker(name)
}

// nextTable returns the executable whose table to build now. nil: none, until something
// changes or, if wait is not 0, wait has passed. The caller holds the lock.
func (u *Unwinder) nextTable() (e *executable, wait time.Duration) {
	if e := u.readyToLoad(); e != nil {
		return e, 0
	}
	if wait := u.pace.tables.Wait(); wait > 0 {
		return nil, wait
	}
	if !u.pace.young.Load() {
		return u.mostWanted(), 0
	}
	kept := map[*executable]bool{} // too young to tell whether they are worth a table
	defer func() {
		for e := range kept {
			u.wanted[e] = true
		}
	}()
	for e := u.mostWanted(); e != nil; e = u.mostWanted() {
		delete(u.wanted, e)
		switch {
		case time.Since(e.met) < young:
			kept[e] = true
		case e.uses == 0 && time.Since(e.idle) >= young:
			u.skip(e)
		default:
			return e, 0
		}
	}
	if len(kept) > 0 {
		return nil, young / 4
	}
	return nil, 0
}

// readyToLoad returns an executable whose wanted rows need no building, or nil. Such
// rows never wait for tables that are being built. The caller holds the lock.
func (u *Unwinder) readyToLoad() *executable {
	for e := range u.wanted {
		if e.table != nil && u.rows.Packed(e.table) {
			return e
		}
	}
	return nil
}

// onThread runs work and returns the CPU time it took. It locks the goroutine to its
// thread, because it reads the clock of the thread.
func onThread(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cputime.Clock()
	work()
	return cputime.Clock() - began
}

// skip leaves a table unbuilt until a walk asks for it again. The caller holds the lock.
func (u *Unwinder) skip(e *executable) {
	u.stats.Skipped++
	u.dismiss(e)
	atomic.StoreUint32(&u.memory.executables.Value.E[e.id].Wanted, 0)
}

// waitForWork releases the lock until something changes or, if wait is not 0, wait has
// passed. The caller holds the lock.
func (u *Unwinder) waitForWork(wait time.Duration) {
	if wait > 0 {
		wake := time.AfterFunc(wait, func() {
			u.mu.Lock() // otherwise the broadcast could come before the wait
			defer u.mu.Unlock()
			u.work.Broadcast()
		})
		defer wake.Stop()
	}
	u.work.Wait()
}
