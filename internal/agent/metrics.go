package agent

import (
	"github.com/prometheus/client_golang/prometheus"
)

// rate is how often a recording samples.
type rate struct {
	task, event string
	frequency   float64
}

var (
	metricWindows   = prometheus.NewDesc("atys_agent_windows_total", "Windows that were cut, by what became of them.", []string{"fate"}, nil)
	metricWaiting   = prometheus.NewDesc("atys_agent_spool_windows", "Windows that wait on disk to be shipped.", nil, nil)
	metricBytes     = prometheus.NewDesc("atys_agent_spool_bytes", "What they take of the disk.", nil, nil)
	metricFailures  = prometheus.NewDesc("atys_agent_ship_failures", "Attempts to ship that failed since one went well.", nil, nil)
	metricOffset    = prometheus.NewDesc("atys_agent_clock_offset_seconds", "How far this machine's clock is ahead of the server's.", nil, nil)
	metricUncertain = prometheus.NewDesc("atys_agent_clock_error_seconds", "By how much that may be wrong.", nil, nil)
	metricFrequency = prometheus.NewDesc("atys_agent_frequency_hertz", "How often each CPU is sampled.", []string{"task", "event"}, nil)
	metricTasks     = prometheus.NewDesc("atys_agent_tasks", "Tasks, by how they fare.", []string{"phase"}, nil)
	metricTargets   = prometheus.NewDesc("atys_agent_targets", "Targets that run on this machine.", nil, nil)
)

// Describe lists what the agent tells of itself; see prometheus.Collector.
func (a *Agent) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricWindows, metricWaiting, metricBytes, metricFailures, metricOffset, metricUncertain, metricFrequency, metricTasks, metricTargets} {
		to <- d
	}
}

// Collect gives it; see prometheus.Collector. What the agent costs is told by
// the metrics of its process.
func (a *Agent) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	spooled, counts := a.options.Spool.Stats(), a.Counts()
	for fate, n := range map[string]int{"shipped": counts.Shipped, "refused": counts.Refused, "unkept": counts.Unkept,
		"dropped": int(spooled.Dropped), "damaged": int(spooled.Damaged)} {
		to <- prometheus.MustNewConstMetric(metricWindows, prometheus.CounterValue, float64(n), fate)
	}
	gauge(metricWaiting, float64(spooled.Records))
	gauge(metricBytes, float64(spooled.Bytes))
	gauge(metricFailures, float64(counts.Failures))
	offset, uncertain := a.shipper.clock()
	gauge(metricOffset, offset.Seconds())
	gauge(metricUncertain, uncertain.Seconds())
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rates {
		gauge(metricFrequency, r.frequency, r.task, r.event)
	}
	phases := map[string]float64{}
	for _, s := range a.status {
		phases[s.GetPhase()]++
	}
	for phase, n := range phases {
		gauge(metricTasks, n, phase)
	}
	gauge(metricTargets, float64(len(a.targets)))
}
