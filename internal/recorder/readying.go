package recorder

import (
	"sync"
	"time"
)

// aimPatience is how long the first window waits for its targets to be read: most are
// within some milliseconds.
const aimPatience = 200 * time.Millisecond

// readying has new targets read one after another, apart from whoever aims: tables
// of large programs take up to a second to build, and a runtime that is starting is
// waited for as long. On a node of fifty JVMs that is a minute.
type readying struct {
	track   func(pid int)      // reads a process, so that its first sample finds everything
	release func(pid int) bool // has it be sampled from the next edge on; false: it is already
	ready   func()             // tells that there is something to be told; nil: nobody waits for that

	done sync.WaitGroup

	mu      sync.Mutex // guards all below
	queue   []int
	idle    chan struct{} // closed when all is read; nil: nothing is being read
	waiting bool          // somebody waits for that
	fresh   bool          // some were released since that was last told
	closed  bool
}

// add has processes read, and tells whether some that were added before have been since
// that was last told.
func (r *readying) add(pids []int) (fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh, r.fresh = r.fresh, false
	if len(pids) == 0 || r.closed {
		return fresh
	}
	if r.queue = append(r.queue, pids...); r.idle == nil {
		r.idle = make(chan struct{})
		r.done.Go(r.work)
	}
	return fresh
}

// settle waits a moment for those that are being read. They are sampled from the edge on
// that follows: nobody has to be told of them.
func (r *readying) settle() {
	r.mu.Lock()
	idle := r.idle
	r.waiting = idle != nil
	r.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-time.After(aimPatience):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh, r.waiting = false, false
}

// work reads what there is to read.
func (r *readying) work() {
	for pid, ok := r.next(); ok; pid, ok = r.next() {
		r.track(pid)
		if r.release(pid) {
			r.mu.Lock()
			r.fresh = true
			r.mu.Unlock()
		}
	}
}

// next gives what is to be read next; where there is nothing it ends the work.
func (r *readying) next() (pid int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 && !r.closed {
		pid, r.queue = r.queue[0], r.queue[1:]
		return pid, true
	}
	close(r.idle)
	r.idle = nil
	if r.fresh && !r.waiting && r.ready != nil {
		r.ready()
	}
	return 0, false
}

// close leaves what is still to be read, and waits for what is being.
func (r *readying) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.done.Wait()
}
