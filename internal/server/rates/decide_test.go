package rates

import (
	"fmt"
	"testing"
)

// TestInTurns has tenants wait for each other no longer than for one decision.
func TestInTurns(t *testing.T) {
	of := map[string][]*course{"c": nil}
	for tenant, n := range map[string]int{"a": 3, "b": 1, "d": 2} {
		for i := range n {
			of[tenant] = append(of[tenant], &course{service: fmt.Sprint(i)})
		}
	}
	got := ""
	for _, turn := range inTurns(of) {
		got += turn.tenant + turn.service + " "
	}
	if want := "a0 b0 d0 a1 d1 a2 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
