package pipeline

import (
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// Of several targets, the one whose time is not sampled in full tells so, after a
// minute, and no other.
func TestBalancesTellOfTheTarget(t *testing.T) {
	machine := profile.Labels{"node": "a"}
	part := func(target profile.Labels, at time.Duration, samples int64) *profile.Window {
		const period = int64(time.Millisecond)
		b := profile.NewBuilder(profile.Head{Target: target, Start: time.Unix(1e9, 0).Add(at), Duration: 10 * time.Second,
			Types: []profile.ValueType{profile.CPUTime(period)}, Exact: profile.Exact{CPU: time.Second}})
		b.Add(profile.Row{Stack: b.Stack(nil, profile.EndComplete), N: samples, Values: []int64{samples * period}, Squares: []float64{float64(samples * period * period)}})
		return b.Window()
	}
	var all balances
	whole, partial := profile.Labels{"service": "whole"}, profile.Labels{"service": "partial"}
	told := map[string]int64{}
	for i := range 12 {
		at := time.Duration(i) * 10 * time.Second
		parts := []*profile.Window{part(machine, at, 500), part(whole, at, 1000), part(partial, at, 700)}
		all.add(parts, machine)
		for _, w := range parts {
			told[w.Target.String()] += w.LossOf(profile.LossUnsampled).Value
		}
	}
	if want := int64(12 * 300 * time.Millisecond); told[partial.String()] != want || told[whole.String()] != 0 || told[machine.String()] != 0 {
		t.Errorf("told are %v, want %d of %v alone", told, want, partial)
	}
	all.add([]*profile.Window{part(whole, time.Hour, 1000)}, machine)
	if len(all) != 1 {
		t.Errorf("%d targets are remembered an hour later, want 1", len(all))
	}
}
