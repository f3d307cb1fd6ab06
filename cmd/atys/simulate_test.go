package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// TestSimulateJSON holds what programs read to its names: stable, and all there.
func TestSimulateJSON(t *testing.T) {
	var out bytes.Buffer
	c := simulateCommand()
	c.SetOut(&out)
	c.SetArgs([]string{"--json", "--repetitions", "2"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var report map[string]any
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	rows, _ := report["rows"].([]any)
	states, _ := report["real_shares"].([]any)
	claims, _ := report["claims"].([]any)
	stretches, _ := report["stretches"].([]any)
	if len(rows) != 158 || len(stretches) != 6 || len(states) != 4 || len(claims) == 0 {
		t.Fatalf("%d rows, %d real shares, %d claims", len(rows), len(states), len(claims))
	}
	row := []string{"class", "design", "granularity", "max", "mean", "min", "model_mean", "model_variance", "paper", "place", "r", "real",
		"samples", "share", "standard_error", "task", "variance"}
	for _, c := range []struct {
		name  string
		value any
		want  []string
	}{
		{"report", report, []string{"claims", "figure_10", "real_shares", "repetitions", "rows", "seed", "stretches"}},
		{"stretch", stretches[0], []string{"class", "fewer", "granularity", "mean", "one_more", "r", "variance"}},
		{"row of Figure 11", rows[0], slices.Sorted(slices.Values(append([]string{"deciles"}, row...)))},
		{"row", rows[3], row},
		{"row with noise", rows[len(rows)-1], slices.Sorted(slices.Values(append([]string{"unit_variance"}, row...)))},
		{"figure 10", report["figure_10"], []string{"counts", "mean", "model_variance", "n", "paper", "standard_error", "variance"}},
		{"real share", states[0], []string{"deviation", "mean", "task", "units"}},
		{"claim", claims[0], []string{"ours", "paper", "where"}},
	} {
		object, _ := c.value.(map[string]any)
		if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, c.want) {
			t.Errorf("%s has %q, want %q", c.name, got, c.want)
		}
	}
}
