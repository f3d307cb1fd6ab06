package lang

import "sync"

// Album keeps what photographs showed, by Photograph.What or what else frames
// call it. It is bounded: who has not been asked for in long falls out. The
// zero value is ready.
type Album[K comparable, V any] struct {
	mu         sync.Mutex // guards both
	fresh, old map[K]V
}

// albumHalf is more than the kernel remembers to have photographed: what it
// does not show again is still here.
const albumHalf = 1 << 16

// Keep puts something into the album.
func (a *Album[K, V]) Keep(what K, value V) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keep(what, value)
}

func (a *Album[K, V]) keep(what K, value V) {
	if len(a.fresh) >= albumHalf {
		a.old, a.fresh = a.fresh, nil
	}
	if a.fresh == nil {
		a.fresh = map[K]V{}
	}
	a.fresh[what] = value
}

// Find looks something up, and so keeps it for longer.
func (a *Album[K, V]) Find(what K) (V, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if value, ok := a.fresh[what]; ok {
		return value, true
	}
	value, ok := a.old[what]
	if ok {
		a.keep(what, value)
	}
	return value, ok
}
