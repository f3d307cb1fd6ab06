package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/unwind"
)

// unwindMetric is a metric of unwinding tables.
type unwindMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(unwind.Stats) float64
}

func unwindGauge(name, help string, value func(unwind.Stats) float64) unwindMetric {
	return unwindMetric{prometheus.NewDesc("atys_unwind_"+name, help, nil, nil), prometheus.GaugeValue, value}
}

func unwindCounter(name, help string, value func(unwind.Stats) float64) unwindMetric {
	return unwindMetric{prometheus.NewDesc("atys_unwind_"+name+"_total", help, nil, nil), prometheus.CounterValue, value}
}

var (
	unwindMetrics = []unwindMetric{
		unwindGauge("rows", "Unwinding rows that are loaded.", func(s unwind.Stats) float64 { return float64(s.Rows) }),
		unwindGauge("rows_max", "Unwinding rows that there is room for (--unwind-memory).", func(s unwind.Stats) float64 { return float64(s.RowsMax) }),
		unwindGauge("tables", "Files whose unwinding table is known.", func(s unwind.Stats) float64 { return float64(s.Loaded) }),
		unwindGauge("packed_bytes", "Memory of the tables that rows are loaded from.", func(s unwind.Stats) float64 { return float64(s.PackedBytes) }),
		unwindCounter("loads", "Times that a run of 255 rows was loaded.", func(s unwind.Stats) float64 { return float64(s.Chunks) }),
		unwindCounter("evictions", "Runs of rows that made room for others.", func(s unwind.Stats) float64 { return float64(s.Evicted) }),
		unwindCounter("evictions_needed", "Of these, those that walks asked for again within ten seconds: many say that --unwind-memory is too small.", func(s unwind.Stats) float64 { return float64(s.EvictedNeeded) }),
		unwindCounter("builds", "Tables that were built.", func(s unwind.Stats) float64 { return float64(s.Builds) }),
		unwindCounter("rebuilds", "Of these, those that had been given up before for want of memory.", func(s unwind.Stats) float64 { return float64(s.Rebuilds) }),
		unwindCounter("skipped", "Tables that were not built while the budget was exceeded: their files were mapped for too short a time.", func(s unwind.Stats) float64 { return float64(s.Skipped) }),
		unwindCounter("no_room", "Tables, processes and mappings that found no room.", func(s unwind.Stats) float64 { return float64(s.NoRoom) }),
		unwindCounter("tables_evicted", "Tables that made room in the directory.", func(s unwind.Stats) float64 { return float64(s.TablesEvicted) }),
		unwindCounter("processes_evicted", "Processes that made room for others, or for their mappings.", func(s unwind.Stats) float64 { return float64(s.ProcessesEvicted) }),
	}
	metricBuilding = prometheus.NewDesc("atys_unwind_build_cpu_seconds_total", "CPU time of building tables, by what for: a process maps the file (mapped), a walk asked for it (asked), it had been given up (again).", []string{"cause"}, nil)
)

// describeUnwinding lists the metrics of unwinding tables.
func describeUnwinding(to chan<- *prometheus.Desc) {
	for _, m := range unwindMetrics {
		to <- m.desc
	}
	to <- metricBuilding
}

// collectUnwinding tells how unwinding tables fare.
func (a *Agent) collectUnwinding(to chan<- prometheus.Metric) {
	if a.options.Unwinding == nil {
		return
	}
	s := a.options.Unwinding()
	for _, m := range unwindMetrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s))
	}
	b := s.BuildTime
	for cause, seconds := range map[string]float64{"mapped": b.Mapped.Seconds(), "asked": b.Asked.Seconds(), "again": b.Again.Seconds()} {
		to <- prometheus.MustNewConstMetric(metricBuilding, prometheus.CounterValue, seconds, cause)
	}
}
