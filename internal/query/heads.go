package query

import (
	"maps"
	"slices"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// heads is what the heads of windows say about how far an answer can be trusted.
type heads struct{ store.Summary }

func (s *heads) coverage(c *Coverage) {
	c.Doubtful, c.Overlapping = s.Doubtful, s.overlapping()
	c.Pushed, c.PushedMore = len(s.Pushed.Instances), s.Pushed.More
	tasks := map[string]profile.Instances{}
	for of, t := range s.Tasks {
		if t.Instances == (profile.Instances{}) { // as nearly all of them
			continue
		}
		i := tasks[of.Task]
		i.Absorb(t.Instances)
		tasks[of.Task] = i
	}
	for _, task := range slices.Sorted(maps.Keys(tasks)) {
		c.Tasks = append(c.Tasks, TaskCoverage{task, tasks[task]})
	}
}

// overlapping lists tasks that had windows of one service for longer at the same
// time than a window of theirs lasts: one that took the place of another shares
// what was added up of both with it, and no more.
func (s *heads) overlapping() []string {
	type ofTask struct {
		name string
		*store.TaskSummary
	}
	services := map[string][]ofTask{}
	for of, t := range s.Tasks {
		services[of.Service] = append(services[of.Service], ofTask{of.Task, t})
	}
	all := map[string]bool{}
	for _, tasks := range services { // services may be thousands, tasks of one are few at a time
		slices.SortFunc(tasks, func(x, y ofTask) int { return x.From.Compare(y.From) })
		for i, x := range tasks {
			for _, y := range tasks[i+1:] {
				if !y.From.Before(x.To) {
					break
				}
				if earlier(x.To, y.To).Sub(y.From) > max(x.Longest, y.Longest)+slack {
					all[x.name], all[y.name] = true, true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
