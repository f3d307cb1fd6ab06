package query

import (
	"maps"
	"slices"
	"sync"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// heads gathers what the heads of windows tell of how far an answer can be trusted.
type heads struct {
	mu       sync.Mutex // guards all below: windows are added up by several at once
	tasks    map[string]profile.Instances
	doubtful int
	times    map[ofService]*taskTime
}

// ofService is a task at one service.
type ofService struct{ service, task string }

// taskTime is from when to when a task has windows, and how long the longest is.
type taskTime struct {
	Span
	longest time.Duration
}

// leastDoubt is more than an offset that is left as it is; see wire.SetRight.
const leastDoubt = 2 * time.Second

func (s *heads) saw(labels profile.Labels, h *profile.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(ofService{labels[store.ServiceLabel], h.Task}, h)
	if h.ClockError > max(h.Duration, leastDoubt)-h.ClockOffset.Abs() { // a sum might not be a number
		s.doubtful++
	}
	if h.Instances == (profile.Instances{}) { // as nearly all of them
		return
	}
	if s.tasks == nil {
		s.tasks = map[string]profile.Instances{}
	}
	i := s.tasks[h.Task]
	i.Absorb(h.Instances)
	s.tasks[h.Task] = i
}

func (s *heads) note(of ofService, h *profile.Head) {
	if s.times == nil {
		s.times = map[ofService]*taskTime{}
	}
	t, end := s.times[of], h.Start.Add(h.Duration)
	if t == nil {
		s.times[of] = &taskTime{Span{h.Start, end}, h.Duration}
		return
	}
	t.From, t.To, t.longest = earlier(t.From, h.Start), later(t.To, end), max(t.longest, h.Duration)
}

func (s *heads) coverage(c *Coverage) {
	c.Doubtful, c.Overlapping = s.doubtful, s.overlapping()
	for _, task := range slices.Sorted(maps.Keys(s.tasks)) {
		c.Tasks = append(c.Tasks, TaskCoverage{task, s.tasks[task]})
	}
}

// overlapping lists tasks that had windows of one service for longer at the same
// time than a window of theirs lasts: one that took the place of another shares
// what was added up of both with it, and no more.
func (s *heads) overlapping() []string {
	all := map[string]bool{}
	for a, x := range s.times {
		for b, y := range s.times {
			if a.service != b.service || a.task == b.task {
				continue
			}
			if earlier(x.To, y.To).Sub(later(x.From, y.From)) > max(x.longest, y.longest)+slack {
				all[a.task], all[b.task] = true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
