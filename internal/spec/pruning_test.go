package spec

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPruning reads levels, and writes them as they were.
func TestPruning(t *testing.T) {
	for text, want := range map[string]float64{"P80": 80, "P99": 99, "P99.9": 99.9, "P99.95": 99.95, "P100": 100} {
		all, err := Parse(strings.NewReader("kind: Profile\nname: x\npruning: " + text + "\n"))
		if err != nil || all[0].Pruning != want {
			t.Errorf("%s is read as %+v, %v", text, all, err)
			continue
		}
		written, err := json.Marshal(all[0])
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseJSON(written); err != nil || again.Pruning != want || !strings.Contains(string(written), `"pruning":"`+text+`"`) {
			t.Errorf("%s is written as %s, %v", text, written, err)
		}
	}
	if written, err := json.Marshal(Builtin()); err != nil || strings.Contains(string(written), "pruning") {
		t.Errorf("nothing is written as %s, %v", written, err)
	}
}

func FuzzParsePruning(f *testing.F) {
	for _, text := range []string{"P99", "P99.9", "P1e2", "PNaN", "P100.000001"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if percent, err := ParsePruning(text); err == nil && !(percent >= minPruning && percent <= maxPruning) {
			t.Errorf("%q is %v", text, percent)
		}
	})
}
