package wire

import (
	"testing"

	"atys.dev/atys/internal/profile"
)

func TestKnownIsBounded(t *testing.T) {
	const most = 1000
	k := NewKnown(most)
	hash := func(i int) profile.Hash { return profile.Hash{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range 5 * most {
		k.Add([]profile.Hash{hash(i)})
	}
	if n := k.Len(); n > most {
		t.Errorf("%d entries, at most %d are meant", n, most)
	}
	if last := hash(5*most - 1); !k.Has(last) {
		t.Error("the last one is forgotten")
	} else if k.Forget([]profile.Hash{last}); k.Has(last) {
		t.Error("what was to be forgotten is known")
	}
}
