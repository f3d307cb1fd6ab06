package wire

import "testing"

// TestGuess has receivers that know nearly all, nothing, and then all.
func TestGuess(t *testing.T) {
	var g Guess
	tries := func(windows, unknown int) (manners [3]int) {
		for range windows {
			m := g.Next()
			if manners[m]++; m == ExplainNothing {
				g.Learn(unknown, 100)
			}
		}
		return manners
	}
	if m := tries(640, 3); m != [3]int{630, 0, 10} {
		t.Errorf("to who knows nearly all, windows go %v", m)
	}
	if m := tries(6400, 100); m[ExplainNothing] > 6400/mostExplained+20 || m[ExplainAll] != 100 {
		t.Errorf("to who knows nothing, windows go %v", m)
	}
	tries(2*mostExplained, 0)
	if m := tries(640, 0); m != [3]int{630, 0, 10} {
		t.Errorf("once it knows all, windows go %v", m)
	}
}
