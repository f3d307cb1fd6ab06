package v8

import "sync"

// albumSize is how many photographs are kept at least, those used last. Kernels
// keep fewer in mind: one that is asked for is never dropped before it is taken
// again.
const albumSize = 1 << 15

// album keeps what was photographed, by what frames call it. The zero value is
// empty.
type album[K comparable, V any] struct {
	mu         sync.Mutex // guards all below
	young, old map[K]V
}

func (a *album[K, V]) add(key K, value V) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(key, value)
}

func (a *album[K, V]) put(key K, value V) {
	if a.young == nil || len(a.young) >= albumSize {
		a.old, a.young = a.young, map[K]V{}
	}
	a.young[key] = value
}

func (a *album[K, V]) get(key K) (V, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if v, ok := a.young[key]; ok {
		return v, true
	}
	v, ok := a.old[key]
	if ok {
		a.put(key, v)
	}
	return v, ok
}
