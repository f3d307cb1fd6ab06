package unwind

import (
	"runtime"
	"sync/atomic"
	"time"

	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/unwind/paging"
)

// queue decides which table is built next.
type queue struct {
	wanted  map[*executable]bool // to be loaded
	entries entries
	skipped int

	limit cputime.Bucket
	young atomic.Bool // tables of young files wait
}

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
	u.tables.queue.limit.SetRate(l.Tables)
	u.tables.queue.young.Store(l.SkipYoung)
	u.tracker.pause.Store(int64(l.Events))
	u.tables.work.Broadcast() // builders waiting for a bound that was lifted go on
}

// next returns the executable whose table to build now. nil: none, until something
// changes or, if wait is not 0, wait has passed.
func (q *queue) next(cache *paging.Cache) (e *executable, wait time.Duration) {
	if e := q.ready(cache); e != nil {
		return e, 0
	}
	if wait := q.limit.Wait(); wait > 0 {
		return nil, wait
	}
	if !q.young.Load() {
		return q.mostWanted(), 0
	}
	kept := map[*executable]bool{} // too young to tell whether they are worth a table
	defer func() {
		for e := range kept {
			q.wanted[e] = true
		}
	}()
	for e := q.mostWanted(); e != nil; e = q.mostWanted() {
		delete(q.wanted, e)
		switch {
		case time.Since(e.met) < young:
			kept[e] = true
		case e.uses == 0 && time.Since(e.idle) >= young:
			q.skip(e, cache)
		default:
			return e, 0
		}
	}
	if len(kept) > 0 {
		return nil, young / 4
	}
	return nil, 0
}

// ready returns an executable whose wanted rows need no building, or nil. Such
// rows never wait for tables that are being built.
func (q *queue) ready(cache *paging.Cache) *executable {
	for e := range q.wanted {
		if e.table != nil && cache.Packed(e.table) {
			return e
		}
	}
	return nil
}

// mostWanted is the executable whose rows most walks have missed so far: of what
// uses most CPU time the stacks are whole first.
func (q *queue) mostWanted() (most *executable) {
	missed := uint32(0)
	for e := range q.wanted {
		n := q.entries.missed(e) + uint32(len(e.missing))
		if most == nil || n > missed {
			most, missed = e, n
		}
	}
	return most
}

// skip leaves a table unbuilt until a walk asks for it again.
func (q *queue) skip(e *executable, cache *paging.Cache) {
	q.skipped++
	e.dismiss(cache)
	q.entries.answer(e)
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
