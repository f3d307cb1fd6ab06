package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// fitness tracks conditions of the agent that operators should know.
type fitness struct {
	mu         sync.Mutex // guards all below
	monitor    health.Monitor
	conditions []health.Condition // that hold now
	samples    int64              // that were kept since the agent began,
	truncated  map[profile.End]int64
	exact      time.Duration // CPU time of what was sampled, by the kernel's accounts,
	unsampled  time.Duration // and of that, what samples fall short of
	delay      prometheus.Histogram
}

func newFitness() *fitness {
	return &fitness{truncated: map[profile.End]int64{}, delay: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "atys_agent_window_delay_seconds", Help: "Time from the end of a window until it was symbolized, sealed and safe in the spool.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}})}
}

// judgeEvery is how often conditions are evaluated. Alerts wait for minutes.
const judgeEvery = time.Second

// judgeUntil evaluates conditions until the context ends.
func (a *Agent) judgeUntil(ctx context.Context) {
	every := time.NewTicker(judgeEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			a.judge()
		}
	}
}

// judge evaluates the conditions. Changes are logged and reported at once.
func (a *Agent) judge() {
	now := health.State{Budget: words(a.options.Budget), Waiting: a.options.Spool.Stats().Records, Unspooled: a.shipper.inMemory()}
	if a.options.Unwinding != nil {
		now.Tables = tablesOf(a.options.Unwinding())
	}
	a.board.condition(&now)
	if a.fitness.judge(now, a.options.Now(), a.log) {
		a.wakeReport()
	}
}

// observe adds the windows of one recording that end at one edge, once they are spooled.
func (f *fitness) observe(s health.Summary) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.monitor.Observe(s)
	f.delay.Observe(s.Delay.Seconds())
	f.samples += s.Samples
	f.exact += s.Exact
	f.unsampled += s.Unsampled
	for end, n := range s.Truncated {
		f.truncated[end] += n
	}
}

// judge evaluates the conditions, logs those that began or ended, and reports whether any
// did.
func (f *fitness) judge(s health.State, now time.Time, log *slog.Logger) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.conditions
	f.conditions = f.monitor.Evaluate(now, s)
	return logChanges(log, before, f.conditions)
}

// rowBytes is the size of a row in the kernel's memory.
const rowBytes = 8

// tablesOf returns the unwinder's counters as health reads them.
func tablesOf(s unwind.Stats) health.Tables {
	return health.Tables{Evicted: s.Evicted, Again: s.EvictedNeeded, Used: rowBytes * uint64(s.Rows), Most: rowBytes * uint64(s.RowsMax)}
}

// logChanges logs conditions that began or ended, and reports whether any did.
func logChanges(log *slog.Logger, before, now []health.Condition) (changed bool) {
	for _, c := range now {
		if health.Find(before, c.Kind) == nil {
			log.Warn("condition began", "condition", string(c.Kind), "message", c.Message, "fix", c.Fix)
			changed = true
		}
	}
	for _, c := range before {
		if health.Find(now, c.Kind) == nil {
			log.Warn("condition ended", "condition", string(c.Kind), "since", c.Since)
			changed = true
		}
	}
	return changed
}

// reported returns the conditions for a report.
func (f *fitness) reported() (sent []*atysv1.Condition) {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// collect sends the metrics of fitness.
func (f *fitness) collect(to chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
