package pipeline

import (
	"slices"
	"sync"

	"atys.dev/atys/internal/proc/cputime"
)

// mostWaiting is how many pieces of a line wait in a queue. A piece of a busy machine can
// have a megabyte.
const mostWaiting = 4

// queue holds the pieces of all lines, oldest first. Whoever adds one waits for nothing:
// another goroutine merges those of a line that has too many (shorten).
type queue struct {
	mu      sync.Mutex // guards all below; not held during a merge
	changed *sync.Cond
	waiting []*waiting
	closed  bool
	merged  uint64 // windows, into the ones before them
}

// waiting is a piece in a queue.
type waiting struct {
	line    *Line
	piece   *Piece
	merging bool // it is not to be taken
}

func newQueue() *queue {
	q := &queue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds a piece.
func (q *queue) put(l *Line, piece *Piece) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, &waiting{line: l, piece: piece})
	q.changed.Broadcast()
}

// close says that nothing is added any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// take removes the oldest piece, and waits for one; nil: there will be none.
func (q *queue) take() (*Line, *Piece) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed || len(q.waiting) > 0 && q.waiting[0].merging {
		q.changed.Wait()
	}
	if len(q.waiting) == 0 {
		return nil, nil
	}
	first := q.waiting[0]
	q.waiting = q.waiting[1:]
	return first.line, first.piece
}

// shorten merges pieces of lines that have too many, until the queue is closed.
func (q *queue) shorten(o *Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		last, next := q.crowded()
		for next == nil && !q.closed {
			q.changed.Wait()
			last, next = q.crowded()
		}
		if q.closed {
			return
		}
		last.merging, next.merging = true, true
		q.mu.Unlock()
		merged := false
		o.Account.Do(cputime.Shipping, func() { merged = last.piece.absorb(next.piece) })
		if merged {
			o.Log.Warn("merge a window into the one before it: identifying, naming or the disk do not keep up", "task", last.line.Task)
		}
		q.mu.Lock()
		if merged {
			q.merged++
		}
		last.merging = false
		q.waiting = slices.DeleteFunc(q.waiting, func(w *waiting) bool { return w == next })
		q.changed.Broadcast()
	}
}

// crowded returns the last piece that a line has room for, and the next one; nil: all lines
// have room.
func (q *queue) crowded() (last, next *waiting) {
	lasts, n := map[*Line]*waiting{}, map[*Line]int{}
	for _, w := range q.waiting {
		switch n[w.line]++; n[w.line] {
		case mostWaiting:
			lasts[w.line] = w
		case mostWaiting + 1:
			return lasts[w.line], w
		}
	}
	return nil, nil
}

// mergedSoFar returns how many windows were merged into the ones before them.
func (q *queue) mergedSoFar() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.merged
}
