package agent

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// fitness tracks the conditions of the agent itself. The monitor is conduct's
// alone; the agent's lock guards the rest.
type fitness struct {
	monitor health.Monitor
	judged  time.Time // when conditions were evaluated last

	conditions []health.Condition // that hold now
	samples    int64              // that were kept since the agent began,
	truncated  map[profile.End]int64
	exact      time.Duration // CPU time of what was sampled, by the kernel's accounts,
	unsampled  time.Duration // and of that, what samples fall short of
	delay      prometheus.Histogram
}

func newFitness() fitness {
	return fitness{truncated: map[profile.End]int64{}, delay: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "atys_agent_window_delay_seconds", Help: "Time from the end of a window until it was symbolized, sealed and safe in the spool.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}})}
}

// judgeEvery is how often conditions are evaluated: alerts wait for minutes.
const judgeEvery = time.Second

// observe adds windows that were cut of one recording for one edge, and are safe now.
func (a *Agent) observe(parts []*profile.Window) {
	s := health.Summarize(parts, a.options.Now())
	f := &a.fitness
	f.monitor.Observe(s)
	f.delay.Observe(s.Delay.Seconds())
	a.mu.Lock()
	defer a.mu.Unlock()
	f.samples += s.Samples
	f.exact += s.Exact
	f.unsampled += s.Unsampled
	for end, n := range s.Truncated {
		f.truncated[end] += n
	}
}

// judge evaluates the conditions that hold now. It reports and logs those that are
// new or have ended at once; the others go with the next report that is due.
func (a *Agent) judge() {
	f := &a.fitness
	if time.Since(f.judged) < judgeEvery {
		return
	}
	f.judged = time.Now()
	state := health.State{Budget: a.budget(), Excess: a.spending.governor.Exceeded(), Cores: a.spending.cores(), Bytes: a.spending.usage.Memory, Waiting: a.options.Spool.Stats().Records, Unspooled: a.shipper.inMemory()}
	if a.options.Unwinding != nil {
		state.Tables = tablesOf(a.options.Unwinding())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	state.Targets = len(a.targets)
	for _, r := range a.rates {
		state.Rates = append(state.Rates, health.Rate{Task: r.task, Event: r.event, Hertz: r.frequency, Wanted: r.wanted})
	}
	before := f.conditions
	f.conditions = f.monitor.Evaluate(a.options.Now(), state)
	if a.logChanges(before, f.conditions) {
		a.wakeReport()
	}
}

// rowBytes is what a row takes of the kernel's memory.
const rowBytes = 8

// tablesOf are counters of the unwinder as health reads them.
func tablesOf(s unwind.Stats) health.Tables {
	return health.Tables{Evicted: s.Evicted, Again: s.EvictedNeeded, Used: rowBytes * uint64(s.Rows), Most: rowBytes * uint64(s.RowsMax)}
}

// logChanges logs which conditions are new or have ended, and tells whether any is.
func (a *Agent) logChanges(before, now []health.Condition) (changed bool) {
	for _, c := range now {
		if health.Find(before, c.Kind) == nil {
			a.log.Warn("condition began", "condition", string(c.Kind), "message", c.Message, "fix", c.Fix)
			changed = true
		}
	}
	for _, c := range before {
		if health.Find(now, c.Kind) == nil {
			a.log.Warn("condition ended", "condition", string(c.Kind), "since", c.Since)
			changed = true
		}
	}
	return changed
}

// reported are the conditions as a report carries them. The lock is held.
func (f *fitness) reported() (sent []*atysv1.Condition) {
	for _, c := range f.conditions {
		sent = append(sent, &atysv1.Condition{Kind: string(c.Kind), SinceUnixNano: c.Since.UnixNano(), Value: c.Value, Message: wire.Text(c.Message), Fix: c.Fix})
	}
	return sent
}

var (
	metricCondition = prometheus.NewDesc("atys_agent_condition", "1 while a trouble holds that an operator should hear of, else 0.", []string{"condition"}, nil)
	metricSamples   = prometheus.NewDesc("atys_agent_samples_total", "Samples that were kept.", nil, nil)
	metricTruncated = prometheus.NewDesc("atys_agent_truncated_samples_total", "Samples whose stacks were truncated, by why.", []string{"reason"}, nil)
	metricExact     = prometheus.NewDesc("atys_agent_exact_cpu_seconds_total", "CPU time of what was sampled, by the kernel's accounts.", nil, nil)
	metricUnsampled = prometheus.NewDesc("atys_agent_unsampled_cpu_seconds_total", "CPU time that samples fall short of, beyond chance.", nil, nil)
)

func (f *fitness) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricCondition, metricSamples, metricTruncated, metricExact, metricUnsampled} {
		to <- d
	}
	f.delay.Describe(to)
}

// collect gives the metrics of fitness. The lock is held.
func (f *fitness) collect(to chan<- prometheus.Metric) {
	for _, kind := range health.Kinds() {
		holds := slices.ContainsFunc(f.conditions, func(c health.Condition) bool { return c.Kind == kind })
		to <- prometheus.MustNewConstMetric(metricCondition, prometheus.GaugeValue, map[bool]float64{true: 1}[holds], string(kind))
	}
	count := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	count(metricSamples, float64(f.samples))
	for end, n := range f.truncated {
		count(metricTruncated, float64(n), end.String())
	}
	count(metricExact, f.exact.Seconds())
	count(metricUnsampled, f.unsampled.Seconds())
	f.delay.Collect(to)
}
