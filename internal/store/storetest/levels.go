package storetest

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
)

// testSmallLevels has a level of one, as of goroutines, in six windows of each minute, of which
// the first do not say yet that they are levels.
func testSmallLevels(t *testing.T, b *bench) {
	var windows []*profile.Window
	for i := range 30 {
		temporality := profile.Level
		if i < 2 {
			temporality = profile.Delta
		}
		builder := profile.NewBuilder(profile.Head{Task: "task", Target: profile.Labels{store.ServiceLabel: "shop", "instance": "one"},
			Start: Epoch.Add(time.Duration(i) * 10 * time.Second), Duration: 10 * time.Second,
			Types: []profile.ValueType{{Kind: "goroutines", Unit: "count", Temporality: temporality}}})
		builder.Add(profile.Row{Stack: builder.Stack([]profile.LocationID{builder.Named(profile.Frame{Function: "f"})}, profile.EndComplete), N: 1, Values: []int64{1}, Squares: []float64{1}})
		windows = append(windows, builder.Window())
	}
	b.put(t, windows...)
	b.roll(t)
	for _, level := range append([]store.Level{store.Raw}, store.RolledUp()...) {
		q := always()
		q.Level = level
		c := b.merge(t, q, "goroutines", store.Grouping{}).Columns[0]
		if c.Windows != len(windows) || len(c.Sums) != 1 || c.Sums[0].Value != 1 || c.Sums[0].N != int64(len(windows)) {
			t.Errorf("level %v: %d windows, %+v, want a mean of 1", level, c.Windows, c.Sums)
		}
	}
	m := b.merge(t, always(), "goroutines", store.Grouping{Start: Epoch, Step: 10 * time.Second})
	for _, c := range m.Columns {
		if len(c.Sums) != 1 || c.Sums[0].Value != 1 {
			t.Errorf("step %v: %+v", c.Start, c.Sums)
		}
	}
}
