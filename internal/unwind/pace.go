package unwind

import (
	"runtime"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/proc/cputime"
)

// pace bounds what the unwinder takes of its machine.
type pace struct {
	tables cputime.Bucket
	young  atomic.Bool  // tables of young files wait
	events atomic.Int64 // ns between two readings of events; 0: as is usual
	usual  time.Duration
}

// calm is the least time between two readings of events where all of the machine is
// followed: each wakes two threads, on a machine that compiles 200 times a second
// otherwise. Walks find new mappings in the kernel meanwhile.
const calm = 25 * time.Millisecond

// young is how long a file has to be known before its table is built, where
// tables are bounded: a file that short-lived processes use again and again is
// known for longer, one that a single such process used is not worth a table.
const young = time.Second

// Limits bound what the unwinder takes of its machine; zero is no bound.
type Limits struct {
	Tables    float64       // of a core, for building tables
	SkipYoung bool          // tables of files wait that have not been mapped for a second
	Events    time.Duration // between two readings of process events; 0: as is usual
}

// Limit sets limits. Samples whose table waits are counted, with profile.EndNotLoaded.
func (u *Unwinder) Limit(l Limits) {
	u.pace.tables.SetRate(l.Tables)
	u.pace.young.Store(l.SkipYoung)
	u.pace.events.Store(int64(l.Events))
	u.work.Broadcast() // where there is no bound any more nothing waits
}

// between is the pause between two readings of process events.
func (p *pace) between() time.Duration { return max(time.Duration(p.events.Load()), p.usual) }

// start runs a worker of the unwinder until it ends.
func (u *Unwinder) start(name string, work func()) {
	u.done.Go(func() {
		defer u.worker(name)()
		work()
	})
}

// worker has whoever is interested know that a worker begins, and gives what ends it.
func (u *Unwinder) worker(name string) (done func()) {
	if u.options.OnWorker == nil {
		return func() {}
	}
	return u.options.OnWorker(name)
}

// nextTable is the executable whose table is to be built now; nil: none is, until
// something changes or the wait is over. The lock is held.
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
	kept := map[*executable]bool{} // too young to tell whether they are worth it
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

// readyToLoad is an executable whose rows are wanted and need no building: they never
// wait for what others build. The lock is held.
func (u *Unwinder) readyToLoad() *executable {
	for e := range u.wanted {
		if e.table != nil && u.rows.Packed(e.table) {
			return e
		}
	}
	return nil
}

// onThread gives the CPU time that work takes. It keeps to one thread, whose clock
// is read.
func onThread(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := cputime.Clock()
	work()
	return cputime.Clock() - began
}

// skip leaves a table unbuilt until a walk asks for it again. The lock is held.
func (u *Unwinder) skip(e *executable) {
	u.stats.Skipped++
	u.dismiss(e)
	atomic.StoreUint32(&u.memory.executables.Value.E[e.id].Wanted, 0)
}

// waitForWork lets the lock go until something changes, or so much time has passed
// if it is not 0. The lock is held.
func (u *Unwinder) waitForWork(wait time.Duration) {
	if wait > 0 {
		wake := time.AfterFunc(wait, func() {
			u.mu.Lock() // else it could come before the wait
			defer u.mu.Unlock()
			u.work.Broadcast()
		})
		defer wake.Stop()
	}
	u.work.Wait()
}
