package v8

import (
	"sync"
	"testing"

	"atys.dev/atys/internal/lang"
)

// TestLookWhileNaming names functions while photographs of them still come in,
// as both happen when a window is cut: its worth is under -race.
func TestLookWhileNaming(t *testing.T) {
	r, n, what, begin := compiled(t)
	p := lang.Photograph{What: 5}
	p.Values[valueWhat], p.Values[valuePC] = what, begin+8
	a := lang.Activation{What: what, Where: kindCompiled<<kindShift | (begin + 8)}
	var both sync.WaitGroup
	both.Go(func() {
		for range 200 {
			n.Look(p, r)
		}
	})
	both.Go(func() {
		for range 200 {
			if got := names(n.Name(a, r)); got != "inner:8 in middle:5 in outer:2" {
				t.Errorf("while others look: %q", got)
				return
			}
		}
	})
	both.Wait()
}
