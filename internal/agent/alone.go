package agent

import (
	"time"

	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
)

// An agent that hears nothing of its server decides on rates by itself, by the same
// policies: for each target alone, on its own windows, since it knows no others. It
// goes on from what was ordered last, and when the server is heard again that holds.

// An agent is alone when it has heard nothing for so many windows, and for longer
// than a server is silent that is there: it says something every ten seconds.
const (
	aloneWindows = 3
	aloneAfter   = 30 * time.Second
)

// hear notes that something was heard of who orders tasks.
func (a *Agent) hear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = time.Now()
}

// alone tells whether a task's rates are to be decided here.
func (a *Agent) alone(t *task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.heard) >= max(aloneWindows*t.profile.Window, aloneAfter)
}

// soloist decides on the rate of one target.
type soloist struct {
	policy freq.Policy
	rate   profile.Rate // from the next edge on
}

// keepSoloists forgets those of targets that are gone, and all of them once the
// server is heard again.
func (a *Agent) keepSoloists(r *recording, meant []*present) {
	was := r.soloists
	r.soloists = nil
	if len(was) == 0 || !a.alone(r.task) {
		return
	}
	r.soloists = make(map[string]*soloist, len(was))
	for _, target := range meant {
		key := target.key()
		if s := was[key]; s != nil {
			r.soloists[key] = s
		}
	}
}

// decideAlone has a window that has ended decide on its target's rate, if nobody else
// does.
func (a *Agent) decideAlone(r *recording, w *profile.Window) {
	key := w.Target.String()
	has, ok := r.rates.of[key]
	if !ok || !a.alone(r.task) {
		return
	}
	o := *r.task.profile.Adaptive
	s := r.soloists[key]
	if s == nil {
		s = &soloist{policy: freq.Resume(o, has.wanted)}
		if r.soloists == nil {
			r.soloists = map[string]*soloist{}
		}
		r.soloists[key] = s
	}
	d := s.policy.Next(freq.Window{Start: w.Start, Length: w.Duration, Hertz: w.Rate.Hertz, Functions: functionsOf(w)})
	s.rate = profile.Rate{Hertz: d.Hertz, Policy: o.Policy, Reason: string(d.Reason), Why: d.Why, By: profile.ByAgent}
}

// functionsOf counts how many samples each function was running in itself, as a server
// does. Samples that differ in weight count for as many equal ones as would tell as much.
func functionsOf(w *profile.Window) (functions []freq.Function) {
	values := map[string]float64{}
	for _, row := range w.Rows.All() {
		values[running(w, row.Stack)] += float64(row.Values[0])
	}
	total := w.Rows.Total(0)
	if total.Value <= 0 {
		return nil
	}
	perValue := float64(total.N) / float64(total.Value)
	if total.Squares > 0 {
		perValue = min(perValue, float64(total.Value)/total.Squares)
	}
	for name, value := range values {
		functions = append(functions, freq.Function{Name: name, N: value * perValue})
	}
	return functions
}

// running names the innermost function of a stack.
func running(w *profile.Window, id profile.StackID) string {
	stack := w.Stacks[id].Locations
	if len(stack) == 0 {
		return profile.Strangers(nil).Function
	}
	return w.Frames(stack[0])[0].Function
}
