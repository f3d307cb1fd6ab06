package store

import (
	"slices"
	"testing"

	"atys.dev/atys/internal/profile"
)

// TestTypes collects the types of windows that differ in period and base.
func TestTypes(t *testing.T) {
	var all Types
	part := profile.CPUTime(20)
	part.Base = profile.BaseNone
	for _, one := range []profile.ValueType{{Kind: "waits", Unit: "count"}, profile.CPUTime(10), part, {Kind: "waits", Unit: "count"}} {
		all.Add(one)
	}
	want := []profile.ValueType{{Kind: "cpu", Unit: "nanoseconds"}, {Kind: "waits", Unit: "count"}}
	if got := all.Sorted(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
