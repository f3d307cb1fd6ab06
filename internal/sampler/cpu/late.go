package cpu

import (
	"sync"
	"time"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler/table"
)

// late is the CPU time that has no samples because the thread had no event of its own
// yet, or never got one.
type late struct {
	since func(table.ThreadID) time.Duration // CPU time a thread has used so far; nil: usedSoFar. Tests replace it

	mu    sync.Mutex // guards all below
	time  time.Duration
	ended map[table.ThreadID]bool // threads that ended without an event
}

// maxLate bounds the threads that are remembered between two cuts.
const maxLate = 1 << 16

// never records a thread that has ended without an event.
func (l *late) never(id table.ThreadID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = map[table.ThreadID]bool{}
	}
	if len(l.ended) < maxLate {
		l.ended[id] = true
	}
}

// until records a thread that has an event from now on.
func (l *late) until(id table.ThreadID) {
	used := l.since
	if used == nil {
		used = usedSoFar
	}
	d := used(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time += d
}

func usedSoFar(id table.ThreadID) time.Duration {
	t, err := proc.FS{}.ThreadTime(id.PID, id.TID)
	if err != nil {
		return 0 // it has just ended, and has used little
	}
	return t.Run
}

// take returns the unsampled time since the last call. used is what each thread used in
// the window that ends.
func (l *late) take(used map[table.ThreadID]profile.Thread) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.time
	for id := range l.ended {
		sum += used[id].Exact.CPU
	}
	l.time = 0
	clear(l.ended)
	return sum
}

// lateLoss returns the unsampled time as a loss.
func (s *Sampler) lateLoss(used map[table.ThreadID]profile.Thread) profile.Loss {
	l := profile.Loss{Reason: profile.LossUnsampled, Detail: profile.TooShortLived}
	if d := s.late.take(used); d > 0 && s.options.Event.Clock {
		_, hz, _ := s.events.rates()
		l.N, l.Value = int64(d.Seconds()*hz), int64(d)
	}
	return l
}
