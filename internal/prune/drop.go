package prune

import "atys.dev/atys/internal/profile"

// dropStacks leaves those of a window's stacks that are used.
func dropStacks(w *profile.Window, used []bool) {
	numbers, n := make([]profile.StackID, len(w.Stacks)), 0
	for id, stack := range w.Stacks {
		if used[id] {
			numbers[id] = profile.StackID(n)
			w.Stacks[n] = stack
			n++
		}
	}
	if n == len(w.Stacks) {
		return
	}
	clear(w.Stacks[n:])
	w.Stacks = w.Stacks[:n]
	for i := range w.Rows {
		w.Rows[i].Stack = numbers[w.Rows[i].Stack]
	}
	for i := range w.Samples {
		w.Samples[i].Stack = numbers[w.Samples[i].Stack]
	}
}

// dropLocations leaves those that a stack has.
func dropLocations(w *profile.Window) {
	used := make([]bool, len(w.Locations))
	for _, s := range w.Stacks {
		for _, l := range s.Locations {
			used[l] = true
		}
	}
	numbers, n := make([]profile.LocationID, len(used)), 0
	for id, is := range used {
		if is {
			numbers[id] = profile.LocationID(n)
			w.Locations[n], w.Names[n] = w.Locations[id], w.Names[id]
			n++
		}
	}
	if n == len(used) {
		return
	}
	for _, s := range w.Stacks {
		for i, l := range s.Locations {
			s.Locations[i] = numbers[l]
		}
	}
	clear(w.Locations[n:])
	clear(w.Names[n:])
	w.Locations, w.Names = w.Locations[:n], w.Names[:n]
}

// dropContexts leaves those that a row has.
func dropContexts(w *profile.Window) {
	if len(w.Contexts) == 0 {
		return
	}
	numbers := make([]profile.ContextID, len(w.Contexts))
	var kept []profile.Context
	for i := range w.Rows {
		id := w.Rows[i].Context
		if id == 0 {
			continue
		}
		if numbers[id-1] == 0 {
			kept = append(kept, w.Contexts[id-1])
			numbers[id-1] = profile.ContextID(len(kept))
		}
		w.Rows[i].Context = numbers[id-1]
	}
	w.Contexts = kept
}
