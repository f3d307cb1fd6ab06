package prune

import "atys.dev/atys/internal/profile"

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
