package store

import (
	"maps"
	"time"

	"atys.dev/atys/internal/profile"
)

// Summary says when tasks recorded, by the heads of their windows. The zero value is ready
// to use.
type Summary struct {
	Tasks    map[Recorded]*TaskSummary
	Times    profile.Times // of all windows
	Doubtful int           // windows whose time is uncertain by more than their length
	Pushed   Pushed
}

// Pushed is about windows of profile.OriginPushed.
type Pushed struct {
	Instances map[string]bool // whose windows they are; see Instance
	More      bool            // some windows do not name their instance
}

// add adds a pushed window.
func (p *Pushed) add(series profile.Labels) {
	if p.Instances == nil {
		p.Instances = map[string]bool{}
	}
	p.Instances[Instance(series)] = true
	node, name := placeOf(series)
	p.More = p.More || node == "" && name == ""
}

func (p *Pushed) absorb(o Pushed) {
	if p.Instances == nil && len(o.Instances) > 0 {
		p.Instances = map[string]bool{}
	}
	maps.Copy(p.Instances, o.Instances)
	p.More = p.More || o.More
}

// Recorded identifies a service that a task recorded.
type Recorded struct{ Service, Task string }

// TaskSummary is about the windows of one task and service.
type TaskSummary struct {
	From, To  time.Time
	Longest   time.Duration // window
	Instances profile.Instances
}

// leastDoubt is more than a clock offset that is left as it is; see wire.SetRight.
const leastDoubt = 2 * time.Second

// Add adds a window.
func (s *Summary) Add(series profile.Labels, h *profile.Head) {
	if s.Times == nil {
		s.Times = profile.Times{}
	}
	s.Times.Add(h)
	if h.ClockError > max(h.Duration, leastDoubt)-h.ClockOffset.Abs() { // the sum might overflow
		s.Doubtful++
	}
	if h.Origin == profile.OriginPushed {
		s.Pushed.add(series)
	}
	s.task(Recorded{series[ServiceLabel], h.Task}).absorb(&TaskSummary{h.Start, h.Start.Add(h.Duration), h.Duration, h.Instances})
}

// Absorb adds another summary.
func (s *Summary) Absorb(o *Summary) {
	if s.Times == nil {
		s.Times = profile.Times{}
	}
	for start, length := range o.Times {
		s.Times[start] = max(s.Times[start], length)
	}
	s.Doubtful += o.Doubtful
	s.Pushed.absorb(o.Pushed)
	for of, task := range o.Tasks {
		s.task(of).absorb(task)
	}
}

func (s *Summary) task(of Recorded) *TaskSummary {
	t := s.Tasks[of]
	if t == nil {
		if s.Tasks == nil {
			s.Tasks = map[Recorded]*TaskSummary{}
		}
		t = &TaskSummary{}
		s.Tasks[of] = t
	}
	return t
}

func (t *TaskSummary) absorb(o *TaskSummary) {
	if t.Longest == 0 && t.From.IsZero() {
		*t = *o
		return
	}
	if o.From.Before(t.From) {
		t.From = o.From
	}
	if o.To.After(t.To) {
		t.To = o.To
	}
	t.Longest = max(t.Longest, o.Longest)
	t.Instances.Absorb(o.Instances)
}
