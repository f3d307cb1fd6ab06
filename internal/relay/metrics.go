package relay

import (
	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a relay tells Prometheus of itself.
type metrics struct {
	pushes   *prometheus.CounterVec
	windows  prometheus.Counter
	records  prometheus.Counter
	forwards *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_relay_pushes_total", Help: "Requests of agents to pass windows on, by how they ended."},
			[]string{"code"}),
		windows: prometheus.NewCounter(prometheus.CounterOpts{Name: "atys_relay_windows_total", Help: "Windows that the server has kept for good."}),
		records: prometheus.NewCounter(prometheus.CounterOpts{Name: "atys_relay_malformed_records_total", Help: "Records of agents that were refused for good because they were malformed."}),
		forwards: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atys_relay_forwards_total", Help: "Requests to the server, by how they ended."},
			[]string{"code"}),
	}
}

var (
	metricHeld    = prometheus.NewDesc("atys_relay_held_bytes", "Windows that wait for the server.", nil, nil)
	metricKnown   = prometheus.NewDesc("atys_relay_known_stacks", "Stacks that the server is remembered to know.", nil, nil)
	metricCentral = prometheus.NewDesc("atys_relay_central", "1 if the agents of the group are to ship here.", []string{"group"}, nil)
)

// Describe lists what the relay tells of itself; see prometheus.Collector.
func (r *Relay) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{r.metrics.pushes, r.metrics.windows, r.metrics.records, r.metrics.forwards} {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{metricHeld, metricKnown, metricCentral} {
		to <- d
	}
}

// Collect gives it; see prometheus.Collector.
func (r *Relay) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{r.metrics.pushes, r.metrics.windows, r.metrics.records, r.metrics.forwards} {
		c.Collect(to)
	}
	r.mu.Lock()
	held, known, central, group := r.held, r.known.Len(), 0.0, ""
	if r.standing.GetCentral() {
		central = 1
	}
	group = r.standing.GetGroup()
	r.mu.Unlock()
	to <- prometheus.MustNewConstMetric(metricHeld, prometheus.GaugeValue, float64(held))
	to <- prometheus.MustNewConstMetric(metricKnown, prometheus.GaugeValue, float64(known))
	to <- prometheus.MustNewConstMetric(metricCentral, prometheus.GaugeValue, central, group)
}

// pushed notes how an agent's request ended.
func (m *metrics) pushed(windows int, unknown bool, err error) {
	code := "ok"
	switch {
	case err != nil:
		code = connect.CodeOf(err).String()
	case unknown:
		code = "unknown_stacks"
	default:
		m.windows.Add(float64(windows))
	}
	m.pushes.WithLabelValues(code).Inc()
}

// forwarded notes how a request to the server ended.
func (m *metrics) forwarded(err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.forwards.WithLabelValues(code).Inc()
}
