package agent

import "atys.dev/atys/internal/profile"

// known is what a receiver is thought to know: the stacks of the last windows.
// It is bounded by forgetting what was not used for long: when the younger half
// is full it becomes the older one, whose entries come back as they are used.
// What is forgotten is explained again, no more.
type known struct{ younger, older map[profile.Hash]struct{} }

// halfKnown bounds each half: 16 bytes an entry, and as much again.
const halfKnown = 50_000

func newKnown() *known {
	return &known{younger: map[profile.Hash]struct{}{}, older: map[profile.Hash]struct{}{}}
}

func (k *known) has(h profile.Hash) bool {
	if _, ok := k.younger[h]; ok {
		return true
	}
	_, ok := k.older[h]
	return ok
}

func (k *known) add(hashes []profile.Hash) {
	for _, h := range hashes {
		if len(k.younger) >= halfKnown {
			k.younger, k.older = map[profile.Hash]struct{}{}, k.younger
		}
		k.younger[h] = struct{}{}
	}
}

func (k *known) forget(hashes []profile.Hash) {
	for _, h := range hashes {
		delete(k.younger, h)
		delete(k.older, h)
	}
}
