package wire

import (
	"math/rand/v2"
	"testing"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/profiletest"
)

// TestSealGrove opens what groves are sealed to, and what Seal makes of the same
// with its stacks written out.
func TestSealGrove(t *testing.T) {
	for seed := range uint64(200) {
		g := profiletest.Grove(profiletest.Random(rand.New(rand.NewPCG(seed, 2))))
		run := profile.Run{byte(seed)}
		got, gotRun, err := Open(SealGrove(g, run))
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := Open(Seal(profiletest.OpenGrove(g), run))
		if err != nil {
			t.Fatal(err)
		}
		if diff := profiletest.Diff(want, got); diff != "" || gotRun != run {
			t.Fatalf("seed %d: %x, %s", seed, gotRun, diff)
		}
	}
	if s := SealGrove(&profile.Grove{Head: profile.Head{Types: []profile.ValueType{{Kind: "cpu"}}}, Forest: &profile.Forest{}}, profile.Run{}); s.GetDictionary() != nil {
		t.Errorf("of nothing: %x", s.GetDictionary())
	}
}
