package oracle

import (
	"context"
	"os"
	"testing"
	"time"

	"atys.dev/atys/test/victims"
)

// TestVictims compares a short run of each victim whose shape is special:
// deep, recursive, tail calls, signals, exceptions.
func TestVictims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loading BPF needs root")
	}
	dir := t.TempDir()
	walker, err := BuildWalker(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, victim string
		options      victims.Options
	}{
		{"C", "mixed", victims.Options{}},
		{"recursive", "recursive", victims.Options{}},
		{"signal handlers", "signals", victims.Options{}},
		{"exceptions", "throwing", victims.Options{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path, err := victims.Build(t.TempDir(), test.victim, test.options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			victim, err := victims.Start(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(ctx, Options{Walker: walker, PIDs: []int{victim.PID}, Frequency: 499, Samples: 200, Patience: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			r.report(t)
		})
	}
}

func (r *Result) report(t *testing.T) {
	t.Helper()
	t.Logf("%d samples, complete %.2f%% %v; equal %d cut %d short %d differ %d; lost %d unmatched %d",
		r.Samples, 100*r.CompleteShare(), r.Ends, r.Equal, r.Cut, r.Short, r.Differ, r.RecordsLost, r.Unmatched)
	for _, reasons := range []map[string]*Reason{r.Differences, r.Truncations, r.Shorts} {
		for _, one := range Top(reasons) {
			t.Logf("%d times: %s\n%s", one.Count, one.Text, one.Example)
		}
	}
	if r.Compared() < 100 || r.EqualShare() < 0.995 || r.CompleteShare() < 0.99 {
		t.Errorf("%d compared, equal %.2f%%, complete %.2f%%", r.Compared(), 100*r.EqualShare(), 100*r.CompleteShare())
	}
}
