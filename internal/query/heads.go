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
	times    map[string]map[string]*taskTime // of each service its tasks
	all      profile.Times
}

// taskTime is from when to when a task has windows, and how long the longest is.
type taskTime struct {
	task string
	Span
	longest time.Duration
}

// leastDoubt is more than an offset that is left as it is; see wire.SetRight.
const leastDoubt = 2 * time.Second

func (s *heads) saw(labels profile.Labels, h *profile.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(labels[store.ServiceLabel], h)
	if s.all == nil {
		s.all = profile.Times{}
	}
	s.all.Add(h)
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

func (s *heads) note(service string, h *profile.Head) {
	if s.times == nil {
		s.times = map[string]map[string]*taskTime{}
	}
	tasks := s.times[service]
	if tasks == nil {
		tasks = map[string]*taskTime{}
		s.times[service] = tasks
	}
	t, end := tasks[h.Task], h.Start.Add(h.Duration)
	if t == nil {
		tasks[h.Task] = &taskTime{h.Task, Span{h.Start, end}, h.Duration}
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
	for _, tasks := range s.times { // services may be thousands, tasks of one are few at a time
		inOrder := slices.SortedFunc(maps.Values(tasks), func(x, y *taskTime) int { return x.From.Compare(y.From) })
		for i, x := range inOrder {
			for _, y := range inOrder[i+1:] {
				if !y.From.Before(x.To) {
					break
				}
				if earlier(x.To, y.To).Sub(y.From) > max(x.longest, y.longest)+slack {
					all[x.task], all[y.task] = true, true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
