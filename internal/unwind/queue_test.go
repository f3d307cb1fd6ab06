package unwind

import (
	"sync/atomic"
	"testing"
	"time"
)

// next is the executable whose table is to be built now.
func (u *Unwinder) next(t *testing.T) (*executable, time.Duration) {
	t.Helper()
	u.tables.mu.Lock()
	defer u.tables.mu.Unlock()
	return u.tables.queue.next(u.tables.rows)
}

// TestYoungTablesWait has tables be limited: that of a file that was just mapped waits,
// one that processes map for longer is built, and one that nobody maps any more is left
// until a walk asks again.
func TestYoungTablesWait(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	fresh, lasting, gone := readable(u, 11), readable(u, 12), readable(u, 13)
	long := time.Now().Add(-time.Minute)
	lasting.met, gone.met, gone.idle = long, long, long
	u.tables.use(lasting, 1)
	wanted := func(all ...*executable) {
		clear(u.tables.queue.wanted)
		for _, e := range all {
			u.tables.queue.wanted[e] = true
			atomic.StoreUint32(&u.tables.queue.entries.entry(e).Wanted, 1)
		}
	}
	wanted(fresh)
	if e, _ := u.next(t); e != fresh {
		t.Fatal("without a limit a table waits")
	}
	u.Limit(Limits{Tables: 1, SkipYoung: true})
	u.tables.queue.limit.Take(-time.Millisecond) // there is a little in the bucket
	wanted(fresh, lasting, gone)
	for range 3 { // in whatever order they come
		e, _ := u.next(t)
		if e != lasting && e != nil {
			t.Fatalf("%v is built", e.path)
		}
		if e == nil {
			break
		}
		delete(u.tables.queue.wanted, e)
	}
	if _, wait := u.next(t); !u.tables.queue.wanted[fresh] || u.tables.queue.wanted[gone] || wait == 0 {
		t.Errorf("the young one is wanted: %v, the one that is gone: %v, wait %v", u.tables.queue.wanted[fresh], u.tables.queue.wanted[gone], wait)
	}
	if n := atomic.LoadUint32(&u.tables.queue.entries.entry(gone).Wanted); n != 0 || u.Stats().Skipped != 1 {
		t.Errorf("walks do not ask for the skipped one again: %d, %d skipped", n, u.Stats().Skipped)
	}
	fresh.met = long
	u.tables.use(fresh, 1)
	if e, _ := u.next(t); e != fresh {
		t.Error("a file that has been mapped for a while still waits")
	}
}

// TestTablesTakeTurns has a table cost more than the limit leaves: the next one waits
// for as long as that takes to come in.
func TestTablesTakeTurns(t *testing.T) {
	u := offline(t, Options{Rows: minRows})
	e := readable(u, 11)
	u.tables.queue.wanted[e] = true
	u.Limit(Limits{Tables: 0.01})
	u.tables.queue.limit.Take(10 * time.Millisecond)
	if e, wait := u.next(t); e != nil || wait <= 0 || wait > time.Second {
		t.Errorf("after 10 ms at 1%% of a core: %v, wait %v", e, wait)
	}
	u.Limit(Limits{})
	if got, _ := u.next(t); got != e {
		t.Error("without a limit it still waits")
	}
}
