package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// truncatedWindow is one of ten seconds that ends now, half of whose stacks are cut.
func truncatedWindow() *profile.Window {
	return &profile.Window{Head: profile.Head{Start: time.Now().Add(-10 * time.Second), Duration: 10 * time.Second, Exact: profile.Exact{CPU: 50 * time.Second}},
		Stacks: []profile.Stack{{End: profile.EndComplete}, {End: profile.EndNotLoaded}},
		Rows:   profile.RowsOf(0, profile.Row{Stack: 0, N: 500}, profile.Row{Stack: 1, N: 500})}
}

// TestConditionsAreReported has a trouble begin: the next report carries it, a metric
// shows it and the log says so, once.
func TestConditionsAreReported(t *testing.T) {
	b := newBench(t, 1)
	var said bytes.Buffer
	a, err := New(Options{Node: "n", Spool: b.spool, Intake: b.server, Log: slog.New(slog.NewTextHandler(&said, nil)),
		Unwinding: func() unwind.Stats { return unwind.Stats{Rows: 1, RowsMax: 2} }})
	if err != nil {
		t.Fatal(err)
	}
	holds := func() float64 {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(a)
		if problems, err := testutil.GatherAndLint(registry, "atys_agent_condition", "atys_agent_truncated_samples_total", "atys_agent_window_delay_seconds"); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "atys_agent_condition" && m.GetLabel()[0].GetValue() == string(health.StacksCut) {
					return m.GetGauge().GetValue()
				}
			}
		}
		t.Fatal("no metric tells of truncated stacks")
		return 0
	}
	a.judge()
	if got := a.report().GetState().GetConditions(); len(got) > 0 || holds() != 0 {
		t.Errorf("before any window: %v", got)
	}
	a.fitness.observe(health.Summarize([]*profile.Window{truncatedWindow()}, time.Now()))
	for range 2 {
		a.judge()
	}
	got := a.report().GetState().GetConditions()
	if len(got) != 1 || got[0].GetKind() != string(health.StacksCut) || !strings.Contains(got[0].GetMessage(), "50%") || holds() != 1 {
		t.Errorf("reported: %v, the metric is %v", got, holds())
	}
	select {
	case <-a.reports:
	default:
		t.Error("nothing is reported at once")
	}
	if n := strings.Count(said.String(), "condition began"); n != 1 {
		t.Errorf("the log says %d times that a condition began: %s", n, said.String())
	}
}
