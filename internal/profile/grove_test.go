package profile_test

import (
	"math/rand/v2"
	"path"
	"reflect"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

// TestGroveTree folds random windows as groves, and as NewTree does.
func TestGroveTree(t *testing.T) {
	for seed := range uint64(200) {
		g := profiletest.Grove(profiletest.Random(rand.New(rand.NewPCG(seed, 1))))
		want, err := profile.NewTree(profile.TreeOptions{}, profiletest.OpenGrove(g))
		if err != nil {
			t.Fatal(err)
		}
		got := g.Tree()
		if !reflect.DeepEqual(got.Columns, want.Columns) {
			t.Fatalf("seed %d: columns %+v, want %+v", seed, got.Columns, want.Columns)
		}
		sameNodes(t, seed, got.Root, want.Root)
	}
}

func sameNodes(t *testing.T, seed uint64, got, want *profile.Node) {
	t.Helper()
	if got.Frame.Key() != want.Frame.Key() || got.Frame.Line != want.Frame.Line || got.Self[0] != want.Self[0] || got.Total[0] != want.Total[0] ||
		len(got.Children) != len(want.Children) {
		t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
	}
	for i := range got.Children {
		sameNodes(t, seed, got.Children[i], want.Children[i])
	}
}

func TestFrameKeyBase(t *testing.T) {
	for _, file := range []string{"", "/", "//", "a", "/a", "a/", "/a/b", "a//b//", "./", "..", "a/.", "a/.."} {
		if got, want := (profile.Frame{File: file}).Key().FileBase, path.Base("/"+file); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}
