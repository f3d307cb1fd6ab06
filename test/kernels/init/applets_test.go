package main

import (
	"maps"
	"slices"
	"testing"

	"atys.dev/atys/test/kernels"
)

func TestAppletsAreLinked(t *testing.T) {
	have, linked := slices.Sorted(maps.Keys(applets())), kernels.Applets()
	if !slices.Equal(have, linked) {
		t.Errorf("init is %q, the machine links %q", have, linked)
	}
}
