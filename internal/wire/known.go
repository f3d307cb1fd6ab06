package wire

import "atys.dev/atys/internal/profile"

// Known is what a receiver is thought to know: the stacks of the last windows.
// It is bounded by forgetting what was not used for long: when the younger half
// is full it becomes the older one, whose entries come back as they are used.
// What is forgotten is explained again, no more. Use NewKnown.
type Known struct {
	half           int
	younger, older map[profile.Hash]struct{}
}

// NewKnown remembers at most so many stacks: 16 bytes each, and as much again.
func NewKnown(most int) *Known {
	return &Known{half: max(most/2, 1), younger: map[profile.Hash]struct{}{}, older: map[profile.Hash]struct{}{}}
}

// Has tells whether a stack is thought to be known.
func (k *Known) Has(h profile.Hash) bool {
	if _, ok := k.younger[h]; ok {
		return true
	}
	_, ok := k.older[h]
	return ok
}

// Add notes that the receiver has taken windows of these stacks.
func (k *Known) Add(hashes []profile.Hash) {
	for _, h := range hashes {
		if len(k.younger) >= k.half {
			k.younger, k.older = map[profile.Hash]struct{}{}, k.younger
		}
		k.younger[h] = struct{}{}
	}
}

// Forget notes that the receiver does not know these stacks.
func (k *Known) Forget(hashes []profile.Hash) {
	for _, h := range hashes {
		delete(k.younger, h)
		delete(k.older, h)
	}
}

// Len is how many stacks are remembered.
func (k *Known) Len() int { return len(k.younger) + len(k.older) }
