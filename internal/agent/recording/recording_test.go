package recording

import (
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/sampler"
)

type plain struct{}

func (plain) Cut(sampler.Edge) ([]*profile.Window, error) { return nil, nil }

func (plain) Close() error { return nil }

// TestStates goes through lives of recordings.
func TestStates(t *testing.T) {
	var r Recording
	expect := func(want State) {
		t.Helper()
		if r.State() != want {
			t.Fatalf("%v, want %v", r.State(), want)
		}
	}
	leave := func(now bool) {
		t.Helper()
		if got := r.Leave(); got != now {
			t.Errorf("the last window can be cut now: %v", got)
		}
	}
	leave(false)
	expect(Resting)
	r.Begin()
	r.Opened(plain{}, false)
	expect(Starting)
	r.Began()
	r.Cut()
	expect(Cutting)
	r.Resume()
	leave(true)
	expect(Leaving)
	leave(false)
	if r.Release() == nil || r.Sampler() != nil {
		t.Error("it keeps its sampler")
	}
	expect(Resting)

	r.Begin() // it leaves while it starts
	leave(false)
	expect(Leaving)
	r.Opened(plain{}, false)
	r.Release()

	r.Begin() // and while it cuts
	r.Opened(plain{}, false)
	r.Began()
	r.Cut()
	leave(false)
	expect(Leaving)
	r.Release()

	r.Begin() // it cannot be opened
	if r.Release() != nil {
		t.Error("there is a sampler")
	}
	expect(Resting)
	defer func() {
		if recover() == nil {
			t.Error("one that rests is cut")
		}
	}()
	r.Cut()
}

// TestAbilities has a sampler without any be asked for what it cannot do.
func TestAbilities(t *testing.T) {
	var r Recording
	r.Begin()
	r.Opened(plain{}, false)
	if bpf, interrupts, err := r.Spent(); bpf+interrupts != 0 || err != nil || r.Follows() || r.Relievable() || r.Delayed() || r.Lead() != 0 || r.Trouble() != (sampler.Trouble{}) || r.Paced() != nil || r.Namer() != nil {
		t.Error("it is said to be able to do what it is not")
	}
}
