package agent

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/profile"
)

// rate is how often a recording samples.
type rate struct {
	task, event       string
	frequency, wanted float64
}

var (
	metricWindows   = prometheus.NewDesc("atys_agent_windows_total", "Windows that were cut, by what became of them: shipped since the agent began, lost in all its lives.", []string{"fate"}, nil)
	metricWaiting   = prometheus.NewDesc("atys_agent_spool_windows", "Windows that wait on disk to be shipped.", nil, nil)
	metricBytes     = prometheus.NewDesc("atys_agent_spool_bytes", "What they take of the disk.", nil, nil)
	metricFailures  = prometheus.NewDesc("atys_agent_ship_failures", "Attempts to ship that failed since one went well.", nil, nil)
	metricMerged    = prometheus.NewDesc("atys_agent_merged_windows_total", "Windows that were merged into the one before them, because identifying, naming or the disk did not keep up.", nil, nil)
	metricOffset    = prometheus.NewDesc("atys_agent_clock_offset_seconds", "How far this machine's clock is ahead of the server's.", nil, nil)
	metricUncertain = prometheus.NewDesc("atys_agent_clock_error_seconds", "By how much that may be wrong; infinite before they were compared.", nil, nil)
	metricFrequency = prometheus.NewDesc("atys_agent_frequency_hertz", "How often each CPU is sampled.", []string{"task", "event"}, nil)
	metricWanted    = prometheus.NewDesc("atys_agent_wanted_frequency_hertz", "How often each CPU is to be sampled: less is what the budget leaves.", []string{"task", "event"}, nil)
	metricCPU       = prometheus.NewDesc("atys_agent_cpu_seconds_total", "CPU time that profiling took: the agent's own process (user, its system calls included), its programs that take samples (bpf), and the interrupts they are taken in, estimated (interrupt).", []string{"part"}, nil)
	metricCauses    = prometheus.NewDesc("atys_agent_cause_cpu_seconds_total", "The same CPU time, by what it was spent on: sampling (interrupts and programs), tables (of unwinding), naming, following (of processes), shipping, store, other.", []string{"cause"}, nil)
	metricDecisions = prometheus.NewDesc("atys_agent_decisions_total", "Decisions to stay within the budget, by the knob that was turned; none: there was nothing left to turn.", []string{"knob"}, nil)
	metricOver      = prometheus.NewDesc("atys_agent_over_budget", "Whether the budget is exceeded with nothing left to restrain: 1 or 0.", nil, nil)
	metricMemory    = prometheus.NewDesc("atys_agent_memory_bytes", "What the agent has in memory: its own process, without BPF maps that it has mapped, and its BPF maps.", []string{"part"}, nil)
	metricBudgetCPU = prometheus.NewDesc("atys_agent_budget_cpu_cores", "CPU time that it may take, of a core; 0 is as much as it likes.", nil, nil)
	metricBudgetMem = prometheus.NewDesc("atys_agent_budget_memory_bytes", "Memory that it may take; 0 is as much as it likes.", nil, nil)
	metricCap       = prometheus.NewDesc("atys_agent_frequency_cap_hertz", "Frequency that nothing is sampled above, to keep within the budget; 0 is none.", nil, nil)
	metricStopped   = prometheus.NewDesc("atys_agent_stopped_tasks_total", "Recordings for a while that were ended early, to keep within the budget.", nil, nil)
	metricTasks     = prometheus.NewDesc("atys_agent_tasks", "Tasks, by how they fare.", []string{"phase"}, nil)
	metricTargets   = prometheus.NewDesc("atys_agent_targets", "Targets that run on this machine.", nil, nil)
)

// Describe lists what the agent tells of itself; see prometheus.Collector.
func (a *Agent) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricWindows, metricWaiting, metricBytes, metricFailures, metricMerged, metricOffset, metricUncertain, metricFrequency, metricWanted, metricCPU, metricMemory,
		metricBudgetCPU, metricBudgetMem, metricCap, metricCauses, metricDecisions, metricOver, metricStopped, metricTasks, metricTargets} {
		to <- d
	}
	a.fitness.describe(to)
	describeUnwinding(to)
	describeCache(to)
}

// Collect gives it; see prometheus.Collector.
func (a *Agent) Collect(to chan<- prometheus.Metric) {
	a.collectUnwinding(to)
	if a.options.Cache != nil {
		collectCache(to, a.options.Cache())
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	spooled, counts := a.options.Spool.Stats(), a.Counts()
	for fate, n := range map[string]int{"shipped": counts.Shipped, "refused": counts.Refused, "unkept": counts.Unkept,
		"dropped": counts.Dropped, "damaged": counts.Damaged} {
		to <- prometheus.MustNewConstMetric(metricWindows, prometheus.CounterValue, float64(n), fate)
	}
	gauge(metricWaiting, float64(spooled.Records))
	gauge(metricBytes, float64(spooled.Bytes))
	gauge(metricFailures, float64(counts.Failures))
	to <- prometheus.MustNewConstMetric(metricMerged, prometheus.CounterValue, float64(a.pipeline.Merged()))
	offset, uncertain := a.shipper.clock()
	gauge(metricOffset, offset.Seconds())
	wrong := uncertain.Seconds()
	if uncertain == profile.ClockUnknown {
		wrong = math.Inf(1)
	}
	gauge(metricUncertain, wrong)
	a.fitness.collect(to)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rates {
		gauge(metricFrequency, r.frequency, r.task, r.event)
		gauge(metricWanted, r.wanted, r.task, r.event)
	}
	a.collectCost(to)
	phases := map[string]float64{}
	for _, s := range a.status {
		phases[s.GetPhase()]++
	}
	for phase, n := range phases {
		gauge(metricTasks, n, phase)
	}
	gauge(metricTargets, float64(len(a.targets)))
}

// collectCost tells what the agent takes, and may. The lock is held.
func (a *Agent) collectCost(to chan<- prometheus.Metric) {
	l, limits := &a.ledger, a.options.Budget
	user := l.total.User
	if a.own != nil { // and what was used since that was measured
		user += max(ownCPU()-l.usage.CPU, 0)
	}
	for part, spent := range map[string]time.Duration{"user": user, "bpf": l.total.BPF, "interrupt": l.total.Interrupt} {
		to <- prometheus.MustNewConstMetric(metricCPU, prometheus.CounterValue, spent.Seconds(), part)
	}
	for _, c := range cputime.Causes() {
		to <- prometheus.MustNewConstMetric(metricCauses, prometheus.CounterValue, l.causes[c].Seconds(), string(c))
	}
	for _, k := range budget.Knobs() {
		to <- prometheus.MustNewConstMetric(metricDecisions, prometheus.CounterValue, float64(l.taken[k]), string(k))
	}
	over := 0.0
	if l.over {
		over = 1
	}
	to <- prometheus.MustNewConstMetric(metricOver, prometheus.GaugeValue, over)
	for part, bytes := range map[string]int64{"process": l.usage.Memory - l.usage.Maps, "maps": l.usage.Maps} {
		to <- prometheus.MustNewConstMetric(metricMemory, prometheus.GaugeValue, float64(bytes), part)
	}
	to <- prometheus.MustNewConstMetric(metricBudgetCPU, prometheus.GaugeValue, limits.Cores)
	to <- prometheus.MustNewConstMetric(metricBudgetMem, prometheus.GaugeValue, float64(limits.Memory))
	to <- prometheus.MustNewConstMetric(metricCap, prometheus.GaugeValue, l.cap)
	to <- prometheus.MustNewConstMetric(metricStopped, prometheus.CounterValue, float64(l.stops))
}
