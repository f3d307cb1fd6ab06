package agent

import (
	"time"

	"atys.dev/atys/internal/agent/targets"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/profile"
)

// An agent that does not hear from its server decides on rates itself, by the same
// policies: for each target separately, on its own windows, since it knows no others. It
// starts from what was ordered last. When the server is back its orders apply again.

// An agent is alone when it has heard nothing for aloneWindows windows, and for
// aloneAfter: a server that is there says something every ten seconds.
const (
	aloneWindows = 3
	aloneAfter   = 30 * time.Second
)

// hear records that the server has said something.
func (b *board) hear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = time.Now()
}

// alone reports whether the agent decides on the rates of windows of this length.
func (b *board) alone(window time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.heard) >= max(aloneWindows*window, aloneAfter)
}

// soloist decides on the rate of one target.
type soloist struct {
	policy freq.Policy
	rate   profile.Rate // from the next edge on
}

// keepSoloists forgets the policies of targets that are gone, and all of them once the
// server is back.
func (r *recording) keepSoloists(meant []*targets.Present, alone bool) {
	was := r.soloists
	r.soloists = nil
	if len(was) == 0 || !alone {
		return
	}
	r.soloists = make(map[string]*soloist, len(was))
	for _, target := range meant {
		key := target.Key()
		if s := was[key]; s != nil {
			r.soloists[key] = s
		}
	}
}

// decideAlone decides on the next rate of a target by its last window.
func (r *recording) decideAlone(w *profile.Window) {
	key := w.Target.String()
	has, ok := r.rates.of[key]
	if !ok {
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

// functionsOf counts the samples of each function itself, as a server does. Samples of
// different weight count as the number of equal samples that would give the same variance.
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

// running returns the innermost function of a stack.
func running(w *profile.Window, id profile.StackID) string {
	stack := w.Stacks[id].Locations
	if len(stack) == 0 {
		return profile.Strangers(nil).Function
	}
	return w.Frames(stack[0])[0].Function
}
