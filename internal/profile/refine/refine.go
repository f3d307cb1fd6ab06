// Package refine derives the contexts of rows from the frames of their stacks, once these have names.
package refine

import (
	"slices"

	"atys.dev/atys/internal/profile"
)

// Rule returns the context of samples with the given frames, innermost first, which had
// the context c so far.
type Rule func(frames []profile.Frame, c profile.Context) profile.Context

// Window applies rules, in order, to all rows and adds up the rows that become equal. It
// returns w itself if nothing changes, and never modifies it. Agents apply it to windows
// that they have named, servers to those whose names come later.
func Window(w *profile.Window, rules ...Rule) *profile.Window {
	r := refiner{window: w, rules: rules, known: map[key]profile.Context{}}
	if len(rules) == 0 || !r.changes() {
		return w
	}
	b := &adder{Rows: profile.Rows{Types: w.Rows.Types}, rows: map[profile.RowKey]int{}, ids: map[profile.Context]profile.ContextID{{}: 0}}
	for _, row := range w.Rows.All() {
		row.Context = b.context(r.context(row.Stack, row.Context))
		b.add(row)
	}
	refined := *w
	refined.Exemplars = slices.Clone(w.Exemplars)
	for i := range refined.Exemplars {
		e := &refined.Exemplars[i]
		e.Context = b.context(r.context(e.Stack, e.Context))
	}
	refined.Rows, refined.Contexts = b.Rows, b.dictionary
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
	for _, rule := range r.rules {
		c = rule(frames, c)
	}
	return c
}

// adder adds up rows with equal keys.
type adder struct {
	profile.Rows
	rows       map[profile.RowKey]int
	ids        map[profile.Context]profile.ContextID
	dictionary []profile.Context
}

// context finds or adds a context.
func (a *adder) context(c profile.Context) profile.ContextID {
	id, ok := a.ids[c]
	if !ok {
		a.dictionary = append(a.dictionary, c)
		id = profile.ContextID(len(a.dictionary))
		a.ids[c] = id
	}
	return id
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
