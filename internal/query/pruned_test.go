package query

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/prune"
)

// TestPruned has two instances, one of which pruned a tenth of what it sampled: an
// answer about both says by how much shares can be off.
func TestPruned(t *testing.T) {
	pruned := head(0)
	pruned.AddLoss(profile.Loss{Reason: profile.LossPruned, Detail: "threads outside P90", N: 10, Value: 100})
	a := Asker{Tenant: "x", Now: func() time.Time { return noon.Add(3 * time.Minute) }, Store: &shelf{windows: []written{
		{profile.Labels{"service": "shop", "node": "n", "instance": "a"}, pruned, "http-#", map[string]int64{"main;serve": 90, prune.Name: 6, prune.Name + ";serve": 4}},
		{profile.Labels{"service": "shop", "node": "n", "instance": "bb"}, head(1), "http-#", map[string]int64{"main;serve": 60, "main": 40}},
	}}}
	w, c, err := a.Merge(t.Context(), about(t, `{service="shop"}`))
	if err != nil || w.N() != 200 {
		t.Fatalf("%v, %v", w, err)
	}
	if c.Value != 2000 || c.Pruned != 100 || c.MostOff() != 0.05 || len(c.Losses) != 1 || c.Losses[0].Reason != profile.LossPruned {
		t.Errorf("%+v, off by %g at most", c, c.MostOff())
	}
	if _, c, err = a.Merge(t.Context(), about(t, `{instance="bb"}`)); err != nil || c.MostOff() != 0 {
		t.Errorf("of one that pruned nothing shares are off by %g, %v", c.MostOff(), err)
	}
}
