package server

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
)

// known tells a question of the agents that are there, or were until a day ago:
// of who has sent no window yet its reports alone tell that it should have.
func (f *fleet) known(s query.Selection) (all []query.Agent) {
	f.mu.Lock()
	profiles := f.recordingAll(s.Kind)
	reports := make([]*atysv1.ReportRequest, 0, len(f.agents))
	for _, a := range f.agents {
		reports = append(reports, a.report)
		all = append(all, query.Agent{Node: a.report.GetNode(), First: a.first, Heard: a.seen, Silent: len(a.runs) == 0 || f.silent(a),
			Tasks: watching(a.report, profiles)})
	}
	f.mu.Unlock()
	for i, r := range reports { // what was reported is never changed, and may be long
		all[i].Chosen = slices.ContainsFunc(r.GetTargets(), func(t *atysv1.Target) bool { return s.Select.Matches(profile.Labels(t.GetLabels())) })
	}
	return all
}

// recordingAll finds, by their identities, the profiles whose windows tell when an
// agent watched: those that record all that runs. The lock is held.
func (f *fleet) recordingAll(kind string) map[string]*spec.Profile {
	builtin := spec.Builtin()
	all := map[string]*spec.Profile{builtin.Name: builtin}
	for _, t := range f.profiles {
		all[t.ID] = t.Profile
	}
	maps.DeleteFunc(all, func(_ string, p *spec.Profile) bool {
		return !p.All() || p.Adaptive != nil || p.External() || !slices.Contains(p.Kinds, kind)
	})
	return all
}

// watching lists those of an agent's tasks that are some profiles, and how long
// their windows are.
func watching(r *atysv1.ReportRequest, profiles map[string]*spec.Profile) map[string]time.Duration {
	tasks := map[string]time.Duration{}
	for _, state := range r.GetTasks() {
		if p := profiles[state.GetId()]; p != nil && state.GetPhase() != "ending" && state.GetPhase() != "done" {
			tasks[p.Name] = p.Window
		}
	}
	return tasks
}
