// Package refine derives the contexts of rows from the frames of their stacks, once these have names.
package refine

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// Rule returns the context of samples with the given frames, innermost first, which had
// the context c so far. It leaves a context that it has returned before as it is: agents
// apply rules to windows that they have named, and servers again to what they read, since
// names may come late.
type Rule func(frames []profile.Frame, c profile.Context) profile.Context

// Rules are applied, in order, to windows of a kind. Agents and servers have the same.
type Rules map[string][]Rule

// Context applies rules to the context of some samples.
func Context(rules []Rule, frames []profile.Frame, c profile.Context) profile.Context {
	for _, rule := range rules {
		c = rule(frames, c)
	}
	return c
}

// Window applies rules to all rows and adds up the rows that become equal. It returns w
// itself if nothing changes, and never modifies it.
func Window(w *profile.Window, rules ...Rule) *profile.Window {
	refined := Relabel(w, rules...)
	if refined == w {
		return w
	}
	a := &adder{Rows: profile.Rows{Types: w.Rows.Types}, rows: map[profile.RowKey]int{}}
	for _, row := range refined.Rows.All() {
		a.add(row)
	}
	refined.Rows = a.Rows
	return refined
}

// Relabel is Window, but rows that become equal stay what they are.
func Relabel(w *profile.Window, rules ...Rule) *profile.Window {
	r := refiner{window: w, rules: rules, known: map[key]profile.Context{}}
	if len(rules) == 0 || !r.changes() {
		return w
	}
	var contexts profile.ContextTable
	refined := *w
	refined.Rows = w.Rows.Clone()
	for i, row := range w.Rows.All() {
		refined.Rows.SetContext(i, contexts.ID(r.context(row.Stack, row.Context)))
	}
	refined.Exemplars = slices.Clone(w.Exemplars)
	for i := range refined.Exemplars {
		e := &refined.Exemplars[i]
		e.Context = contexts.ID(r.context(e.Stack, e.Context))
	}
	refined.Contexts = contexts.All()
	return &refined
}

// refiner applies rules once for each stack and context.
type refiner struct {
	window *profile.Window
	rules  []Rule
	known  map[key]profile.Context
}

type key struct {
	stack   profile.StackID
	context profile.ContextID
}

// changes reports whether any row gets another context.
func (r *refiner) changes() bool {
	for _, row := range r.window.Rows.All() {
		if r.context(row.Stack, row.Context) != r.window.Context(row.Context) {
			return true
		}
	}
	return false
}

// context returns the new context of samples on a stack.
func (r *refiner) context(stack profile.StackID, id profile.ContextID) profile.Context {
	k := key{stack, id}
	c, ok := r.known[k]
	if !ok {
		c = r.apply(stack, r.window.Context(id))
		r.known[k] = c
	}
	return c
}

func (r *refiner) apply(id profile.StackID, c profile.Context) profile.Context {
	var frames []profile.Frame
	for _, l := range r.window.Stacks[id].Locations {
		frames = append(frames, r.window.Frames(l)...)
	}
	return Context(r.rules, frames, c)
}

// adder adds up rows with equal keys.
type adder struct {
	profile.Rows
	rows map[profile.RowKey]int
}

func (a *adder) add(row profile.Row) {
	k := row.Key()
	if i, ok := a.rows[k]; ok {
		a.AddTo(i, row, 1)
		return
	}
	a.rows[k] = a.Len()
	a.Append(row)
}
