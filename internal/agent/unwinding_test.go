package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"atys.dev/atys/internal/unwind"
)

// unwindingOnly collects the metrics of unwinding tables.
type unwindingOnly struct{ *Agent }

func (u unwindingOnly) Describe(to chan<- *prometheus.Desc) { describeUnwinding(to) }
func (u unwindingOnly) Collect(to chan<- prometheus.Metric) { u.collectUnwinding(to) }

func TestUnwindingMetrics(t *testing.T) {
	a := &Agent{}
	if n := testutil.CollectAndCount(unwindingOnly{a}); n != 0 {
		t.Errorf("%d metrics of an agent without an unwinder", n)
	}
	a.options.Unwinding = func() unwind.Stats {
		return unwind.Stats{Rows: 512, RowsMax: 1024, EvictedNeeded: 7, BuildTime: unwind.BuildTime{Again: 3 * time.Second}}
	}
	want := `
# HELP atys_unwind_evictions_needed_total Of these, those that walks asked for again within ten seconds: many say that --unwind-memory is too small.
# TYPE atys_unwind_evictions_needed_total counter
atys_unwind_evictions_needed_total 7
# HELP atys_unwind_rows Unwinding rows that are loaded.
# TYPE atys_unwind_rows gauge
atys_unwind_rows 512
# HELP atys_unwind_build_cpu_seconds_total CPU time of building tables, by what for: a process maps the file (mapped), a walk asked for it (asked), it had been given up (again).
# TYPE atys_unwind_build_cpu_seconds_total counter
atys_unwind_build_cpu_seconds_total{cause="again"} 3
atys_unwind_build_cpu_seconds_total{cause="asked"} 0
atys_unwind_build_cpu_seconds_total{cause="mapped"} 0
`
	if err := testutil.CollectAndCompare(unwindingOnly{a}, strings.NewReader(want), "atys_unwind_rows", "atys_unwind_evictions_needed_total", "atys_unwind_build_cpu_seconds_total"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(unwindingOnly{a})
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
